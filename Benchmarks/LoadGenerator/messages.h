// What a member of a relay says and hears, whatever carries it: control messages and media packets of docs/relay-protocol.md.
#pragma once
#include "load.h"

// ---- protobuf, as far as it is needed ----

struct field { int number, type; uint64_t value; const uint8_t *bytes; size_t length; };
uint8_t *put_varint(uint8_t *to, uint64_t value);
uint8_t *put_bytes(uint8_t *to, int field, const void *bytes, size_t length);
uint8_t *put_number(uint8_t *to, int field, uint64_t value);
uint8_t *put_fixed(uint8_t *to, int field, const void *bytes, size_t size);
bool next_field(const uint8_t **at, const uint8_t *end, struct field *field);

// ---- a member ----

enum { rtp_bytes = 12, tag_bytes = 16, message_max = 256, media_max = 1160 };

// The floor and the media of one connection.
struct media {
    uint32_t ssrc, talker_ssrc, received, highest, request;
    uint16_t sequence, epoch;
    uint64_t key_id, counter, next_report;
    bool granted, denied;
};
// Members ask for the floor while others talk, and may lose it; otherwise that ends the run.
extern bool floor_may_be_denied;

// Each writes a ClientMessage of at most message_max bytes; how long it is.
size_t join_message(const struct member *member, uint8_t *to);
size_t leave_message(uint8_t *to);
// Registers a token of its own for pushes.
size_t push_register_message(uint8_t *to);
// Asks for the floor under a key id of its own.
size_t floor_request_message(struct media *media, uint8_t *to);
size_t floor_release_message(const struct media *media, uint8_t *to);
// Tells what was heard, and when it is to be told next.
size_t report_message(struct media *media, uint8_t *to);

// A ServerMessage came: what it says of the floor and of the join. Refusals end the run. The fields of Welcome go to `welcome`.
void message_came(struct member *member, struct media *media, const uint8_t *bytes, size_t length,
                  void (*welcome)(struct member *member, const struct field *field));

// A packet with `length` bytes of voice that begin with the time `sent`; how long it is.
size_t media_packet(struct media *media, uint8_t *to, size_t length, uint64_t sent);
// A packet came, less its trailer: counted, and told to `heard`.
void media_came(struct member *member, struct media *media, const uint8_t *bytes, uint64_t stamped);
// The least that a packet has.
enum { media_min = rtp_bytes + 11 + tag_bytes };
