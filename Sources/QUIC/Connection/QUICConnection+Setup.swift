// Making the library's objects for a connection: limits, callbacks, TLS.
import CGnuTLS
import CLinux
import CNgtcp2
import MonotonicTime

extension QUICConnection {
    /// What a server has learnt from the packet that starts a connection.
    struct Beginning {
        /// Its header, with the id that the client chose for the server, and the client's own.
        let packet: ngtcp2_pkt_hd
        /// The id that the client chose first, when a Retry came in between.
        var originalDestination: ngtcp2_cid?
        /// What proves the client's address; the bytes are the packet's.
        var token: UnsafeBufferPointer<UInt8>?
    }

    private static let quicVersion1: UInt32 = 1
    /// Ids that the peer may give this side in advance: a spare for each path change of the next moment.
    private static let spareConnectionIDs: UInt64 = 5
    /// RFC 8446, section 6.
    private static let unexpectedMessageAlert: UInt8 = 10

    /// Creates the server's side of a connection.
    func startServer(_ beginning: Beginning, options: QUICServerOptions) throws(QUICError) {
        var settings = makeSettings()
        ptt_set_token(&settings, beginning.token?.baseAddress, beginning.token?.count ?? 0)
        var parameters = makeParameters()
        var source = ngtcp2_cid()
        let own = endpoint.makeConnectionID(&source)
        var original = beginning.originalDestination ?? beginning.packet.dcid
        ptt_set_original_id(&parameters, &original)
        if beginning.originalDestination != nil {
            parameters.retry_scid = beginning.packet.dcid
            parameters.retry_scid_present = 1
        }
        parameters.stateless_reset_token_present = 1
        withUnsafeMutableBytes(of: &parameters.stateless_reset_token) {
            endpoint.makeResetToken(for: &source, into: $0)
        }
        var callbacks = Self.makeCallbacks()
        callbacks.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb
        callbacks.recv_crypto_data = { conn, level, offset, bytes, length, data in
            guard QUICConnection.of(data)?.session == nil else {
                return ngtcp2_crypto_recv_crypto_data_cb(conn, level, offset, bytes, length, data)
            }
            // A client says nothing after its handshake: it may not change keys so (RFC 9001, section 6), and was asked for nothing.
            ngtcp2_conn_set_tls_alert(conn, QUICConnection.unexpectedMessageAlert)
            return NGTCP2_ERR_CRYPTO
        }
        memory = endpoint.stage.flatMap { ConnectionMemory(on: $0) }
        memory?.enter()
        var peer = beginning.packet.scid
        var created: OpaquePointer?
        let status = socket.withPath(from: local.endIfAny, to: remote.end) { path in
            ngtcp2_conn_server_new_versioned(
                &created, &peer, &source, path, beginning.packet.version, NGTCP2_CALLBACKS_VERSION, &callbacks,
                NGTCP2_SETTINGS_VERSION, &settings, NGTCP2_TRANSPORT_PARAMS_VERSION, &parameters, memory?.allocator,
                Unmanaged.passUnretained(self).toOpaque())
        }
        guard status == 0, let created else { throw QUICError.ngtcp2("ngtcp2_conn_server_new", status) }
        conn = created
        keepQUICBit(created)
        let session = try TLSSession.server(of: self, options)
        self.session = session
        ngtcp2_conn_set_tls_native_handle(created, UnsafeMutableRawPointer(session.handle))
        register(own)
        // The one that the peer uses until it moves.
        let length = source.datalen
        destination = (own, withUnsafeBytes(of: source.data) { Array($0.prefix(length)) })
    }

    /// A server's handshake is complete, and all that it says of TLS is queued: the session, a third of a connection's memory, is of no more
    /// use. The keys are the library's.
    func endTLS(_ conn: OpaquePointer) {
        ngtcp2_conn_set_tls_native_handle(conn, nil)
        session = nil
    }

    /// Creates the client's side; its first packet goes out with the next flush, and early data with it.
    func startClient(_ options: QUICClientOptions) throws(QUICError) {
        var settings = makeSettings()
        if let expected = options.expectedRoundTrip {
            // Not less: the way to a network that was just joined takes longer at first.
            settings.initial_rtt = min(settings.initial_rtt, max(100_000_000, UInt64(clamping: expected.nanoseconds)))
        }
        var parameters = makeParameters()
        var source = ngtcp2_cid()
        let own = endpoint.makeConnectionID(&source)
        var destination = ngtcp2_cid()
        endpoint.makeRandomConnectionID(&destination)
        var callbacks = Self.makeCallbacks()
        callbacks.client_initial = ngtcp2_crypto_client_initial_cb
        callbacks.recv_retry = ngtcp2_crypto_recv_retry_cb
        // State of another server, or one that must not be trusted any more, is as good as none.
        let resumption = options.resumption.flatMap {
            options.verification.accepts($0.serverKeySHA256) ? $0 : nil
        }
        var created: OpaquePointer?
        let status = (resumption?.token ?? []).withUnsafeBufferPointer { token in
            ptt_set_token(&settings, token.baseAddress, token.count)
            return socket.withPath(to: remote.end) { path in
                ngtcp2_conn_client_new_versioned(
                    &created, &destination, &source, path, Self.quicVersion1, NGTCP2_CALLBACKS_VERSION,
                    &callbacks, NGTCP2_SETTINGS_VERSION, &settings, NGTCP2_TRANSPORT_PARAMS_VERSION,
                    &parameters, nil, Unmanaged.passUnretained(self).toOpaque())
            }
        }
        guard status == 0, let created else { throw QUICError.ngtcp2("ngtcp2_conn_client_new", status) }
        conn = created
        keepQUICBit(created)
        let session = try TLSSession.client(of: self, options)
        self.session = session
        ngtcp2_conn_set_tls_native_handle(created, UnsafeMutableRawPointer(session.handle))
        if let resumption { offerEarlyData(resumption, session, created) }
        register(own)
    }

    private func offerEarlyData(_ resumption: ResumptionState, _ session: TLSSession, _ conn: OpaquePointer) {
        guard session.resume(resumption.session) else { return }
        // Those that another version of the library has written are not read; then there is no early data.
        let parameters = resumption.transportParameters
        guard ptt_set_early_parameters(conn, parameters, parameters.count) == 0 else { return }
        earlyData = .offered
    }

    private func makeSettings() -> ngtcp2_settings {
        var settings = ngtcp2_settings()
        ngtcp2_settings_default_versioned(NGTCP2_SETTINGS_VERSION, &settings)
        settings.initial_ts = endpoint.timestamp()
        settings.handshake_timeout = UInt64(clamping: endpoint.configuration.handshakeTimeout.nanoseconds)
        settings.rand_ctx.native_handle = UnsafeMutableRawPointer(reference)
        settings.ack_thresh = endpoint.configuration.acknowledgementThreshold
        // Voice packets are small; probing for more would only wake radios.
        settings.no_pmtud = 1
        // The congestion controller's unit only, as packets are neither probed for nor shaped to it: it never goes below two
        // of them. Half of what the controller calls congestion is a radio that loses packets, and voice is thin.
        ptt_set_shaping_off(&settings)
        settings.max_tx_udp_payload_size = max(
            settings.max_tx_udp_payload_size, endpoint.configuration.congestionWindowFloor / 2)
        return settings
    }

    private func makeParameters() -> ngtcp2_transport_params {
        let configuration = endpoint.configuration
        var parameters = ngtcp2_transport_params()
        ngtcp2_transport_params_default_versioned(NGTCP2_TRANSPORT_PARAMS_VERSION, &parameters)
        parameters.initial_max_stream_data_bidi_local = UInt64(configuration.streamReceiveWindow)
        parameters.initial_max_stream_data_bidi_remote = UInt64(configuration.streamReceiveWindow)
        parameters.initial_max_data = UInt64(configuration.connectionReceiveWindow)
        parameters.initial_max_streams_bidi = UInt64(configuration.maximumPeerStreams)
        // The library never forgets a unidirectional stream of the peer (0.12).
        parameters.initial_max_streams_uni = 0
        parameters.max_idle_timeout = UInt64(clamping: configuration.idleTimeout.nanoseconds)
        parameters.max_udp_payload_size = UInt64(PacketReceiver.largestPacket)
        parameters.max_datagram_frame_size =
            configuration.maximumDatagram == 0 ? 0 : UInt64(configuration.maximumDatagram + Self.datagramFrameOverhead)
        parameters.active_connection_id_limit = Self.spareConnectionIDs
        return parameters
    }

    /// The port is shared by first byte, so peers must not be invited to vary the QUIC bit (RFC 9443, section 3). The
    /// library invites them whatever it is given, but encodes what stands here when the handshake begins.
    private func keepQUICBit(_ conn: OpaquePointer) {
        guard let parameters = ngtcp2_conn_get_local_transport_params(conn) else { return }
        UnsafeMutablePointer(mutating: parameters).pointee.grease_quic_bit = 0
    }

    /// When the peer's address changes twice in a moment, the library counts ids on their way out as still in use, and
    /// rejects the peer's next one as one too many. It ignores ids beyond its pool of eight, so it is safe to allow
    /// more; the handshake has told the peer the real number.
    func tolerateSpareConnectionIDs(_ conn: OpaquePointer) {
        guard let parameters = ngtcp2_conn_get_local_transport_params(conn) else { return }
        UnsafeMutablePointer(mutating: parameters).pointee.active_connection_id_limit = 64
    }

    func register(_ id: ConnectionID) {
        ids.append(id)
        endpoint.routes[id] = .connection(self)
    }
}
