// GnuTLS, for the Cryptography and QUIC rooms.
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <gnutls/abstract.h>
