// What the QUIC library calls while it reads or writes packets. Nothing here calls back into it but for what its
// manual allows, and nothing here calls the owner: events are queued.
import CGnuTLS
import CLinux
import CNgtcp2
import Synchronization

extension QUICConnection {
    static func of(_ userData: UnsafeMutableRawPointer?) -> QUICConnection? {
        userData.map { Unmanaged<QUICConnection>.fromOpaque($0).takeUnretainedValue() }
    }

    /// The connection that a TLS session serves.
    static func of(_ session: gnutls_session_t) -> QUICConnection? {
        guard let pointer = gnutls_session_get_ptr(session) else { return nil }
        return of(pointer.assumingMemoryBound(to: ngtcp2_crypto_conn_ref.self).pointee.user_data)
    }

    static func makeCallbacks() -> ngtcp2_callbacks {
        var callbacks = ngtcp2_callbacks()
        callbacks.recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb
        callbacks.encrypt = ngtcp2_crypto_encrypt_cb
        callbacks.decrypt = { result, aead, context, bytes, length, nonce, nonceLength, header, headerLength in
            ptt_note_opened(header, headerLength)
            return ngtcp2_crypto_decrypt_cb(
                result, aead, context, bytes, length, nonce, nonceLength, header, headerLength)
        }
        callbacks.hp_mask = ngtcp2_crypto_hp_mask_cb
        callbacks.update_key = ngtcp2_crypto_update_key_cb
        callbacks.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb
        callbacks.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb
        callbacks.get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb
        callbacks.version_negotiation = ngtcp2_crypto_version_negotiation_cb
        callbacks.rand = { destination, length, context in
            guard let destination, length > 0 else { return }
            _ = gnutls_rnd(GNUTLS_RND_NONCE, destination, length)
            // While it creates a connection the library asks by an odd byte whether to vary the QUIC bit: never.
            let reference = context?.pointee.native_handle?.assumingMemoryBound(to: ngtcp2_crypto_conn_ref.self)
            if QUICConnection.of(reference?.pointee.user_data)?.conn == nil { destination[0] &= 0xFE }
        }
        addHandshakeCallbacks(&callbacks)
        addStreamCallbacks(&callbacks)
        addPathCallbacks(&callbacks)
        return callbacks
    }

    private static func addHandshakeCallbacks(_ callbacks: inout ngtcp2_callbacks) {
        callbacks.handshake_completed = { _, data in
            guard let connection = QUICConnection.of(data), connection.handshakeCompleted() else {
                return NGTCP2_ERR_CALLBACK_FAILURE
            }
            return 0
        }
        ptt_set_token_callback(
            &callbacks,
            { _, token, data in
                guard let token = token?.pointee else { return 0 }
                return tell(data) { $0.received(token: token.base, token.len) }
            },
            { _, token, length, data in
                tell(data) { $0.received(token: token, length) }
            })
        ptt_set_early_data_callback(&callbacks) { _, data in
            tell(data) {
                $0.earlyData = .rejected
                $0.earlyDataStreamsLost = true
            }
        }
        callbacks.recv_stateless_reset = { _, _, data in
            tell(data) { $0.resetReceived = true }
        }
    }

    private static func addStreamCallbacks(_ callbacks: inout ngtcp2_callbacks) {
        callbacks.stream_open = { _, id, data in
            tell(data) { $0.streamOpened(id) }
        }
        callbacks.recv_stream_data = { _, flags, id, _, bytes, length, data, _ in
            tell(data) {
                $0.streamReceived(
                    id, UnsafeBufferPointer(start: bytes, count: length),
                    isEnd: flags & NGTCP2_STREAM_DATA_FLAG_FIN != 0, isEarly: flags & PTT_STREAM_DATA_FLAG_EARLY != 0)
            }
        }
        callbacks.acked_stream_data_offset = { _, id, offset, length, data, _ in
            tell(data) { $0.streamAcknowledged(id, upTo: Int(clamping: offset &+ length)) }
        }
        callbacks.stream_close = { _, flags, id, code, data, _ in
            let reset = flags & NGTCP2_STREAM_CLOSE_FLAG_APP_ERROR_CODE_SET != 0
            return tell(data) { $0.streamClosed(id, errorCode: reset ? code : nil) }
        }
        callbacks.stream_reset = { _, id, _, _, data, _ in
            tell(data) { $0.streamReset(id) }
        }
        callbacks.recv_datagram = { _, flags, bytes, length, data in
            tell(data) {
                $0.datagramReceived(
                    UnsafeBufferPointer(start: bytes, count: length), isEarly: flags & PTT_DATAGRAM_FLAG_EARLY != 0)
            }
        }
        callbacks.ack_datagram = { _, id, data in
            tell(data) { $0.post(.datagramAcknowledged(id)) }
        }
        callbacks.lost_datagram = { _, id, data in
            tell(data) { $0.post(.datagramLost(id)) }
        }
    }

    private static func addPathCallbacks(_ callbacks: inout ngtcp2_callbacks) {
        callbacks.get_new_connection_id = { _, id, token, _, data in
            guard let connection = QUICConnection.of(data), let id, let token else {
                return NGTCP2_ERR_CALLBACK_FAILURE
            }
            let own = connection.endpoint.makeConnectionID(&id.pointee)
            connection.endpoint.makeResetToken(
                for: &id.pointee, into: UnsafeMutableRawBufferPointer(start: token, count: 16))
            connection.register(own)
            return 0
        }
        callbacks.remove_connection_id = { _, id, data in
            guard let connection = QUICConnection.of(data), let id, let own = ConnectionID(id.pointee) else { return 0 }
            connection.ids.removeAll { $0 == own }
            connection.endpoint.routes[own] = nil
            return 0
        }
        ptt_set_path_callback(
            &callbacks,
            { _, _, path, result, data in
                tell(data) { $0.tried(path, result) }
            },
            { _, _, path, _, result, data in
                tell(data) { $0.tried(path, result) }
            })
    }

    /// A token came by which the server knows this end's address next time.
    private func received(token: UnsafePointer<UInt8>?, _ length: Int) {
        guard let token else { return }
        addressToken = Array(UnsafeBufferPointer(start: token, count: length))
        resumptionChanged = true
    }

    /// A path to the peer has been tried.
    private func tried(_ path: UnsafePointer<ngtcp2_path>?, _ result: ngtcp2_path_validation_result) {
        guard let path = path?.pointee, let remote = NetworkEnd(path.remote).value,
            let local = NetworkEnd(path.local).value
        else { return }
        if result == NGTCP2_PATH_VALIDATION_RESULT_SUCCESS {
            validatedPath = (remote, local)
        } else if migration?.target.localAddress == local {
            migration?.hasFailed = true
        }
    }

    // MARK: Handshake

    /// Whether the peer has shown a certificate that is good enough. GnuTLS asks that in a full handshake.
    func verifyPeer() -> Bool {
        guard let hash = session?.peerKeyHash else {
            failure = .peerCertificateMissing
            return false
        }
        return accept(hash)
    }

    func accept(_ hash: [UInt8]) -> Bool {
        let verification =
            switch role {
            case .client(let options): options.verification
            case .server(let options): options.verification
            }
        guard verification.accepts(hash) else {
            failure = .peerKeyRejected(sha256: hash)
            return false
        }
        peerKeySHA256 = hash
        return true
    }

    private func handshakeCompleted() -> Bool {
        guard let conn, let session else { return false }
        guard session.hasApplicationProtocol else {
            failure = .applicationProtocolMismatch
            return false
        }
        // A resumed handshake shows no certificate: the ticket remembers it, and the answer may have changed since.
        guard verifyPeer() else { return false }
        tolerateSpareConnectionIDs(conn)
        switch role {
        case .server:
            if session.sendTicket() { submitAddressToken(conn) }
        case .client:
            if earlyData == .offered {
                if session.earlyDataAccepted {
                    earlyData = .accepted
                } else {
                    guard ptt_early_data_rejected(conn) == 0 else { return false }
                }
            }
            ngtcp2_conn_set_keep_alive_timeout(conn, keepAliveNanoseconds)
        }
        isHandshakeComplete = true
        if let admittedFrom { endpoint.group.admission.withLock { $0.completed(admittedFrom) } }
        // Closed on early data: the next flush says so.
        guard closeRequest == nil else { return true }
        isReady = true
        post(.ready)
        return true
    }

    /// Spares the client the Retry next time; failing to make one costs only that.
    private func submitAddressToken(_ conn: OpaquePointer) {
        guard case .server(let options) = role else { return }
        var token = [UInt8](repeating: 0, count: 128)
        let key = options.keys.tokenKey
        let length = ngtcp2_crypto_generate_regular_token(
            &token, key, key.count, remote.end.socketAddress, remote.length, QUICEndpoint.wallClock())
        if length > 0 { _ = ngtcp2_conn_submit_new_token(conn, token, length) }
    }

    func ticketArrived() {
        hasTicket = true
        resumptionChanged = true
    }

    // MARK: Streams and datagrams

    private func streamOpened(_ id: Int64) {
        let stream = QUICStream(
            id: id, connection: self, isPeerInitiated: true, sendLimit: endpoint.configuration.streamSendBuffer)
        streams[id] = stream
        post(.opened(stream))
    }

    private func streamReceived(_ id: Int64, _ bytes: UnsafeBufferPointer<UInt8>, isEnd: Bool, isEarly: Bool) {
        guard let stream = streams[id] else { return }
        stream.received.append(contentsOf: bytes)
        if isEnd { stream.receivedEnd = true }
        if isEarly { stream.receivedEarlyData = true }
        postReadable(stream)
    }

    func postReadable(_ stream: QUICStream) {
        guard !stream.readableQueued else { return }
        stream.readableQueued = true
        post(.readable(stream))
    }

    private func streamAcknowledged(_ id: Int64, upTo offset: Int) {
        guard let stream = streams[id] else { return }
        stream.sending.acknowledge(upTo: offset)
        if stream.writableWanted, !stream.sendingClosed, stream.sending.available >= stream.sending.limit / 2 {
            stream.writableWanted = false
            post(.writable(stream))
        }
    }

    private func streamClosed(_ id: Int64, errorCode: UInt64?) {
        guard let stream = streams.removeValue(forKey: id), let conn else { return }
        stream.isOver = true
        // Nobody may read the rest; the connection's window must not shrink for it.
        ngtcp2_conn_extend_max_offset(conn, UInt64(stream.received.count + stream.creditKept))
        if stream.isPeerInitiated { ngtcp2_conn_extend_max_streams_bidi(conn, 1) }
        post(.streamClosed(stream, errorCode: errorCode))
    }

    /// The peer sends no more on it (RESET_STREAM).
    private func streamReset(_ id: Int64) {
        if let stream = streams[id] { post(.streamAbandoned(stream)) }
    }

    private func datagramReceived(_ bytes: UnsafeBufferPointer<UInt8>, isEarly: Bool) {
        readDatagram = bytes.count
        guard queuedDatagramEvents < endpoint.configuration.datagramReceiveQueue else {
            statistics.datagramsDroppedReceiving += 1
            return
        }
        queuedDatagramEvents += 1
        post(.datagram(Array(bytes), early: isEarly))
    }

    func post(_ event: Event) {
        events.append(event)
        endpoint.markEventful(self)
    }
}

extension ConnectionID {
    init?(_ id: ngtcp2_cid) {
        guard let made = withUnsafeBytes(of: id.data, { Self(UnsafeRawBufferPointer(rebasing: $0.prefix(id.datalen))) })
        else { return nil }
        self = made
    }
}

/// Tells the connection that the library names by `data`. Returns 0: all is well.
private func tell(_ data: UnsafeMutableRawPointer?, _ body: (QUICConnection) -> Void) -> Int32 {
    if let connection = QUICConnection.of(data) { body(connection) }
    return 0
}
