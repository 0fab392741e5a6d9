// A Mumble 1.3 client, no more than the load needs: TLS control channel, voice over UDP under OCB2-AES128, or all in the tunnel.
#include "stream.h"
#include <errno.h>
#include <nettle/aes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { version = 0, tunnel = 1, authenticate = 2, ping = 3, reject = 4, server_sync = 5, user_state = 9, crypt_setup = 15 };
enum { overhead = 1 + 5 + 2, ping_interval_s = 4 };

struct mumble_member {
    struct member *member;
    int tcp;
    gnutls_session_t tls;
    bool synced, keyed, udp_works;
    uint32_t session;
    uint8_t send_iv[16], receive_iv[16];
    struct inbox in;
    struct aes128_ctx encryption, decryption;
    uint64_t sequence, next_ping;
};

// ---- OCB2, as Mumble has it (draft-krovetz-ocb-00) ----

static void twice(uint8_t *block) {
    int carry = block[0] >> 7;
    for (int i = 0; i < 15; i++) block[i] = (uint8_t)(block[i] << 1 | block[i + 1] >> 7);
    block[15] = (uint8_t)(block[15] << 1) ^ (carry ? 0x87 : 0);
}
static void add(uint8_t *to, const uint8_t *a, const uint8_t *b) {
    for (int i = 0; i < 16; i++) to[i] = a[i] ^ b[i];
}
static void ocb(struct mumble_member *m, bool opening, const uint8_t *in, uint8_t *out, size_t length, const uint8_t *nonce,
                uint8_t *mac) {
    uint8_t delta[16], sum[16] = {0}, block[16], pad[16];
    aes128_encrypt(&m->encryption, 16, delta, nonce);
    for (; length > 16; in += 16, out += 16, length -= 16) {
        uint8_t plain[16];
        twice(delta);
        memcpy(plain, in, 16);
        add(block, delta, in);
        if (opening) aes128_decrypt(&m->decryption, 16, block, block);
        else aes128_encrypt(&m->encryption, 16, block, block);
        add(out, delta, block);
        add(sum, sum, opening ? out : plain);
    }
    twice(delta);
    memset(block, 0, 16);
    block[14] = (uint8_t)(length * 8 >> 8);
    block[15] = (uint8_t)(length * 8);
    add(block, block, delta);
    aes128_encrypt(&m->encryption, 16, pad, block);
    memset(block, 0, 16);
    memcpy(block, in, length);
    if (opening) add(block, block, pad);
    else memcpy(block + length, pad + length, 16 - length);
    uint8_t last[16];
    memcpy(last, block, 16);
    if (opening) memcpy(out, last, length);
    else for (size_t i = 0; i < length; i++) out[i] = last[i] ^ pad[i];
    add(sum, sum, last);
    uint8_t three[16];
    memcpy(three, delta, 16);
    twice(three);
    add(delta, three, delta);
    add(delta, delta, sum);
    aes128_encrypt(&m->encryption, 16, mac, delta);
}
static void send_udp(struct mumble_member *m, const uint8_t *plain, size_t length) {
    uint8_t packet[2048], mac[16];
    for (int i = 0; i < 16 && ++m->send_iv[i] == 0; i++) {}
    ocb(m, false, plain, packet + 4, length, m->send_iv, mac);
    packet[0] = m->send_iv[0];
    memcpy(packet + 1, mac, 3);
    if (send(m->member->udp, packet, length + 4, 0) < 0 && errno != ECONNREFUSED) fail("send");
}
// The payload of a packet; 0 when it is not authentic.
static size_t open_udp_packet(struct mumble_member *m, const uint8_t *packet, size_t length, uint8_t *plain) {
    uint8_t iv[16], mac[16];
    if (length < 5) return 0;
    memcpy(iv, m->receive_iv, 16);
    int8_t ahead = (int8_t)(packet[0] - iv[0]);
    iv[0] = packet[0];
    if (ahead > 0 && packet[0] < m->receive_iv[0])
        for (int i = 1; i < 16 && ++iv[i] == 0; i++) {}
    if (ahead < 0 && packet[0] > m->receive_iv[0])
        for (int i = 1; i < 16 && iv[i]-- == 0; i++) {}
    ocb(m, true, packet + 4, plain, length - 4, iv, mac);
    if (memcmp(mac, packet + 1, 3)) return 0;
    if (ahead > 0) memcpy(m->receive_iv, iv, 16);
    return length - 4;
}

// ---- control channel ----

static void send_tcp(struct mumble_member *m, int type, const uint8_t *body, size_t length) {
    uint8_t message[2048] = {(uint8_t)(type >> 8), (uint8_t)type, 0, 0, (uint8_t)(length >> 8), (uint8_t)length};
    memcpy(message + 6, body, length);
    if (!send_all(m->tls, m->tcp, message, length + 6)) fail("the Mumble server closed a connection");
}

// ---- voice ----

static void voice_came(struct mumble_member *m, const uint8_t *plain, size_t size, uint64_t stamped) {
    // Type and target, session, sequence, length: three variable-length integers.
    size_t at = 1;
    for (int i = 0; i < 3; i++) {
        uint8_t first = at < size ? plain[at] : 0;
        at += first < 0x80 ? 1 : first < 0xC0 ? 2 : first < 0xE0 ? 3 : first < 0xF0 ? 4 : 5;
    }
    uint64_t sent;
    if (plain[0] >> 5 != 4 || at + sizeof sent > size) return count_bad();
    memcpy(&sent, plain + at, sizeof sent);
    heard(m->member, sent, stamped);
}

static void message_came(struct mumble_member *m, int type, const uint8_t *body, size_t length) {
    if (type == reject) fail("the Mumble server rejected a client");
    if (type == server_sync) {
        // Field 1: the session.
        for (size_t i = 1, shift = 0; length > 1 && body[0] == 8 && i < length; i++, shift += 7) {
            m->session |= (uint32_t)(body[i] & 127) << shift;
            if (body[i] < 128) break;
        }
        m->synced = true;
    }
    if (type == tunnel && length) return voice_came(m, body, length, stream_stamp);
    if (type != crypt_setup) return;
    for (size_t at = 0; at + 2 <= length && at + 2 + body[at + 1] <= length; at += 2 + body[at + 1]) {
        const uint8_t *value = body + at + 2;
        if (body[at + 1] != 16) continue;
        if (body[at] >> 3 == 1) {
            aes128_set_encrypt_key(&m->encryption, value);
            aes128_set_decrypt_key(&m->decryption, value);
            m->keyed = true;
        }
        if (body[at] >> 3 == 2) memcpy(m->send_iv, value, 16);
        if (body[at] >> 3 == 3) memcpy(m->receive_iv, value, 16);
    }
}
static void read_tcp(struct mumble_member *m) {
    uint8_t bytes[16384];
    for (;;) {
        ssize_t got = gnutls_record_recv(m->tls, bytes, sizeof bytes);
        if (got == GNUTLS_E_AGAIN || got == GNUTLS_E_INTERRUPTED) return;
        if (got <= 0) fail("the Mumble server closed a connection");
        inbox_add(&m->in, bytes, (size_t)got);
        while (m->in.length >= 6) {
            const uint8_t *head = m->in.bytes;
            size_t size = (size_t)head[2] << 24 | (size_t)head[3] << 16 | (size_t)head[4] << 8 | head[5];
            if (m->in.length - 6 < size) break;
            message_came(m, head[0] << 8 | head[1], head + 6, size);
            inbox_drop(&m->in, 6 + size);
        }
    }
}

static void ping_udp(struct mumble_member *m) {
    uint8_t plain[10] = {0x20, 0xF4};
    send_udp(m, plain, sizeof plain);
}

static void tend(struct member *member) {
    struct mumble_member *m = member->state;
    if (!m || !m->tls) return;
    read_tcp(m);
    uint64_t now = now_monotonic();
    if (!member->joined || now < m->next_ping) return;
    const uint64_t interval = ping_interval_s * 1000000000ull;
    uint64_t phase = reports_together ? 0 : interval / (uint64_t)member_count * (uint64_t)member->number;
    m->next_ping = m->next_ping ? m->next_ping + interval : now + interval - phase;
    if (member->udp >= 0) ping_udp(m);
    send_tcp(m, ping, (const uint8_t *)"\x08\x01", 2);
}

static void join_one(struct member *member) {
    struct mumble_member *m = calloc(1, sizeof *m);
    member->state = m;
    m->member = member;
    m->tcp = open_tcp();
    gnutls_session_t tls = begin_tls(m->tcp);
    int status;
    while ((status = gnutls_handshake(tls)) < 0 && !gnutls_error_is_fatal(status)) {
        struct pollfd more = {.fd = m->tcp, .events = POLLIN};
        poll(&more, 1, 100);
    }
    if (status < 0) fail(gnutls_strerror(status));
    m->tls = tls;
    send_tcp(m, version, (const uint8_t *)"\x08\x84\x86\x04", 4);  // 1.3.4
    uint8_t body[64];
    int length = snprintf((char *)body + 2, 32, "load%d", member->number);
    body[0] = 0x0a;
    body[1] = (uint8_t)length;
    memcpy(body + 2 + length, "\x28\x01", 2);  // opus
    send_tcp(m, authenticate, body, (size_t)length + 4);
    for (uint64_t deadline = now_monotonic() + 60000000000ull; !m->synced || !m->keyed;) {
        read_tcp(m);
        if (now_monotonic() > deadline) fail("no ServerSync");
        usleep(200);
    }
    if (target.channels > 1) {
        uint8_t move[16], *end = move;
        *end++ = 8;
        for (uint32_t rest = m->session;; rest >>= 7) {
            *end++ = (uint8_t)(rest > 127 ? rest | 128 : rest);
            if (rest < 128) break;
        }
        *end++ = 5 << 3;
        *end++ = (uint8_t)(member->channel + 1);
        send_tcp(m, user_state, move, (size_t)(end - move));
    }
    // Without UDP the server never hears of an address to send to, and tunnels.
    for (int attempts = 0; member->udp >= 0 && !m->udp_works; attempts++) {
        if (attempts == 2000) fail("no answer to the UDP ping");
        if (attempts % 100 == 0) ping_udp(m);
        usleep(200);
        drain(member);
    }
    member->joined = true;
}

static void join(struct member *members, int first, int count) {
    for (int i = first; i < first + count; i++) join_one(&members[i]);
    // The others hear of them; nobody's connection may fill up.
    for (int i = 0; i < first; i++) tend(&members[i]);
}

static void packet(struct member *member, const uint8_t *bytes, size_t length, uint64_t stamped) {
    struct mumble_member *m = member->state;
    uint8_t plain[2048];
    size_t size = length <= sizeof plain ? open_udp_packet(m, bytes, length, plain) : 0;
    if (!size) return count_bad();
    if (plain[0] >> 5 == 1) {
        m->udp_works = true;
        return;
    }
    voice_came(m, plain, size, stamped);
}

static void begin(struct member *talker) { (void)talker; }

static void talk(struct member *talker, size_t length, uint64_t sent) {
    struct mumble_member *m = talker->state;
    // Counted in units of 10 ms.
    uint32_t sequence = (uint32_t)(m->sequence++ * 2);
    uint8_t plain[2048] = {
        0x80, 0xE0 | (sequence >> 24 & 15), (uint8_t)(sequence >> 16), (uint8_t)(sequence >> 8), (uint8_t)sequence,
        (uint8_t)(0x80 | (length >> 8 & 0x1F)), (uint8_t)length};
    memcpy(plain + 7, &sent, sizeof sent);
    if (talker->udp < 0) send_tcp(m, tunnel, plain, 7 + length);
    else send_udp(m, plain, 7 + length);
}

const struct protocol mumble_protocol = {"mumble", join, packet, tend, begin, talk, 8, 50};
const struct protocol mumble_tcp_protocol = {"mumble-tcp", join, NULL, tend, begin, talk, 8, 4};
