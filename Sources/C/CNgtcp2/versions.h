// One interface to ngtcp2 0.12 (Debian 12) and 1.x (Debian 13 and later), where they differ.
#pragma once

#include <ngtcp2/ngtcp2.h>

// Callbacks whose arguments differ: both forms are given, and the one that the library takes is used.
typedef int (*ptt_early_data_rejected_cb)(ngtcp2_conn *, void *);
typedef int (*ptt_token_vector_cb)(ngtcp2_conn *, const ngtcp2_vec *, void *);
typedef int (*ptt_token_cb)(ngtcp2_conn *, const uint8_t *, size_t, void *);
typedef int (*ptt_path_cb)(ngtcp2_conn *, uint32_t, const ngtcp2_path *, ngtcp2_path_validation_result, void *);
typedef int (*ptt_paths_cb)(
    ngtcp2_conn *, uint32_t, const ngtcp2_path *, const ngtcp2_path *, ngtcp2_path_validation_result, void *);

#if NGTCP2_VERSION_NUM < 0x010000

typedef ngtcp2_conn_stat ptt_connection_info;
typedef ngtcp2_connection_close_error ptt_close_error;
#define PTT_STREAM_DATA_FLAG_EARLY NGTCP2_STREAM_DATA_FLAG_EARLY
#define PTT_DATAGRAM_FLAG_EARLY NGTCP2_DATAGRAM_FLAG_EARLY

static inline void ptt_get_connection_info(ngtcp2_conn *conn, ptt_connection_info *info) {
    ngtcp2_conn_get_conn_stat(conn, info);
}

static inline void ptt_set_original_id(ngtcp2_transport_params *parameters, const ngtcp2_cid *id) {
    parameters->original_dcid = *id;
}

// The congestion controller's unit is `max_tx_udp_payload_size` in any case.
static inline void ptt_set_shaping_off(ngtcp2_settings *settings) { (void)settings; }

static inline void ptt_set_token(ngtcp2_settings *settings, const uint8_t *token, size_t length) {
    settings->token.base = (uint8_t *)token;
    settings->token.len = length;
}

static inline const uint8_t *ptt_token(const ngtcp2_pkt_hd *header, size_t *length) {
    *length = header->token.len;
    return header->token.base;
}

static inline ngtcp2_ssize ptt_encode_early_parameters(ngtcp2_conn *conn, uint8_t *bytes, size_t count) {
    const ngtcp2_transport_params *parameters = ngtcp2_conn_get_remote_transport_params(conn);
    if (!parameters) return NGTCP2_ERR_INVALID_STATE;
    return ngtcp2_encode_transport_params(bytes, count, NGTCP2_TRANSPORT_PARAMS_TYPE_ENCRYPTED_EXTENSIONS, parameters);
}

static inline int ptt_set_early_parameters(ngtcp2_conn *conn, const uint8_t *bytes, size_t count) {
    ngtcp2_transport_params parameters;
    int status =
        ngtcp2_decode_transport_params(&parameters, NGTCP2_TRANSPORT_PARAMS_TYPE_ENCRYPTED_EXTENSIONS, bytes, count);
    if (status == 0) ngtcp2_conn_set_early_remote_transport_params(conn, &parameters);
    return status;
}

static inline int ptt_early_data_rejected(ngtcp2_conn *conn) { return ngtcp2_conn_early_data_rejected(conn); }

static inline int ptt_shutdown_stream(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream(conn, stream, code);
}

static inline int ptt_shutdown_stream_read(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream_read(conn, stream, code);
}

static inline int ptt_shutdown_stream_write(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream_write(conn, stream, code);
}

// The library's clock may be set back here, so that a few packets are no burst that has to be paced.
static inline void ptt_packets_sent(ngtcp2_conn *conn, ngtcp2_tstamp now, ngtcp2_duration unpaced) {
    ngtcp2_conn_update_pkt_tx_time(conn, now - (now < unpaced ? now : unpaced));
}

static inline void ptt_get_close_error(ngtcp2_conn *conn, ptt_close_error *error) {
    ngtcp2_conn_get_connection_close_error(conn, error);
}

static inline int ptt_is_application_error(const ptt_close_error *error) {
    return error->type == NGTCP2_CONNECTION_CLOSE_ERROR_CODE_TYPE_APPLICATION;
}

static inline void ptt_set_application_error(ptt_close_error *error, uint64_t code, const uint8_t *reason, size_t length) {
    ngtcp2_connection_close_error_set_application_error(error, code, reason, length);
}

static inline void ptt_set_tls_alert(ptt_close_error *error, uint8_t alert) {
    ngtcp2_connection_close_error_set_transport_error_tls_alert(error, alert, NULL, 0);
}

static inline void ptt_set_library_error(ptt_close_error *error, int status) {
    ngtcp2_connection_close_error_set_transport_error_liberr(error, status, NULL, 0);
}

static inline void ptt_set_early_data_callback(ngtcp2_callbacks *callbacks, ptt_early_data_rejected_cb rejected) {
    callbacks->early_data_rejected = rejected;
}

static inline void ptt_set_token_callback(ngtcp2_callbacks *callbacks, ptt_token_vector_cb vector, ptt_token_cb token) {
    (void)token;
    callbacks->recv_new_token = vector;
}

static inline void ptt_set_path_callback(ngtcp2_callbacks *callbacks, ptt_path_cb path, ptt_paths_cb paths) {
    (void)paths;
    callbacks->path_validation = path;
}

#else

typedef ngtcp2_conn_info ptt_connection_info;
typedef ngtcp2_ccerr ptt_close_error;
#define PTT_STREAM_DATA_FLAG_EARLY NGTCP2_STREAM_DATA_FLAG_0RTT
#define PTT_DATAGRAM_FLAG_EARLY NGTCP2_DATAGRAM_FLAG_0RTT

static inline void ptt_get_connection_info(ngtcp2_conn *conn, ptt_connection_info *info) {
    ngtcp2_conn_get_conn_info(conn, info);
}

static inline void ptt_set_original_id(ngtcp2_transport_params *parameters, const ngtcp2_cid *id) {
    parameters->original_dcid = *id;
    parameters->original_dcid_present = 1;
}

// The congestion controller's unit is `max_tx_udp_payload_size` only when packets are not shaped to the path.
static inline void ptt_set_shaping_off(ngtcp2_settings *settings) { settings->no_tx_udp_payload_size_shaping = 1; }

static inline void ptt_set_token(ngtcp2_settings *settings, const uint8_t *token, size_t length) {
    settings->token = token;
    settings->tokenlen = length;
}

static inline const uint8_t *ptt_token(const ngtcp2_pkt_hd *header, size_t *length) {
    *length = header->tokenlen;
    return header->token;
}

static inline ngtcp2_ssize ptt_encode_early_parameters(ngtcp2_conn *conn, uint8_t *bytes, size_t count) {
    return ngtcp2_conn_encode_0rtt_transport_params(conn, bytes, count);
}

static inline int ptt_set_early_parameters(ngtcp2_conn *conn, const uint8_t *bytes, size_t count) {
    return ngtcp2_conn_decode_and_set_0rtt_transport_params(conn, bytes, count);
}

static inline int ptt_early_data_rejected(ngtcp2_conn *conn) { return ngtcp2_conn_tls_early_data_rejected(conn); }

static inline int ptt_shutdown_stream(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream(conn, 0, stream, code);
}

static inline int ptt_shutdown_stream_read(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream_read(conn, 0, stream, code);
}

static inline int ptt_shutdown_stream_write(ngtcp2_conn *conn, int64_t stream, uint64_t code) {
    return ngtcp2_conn_shutdown_stream_write(conn, 0, stream, code);
}

// The library's clock never goes back here. Paced from now on, speech would wait after a gap, when the congestion window is smallest; so
// nothing is paced. The window and the owner's limits bound what goes out at once.
static inline void ptt_packets_sent(ngtcp2_conn *conn, ngtcp2_tstamp now, ngtcp2_duration unpaced) {
    (void)conn;
    (void)now;
    (void)unpaced;
}

static inline void ptt_get_close_error(ngtcp2_conn *conn, ptt_close_error *error) { *error = *ngtcp2_conn_get_ccerr(conn); }

static inline int ptt_is_application_error(const ptt_close_error *error) {
    return error->type == NGTCP2_CCERR_TYPE_APPLICATION;
}

static inline void ptt_set_application_error(ptt_close_error *error, uint64_t code, const uint8_t *reason, size_t length) {
    ngtcp2_ccerr_set_application_error(error, code, reason, length);
}

static inline void ptt_set_tls_alert(ptt_close_error *error, uint8_t alert) {
    ngtcp2_ccerr_set_tls_alert(error, alert, NULL, 0);
}

static inline void ptt_set_library_error(ptt_close_error *error, int status) {
    ngtcp2_ccerr_set_liberr(error, status, NULL, 0);
}

static inline void ptt_set_early_data_callback(ngtcp2_callbacks *callbacks, ptt_early_data_rejected_cb rejected) {
    callbacks->tls_early_data_rejected = rejected;
}

static inline void ptt_set_token_callback(ngtcp2_callbacks *callbacks, ptt_token_vector_cb vector, ptt_token_cb token) {
    (void)vector;
    callbacks->recv_new_token = token;
}

static inline void ptt_set_path_callback(ngtcp2_callbacks *callbacks, ptt_path_cb path, ptt_paths_cb paths) {
    (void)path;
    callbacks->path_validation = paths;
}

#endif
