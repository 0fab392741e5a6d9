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
    F(natsOptions_SetMaxPingsOut) F(natsOptions_SetErrorHandler) F(natsConnection_Connect) F(natsConnection_Destroy) \
    F(natsConnection_RequestString) F(natsConnection_GetMaxPayload) F(natsConnection_JetStream) F(jsCtx_Destroy) F(jsOptions_Init) F(jsPubOptions_Init) \
    F(jsStreamConfig_Init) F(js_AddStream) F(js_GetStreamInfo) F(jsStreamInfo_Destroy) F(js_PurgeStream) F(js_Publish) F(jsPubAck_Destroy) \
    F(js_GetMsg) F(js_GetLastMsg) F(natsMsg_Destroy) F(natsMsg_GetData) F(natsMsg_GetDataLength) F(natsMsg_GetSequence) F(natsStatus_GetText) \
    F(nats_GetLastError)

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
        *result = (struct ptt_nats){connection, context};
    }
    nats.natsOptions_Destroy(options);
    return result;
}

void ptt_nats_close(struct ptt_nats *connection) {
    nats.jsCtx_Destroy(connection->stream_context);
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
    if (of_subject) {
        options.ExpectLastSubjectSeq = expected;
    } else {
        options.ExpectLastSeq = expected;
    }
    options.ExpectNoMessage = expected == 0;
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
