// A connection's turns: packets in, time passing, events out to the owner, and its end.
import CGnuTLS
import CLinux
import CNgtcp2
import MonotonicTime
import Reactor

extension QUICConnection {
    /// What is said to the peer at the end.
    enum Goodbye {
        /// Nothing: the peer knows, or is gone.
        case none
        case application((code: UInt64, reason: String))
        case tlsAlert(UInt8)
        case library(Int32)
    }

    /// Takes one packet that came for this connection.
    func receive(_ packet: PacketReceiver.Packet, on socket: UDPSocket) {
        guard let conn else { return }
        let now = Instant.now
        if silentSince != nil { silentSince = UInt64(now.nanoseconds) }
        lastHeard = now
        readDatagram = nil
        ptt_forget_opened()
        var info = ngtcp2_pkt_info()
        // A client's own address changes with the route, unseen; a server's is part of the path.
        let status = socket.withPath(from: isServer ? packet.local : nil, to: packet.remote) {
            ngtcp2_conn_read_pkt_versioned(
                conn, $0, NGTCP2_PKT_INFO_VERSION, &info,
                packet.bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), packet.bytes.count,
                UInt64(now.nanoseconds))
        }
        let number = AcknowledgementPace.Number(ptt_opened())
        if status == 0, let number, isDatagram(packet, number) {
            let due = acknowledgementPace.putOff(number, ifQuiet: mayPutOff(packet), at: now)
            settle(status, isAnswered: due == nil)
            if let due { wake(by: due) }
        } else {
            acknowledgementPace.note(number, at: now)
            settle(status)
            noticeStoppedStreams()
        }
    }

    /// Called when the library's next deadline has come.
    func handleExpiry() {
        guard let conn else { return }
        acknowledgementPace.woke(at: .now)
        settle(ngtcp2_conn_handle_expiry(conn, endpoint.timestamp()))
    }

    private func settle(_ status: Int32, isAnswered: Bool = true) {
        guard status == 0 else {
            end(afterError: status)
            return
        }
        if isServer, isHandshakeComplete, session != nil, let conn { endTLS(conn) }
        followPath()
        if migration?.hasFailed == true { endMigration(succeeded: false) }
        if resumptionChanged { postResumption() }
        if isAnswered { endpoint.markDirty(self) }
    }

    // MARK: Packets that only have to be acknowledged

    /// Whether the packet that was just read has one datagram and nothing else: that shows in its length. A frame of a byte or two may
    /// be beside one with a shorter header; none of those is urgent, and none stops a stream.
    private func isDatagram(_ packet: PacketReceiver.Packet, _ number: AcknowledgementPace.Number) -> Bool {
        guard let length = readDatagram else { return false }
        let frame = 1 + (length < 64 ? 1 : 2) + length
        return packet.bytes.count == 1 + ConnectionID.ownLength + number.byteCount + Self.tagLength + frame
    }

    /// Of every cipher of QUIC.
    private static let tagLength = 16

    /// Whether nothing but that packet calls for a flush: all is quiet, and it came by the path in use.
    private func mayPutOff(_ packet: PacketReceiver.Packet) -> Bool {
        guard isQuiet, !isDirty, isReady, closeRequest == nil, migration == nil, validatedPath == nil else {
            return false
        }
        return packet.remote.isSame(as: remote.end) && (packet.local?.isSame(as: local.endIfAny) ?? true)
    }

    /// What was put off is due then, if nothing else flushes before.
    private func wake(by due: Instant) {
        guard !deadline.isScheduled || deadline.latest > due else { return }
        endpoint.deadlines.schedule(deadline, at: due)
    }

    /// The peer takes nothing more on a stream that it opened (STOP_SENDING): its owner need not wait for the next write to learn it.
    private func noticeStoppedStreams() {
        for stream in streams.values where stream.isPeerInitiated && !stream.sendingClosed {
            guard isStopped(stream) else { continue }
            stream.peerStopped()
            post(.streamAbandoned(stream))
        }
    }

    /// The library reports it only on a write. A write of more bytes than a stream can have is refused for that reason
    /// first, and sends nothing.
    private func isStopped(_ stream: QUICStream) -> Bool {
        guard let conn else { return false }
        var taken = 0
        var path = ngtcp2_path_storage()
        ngtcp2_path_storage_zero(&path)
        var info = ngtcp2_pkt_info()
        var impossible = ngtcp2_vec(base: nil, len: Int.max)
        let status = ngtcp2_conn_writev_stream_versioned(
            conn, &path.path, NGTCP2_PKT_INFO_VERSION, &info, nil, 0, &taken, NGTCP2_WRITE_STREAM_FLAG_NONE,
            stream.id, &impossible, 1, endpoint.timestamp())
        return status == NGTCP2_ERR_STREAM_SHUT_WR
    }

    /// Adopts a path that was validated, if it is the one in use: a validated one may be the old one.
    private func followPath() {
        guard let validated = validatedPath, let conn else { return }
        validatedPath = nil
        guard let path = ngtcp2_conn_get_path(conn)?.pointee,
            NetworkEnd(path.remote).value == validated.remote, NetworkEnd(path.local).value == validated.local
        else { return }
        let (old, oldLocal) = (remoteAddress, local.endIfAny?.value)
        if let new = endpoint.socket(at: validated.local) { socket = new }
        remote.set(NetworkEnd(path.remote))
        remoteAddress = validated.remote
        setLocal(isServer ? NetworkEnd(path.local) : nil)
        if let migration, migration.target === socket { endMigration(succeeded: true) }
        if remoteAddress != old || local.endIfAny?.value != oldLocal { post(.moved(from: old)) }
    }

    private func postResumption() {
        resumptionChanged = false
        guard hasTicket, let conn, let key = peerKeySHA256, let data = session?.resumptionData else { return }
        var encoded = [UInt8](repeating: 0, count: 512)
        let length = ptt_encode_early_parameters(conn, &encoded, encoded.count)
        guard length > 0 else { return }
        let state = ResumptionState(
            session: data, transportParameters: Array(encoded.prefix(length)), token: addressToken,
            serverKeySHA256: key)
        if state.isStorable { post(.resumption(state)) }
    }

    /// While something is unanswered, asks again after a moment of silence. Without it datagrams alone would never be asked
    /// about, and the back-off of probe time-outs (RFC 9002, section 6.2.1) would let seconds pass after a gap of seconds.
    func probe(_ conn: OpaquePointer, _ statistics: ptt_connection_info, at time: UInt64) {
        guard isReady else { return }
        let isWaiting = statistics.bytes_in_flight > 0 || awaitsAnswer
        guard isWaiting || silentSince != nil else { return }
        let since = silentSince ?? time
        silentSince = isWaiting ? since : nil
        var interval: UInt64 = 0
        let silence = time &- since
        if silentSince != nil, silence < UInt64(clamping: endpoint.configuration.probeTime.nanoseconds) {
            let isFirst = silence < UInt64(clamping: endpoint.configuration.probeTimeFirst.nanoseconds)
            let shortest =
                isFirst ? endpoint.configuration.probeIntervalFirst : endpoint.configuration.probeInterval
            interval = Self.probeInterval(shortest: shortest, roundTrip: statistics.smoothed_rtt)
        } else {
            interval = keepAliveNanoseconds
        }
        ngtcp2_conn_set_keep_alive_timeout(conn, interval)
    }

    /// How long an answer is waited for, in nanoseconds: on a long path it may still be on its way, and the peer may keep it back for
    /// `max_ack_delay`, as this end does (`timerSlack`).
    static func probeInterval(shortest: Duration, roundTrip: UInt64) -> UInt64 {
        let kept = UInt64(clamping: acknowledgementWait.nanoseconds)
        return max(UInt64(clamping: shortest.nanoseconds), roundTrip * 3 / 2, roundTrip + kept)
    }

    /// `max_ack_delay` of peers, which is 25 ms unless they say otherwise, and a moment for their timers.
    private static let acknowledgementWait = Duration.milliseconds(30)

    /// Has the endpoint wake for the library's next deadline.
    func updateDeadline(_ conn: OpaquePointer, _ statistics: ptt_connection_info) {
        isQuiet = isReady && statistics.bytes_in_flight == 0 && sendQueue.isEmpty && datagrams.isEmpty
        let expiry = ngtcp2_conn_get_expiry(conn)
        if expiry >= UInt64(Int64.max) {
            endpoint.deadlines.remove(deadline)
        } else {
            endpoint.deadlines.schedule(
                deadline, at: Instant(nanoseconds: Int64(expiry)), slack: timerSlack(statistics))
        }
    }

    /// While nothing of ours is unanswered, the next deadline is an acknowledgement at the earliest. The library makes it an eighth
    /// of a round trip late, but it has until `max_ack_delay` (RFC 9000, section 13.2.1), and may go with what the endpoint wakes for
    /// meanwhile: the talker's next packet, say.
    private func timerSlack(_ statistics: ptt_connection_info) -> Duration {
        guard isQuiet else { return .zero }
        return max(.zero, AcknowledgementPace.longest - .nanoseconds(Int64(clamping: statistics.smoothed_rtt / 8)))
    }

    // MARK: Events

    /// Tells the owner what has happened since the last turn.
    func deliverEvents() {
        guard announce() else { return }
        let batch = events
        events = []
        queuedDatagramEvents = 0
        for event in batch { deliver(event) }
    }

    /// Shows a server's new connection to the endpoint's owner as soon as the peer is authenticated; false before that.
    private func announce() -> Bool {
        guard !isAnnounced else { return true }
        if closeReason != nil {
            events = []
            endpoint.statistics.handshakesFailed += 1
            return false
        }
        if !isReady {
            guard let hash = session?.peerKeyHash ?? peerKeySHA256, accept(hash) else { return false }
        }
        isAnnounced = true
        endpoint.statistics.accepted += 1
        endpoint.delegate?.endpoint(endpoint, didAccept: self)
        return true
    }

    private func deliver(_ event: Event) {
        switch event {
        case .ready: delegate?.connectionDidBecomeReady(self)
        case .opened(let stream): delegate?.connection(self, didOpen: stream)
        case .readable(let stream):
            stream.readableQueued = false
            delegate?.connection(self, streamDidBecomeReadable: stream)
        case .writable(let stream): delegate?.connection(self, streamDidBecomeWritable: stream)
        case .streamClosed(let stream, let code): delegate?.connection(self, didClose: stream, errorCode: code)
        case .streamAbandoned(let stream): delegate?.connection(self, didAbandon: stream)
        case .datagram(let bytes, let early):
            delegate?.connection(self, didReceiveDatagram: bytes, isEarlyData: early)
        case .datagramAcknowledged(let id): delegate?.connection(self, didAcknowledgeDatagram: id)
        case .datagramLost(let id): delegate?.connection(self, didLoseDatagram: id)
        case .moved(let old): delegate?.connection(self, didMoveFrom: old)
        case .migrated(let succeeded): delegate?.connection(self, didEndMigration: succeeded)
        case .refused: delegate?.connectionWasRefused(self)
        case .resumption(let state): delegate?.connection(self, didReceive: state)
        case .closed(let reason): delegate?.connection(self, didClose: reason)
        }
    }

    // MARK: The end

    /// Ends the connection because the library said `status` on reading, writing or expiry.
    func end(afterError status: Int32) {
        guard let conn else { return }
        switch status {
        case NGTCP2_ERR_DRAINING: end(resetReceived ? .statelessReset : peersReason(conn), send: .none)
        case NGTCP2_ERR_IDLE_CLOSE: end(.idleTimeout, send: .none)
        case NGTCP2_ERR_HANDSHAKE_TIMEOUT: end(.handshakeTimeout, send: .none)
        case NGTCP2_ERR_RECV_VERSION_NEGOTIATION: end(.versionMismatch, send: .none)
        case NGTCP2_ERR_DROP_CONN, NGTCP2_ERR_RETRY:
            end(libraryReason(status), send: .none)
        case NGTCP2_ERR_CRYPTO:
            let alert = ngtcp2_conn_get_tls_alert(conn)
            end(failure ?? Self.reason(alert: alert, fromPeer: false), send: .tlsAlert(alert))
        default:
            // A refusal by `handshakeCompleted` carries no alert of its own.
            if let failure {
                end(failure, send: .tlsAlert(Self.alert(for: failure)))
            } else {
                end(libraryReason(status), send: .library(status))
            }
        }
    }

    private func libraryReason(_ status: Int32) -> QUICCloseReason {
        .transportError(
            code: ngtcp2_err_infer_quic_transport_error_code(status), reason: String(cString: ngtcp2_strerror(status)),
            fromPeer: false)
    }

    private func peersReason(_ conn: OpaquePointer) -> QUICCloseReason {
        var error = ptt_close_error()
        ptt_get_close_error(conn, &error)
        let text = String(decoding: UnsafeBufferPointer(start: error.reason, count: error.reasonlen), as: UTF8.self)
        if ptt_is_application_error(&error) != 0 {
            return .closedByPeer(code: error.error_code, reason: text)
        }
        if error.error_code & ~0xFF == UInt64(NGTCP2_CRYPTO_ERROR) {
            return Self.reason(alert: UInt8(truncatingIfNeeded: error.error_code), fromPeer: true)
        }
        return .transportError(code: error.error_code, reason: text, fromPeer: true)
    }

    /// Alerts of RFC 8446, section 6, that say something about this product's use.
    private static func reason(alert: UInt8, fromPeer: Bool) -> QUICCloseReason {
        switch alert {
        case 116: fromPeer ? .ownCertificateMissing : .peerCertificateMissing
        case 120: .applicationProtocolMismatch
        case 42...46 where fromPeer, 48...49 where fromPeer: .ownKeyRejected
        default: .tlsAlert(alert, fromPeer: fromPeer)
        }
    }

    private static func alert(for failure: QUICCloseReason) -> UInt8 {
        switch failure {
        case .peerCertificateMissing: 116
        case .applicationProtocolMismatch: 120
        default: 42
        }
    }

    /// Ends the connection: informs the peer, frees its memory, and leaves an answer for late packets.
    func end(_ reason: QUICCloseReason, send goodbye: Goodbye) {
        guard let conn else { return }
        let packet = write(goodbye, conn)
        let closingPeriod = Duration.nanoseconds(3 * Int64(clamping: ngtcp2_conn_get_pto(conn)))
        endpoint.deadlines.remove(deadline)
        endpoint.replace(self, by: packet, for: closingPeriod)
        memory?.enter()
        ngtcp2_conn_del(conn)
        self.conn = nil
        session = nil
        memory = nil
        for stream in streams.values { stream.isOver = true }
        streams = [:]
        sendQueue = []
        datagrams = []
        isReady = false
        migration = nil
        closeReason = reason
        post(.closed(reason))
    }

    private func write(_ goodbye: Goodbye, _ conn: OpaquePointer) -> [UInt8] {
        var error = ptt_close_error()
        var reason: [UInt8] = []
        switch goodbye {
        case .none: return []
        case .application(let request): reason = Array(request.reason.utf8)
        case .tlsAlert(let alert): ptt_set_tls_alert(&error, alert)
        case .library(let status): ptt_set_library_error(&error, status)
        }
        var packet = [UInt8](repeating: 0, count: Self.packetByteCountMaximum)
        var path = ngtcp2_path_storage()
        ngtcp2_path_storage_zero(&path)
        var info = ngtcp2_pkt_info()
        let length = reason.withUnsafeBufferPointer { reason in
            if case .application(let request) = goodbye {
                ptt_set_application_error(&error, request.code, reason.baseAddress, reason.count)
            }
            return ngtcp2_conn_write_connection_close_versioned(
                conn, &path.path, NGTCP2_PKT_INFO_VERSION, &info, &packet, packet.count, &error,
                endpoint.timestamp())
        }
        // Before there are keys, nothing can be written; the peer's time-out tells it.
        guard length > 0 else { return [] }
        packet.removeLast(packet.count - length)
        return packet
    }
}

extension AcknowledgementPace.Number {
    fileprivate init?(_ opened: ptt_packet_number) {
        guard opened.byte_count > 0 else { return nil }
        self.init(value: opened.value, byteCount: Int(opened.byte_count))
    }
}
