// A member of a relay over TLS: a WebSocket, as docs/relay-protocol.md (section 21) has it, no more than the load needs.
#include "web.h"
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium/crypto_scalarmult_curve25519.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { client_hello = 1, relay_hello = 2, client_proof = 3, sealed = 16 };
enum { control = 1, acknowledgement = 2, ping = 3, pong = 4, media_up = 6 };
enum { secret_bytes = 32, hash_bytes = 32, iv_bytes = 12, key_bytes = 16, signature_bytes = 64, silence_s = 15 };
// What waits in the member's own queue beyond what the kernel takes (section 21.4).
enum { kernel_backlog = 4 * 1024, waiting_max = 128, age_max_ms = 500 };

enum stage { closed, shaking_hands, upgrading, greeted, proven };

struct direction {
    gnutls_aead_cipher_hd_t cipher;
    uint8_t iv[iv_bytes];
    uint64_t counter;
};

struct waiting {
    uint64_t since;
    uint16_t length;
    uint8_t bytes[media_max];
};

struct web_member {
    struct member *member;
    int tcp;
    gnutls_session_t tls;
    enum stage stage;
    struct inbox in;
    struct media media;
    struct direction up, down;
    uint8_t own_secret[secret_bytes], own_public[secret_bytes];
    // Its key, the same on every connection.
    gnutls_privkey_t identity;
    gnutls_datum_t public_key;
    uint64_t spoke_at;
    // The connection is over; only where members return.
    bool is_lost;
    // A talker's packets that the kernel has no room for, oldest first.
    struct waiting *waiting;
    int waiting_first, waiting_count;
    struct web_counts counts;
};

static void lose(struct web_member *w, const char *why) {
    if (!members_return) {
        fprintf(stderr, "load: member %d: %s\n", w->member->number, why);
        exit(1);
    }
    w->is_lost = true;
}

// ---- WebSocket ----

static void send_frame(struct web_member *w, int opcode, const uint8_t *head, size_t head_length, const uint8_t *body, size_t length) {
    uint8_t frame[2048], mask[4];
    size_t total = head_length + length, at = 2;
    if (total + 8 > sizeof frame) fail("a message is too long");
    frame[0] = (uint8_t)(0x80 | opcode);
    frame[1] = (uint8_t)(0x80 | (total < 126 ? total : 126));
    if (total >= 126) frame[2] = (uint8_t)(total >> 8), frame[3] = (uint8_t)total, at = 4;
    gnutls_rnd(GNUTLS_RND_NONCE, mask, sizeof mask);
    memcpy(frame + at, mask, 4), at += 4;
    memcpy(frame + at, head, head_length);
    memcpy(frame + at + head_length, body, length);
    for (size_t i = 0; i < total; i++) frame[at + i] ^= mask[i & 3];
    if (w->is_lost) return;
    if (!send_all(w->tls, w->tcp, frame, at + total)) lose(w, "the relay closed the connection");
    w->spoke_at = now_monotonic();
}

static void ask_for_upgrade(struct web_member *w) {
    char request[512];
    int length = snprintf(request, sizeof request,
        "GET /pttd/1 HTTP/1.1\r\nHost: %s:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: bG9hZCBvZiBhIHJlbGF5IQ==\r\nSec-WebSocket-Protocol: pttd.1\r\n\r\n", target.host, target.port);
    if (!send_all(w->tls, w->tcp, (uint8_t *)request, (size_t)length)) lose(w, "the relay closed the connection");
    w->stage = upgrading;
}

// ---- sealed messages ----

static void nonce_of(struct direction *direction, uint8_t *nonce) {
    memcpy(nonce, direction->iv, iv_bytes);
    for (int i = 0; i < 8; i++) nonce[iv_bytes - 1 - i] ^= (uint8_t)(direction->counter >> 8 * i);
    direction->counter++;
}
static void send_sealed(struct web_member *w, int kind, const uint8_t *plain, size_t length) {
    uint8_t message[2048] = {(uint8_t)kind}, nonce[iv_bytes];
    size_t size = sizeof message - 1;
    nonce_of(&w->up, nonce);
    if (gnutls_aead_cipher_encrypt(w->up.cipher, nonce, iv_bytes, NULL, 0, tag_bytes, plain, length, message + 1, &size)) fail("seal");
    send_frame(w, 2, message, 1, message + 1, size);
}
static void send_media(struct web_member *w, const uint8_t *packet, size_t length) {
    uint8_t plain[media_max + 1] = {media_up};
    memcpy(plain + 1, packet, length);
    send_sealed(w, sealed, plain, length + 1);
}
static void send_control(struct web_member *w, const uint8_t *message, size_t length) {
    uint8_t plain[message_max + 1] = {control};
    memcpy(plain + 1, message, length);
    send_sealed(w, sealed, plain, length + 1);
}

// ---- handshake ----

static void put(uint8_t **to, const void *bytes, size_t length) {
    memcpy(*to, bytes, length);
    *to += length;
}
static void hash(const uint8_t *bytes, size_t length, uint8_t *digest) {
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, length, digest)) fail("SHA-256");
}
static void set_keys(struct web_member *w, const uint8_t *theirs, uint8_t *transcript) {
    uint8_t input[10 + 2 * secret_bytes], *end = input, secret[secret_bytes], extracted[hash_bytes], keys[56];
    put(&end, "pttd web 1", 10);
    put(&end, w->own_public, secret_bytes);
    put(&end, theirs, secret_bytes);
    hash(input, sizeof input, transcript);
    if (crypto_scalarmult_curve25519(secret, w->own_secret, theirs)) fail("the relay's share is void");
    gnutls_datum_t salt = {transcript, hash_bytes}, shared = {secret, sizeof secret}, pseudo = {extracted, sizeof extracted};
    gnutls_datum_t info = {(uint8_t *)"pttd web 1 keys", 15};
    if (gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &shared, &salt, extracted) ||
        gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &pseudo, &info, keys, sizeof keys))
        fail("HKDF");
    gnutls_datum_t up = {keys, key_bytes}, down = {keys + key_bytes, key_bytes};
    if (gnutls_aead_cipher_init(&w->up.cipher, GNUTLS_CIPHER_AES_128_GCM, &up) ||
        gnutls_aead_cipher_init(&w->down.cipher, GNUTLS_CIPHER_AES_128_GCM, &down))
        fail("AES-GCM");
    memcpy(w->up.iv, keys + 2 * key_bytes, iv_bytes);
    memcpy(w->down.iv, keys + 2 * key_bytes + iv_bytes, iv_bytes);
    w->up.counter = w->down.counter = 0;
}

// What the relay signs; with the pin of a client, what that client signs.
static size_t signed_text(uint8_t *to, const uint8_t *transcript, const uint8_t *client_pin, const uint8_t *relay_pin) {
    uint8_t *end = to;
    if (client_pin) put(&end, "pttd web 1 client", 18);
    else put(&end, "pttd web 1 relay", 17);
    put(&end, transcript, hash_bytes);
    if (client_pin) put(&end, client_pin, hash_bytes);
    put(&end, relay_pin, hash_bytes);
    return (size_t)(end - to);
}

static bool is_signed(const gnutls_datum_t *key, const uint8_t *text, size_t length, const uint8_t *signature) {
    gnutls_pubkey_t public_key;
    gnutls_datum_t r = {(uint8_t *)signature, 32}, s = {(uint8_t *)signature + 32, 32}, data = {(uint8_t *)text, (unsigned)length}, der;
    gnutls_pubkey_init(&public_key);
    bool authentic = !gnutls_pubkey_import(public_key, key, GNUTLS_X509_FMT_DER) && !gnutls_encode_rs_value(&der, &r, &s);
    if (authentic) {
        authentic = gnutls_pubkey_verify_data2(public_key, GNUTLS_SIGN_ECDSA_SHA256, 0, &data, &der) >= 0;
        gnutls_free(der.data);
    }
    gnutls_pubkey_deinit(public_key);
    return authentic;
}

static void sign(struct web_member *w, const uint8_t *text, size_t length, uint8_t *signature) {
    gnutls_datum_t data = {(uint8_t *)text, (unsigned)length}, der, parts[2];
    if (gnutls_privkey_sign_data2(w->identity, GNUTLS_SIGN_ECDSA_SHA256, 0, &data, &der) ||
        gnutls_decode_rs_value(&der, &parts[0], &parts[1]))
        fail("sign");
    memset(signature, 0, signature_bytes);
    for (int i = 0; i < 2; i++) {
        // As numbers of DER they may have a zero byte too many, or bytes too few.
        size_t more = parts[i].size > 32 ? parts[i].size - 32 : 0, bytes = parts[i].size - more;
        memcpy(signature + 32 * (i + 1) - bytes, parts[i].data + more, bytes);
        gnutls_free(parts[i].data);
    }
    gnutls_free(der.data);
}

static void prove(struct web_member *w, const uint8_t *bytes, size_t length) {
    uint8_t transcript[hash_bytes], plain[1024], nonce[iv_bytes], relay_pin[hash_bytes], own_pin[hash_bytes], text[160], message[message_max];
    size_t size = sizeof plain;
    if (length < secret_bytes + tag_bytes || length > sizeof plain) fail("the relay's hello is not of this protocol");
    set_keys(w, bytes, transcript);
    nonce_of(&w->down, nonce);
    if (gnutls_aead_cipher_decrypt(w->down.cipher, nonce, iv_bytes, NULL, 0, tag_bytes, bytes + secret_bytes, length - secret_bytes,
                                   plain, &size))
        fail("the relay's proof does not open");
    size_t key_length = (size_t)plain[0] << 8 | plain[1];
    if (size != 2 + key_length + signature_bytes) fail("the relay's proof has another length");
    gnutls_datum_t key = {plain + 2, (unsigned)key_length};
    hash(key.data, key.size, relay_pin);
    // One in sixteen looks whether it is the relay's, as for the packets of UDP.
    if (w->member->number % 16 == 1 &&
        !is_signed(&key, text, signed_text(text, transcript, NULL, relay_pin), plain + 2 + key_length))
        fail("the relay's signature is wrong");
    hash(w->public_key.data, w->public_key.size, own_pin);
    uint8_t *end = plain;
    *end++ = (uint8_t)(w->public_key.size >> 8);
    *end++ = (uint8_t)w->public_key.size;
    put(&end, w->public_key.data, w->public_key.size);
    sign(w, text, signed_text(text, transcript, own_pin, relay_pin), end);
    send_sealed(w, client_proof, plain, (size_t)(end - plain) + signature_bytes);
    send_control(w, message, join_message(w->member, message));
    w->stage = proven;
}

static void make_identity(struct web_member *w) {
    gnutls_pubkey_t public_key;
    gnutls_privkey_init(&w->identity);
    gnutls_pubkey_init(&public_key);
    if (gnutls_privkey_generate(w->identity, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0) ||
        gnutls_pubkey_import_privkey(public_key, w->identity, 0, 0) ||
        gnutls_pubkey_export2(public_key, GNUTLS_X509_FMT_DER, &w->public_key))
        fail("key");
    gnutls_pubkey_deinit(public_key);
}

// ---- what comes ----

static void sealed_came(struct web_member *w, const uint8_t *bytes, size_t length) {
    static uint8_t plain[20000];
    uint8_t nonce[iv_bytes];
    size_t size = sizeof plain;
    nonce_of(&w->down, nonce);
    if (gnutls_aead_cipher_decrypt(w->down.cipher, nonce, iv_bytes, NULL, 0, tag_bytes, bytes, length, plain, &size) || !size)
        fail("a message of the relay does not open");
    if (plain[0] == control) message_came(w->member, &w->media, plain + 1, size - 1, NULL);
    if (plain[0] == ping) plain[0] = pong, send_sealed(w, sealed, plain, size);
    if (plain[0] == acknowledgement && size == 5)
        w->counts.acknowledged = (uint32_t)plain[1] << 24 | (uint32_t)plain[2] << 16 | (uint32_t)plain[3] << 8 | plain[4];
}

static void binary_came(struct web_member *w, const uint8_t *bytes, size_t length) {
    if (length && w->stage == greeted && bytes[0] == relay_hello) prove(w, bytes + 1, length - 1);
    else if (length && bytes[0] == sealed) sealed_came(w, bytes + 1, length - 1);
    else if (length > media_min && bytes[0] >> 6 == 2) media_came(w->member, &w->media, bytes, stream_stamp);
    else count_bad();
}

// How many bytes the first thing in the inbox takes; 0: it is not complete.
static size_t take(struct web_member *w) {
    const uint8_t *bytes = w->in.bytes;
    size_t have = w->in.length, head = 2, length;
    if (w->stage == upgrading) {
        const uint8_t *end = have ? memmem(bytes, have, "\r\n\r\n", 4) : NULL;
        if (!end) return 0;
        if (memcmp(bytes, "HTTP/1.1 101", 12)) fail("the relay accepts no WebSocket");
        uint8_t kind = client_hello;
        gnutls_rnd(GNUTLS_RND_KEY, w->own_secret, secret_bytes);
        crypto_scalarmult_curve25519_base(w->own_public, w->own_secret);
        send_frame(w, 2, &kind, 1, w->own_public, secret_bytes);
        w->stage = greeted;
        return (size_t)(end - bytes) + 4;
    }
    if (have < 2) return 0;
    length = bytes[1] & 127;
    if (length == 126) head = 4;
    if (length == 127) fail("the relay sends a message that is too long");
    if (have < head) return 0;
    if (length == 126) length = (size_t)bytes[2] << 8 | bytes[3];
    if (have < head + length) return 0;
    if ((bytes[0] & 15) == 8) {
        char why[200];
        snprintf(why, sizeof why, "the relay closed with %d %.*s", length > 1 ? bytes[head] << 8 | bytes[head + 1] : 0,
                 length > 2 ? (int)length - 2 : 0, bytes + head + 2);
        lose(w, why);
        return 0;
    }
    if (bytes[0] == 0x82) binary_came(w, bytes + head, length);
    else if (bytes[0] == 0x89) send_frame(w, 10, bytes + head, length, bytes, 0);
    else count_bad();
    return head + length;
}

static void receive(struct web_member *w) {
    static uint8_t bytes[16384];
    for (;;) {
        if (w->stage == shaking_hands) {
            int status = gnutls_handshake(w->tls);
            if (status < 0 && gnutls_error_is_fatal(status)) lose(w, gnutls_strerror(status));
            if (status < 0) return;
            ask_for_upgrade(w);
        }
        // One record, so that its stamp is known.
        ssize_t got = gnutls_record_recv(w->tls, bytes, sizeof bytes);
        if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) return;
        if (got <= 0) return lose(w, "the relay closed the connection");
        inbox_add(&w->in, bytes, (size_t)got);
        for (size_t used; (used = take(w));) inbox_drop(&w->in, used);
        if (w->is_lost) return;
    }
}

// ---- the member ----

static bool has_room(const struct web_member *w) {
    struct pollfd room = {.fd = w->tcp, .events = POLLOUT};
    return poll(&room, 1, 0) > 0 && room.revents & POLLOUT;
}

// Sends what waits, as far as the kernel takes it; what has waited too long is dropped.
static void flush(struct web_member *w) {
    uint64_t now = now_monotonic();
    while (w->waiting_count) {
        struct waiting *oldest = &w->waiting[w->waiting_first];
        bool is_old = now - oldest->since > age_max_ms * 1000000ull;
        if (!is_old && !has_room(w)) return;
        if (is_old) w->counts.dropped++;
        else send_media(w, oldest->bytes, oldest->length);
        w->waiting_first = (w->waiting_first + 1) % waiting_max;
        w->waiting_count--;
    }
}

static void tend(struct member *member) {
    struct web_member *w = member->state;
    if (!w || w->stage == closed || w->is_lost) return;
    receive(w);
    flush(w);
    if (!member->joined) return;
    uint8_t message[message_max];
    uint64_t now = now_monotonic();
    if (w->media.next_report && now >= w->media.next_report) send_control(w, message, report_message(&w->media, message));
    if (now - w->spoke_at > silence_s * 1000000000ull) send_sealed(w, sealed, (const uint8_t *)"\x03" "load now", 9);
}

void web_connect(struct member *member) {
    struct web_member *w = member->state;
    if (!w) {
        w = member->state = calloc(1, sizeof *w);
        w->member = member;
        make_identity(w);
    }
    int backlog = kernel_backlog;
    w->media = (struct media){.request = 0};
    w->tcp = open_tcp();
    setsockopt(w->tcp, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &backlog, sizeof backlog);
    w->tls = begin_tls(w->tcp);
    w->stage = shaking_hands;
    w->is_lost = false;
    w->spoke_at = now_monotonic();
}

void web_leave(struct member *member, enum leave how) {
    struct web_member *w = member->state;
    uint8_t message[message_max];
    struct linger at_once = {.l_onoff = 1};
    if (how == polite_leave) send_control(w, message, leave_message(message));
    if (how == reset_leave) setsockopt(w->tcp, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    gnutls_deinit(w->tls);
    close(w->tcp);
    if (w->stage == proven) gnutls_aead_cipher_deinit(w->up.cipher), gnutls_aead_cipher_deinit(w->down.cipher);
    if (w->in.length) inbox_drop(&w->in, w->in.length);
    w->waiting_count = 0;
    w->stage = closed;
    member->joined = false;
    member->heard_at = 0;
}

static void join(struct member *members, int first, int count) {
    for (int i = first; i < first + count; i++) web_connect(&members[i]);
    for (uint64_t deadline = now_monotonic() + 60000000000ull;;) {
        int missing = 0;
        for (int i = 0; i < first + count; i++) {
            tend(&members[i]);
            if (!members[i].joined) missing++;
        }
        if (!missing) return;
        if (now_monotonic() > deadline) fail("members do not get in");
        usleep(1000);
    }
}

void web_ask_for_floor(struct member *talker) {
    struct web_member *w = talker->state;
    uint8_t message[message_max];
    send_control(w, message, floor_request_message(&w->media, message));
}
bool web_has_floor(const struct member *talker) { return ((struct web_member *)talker->state)->media.granted; }
bool web_is_lost(const struct member *member) {
    const struct web_member *w = member->state;
    return w && w->is_lost;
}
bool web_is_denied(const struct member *talker) { return ((struct web_member *)talker->state)->media.denied; }
void web_release_floor(struct member *talker) {
    struct web_member *w = talker->state;
    uint8_t message[message_max];
    flush(w);
    send_control(w, message, floor_release_message(&w->media, message));
    w->media.granted = false;
}
struct web_counts web_counts_of(const struct member *member) { return ((struct web_member *)member->state)->counts; }

static void begin(struct member *talker) {
    web_ask_for_floor(talker);
    for (uint64_t deadline = now_monotonic() + 20000000000ull; !web_has_floor(talker);) {
        tend(talker);
        if (now_monotonic() > deadline) fail("the floor is not granted");
        usleep(500);
    }
}

static void talk(struct member *talker, size_t length, uint64_t sent) {
    struct web_member *w = talker->state;
    uint8_t packet[2048];
    size_t size = media_packet(&w->media, packet, length, sent);
    w->counts.sent++;
    flush(w);
    if (!w->waiting_count && has_room(w) && size <= media_max) return send_media(w, packet, size);
    if (!w->waiting) w->waiting = calloc(waiting_max, sizeof *w->waiting);
    if (w->waiting_count == waiting_max || size > media_max) {
        w->counts.dropped++;
        return;
    }
    struct waiting *last = &w->waiting[(w->waiting_first + w->waiting_count++) % waiting_max];
    last->since = now_monotonic();
    last->length = (uint16_t)size;
    memcpy(last->bytes, packet, size);
}

// A fifth of a turn is shorter than a packet of 10 ms.
const struct protocol web_protocol = {"web", join, NULL, tend, begin, talk, 16, 4};
