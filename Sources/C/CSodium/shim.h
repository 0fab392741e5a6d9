// libsodium, for the MAC on every packet that a relay sends, for the group in which a code is proved, and for X25519.
#pragma once

#include <stddef.h>
#include <sodium/crypto_core_ristretto255.h>
#include <sodium/crypto_scalarmult_curve25519.h>
#include <sodium/crypto_scalarmult_ristretto255.h>
#include <sodium/crypto_shorthash_siphash24.h>
// Tests sign the credentials of a NATS user.
#include <sodium/crypto_sign.h>

// Pointers to anything: Swift lends numbers without a closure then. It has no errors.
static inline void ptt_siphash128(void *tag, const void *message, size_t count, const void *key) {
    crypto_shorthash_siphashx24((unsigned char *)tag, (const unsigned char *)message, count, (const unsigned char *)key);
}
