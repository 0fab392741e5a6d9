// Control messages and media packets; see messages.h.
#include "messages.h"
#include <arpa/inet.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { report_interval_s = 4, payload_type = 111 };

bool floor_may_be_denied;

uint8_t *put_varint(uint8_t *to, uint64_t value) {
    for (; value > 127; value >>= 7) *to++ = (uint8_t)(value | 128);
    *to++ = (uint8_t)value;
    return to;
}
uint8_t *put_bytes(uint8_t *to, int field, const void *bytes, size_t length) {
    to = put_varint(to, (uint64_t)field << 3 | 2);
    to = put_varint(to, length);
    memcpy(to, bytes, length);
    return to + length;
}
uint8_t *put_number(uint8_t *to, int field, uint64_t value) {
    return put_varint(put_varint(to, (uint64_t)field << 3), value);
}
uint8_t *put_fixed(uint8_t *to, int field, const void *bytes, size_t size) {
    to = put_varint(to, (uint64_t)field << 3 | (size == 8 ? 1 : 5));
    memcpy(to, bytes, size);
    return to + size;
}
static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *value) {
    *value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}
bool next_field(const uint8_t **at, const uint8_t *end, struct field *field) {
    uint64_t key;
    if (!get_varint(at, end, &key)) return false;
    *field = (struct field){.number = (int)(key >> 3), .type = (int)(key & 7)};
    size_t size = field->type == 1 ? 8 : field->type == 5 ? 4 : 0;
    if (field->type == 0) return get_varint(at, end, &field->value);
    if (field->type == 2) {
        if (!get_varint(at, end, &field->value)) return false;
        size = field->value;
    }
    if ((size_t)(end - *at) < size) return false;
    field->bytes = *at;
    field->length = size;
    if (field->type != 2) memcpy(&field->value, *at, size);
    *at += size;
    return true;
}

// ---- up ----

static size_t message(uint8_t *to, int kind, const uint8_t *body, const uint8_t *end) {
    return (size_t)(put_bytes(to, kind, body, (size_t)(end - body)) - to);
}
size_t join_message(const struct member *member, uint8_t *to) {
    uint8_t body[message_max], *end = body;
    char name[32];
    int length = snprintf(name, sizeof name, "load %d", member->number);
    end = put_bytes(end, 1, target.keys[member->channel].id, 16);
    end = put_bytes(end, 2, target.keys[member->channel].token, target.keys[member->channel].token_length);
    end = put_bytes(end, 3, name, (size_t)length);
    end = put_number(end, 4, 1);
    if (member->push_only) end = put_number(end, 5, 1);
    return message(to, 1, body, end);
}
size_t leave_message(uint8_t *to) { return message(to, 2, to, to); }
size_t push_register_message(uint8_t *to) {
    static const char topic[] = "org.pttd.load.voip-ptt";
    uint8_t body[128], token[32];
    gnutls_rnd(GNUTLS_RND_NONCE, token, sizeof token);
    return message(to, 6, body, put_bytes(put_bytes(body, 1, token, sizeof token), 2, topic, sizeof topic - 1));
}
size_t floor_request_message(struct media *media, uint8_t *to) {
    uint8_t body[64];
    gnutls_rnd(GNUTLS_RND_NONCE, &media->key_id, sizeof media->key_id);
    media->key_id = (uint64_t)media->epoch << 48 | (media->key_id & 0xFFFFFFFFFFFF) | 0x800000000000;
    media->counter = 0;
    media->granted = media->denied = false;
    uint8_t *end = put_number(body, 1, ++media->request);
    return message(to, 3, body, put_fixed(end, 3, &media->key_id, 8));
}
size_t floor_release_message(const struct media *media, uint8_t *to) {
    uint8_t body[64], *end = put_number(body, 1, media->request);
    if (media->counter) end = put_number(end, 2, (uint16_t)(media->sequence - 1));
    return message(to, 4, body, end);
}
size_t report_message(struct media *media, uint8_t *to) {
    uint8_t body[64], *end = put_fixed(body, 1, &media->talker_ssrc, 4);
    end = put_number(end, 2, media->received);
    media->next_report += report_interval_s * 1000000000ull;
    return message(to, 5, body, put_number(end, 4, media->highest));
}

size_t media_packet(struct media *media, uint8_t *to, size_t length, uint64_t sent) {
    uint8_t key[8], number[8];
    memset(to, 0, rtp_bytes + 1 + 16 + length + tag_bytes);
    to[0] = 0x80;
    to[1] = media->counter ? payload_type : 128 | payload_type;
    to[2] = (uint8_t)(media->sequence >> 8);
    to[3] = (uint8_t)media->sequence++;
    uint32_t ssrc = htonl(media->ssrc);
    memcpy(to + 8, &ssrc, 4);
    size_t at = rtp_bytes + 1, key_bytes = 8, counter_bytes = media->counter < 8 ? 0 : 8;
    for (int i = 0; i < 8; i++) {
        key[i] = (uint8_t)(media->key_id >> (56 - 8 * i));
        number[i] = (uint8_t)(media->counter >> (56 - 8 * i));
    }
    // Neither has leading zero bytes.
    while (key[8 - key_bytes] == 0) key_bytes--;
    while (counter_bytes && number[8 - counter_bytes] == 0) counter_bytes--;
    memcpy(to + at, key + 8 - key_bytes, key_bytes), at += key_bytes;
    memcpy(to + at, number + 8 - counter_bytes, counter_bytes), at += counter_bytes;
    to[rtp_bytes] = (uint8_t)(128 | (key_bytes - 1) << 4 | (counter_bytes ? 8 | (counter_bytes - 1) : media->counter));
    media->counter++;
    memcpy(to + at, &sent, sizeof sent);
    return at + length + tag_bytes;
}

// ---- down ----

static _Noreturn void refused(const char *what, const struct field *field) {
    fprintf(stderr, "load: %s: %.*s\n", what, (int)field->length, field->bytes);
    exit(1);
}

void message_came(struct member *member, struct media *media, const uint8_t *at, size_t length,
                  void (*welcome)(struct member *member, const struct field *field)) {
    struct field field, part, inner;
    const uint8_t *end = at + length;
    if (!next_field(&at, end, &field) || field.type != 2) fail("a message of the relay cannot be read");
    switch (field.number) {
    case 1:
        for (const uint8_t *in = field.bytes; next_field(&in, field.bytes + field.length, &part);) {
            if (part.number == 1) media->ssrc = (uint32_t)part.value;
            if (part.number == 3)
                for (const uint8_t *key = part.bytes; next_field(&key, part.bytes + part.length, &inner);)
                    if (inner.number == 1) media->epoch = (uint16_t)inner.value;
            if (welcome) welcome(member, &part);
        }
        member->joined = true;
        break;
    case 11: member->joined = true; break;
    case 2: refused("a join was refused", &field);
    case 5: media->granted = true; break;
    case 6:
    case 9:
        if (!floor_may_be_denied) refused(field.number == 6 ? "the floor was denied" : "the floor was revoked", &field);
        media->denied = true;
        media->granted = false;
        break;
    default: break;
    }
}

void media_came(struct member *member, struct media *media, const uint8_t *bytes, uint64_t stamped) {
    // RTP, then an SFrame header: a byte that says how many of key id and counter follow.
    const uint8_t *frame = bytes + rtp_bytes;
    size_t voice = 1u + (*frame & 128 ? (size_t)(*frame >> 4 & 7) + 1 : 0) + (*frame & 8 ? (size_t)(*frame & 7) + 1 : 0);
    uint32_t ssrc;
    uint64_t sent;
    memcpy(&ssrc, bytes + 8, 4);
    media->talker_ssrc = ntohl(ssrc);
    if (!media->next_report) {
        const uint64_t interval = report_interval_s * 1000000000ull;
        media->next_report = now_monotonic() +
            (reports_together ? interval : interval / (uint64_t)member_count * (uint64_t)member->number);
    }
    media->highest = (uint32_t)(bytes[2] << 8 | bytes[3]);
    media->received++;
    memcpy(&sent, frame + voice, sizeof sent);
    if (!member->heard_at) member->heard_at = now_monotonic();
    heard(member, sent, stamped);
}
