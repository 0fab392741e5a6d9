// TLS over TCP, with the kernel's stamps of what comes.
#pragma once
#include "load.h"
#include <gnutls/gnutls.h>

// A connection to the server: sends at once (TCP_NODELAY), has receive stamps, does not block.
int open_tcp(void);
// A client's session on it, whose handshake has not begun. The server's certificate is not looked at.
gnutls_session_t begin_tls(int tcp);
// The kernel's time (CLOCK_REALTIME, ns) of the last bytes that any session took.
extern uint64_t stream_stamp;
// All of these bytes, now or when there is room; whether the connection still stands.
bool send_all(gnutls_session_t tls, int tcp, const uint8_t *bytes, size_t length);

// Bytes that came and are not used up.
struct inbox {
    uint8_t *bytes;
    size_t length, capacity;
};
void inbox_add(struct inbox *inbox, const uint8_t *bytes, size_t length);
// The first `length` bytes are used up; nothing is kept for an empty one.
void inbox_drop(struct inbox *inbox, size_t length);
