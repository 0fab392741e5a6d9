// GnuTLS, for the modules Cryptography and QUIC.
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <gnutls/abstract.h>

// gnutls_free is a variable that holds a function, which Swift takes for unsafe shared state.
static inline void ptt_gnutls_free(void *pointer) { gnutls_free(pointer); }

// An anti-replay context takes early data only with tickets younger than itself, and GnuTLS makes it younger every
// window: tickets from before a restart, or just older ones, would never do. There is no call to set its start, so this
// sets the field; but only if the context looks exactly as those of GnuTLS 3.6.5 to 3.8 do: the default window, then the
// time at which it was made. Returns 0 if it did, -1 if this GnuTLS is another one (old tickets are then resumed
// without early data).
#include <string.h>
#include <time.h>
static inline int ptt_gnutls_anti_replay_init(gnutls_anti_replay_t *context) {
    struct {
        unsigned int window;
        struct timespec start;
    } head;
    struct timespec before, after;
    clock_gettime(CLOCK_REALTIME, &before);
    int status = gnutls_anti_replay_init(context);
    clock_gettime(CLOCK_REALTIME, &after);
    if (status != 0) return status;
    memcpy(&head, *context, sizeof(head));
    if (head.window != 10000 || head.start.tv_sec < before.tv_sec || head.start.tv_sec > after.tv_sec ||
        head.start.tv_nsec < 0 || head.start.tv_nsec > 999999999)
        return -1;
    head.start.tv_sec = 0;
    head.start.tv_nsec = 0;
    memcpy(*context, &head, sizeof(head));
    return 0;
}
