// A member of a relay as docs/relay-protocol.md has it, no more than the load needs: QUIC by ngtcp2 and GnuTLS.
#include "messages.h"
#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>
#include <sodium/crypto_shorthash_siphash24.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { trailer = 16 };

struct quic_member {
    struct member *member;
    ngtcp2_conn *conn;
    gnutls_session_t tls;
    gnutls_certificate_credentials_t credentials;
    ngtcp2_crypto_conn_ref reference;
    struct sockaddr_in local, remote;
    // Control stream: what was written (the library keeps pointers into it), and a message that is not complete.
    uint8_t out[8192], *in;
    size_t written, taken, in_length, in_capacity;
    int64_t stream;
    bool handshaken, registered;
    struct media media;
    uint8_t mac_key[crypto_shorthash_siphashx24_KEYBYTES], uplink_key[crypto_shorthash_siphashx24_KEYBYTES];
    bool checks_macs, talks_outside_quic;
    // Of the next packet outside QUIC.
    uint32_t uplink_counter;
    // What it returns with, from its last connection.
    gnutls_datum_t ticket;
    ngtcp2_transport_params remembered;
    uint8_t address_token[256];
    size_t address_token_length;
    bool early;
    uint64_t dial_at;
    struct absence absence;
};

// The waits of a client before it tries again, in ms; the last one repeats.
static const int waits_ms[] = {250, 500, 1000, 2000, 4000, 8000, 15000, 30000};
enum { waits_count = sizeof waits_ms / sizeof *waits_ms };

int losses;

static uint64_t quic_time(void) { return now_monotonic(); }

static void send_message(struct quic_member *q, const uint8_t *message, size_t length) {
    uint32_t size = htonl((uint32_t)length);
    if (q->written + 4 + length > sizeof q->out) fail("the run is too long for the control stream");
    memcpy(q->out + q->written, &size, 4);
    memcpy(q->out + q->written + 4, message, length);
    q->written += 4 + length;
}

static void welcomed(struct member *member, const struct field *field) {
    struct quic_member *q = member->state;
    if (field->number == 2 && member->number % 16 == 1) {
        if (field->length != sizeof q->mac_key) fail("the down-link key has another size");
        memcpy(q->mac_key, field->bytes, sizeof q->mac_key);
        q->checks_macs = true;
    }
    if (field->number == 15) {
        if (field->length != sizeof q->uplink_key) fail("the up-link key has another size");
        memcpy(q->uplink_key, field->bytes, sizeof q->uplink_key);
        q->talks_outside_quic = true;
    }
    if (q->absence.lost_at && !q->absence.back_at) q->absence.back_at = now_monotonic();
}

// ---- QUIC ----

static ngtcp2_conn *conn_of(ngtcp2_crypto_conn_ref *reference) {
    return ((struct quic_member *)reference->user_data)->conn;
}
static void fill_random(uint8_t *to, size_t length, const ngtcp2_rand_ctx *context) {
    (void)context;
    gnutls_rnd(GNUTLS_RND_NONCE, to, length);
}
static int new_id(ngtcp2_conn *conn, ngtcp2_cid *id, uint8_t *token, size_t length, void *user) {
    (void)conn, (void)user;
    uint8_t bytes[8];
    gnutls_rnd(GNUTLS_RND_NONCE, bytes, sizeof bytes);
    ngtcp2_cid_init(id, bytes, length < sizeof bytes ? length : sizeof bytes);
    gnutls_rnd(GNUTLS_RND_NONCE, token, NGTCP2_STATELESS_RESET_TOKENLEN);
    return 0;
}
static void open_control_stream(struct quic_member *q) {
    if (ngtcp2_conn_open_bidi_stream(q->conn, &q->stream, NULL)) fail("no stream");
}
static void ask_to_join(struct quic_member *q) {
    uint8_t message[message_max];
    open_control_stream(q);
    send_message(q, message, join_message(q->member, message));
}
static int handshaken(ngtcp2_conn *conn, void *user) {
    struct quic_member *q = user;
    if (!q->early) {
        ask_to_join(q);
    } else if (!(gnutls_session_get_flags(q->tls) & GNUTLS_SFLAGS_EARLY_DATA)) {
        // Refused: the same is said again.
        q->early = false;
        if (ngtcp2_conn_early_data_rejected(conn)) return NGTCP2_ERR_CALLBACK_FAILURE;
        q->taken = 0;
        open_control_stream(q);
    }
    q->handshaken = true;
    return 0;
}
static int ticket_came(gnutls_session_t tls, unsigned kind, unsigned when, unsigned incoming, const gnutls_datum_t *message) {
    (void)kind, (void)when, (void)message;
    struct quic_member *q = ((ngtcp2_crypto_conn_ref *)gnutls_session_get_ptr(tls))->user_data;
    if (!incoming) return 0;
    gnutls_free(q->ticket.data);
    q->ticket.data = NULL;
    if (gnutls_session_get_data2(tls, &q->ticket)) fail("the ticket cannot be read");
    q->remembered = *ngtcp2_conn_get_remote_transport_params(q->conn);
    return 0;
}
static int address_token_came(ngtcp2_conn *conn, const ngtcp2_vec *token, void *user) {
    (void)conn;
    struct quic_member *q = user;
    if (token->len > sizeof q->address_token) return 0;
    memcpy(q->address_token, token->base, token->len);
    q->address_token_length = token->len;
    return 0;
}
static int stream_data(ngtcp2_conn *conn, uint32_t flags, int64_t stream, uint64_t offset, const uint8_t *data,
                       size_t length, void *user, void *stream_user) {
    (void)flags, (void)offset, (void)stream_user;
    struct quic_member *q = user;
    if (q->in_length + length > q->in_capacity) {
        q->in_capacity = 2 * (q->in_length + length);
        q->in = realloc(q->in, q->in_capacity);
    }
    memcpy(q->in + q->in_length, data, length);
    q->in_length += length;
    size_t at = 0;
    while (q->in_length - at >= 4) {
        uint32_t size;
        memcpy(&size, q->in + at, 4);
        size = ntohl(size);
        if (q->in_length - at - 4 < size) break;
        message_came(q->member, &q->media, q->in + at + 4, size, welcomed);
        at += 4 + size;
    }
    memmove(q->in, q->in + at, q->in_length - at);
    q->in_length -= at;
    if (!q->in_length) free(q->in), q->in = NULL, q->in_capacity = 0;
    ngtcp2_conn_extend_max_stream_offset(conn, stream, length);
    ngtcp2_conn_extend_max_offset(conn, length);
    return 0;
}

static ngtcp2_path path_of(struct quic_member *q) {
    return (ngtcp2_path){{(struct sockaddr *)&q->local, sizeof q->local}, {(struct sockaddr *)&q->remote, sizeof q->remote}, NULL};
}

// Nothing is left of the connection but what it takes to return.
static void forget(struct quic_member *q) {
    ngtcp2_conn_del(q->conn);
    gnutls_deinit(q->tls);
    q->conn = NULL;
    q->tls = NULL;
    free(q->in);
    q->in = NULL;
    q->in_length = q->in_capacity = q->written = q->taken = 0;
    q->stream = -1;
    q->handshaken = q->registered = q->early = false;
    q->media = (struct media){0};
    q->checks_macs = q->talks_outside_quic = false;
    q->uplink_counter = 0;
    q->member->joined = false;
    q->member->heard_at = 0;
}

// The connection is over: it is begun anew after a while, if members return.
static void lose(struct quic_member *q, const char *why) {
    if (!members_return) {
        fprintf(stderr, "load: member %d: %s\n", q->member->number, why);
        exit(1);
    }
    losses++;
    uint64_t now = quic_time();
    forget(q);
    if (!q->absence.lost_at || q->absence.back_at) q->absence = (struct absence){.lost_at = now};
    int wait = q->absence.attempts < waits_count ? q->absence.attempts : waits_count - 1;
    q->dial_at = now + (uint64_t)waits_ms[wait] * 1000000u;
}

static void flush(struct quic_member *q) {
    uint8_t packet[1452];
    ngtcp2_path_storage storage;
    ngtcp2_pkt_info info;
    ngtcp2_path_storage_zero(&storage);
    for (;;) {
        ngtcp2_vec vector = {q->out + q->taken, q->written - q->taken};
        bool any = q->stream >= 0 && vector.len > 0;
        ngtcp2_ssize taken = -1;
        ngtcp2_ssize length = ngtcp2_conn_writev_stream(
            q->conn, &storage.path, &info, packet, sizeof packet, &taken, 0, any ? q->stream : -1, &vector, any, quic_time());
        if (taken > 0) q->taken += (size_t)taken;
        if (length == 0) break;
        if (length < 0) return lose(q, ngtcp2_strerror((int)length));
        if (send(q->member->udp, packet, (size_t)length, 0) < 0 && errno != ECONNREFUSED) fail("send");
    }
    ngtcp2_conn_update_pkt_tx_time(q->conn, quic_time());
}

// Every member has a key of its own: the relay knows members by their keys.
static void make_identity(struct quic_member *q) {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t certificate;
    uint64_t serial = (uint64_t)q->member->number + 1;
    gnutls_x509_privkey_init(&key);
    gnutls_x509_crt_init(&certificate);
    if (gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0)) fail("key");
    gnutls_x509_crt_set_version(certificate, 3);
    gnutls_x509_crt_set_serial(certificate, &serial, sizeof serial);
    gnutls_x509_crt_set_activation_time(certificate, 0);
    gnutls_x509_crt_set_expiration_time(certificate, 4102444800);
    gnutls_x509_crt_set_key(certificate, key);
    gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, "load", 4);
    if (gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0)) fail("certificate");
    gnutls_certificate_allocate_credentials(&q->credentials);
    if (gnutls_certificate_set_x509_key(q->credentials, &certificate, 1, key)) fail("credentials");
    gnutls_x509_crt_deinit(certificate);
    gnutls_x509_privkey_deinit(key);
}

// What pttd offers, in its order.
static const char pttd_priorities[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305"
    ":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%DISABLE_TLS13_COMPAT_MODE";

static void dial(struct quic_member *q) {
    static const gnutls_datum_t alpn = {(uint8_t *)"pttd/1", 6};
    q->absence.attempts++;
    if (gnutls_init(&q->tls, GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT | GNUTLS_ENABLE_EARLY_DATA | GNUTLS_NO_END_OF_EARLY_DATA) ||
        gnutls_priority_set_direct(q->tls, pttd_priorities, NULL) ||
        gnutls_credentials_set(q->tls, GNUTLS_CRD_CERTIFICATE, q->credentials) ||
        gnutls_alpn_set_protocols(q->tls, &alpn, 1, GNUTLS_ALPN_MANDATORY) ||
        ngtcp2_crypto_gnutls_configure_client_session(q->tls))
        fail("TLS");
    gnutls_session_set_ptr(q->tls, &q->reference);
    gnutls_handshake_set_hook_function(q->tls, GNUTLS_HANDSHAKE_NEW_SESSION_TICKET, GNUTLS_HOOK_POST, ticket_came);
    ngtcp2_callbacks callbacks = {
        .client_initial = ngtcp2_crypto_client_initial_cb,
        .recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb,
        .handshake_completed = handshaken,
        .encrypt = ngtcp2_crypto_encrypt_cb,
        .decrypt = ngtcp2_crypto_decrypt_cb,
        .hp_mask = ngtcp2_crypto_hp_mask_cb,
        .recv_stream_data = stream_data,
        .recv_retry = ngtcp2_crypto_recv_retry_cb,
        .rand = fill_random,
        .get_new_connection_id = new_id,
        .update_key = ngtcp2_crypto_update_key_cb,
        .delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb,
        .delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb,
        .get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb,
        .version_negotiation = ngtcp2_crypto_version_negotiation_cb,
        .recv_new_token = address_token_came,
    };
    ngtcp2_settings settings;
    ngtcp2_transport_params parameters;
    ngtcp2_settings_default(&settings);
    ngtcp2_transport_params_default(&parameters);
    settings.initial_ts = quic_time();
    settings.token = (ngtcp2_vec){q->address_token, q->address_token_length};
    // What pttd expects of a relay that it knows.
    if (q->absence.lost_at) settings.initial_rtt = 100 * NGTCP2_MILLISECONDS;
    settings.no_pmtud = 1;
    // A window of 64 KiB at least, as pttd has: two of these.
    settings.max_tx_udp_payload_size = 32768;
    parameters.initial_max_stream_data_bidi_local = parameters.initial_max_data = 1 << 20;
    parameters.initial_max_stream_data_bidi_remote = 1 << 16;
    parameters.initial_max_streams_bidi = 8;
    parameters.max_idle_timeout = 45 * NGTCP2_SECONDS;
    parameters.max_datagram_frame_size = 1200;
    ngtcp2_cid source, destination;
    uint8_t bytes[18];
    gnutls_rnd(GNUTLS_RND_NONCE, bytes, sizeof bytes);
    ngtcp2_cid_init(&source, bytes, 8);
    gnutls_rnd(GNUTLS_RND_NONCE, bytes, sizeof bytes);
    ngtcp2_cid_init(&destination, bytes, sizeof bytes);
    ngtcp2_path path = path_of(q);
    if (ngtcp2_conn_client_new(&q->conn, &destination, &source, &path, NGTCP2_PROTO_VER_V1, &callbacks, &settings,
                               &parameters, NULL, q))
        fail("ngtcp2_conn_client_new");
    // Media share the port: the relay must not vary the QUIC bit. The library invites it to, whatever it is given.
    ((ngtcp2_transport_params *)ngtcp2_conn_get_local_transport_params(q->conn))->grease_quic_bit = 0;
    ngtcp2_conn_set_tls_native_handle(q->conn, q->tls);
    ngtcp2_conn_set_keep_alive_timeout(q->conn, 25 * NGTCP2_SECONDS);
    if (q->ticket.size && !gnutls_session_set_data(q->tls, q->ticket.data, q->ticket.size)) {
        ngtcp2_conn_set_early_remote_transport_params(q->conn, &q->remembered);
        q->early = true;
        ask_to_join(q);
    }
    flush(q);
}

void prepare(struct member *member) {
    struct quic_member *q = calloc(1, sizeof *q);
    member->state = q;
    q->member = member;
    q->stream = -1;
    q->reference = (ngtcp2_crypto_conn_ref){conn_of, q};
    socklen_t length = sizeof q->local;
    getsockname(member->udp, (struct sockaddr *)&q->local, &length);
    getpeername(member->udp, (struct sockaddr *)&q->remote, &length);
    q->dial_at = UINT64_MAX;
    make_identity(q);
}

static void connect_member(struct member *member) {
    prepare(member);
    dial(member->state);
}

void dial_in(struct member *member) { dial(member->state); }

void hang_up(struct member *member, bool keeps_ticket) {
    struct quic_member *q = member->state;
    if (!keeps_ticket) {
        gnutls_free(q->ticket.data);
        q->ticket = (gnutls_datum_t){0};
        q->address_token_length = 0;
    }
    if (!q->conn) return;
    uint8_t packet[1452];
    ngtcp2_path_storage storage;
    ngtcp2_pkt_info info;
    ngtcp2_connection_close_error error;
    ngtcp2_path_storage_zero(&storage);
    ngtcp2_connection_close_error_default(&error);
    ngtcp2_connection_close_error_set_application_error(&error, 0, NULL, 0);
    ngtcp2_ssize length = ngtcp2_conn_write_connection_close(q->conn, &storage.path, &info, packet, sizeof packet, &error, quic_time());
    if (length > 0 && send(member->udp, packet, (size_t)length, 0) < 0) fail("send");
    forget(q);
    q->absence = (struct absence){0};
    q->dial_at = UINT64_MAX;
}

bool is_due(const struct member *member, uint64_t now) {
    const struct quic_member *q = member->state;
    return q->conn ? ngtcp2_conn_get_expiry(q->conn) <= now : now >= q->dial_at;
}

struct absence absence_of(const struct member *member) {
    struct quic_member *q = member->state;
    struct absence absence = q->absence;
    absence.early = q->early;
    return absence;
}

bool has_ticket(const struct member *member) { return ((struct quic_member *)member->state)->ticket.size > 0; }

static void report(struct quic_member *q) {
    uint8_t message[message_max];
    send_message(q, message, report_message(&q->media, message));
}

void knock(struct member *member) {
    struct quic_member *q = member->state;
    if (!q->conn || !member->joined) return;
    report(q);
    flush(q);
}

static void tend(struct member *member) {
    struct quic_member *q = member->state;
    if (!q) return;
    uint64_t now = quic_time();
    if (!q->conn) {
        if (now >= q->dial_at) dial(q);
        return;
    }
    bool due = ngtcp2_conn_get_expiry(q->conn) <= now;
    if (due && ngtcp2_conn_handle_expiry(q->conn, now)) return lose(q, "the connection to the relay timed out");
    if (member->push_only && member->joined && !q->registered) {
        uint8_t message[message_max];
        send_message(q, message, push_register_message(message));
        q->registered = true;
    }
    if (q->media.next_report && now >= q->media.next_report) report(q);
    flush(q);
}

static void join(struct member *members, int first, int count) {
    for (int i = first; i < first + count; i++) connect_member(&members[i]);
    for (uint64_t deadline = now_monotonic() + 60000000000ull;;) {
        int missing = 0;
        for (int i = 0; i < first + count; i++) {
            drain(&members[i]);
            tend(&members[i]);
            if (!members[i].joined) missing++;
        }
        if (!missing) return;
        if (now_monotonic() > deadline) fail("members do not get in");
        usleep(1000);
    }
}

static bool is_authentic(struct quic_member *q, const uint8_t *bytes, size_t length) {
    uint8_t mac[crypto_shorthash_siphashx24_BYTES];
    crypto_shorthash_siphashx24(mac, bytes, length - 12, q->mac_key);
    return memcmp(mac, bytes + length - 12, 12) == 0;
}

static void packet(struct member *member, const uint8_t *bytes, size_t length, uint64_t stamped) {
    struct quic_member *q = member->state;
    if (length > media_min + trailer && bytes[0] >> 6 == 2) {
        // One in sixteen looks whether it is the relay's, so that what is measured is the real thing.
        if (q->checks_macs && !is_authentic(q, bytes, length)) return count_bad();
        return media_came(member, &q->media, bytes, stamped);
    }
    // A report on what it said outside QUIC: it sends nothing again.
    if (bytes[0] >> 6 == 2) return;
    if (!q->conn) return;
    ngtcp2_path path = path_of(q);
    ngtcp2_pkt_info info = {0};
    int status = ngtcp2_conn_read_pkt(q->conn, &path, &info, bytes, length, quic_time());
    if (status) lose(q, ngtcp2_strerror(status));
}

bool has_floor(const struct member *talker) { return ((struct quic_member *)talker->state)->media.granted; }

void ask_for_floor(struct member *talker) {
    struct quic_member *q = talker->state;
    uint8_t message[message_max];
    send_message(q, message, floor_request_message(&q->media, message));
    flush(q);
}

static void begin(struct member *talker) {
    struct quic_member *q = talker->state;
    ask_for_floor(talker);
    for (uint64_t deadline = now_monotonic() + 20000000000ull; !q->media.granted;) {
        flush(q);
        drain(talker);
        tend(talker);
        if (now_monotonic() > deadline) fail("the floor is not granted");
        usleep(500);
    }
}

// The packet with its trailer, as the relay sends them down.
static void talk_outside_quic(struct quic_member *q, uint8_t *packet, size_t length) {
    uint8_t mac[crypto_shorthash_siphashx24_BYTES];
    uint32_t counter = htonl(q->uplink_counter++);
    memcpy(packet + length, &counter, 4);
    crypto_shorthash_siphashx24(mac, packet, length + 4, q->uplink_key);
    memcpy(packet + length + 4, mac, 12);
    if (send(q->member->udp, packet, length + trailer, 0) < 0) fail("send");
}

static void talk(struct member *talker, size_t length, uint64_t sent) {
    struct quic_member *q = talker->state;
    if (!q->conn) return;
    uint8_t datagram[2048], packet[1452];
    ngtcp2_vec vector = {datagram, media_packet(&q->media, datagram, length, sent)};
    if (q->talks_outside_quic) return talk_outside_quic(q, datagram, vector.len);
    ngtcp2_path_storage storage;
    ngtcp2_pkt_info info;
    ngtcp2_path_storage_zero(&storage);
    int accepted = 0;
    for (int attempts = 0; !accepted && attempts < 4; attempts++) {
        ngtcp2_ssize size = ngtcp2_conn_writev_datagram(
            q->conn, &storage.path, &info, packet, sizeof packet, &accepted, 0, q->media.counter, &vector, 1, quic_time());
        if (size < 0) fail(ngtcp2_strerror((int)size));
        if (size > 0 && send(talker->udp, packet, (size_t)size, 0) < 0) fail("send");
    }
    ngtcp2_conn_update_pkt_tx_time(q->conn, quic_time());
    // One that its window does not let out is lost.
}

const struct protocol relay_protocol = {"relay", join, packet, tend, begin, talk, 32, 50};
