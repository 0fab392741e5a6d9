// Members over TLS that come and go.
#pragma once
#include "messages.h"
#include "stream.h"

// Begins a connection; `tend` leads it on until the member has joined.
void web_connect(struct member *member);
// Ends it: with Leave, without a word, or by a reset of the connection.
enum leave { polite_leave, shut_leave, reset_leave };
void web_leave(struct member *member, enum leave how);
// Whether the relay ended it; only where members return.
bool web_is_lost(const struct member *member);
void web_ask_for_floor(struct member *talker);
bool web_has_floor(const struct member *talker);
bool web_is_denied(const struct member *talker);
void web_release_floor(struct member *talker);

// Of a talker's packets: given to it, dropped because they were too old to send, and read by the relay on this connection.
struct web_counts { uint32_t sent, dropped, acknowledged; };
struct web_counts web_counts_of(const struct member *member);
