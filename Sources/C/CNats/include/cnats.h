// libnats, loaded only where a cluster is configured: it brings OpenSSL with it, and a relay on its own needs neither.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A connection to NATS with its JetStream. Every call blocks, and may be made from any thread.
struct ptt_nats;

/// Why a call failed.
struct ptt_nats_failure {
    /// libnats' number (natsStatus).
    int status;
    /// JetStream's number (jsErrCode); 0: the failure is not JetStream's.
    int code;
    /// Words for both, ended with a zero byte.
    char text[256];
};

/// How to connect. Strings may be NULL where nothing is said.
struct ptt_nats_options {
    /// URLs of servers, `count` of them.
    const char *const *servers;
    int count;
    /// The client's name in the servers' lists.
    const char *name;
    /// A file with a JWT and the seed of its key.
    const char *credentials;
    /// A file with certificates in PEM that servers' certificates are checked against; whether the connection is encrypted.
    const char *authorities;
    bool encrypts;
    /// How long connecting to a server may take, in milliseconds.
    int64_t timeout;
};

/// A stream and its limits.
struct ptt_nats_stream {
    const char *name;
    const char *subject;
    int64_t replicas;
    int64_t bytes_maximum;
    /// How many messages of a subject are kept; 0: all, and what would be too much is refused.
    int64_t per_subject;
};

/// What is known of a stream.
struct ptt_nats_stream_state {
    uint64_t first;
    uint64_t last;
    uint64_t messages;
    uint64_t bytes;
    int64_t bytes_maximum;
    int64_t replicas;
    bool denies_purge;
};

/// NULL: libnats is there. Otherwise the name of the library that is missing. May read the disk.
const char *ptt_nats_missing(void);

/// NULL: `failure` says why. Once connected, it connects again by itself, for ever.
struct ptt_nats *ptt_nats_connect(const struct ptt_nats_options *options, struct ptt_nats_failure *failure);
void ptt_nats_close(struct ptt_nats *connection);
/// Bytes of the longest message that the servers take.
int64_t ptt_nats_payload_maximum(struct ptt_nats *connection);

// Asks the server that leads the stream to let another one lead; whether it answers within `wait` ms.
bool ptt_nats_step_down(struct ptt_nats *connection, const char *stream, int64_t wait);

/// Makes a stream. All calls below return false and fill `failure` when they have failed.
bool ptt_nats_add_stream(struct ptt_nats *connection, const struct ptt_nats_stream *stream, int64_t wait, struct ptt_nats_failure *failure);
bool ptt_nats_stream_state(struct ptt_nats *connection, const char *stream, int64_t wait, struct ptt_nats_stream_state *state, struct ptt_nats_failure *failure);

/// Removes all messages before the one of the sequence number `first`.
bool ptt_nats_purge(struct ptt_nats *connection, const char *stream, uint64_t first, int64_t wait, struct ptt_nats_failure *failure);

#define PTT_NATS_ANY UINT64_MAX
/// Appends a message if the last one of the stream, or of its subject, has the sequence number `expected`; 0: if its subject has none. Of
/// two that name the same one at the same time, a cluster of NATS 2.9 takes one where they name the stream's, and often both where they name
/// the subject's. PTT_NATS_ANY: whatever the last one is.
bool ptt_nats_publish(struct ptt_nats *connection, const char *stream, const char *subject, const void *bytes, int count, uint64_t expected,
                      bool of_subject, int64_t wait, uint64_t *sequence, struct ptt_nats_failure *failure);

/// What a message says; called before the reading call returns.
typedef void (*ptt_nats_reader)(void *context, uint64_t sequence, const void *bytes, int count);
/// Reads the message `sequence` of a stream.
bool ptt_nats_read(struct ptt_nats *connection, const char *stream, uint64_t sequence, int64_t wait, ptt_nats_reader reader, void *context,
                   struct ptt_nats_failure *failure);
/// Reads the last message of a subject.
bool ptt_nats_read_last(struct ptt_nats *connection, const char *stream, const char *subject, int64_t wait, ptt_nats_reader reader,
                        void *context, struct ptt_nats_failure *failure);
/// Hands over the subjects of a stream that match `filter`, one by one, as bytes.
bool ptt_nats_subjects(struct ptt_nats *connection, const char *stream, const char *filter, int64_t wait, ptt_nats_reader reader,
                       void *context, struct ptt_nats_failure *failure);

// Messages that no stream keeps.

/// Sends a message at once. Whether anybody gets it, nobody says.
bool ptt_nats_send(struct ptt_nats *connection, const char *subject, const void *bytes, int count, struct ptt_nats_failure *failure);
/// Sends a message, and hands over the first answer.
bool ptt_nats_request(struct ptt_nats *connection, const char *subject, const void *bytes, int count, int64_t wait, ptt_nats_reader reader,
                      void *context, struct ptt_nats_failure *failure);

/// A subscription. It outlives a lost connection.
struct ptt_nats_subscription;
/// Called for each message, one after the other, on a thread of libnats. `reply` is where an answer is to be sent; NULL: none is wanted.
typedef void (*ptt_nats_receiver)(void *context, const void *bytes, int count, const char *reply);
/// Called once, when `receiver` is not called any more.
typedef void (*ptt_nats_end)(void *context);
/// Hands over what comes for `subject`. Of messages that wait for `receiver`, at most so many, with at most so many bytes, are kept; others
/// are dropped. Waits at most `wait` ms for the server to know. NULL: `failure` says why; `end` is called then, too.
struct ptt_nats_subscription *ptt_nats_subscribe(struct ptt_nats *connection, const char *subject, int waiting_maximum, int bytes_maximum,
                                                 int64_t wait, ptt_nats_receiver receiver, ptt_nats_end end, void *context,
                                                 struct ptt_nats_failure *failure);
/// Ends a subscription, before its connection is closed. `receiver` may still be at work; once it is not, `end` is called. Each eighth time
/// it waits for the server, at most a second.
void ptt_nats_unsubscribe(struct ptt_nats *connection, struct ptt_nats_subscription *subscription);
