#include "cnats.h"

#include <dlfcn.h>
#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The structures of the headers are those of one minor version.
#define PTT_TEXT(number) #number
#define PTT_LIBRARY(major, minor) "libnats.so." PTT_TEXT(major) "." PTT_TEXT(minor)
static const char library_name[] = PTT_LIBRARY(NATS_VERSION_MAJOR, NATS_VERSION_MINOR);

#define FUNCTIONS(F) \
    F(natsOptions_Create) F(natsOptions_Destroy) F(natsOptions_SetServers) F(natsOptions_SetName) F(natsOptions_SetTimeout) \
    F(natsOptions_SetUserCredentialsFromFiles) F(natsOptions_LoadCATrustedCertificates) F(natsOptions_SetSecure) \
    F(natsOptions_SetMaxReconnect) F(natsOptions_SetReconnectWait) F(natsOptions_SetReconnectBufSize) F(natsOptions_SetPingInterval) \
    F(natsOptions_SetMaxPingsOut) F(natsOptions_SetErrorHandler) F(natsOptions_SetSendAsap) F(natsOptions_SetWriteDeadline) \
    F(natsConnection_Connect) F(natsConnection_Close) F(natsConnection_Destroy) \
    F(natsConnection_RequestString) F(natsConnection_GetMaxPayload) F(natsConnection_JetStream) F(jsCtx_Destroy) F(jsOptions_Init) F(jsPubOptions_Init) \
    F(jsStreamConfig_Init) F(js_AddStream) F(js_GetStreamInfo) F(jsStreamInfo_Destroy) F(js_PurgeStream) F(js_Publish) F(jsPubAck_Destroy) \
    F(js_GetMsg) F(js_GetLastMsg) F(natsMsg_Destroy) F(natsMsg_GetData) F(natsMsg_GetDataLength) F(natsMsg_GetSequence) F(natsStatus_GetText) \
    F(nats_GetLastError) F(natsConnection_Request) F(natsConnection_Publish) F(natsConnection_FlushTimeout) F(natsConnection_Subscribe) \
    F(natsSubscription_SetOnCompleteCB) F(natsSubscription_SetPendingLimits) F(natsSubscription_Unsubscribe) F(natsSubscription_Destroy) \
    F(natsMsg_GetReply)

#define DECLARE(name) __typeof__(&name) name;
static struct { FUNCTIONS(DECLARE) } nats;
static bool is_loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) {
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
#define LOAD(name) \
    nats.name = (__typeof__(&name))dlsym(library, #name); \
    if (!nats.name) return;
    FUNCTIONS(LOAD)
    is_loaded = true;
}

const char *ptt_nats_missing(void) {
    pthread_once(&once, load);
    return is_loaded ? NULL : library_name;
}

struct ptt_nats {
    natsConnection *connection;
    jsCtx *stream_context;
    // Subscriptions that have ended (ptt_nats_unsubscribe).
    pthread_mutex_t lock;
    struct ptt_nats_subscription *ended;
    unsigned int ended_count;
};

struct ptt_nats_subscription {
    natsSubscription *subscription;
    struct ptt_nats_subscription *next;
};

static bool fail(struct ptt_nats_failure *failure, natsStatus status, jsErrCode code) {
    natsStatus last = NATS_OK;
    const char *words = nats.nats_GetLastError(&last);
    failure->status = status;
    failure->code = code;
    // The words of this thread's last failure, if it is this one.
    snprintf(failure->text, sizeof failure->text, "%s", words && *words && last == status ? words : nats.natsStatus_GetText(status));
    return false;
}

// libnats prints asynchronous errors unless somebody takes them. What they are about, the next call tells.
static void ignore(natsConnection *connection, natsSubscription *subscription, natsStatus status, void *context) {
    (void)connection, (void)subscription, (void)status, (void)context;
}

struct ptt_nats *ptt_nats_connect(const struct ptt_nats_options *given, struct ptt_nats_failure *failure) {
    natsOptions *options = NULL;
    natsConnection *connection = NULL;
    jsCtx *context = NULL;
    struct ptt_nats *result = NULL;
    natsStatus status = nats.natsOptions_Create(&options);
#define SET(call) if (status == NATS_OK) status = (call)
    SET(nats.natsOptions_SetServers(options, (const char **)given->servers, given->count));
    SET(nats.natsOptions_SetTimeout(options, given->timeout));
    SET(nats.natsOptions_SetMaxReconnect(options, -1));
    SET(nats.natsOptions_SetReconnectWait(options, 250));
    // What cannot be sent now fails now: a request that is sent late would be about something else.
    SET(nats.natsOptions_SetReconnectBufSize(options, 0));
    SET(nats.natsOptions_SetPingInterval(options, 1000));
    SET(nats.natsOptions_SetMaxPingsOut(options, 2));
    SET(nats.natsOptions_SetErrorHandler(options, ignore, NULL));
    // An answer is waited for: it does not wait for others to be sent with.
    SET(nats.natsOptions_SetSendAsap(options, true));
    // A server that stands still reads nothing. What does not fit into the socket's buffer would wait for ever, and everybody else for it,
    // pings included, by which the server would be found out.
    SET(nats.natsOptions_SetWriteDeadline(options, 5000));
    if (given->name) SET(nats.natsOptions_SetName(options, given->name));
    if (given->credentials) SET(nats.natsOptions_SetUserCredentialsFromFiles(options, given->credentials, NULL));
    if (given->encrypts) SET(nats.natsOptions_SetSecure(options, true));
    if (given->authorities) SET(nats.natsOptions_LoadCATrustedCertificates(options, given->authorities));
    SET(nats.natsConnection_Connect(&connection, options));
    SET(nats.natsConnection_JetStream(&context, connection, NULL));
    if (status == NATS_OK && !(result = malloc(sizeof *result))) status = NATS_NO_MEMORY;
    if (status != NATS_OK) {
        fail(failure, status, 0);
        nats.jsCtx_Destroy(context);
        nats.natsConnection_Destroy(connection);
    } else {
        *result = (struct ptt_nats){.connection = connection, .stream_context = context};
        pthread_mutex_init(&result->lock, NULL);
    }
    nats.natsOptions_Destroy(options);
    return result;
}

static void destroy(struct ptt_nats_subscription *subscriptions) {
    for (struct ptt_nats_subscription *next; subscriptions; subscriptions = next) {
        next = subscriptions->next;
        nats.natsSubscription_Destroy(subscriptions->subscription);
        free(subscriptions);
    }
}

void ptt_nats_close(struct ptt_nats *connection) {
    nats.jsCtx_Destroy(connection->stream_context);
    // Joins the thread that reads, which may still look at a subscription (ptt_nats_unsubscribe).
    nats.natsConnection_Close(connection->connection);
    destroy(connection->ended);
    pthread_mutex_destroy(&connection->lock);
    nats.natsConnection_Destroy(connection->connection);
    free(connection);
}

int64_t ptt_nats_payload_maximum(struct ptt_nats *connection) {
    return nats.natsConnection_GetMaxPayload(connection->connection);
}

bool ptt_nats_step_down(struct ptt_nats *connection, const char *stream, int64_t wait) {
    char subject[512];
    int length = snprintf(subject, sizeof subject, "$JS.API.STREAM.LEADER.STEPDOWN.%s", stream);
    if (length < 0 || (size_t)length >= sizeof subject) return false;
    natsMsg *answer = NULL;
    natsStatus status = nats.natsConnection_RequestString(&answer, connection->connection, subject, "", wait);
    nats.natsMsg_Destroy(answer);
    return status == NATS_OK;
}

bool ptt_nats_add_stream(struct ptt_nats *connection, const struct ptt_nats_stream *stream, int64_t wait, struct ptt_nats_failure *failure) {
    jsOptions options;
    jsStreamConfig config;
    jsErrCode code = 0;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    nats.jsStreamConfig_Init(&config);
    config.Name = stream->name;
    config.Subjects = (const char *[]){stream->subject};
    config.SubjectsLen = 1;
    config.Replicas = stream->replicas;
    config.MaxBytes = stream->bytes_maximum;
    config.Storage = js_FileStorage;
    if (stream->per_subject) {
        config.MaxMsgsPerSubject = stream->per_subject;
    } else {
        // No record is forgotten by the stream. What is before another beginning is purged.
        config.Discard = js_DiscardNew;
        config.DenyDelete = true;
    }
    natsStatus status = nats.js_AddStream(NULL, connection->stream_context, &config, &options, &code);
    return status == NATS_OK || fail(failure, status, code);
}

bool ptt_nats_stream_state(struct ptt_nats *connection, const char *stream, int64_t wait, struct ptt_nats_stream_state *state,
                           struct ptt_nats_failure *failure) {
    jsOptions options;
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    natsStatus status = nats.js_GetStreamInfo(&info, connection->stream_context, stream, &options, &code);
    if (status != NATS_OK) return fail(failure, status, code);
    *state = (struct ptt_nats_stream_state){
        info->State.FirstSeq, info->State.LastSeq, info->State.Msgs, info->State.Bytes, info->Config->MaxBytes,
        info->Config->Replicas, info->Config->DenyPurge};
    nats.jsStreamInfo_Destroy(info);
    return true;
}

bool ptt_nats_purge(struct ptt_nats *connection, const char *stream, uint64_t first, int64_t wait, struct ptt_nats_failure *failure) {
    jsOptions options;
    jsErrCode code = 0;
    // To servers, 0 and 1 mean all messages.
    if (first <= 1) return true;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    options.Stream.Purge.Sequence = first;
    natsStatus status = nats.js_PurgeStream(connection->stream_context, stream, &options, &code);
    return status == NATS_OK || fail(failure, status, code);
}

bool ptt_nats_publish(struct ptt_nats *connection, const char *stream, const char *subject, const void *bytes, int count, uint64_t expected,
                      bool of_subject, int64_t wait, uint64_t *sequence, struct ptt_nats_failure *failure) {
    jsPubOptions options;
    jsPubAck *ack = NULL;
    jsErrCode code = 0;
    nats.jsPubOptions_Init(&options);
    options.MaxWait = wait;
    options.ExpectStream = stream;
    if (expected != PTT_NATS_ANY) {
        if (of_subject) {
            options.ExpectLastSubjectSeq = expected;
        } else {
            options.ExpectLastSeq = expected;
        }
        options.ExpectNoMessage = expected == 0;
    }
    natsStatus status = nats.js_Publish(&ack, connection->stream_context, subject, bytes, count, &options, &code);
    if (status != NATS_OK) return fail(failure, status, code);
    *sequence = ack->Sequence;
    nats.jsPubAck_Destroy(ack);
    return true;
}

static bool hand_over(natsStatus status, jsErrCode code, natsMsg *message, ptt_nats_reader reader, void *context,
                      struct ptt_nats_failure *failure) {
    if (status != NATS_OK) return fail(failure, status, code);
    reader(context, nats.natsMsg_GetSequence(message), nats.natsMsg_GetData(message), nats.natsMsg_GetDataLength(message));
    nats.natsMsg_Destroy(message);
    return true;
}

bool ptt_nats_read(struct ptt_nats *connection, const char *stream, uint64_t sequence, int64_t wait, ptt_nats_reader reader, void *context,
                   struct ptt_nats_failure *failure) {
    jsOptions options;
    natsMsg *message = NULL;
    jsErrCode code = 0;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    natsStatus status = nats.js_GetMsg(&message, connection->stream_context, stream, sequence, &options, &code);
    return hand_over(status, code, message, reader, context, failure);
}

bool ptt_nats_read_last(struct ptt_nats *connection, const char *stream, const char *subject, int64_t wait, ptt_nats_reader reader,
                        void *context, struct ptt_nats_failure *failure) {
    jsOptions options;
    natsMsg *message = NULL;
    jsErrCode code = 0;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    natsStatus status = nats.js_GetLastMsg(&message, connection->stream_context, stream, subject, &options, &code);
    return hand_over(status, code, message, reader, context, failure);
}

bool ptt_nats_subjects(struct ptt_nats *connection, const char *stream, const char *filter, int64_t wait, ptt_nats_reader reader,
                       void *context, struct ptt_nats_failure *failure) {
    jsOptions options;
    jsStreamInfo *info = NULL;
    jsErrCode code = 0;
    nats.jsOptions_Init(&options);
    options.Wait = wait;
    options.Stream.Info.SubjectsFilter = filter;
    natsStatus status = nats.js_GetStreamInfo(&info, connection->stream_context, stream, &options, &code);
    if (status != NATS_OK) return fail(failure, status, code);
    for (int i = 0; info->State.Subjects && i < info->State.Subjects->Count; i++) {
        const char *subject = info->State.Subjects->List[i].Subject;
        reader(context, i, subject, (int)strlen(subject));
    }
    nats.jsStreamInfo_Destroy(info);
    return true;
}

bool ptt_nats_send(struct ptt_nats *connection, const char *subject, const void *bytes, int count, struct ptt_nats_failure *failure) {
    natsStatus status = nats.natsConnection_Publish(connection->connection, subject, bytes, count);
    return status == NATS_OK || fail(failure, status, 0);
}

bool ptt_nats_request(struct ptt_nats *connection, const char *subject, const void *bytes, int count, int64_t wait, ptt_nats_reader reader,
                      void *context, struct ptt_nats_failure *failure) {
    natsMsg *message = NULL;
    natsStatus status = nats.natsConnection_Request(&message, connection->connection, subject, bytes, count, wait);
    return hand_over(status, 0, message, reader, context, failure);
}

// Lives until libnats has handed over the subscription's last message.
struct delivery {
    ptt_nats_receiver receiver;
    ptt_nats_end end;
    void *context;
};

static void deliver(natsConnection *connection, natsSubscription *subscription, natsMsg *message, void *closure) {
    (void)connection, (void)subscription;
    const struct delivery *delivery = closure;
    if (!message) return;
    delivery->receiver(delivery->context, nats.natsMsg_GetData(message), nats.natsMsg_GetDataLength(message), nats.natsMsg_GetReply(message));
    nats.natsMsg_Destroy(message);
}

static void end_delivery(void *closure) {
    struct delivery *delivery = closure;
    delivery->end(delivery->context);
    free(delivery);
}

struct ptt_nats_subscription *ptt_nats_subscribe(struct ptt_nats *connection, const char *subject, int waiting_maximum, int bytes_maximum,
                                                 int64_t wait, ptt_nats_receiver receiver, ptt_nats_end end, void *context,
                                                 struct ptt_nats_failure *failure) {
    struct ptt_nats_subscription *result = malloc(sizeof *result);
    struct delivery *delivery = malloc(sizeof *delivery);
    natsStatus status = NATS_NO_MEMORY;
    if (result && delivery) {
        *result = (struct ptt_nats_subscription){NULL, NULL};
        *delivery = (struct delivery){receiver, end, context};
        status = nats.natsConnection_Subscribe(&result->subscription, connection->connection, subject, deliver, delivery);
    }
    if (status != NATS_OK) {
        // No message can have come, so nobody looks at it.
        fail(failure, status, 0);
        free(delivery);
        free(result);
        end(context);
        return NULL;
    }
    status = nats.natsSubscription_SetOnCompleteCB(result->subscription, end_delivery, delivery);
    // Where this fails, the connection has been closed for good meanwhile, and nothing says when the last message is handed over:
    // `delivery` stays for ever.
    SET(nats.natsSubscription_SetPendingLimits(result->subscription, waiting_maximum, bytes_maximum));
    if (status != NATS_OK) {
        fail(failure, status, 0);
        ptt_nats_unsubscribe(connection, result);
        return NULL;
    }
    // Once the server answers, it knows the subscription. Without a connection it is told when there is one.
    nats.natsConnection_FlushTimeout(connection->connection, wait);
    return result;
}

// How many subscriptions that have ended are kept, and how long a server may take to answer then, in milliseconds.
#define ENDED_MAXIMUM 8
#define ENDED_WAIT 1000

void ptt_nats_unsubscribe(struct ptt_nats *connection, struct ptt_nats_subscription *subscription) {
    nats.natsSubscription_Unsubscribe(subscription->subscription);
    // The thread of libnats 3.4 that reads looks a subscription up, and takes hold of it only later (natsConn_processMsg; not so in 3.6): it
    // must not go meanwhile. Once that thread reads the server's answer to something that is asked now, it has let go of those that have
    // ended before. That is asked for several at once, as it takes a while.
    struct ptt_nats_subscription *ended = NULL;
    pthread_mutex_lock(&connection->lock);
    subscription->next = connection->ended;
    connection->ended = subscription;
    if (++connection->ended_count % ENDED_MAXIMUM == 0) {
        ended = connection->ended;
        connection->ended = NULL;
    }
    pthread_mutex_unlock(&connection->lock);
    if (!ended) return;
    if (nats.natsConnection_FlushTimeout(connection->connection, ENDED_WAIT) == NATS_OK) {
        destroy(ended);
        return;
    }
    struct ptt_nats_subscription *last = ended;
    while (last->next) last = last->next;
    pthread_mutex_lock(&connection->lock);
    last->next = connection->ended;
    connection->ended = ended;
    pthread_mutex_unlock(&connection->lock);
}
