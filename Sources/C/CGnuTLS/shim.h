// GnuTLS, for the Cryptography and QUIC rooms.
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <gnutls/abstract.h>

// gnutls_free is a variable that holds a function, which Swift takes for unsafe shared state.
static inline void ptt_gnutls_free(void *pointer) { gnutls_free(pointer); }
