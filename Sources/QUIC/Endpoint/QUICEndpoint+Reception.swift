// Dispatches each received packet: to a connection, to the owner, to a new connection, or nowhere.
import CGnuTLS
import CLinux
import CNgtcp2
import Cryptography
import Glibc
import Logging
import MonotonicTime
import Synchronization

extension QUICEndpoint {
    /// Packets of one socket that a turn looks at, before other work on the loop has its turn.
    private static let packetsPerTurn = 4 * PacketReceiver.batch
    /// The time that pending handshakes get per turn. The first one is handled in any case.
    private static let pendingHandshakesTime: Duration = .milliseconds(1)
    /// The length of a stateless reset. It is at most one byte less than the packet that it answers, or two endpoints
    /// could answer each other for ever (RFC 9000, section 10.3.3). A lone PING, with which an idle client checks a
    /// server, has 39 bytes.
    static let resetLength = 40
    /// Below this nothing is taken for a stateless reset (RFC 9000, section 10.3).
    private static let resetLengthMinimum = 21
    private static let retryTokenLifetime: UInt64 = 10_000_000_000
    private static let addressTokenLifetime: UInt64 = 86_400_000_000_000

    func receive(from socket: UDPSocket) {
        var handled = 0
        while handled < Self.packetsPerTurn {
            let count = receiver.receive(from: socket)
            let waiting = pendingHandshakes.count
            for index in 0..<count {
                handle(receiver.packet(index, on: socket), on: socket)
                // The owner may have closed the endpoint on hearing of a foreign packet.
                if isClosed { return }
            }
            if count < PacketReceiver.batch { return }
            // To take those out is nearly nothing.
            handled += count - (pendingHandshakes.count - waiting)
        }
    }

    /// Looks at those who begin connections, while there is time.
    ///
    /// What an admitted client has sent right behind its first packet is looked at with it: early data that waited for another turn would
    /// be overtaken by the client's next flight, and be early no more.
    func receivePendingHandshakes() {
        guard pendingHandshakes.count > 0 else { return }
        let end = Instant.now + Self.pendingHandshakesTime
        repeat {
            guard let next = pendingHandshakes.takeFirst() else { return }
            next.withPacket { handleLongHeader($0, on: next.socket, isQueued: true) }
        } while !isClosed && (Instant.now < end || pendingHandshakes.first.map { $0.withPacket(isRouted) } == true)
    }

    /// Whether a packet with a long header is for a connection that exists.
    private func isRouted(_ packet: PacketReceiver.Packet) -> Bool {
        destination(of: packet).map { routes[$0] != nil } ?? false
    }

    private func destination(of packet: PacketReceiver.Packet) -> ConnectionID? {
        var header = ngtcp2_version_cid()
        let bytes = packet.bytes.assumingMemoryBound(to: UInt8.self)
        guard ngtcp2_pkt_decode_version_cid(&header, bytes.baseAddress, bytes.count, ConnectionID.ownLength) == 0
        else { return nil }
        return ConnectionID(UnsafeRawBufferPointer(start: header.dcid, count: header.dcidlen))
    }

    private func handle(_ packet: PacketReceiver.Packet, on socket: UDPSocket) {
        statistics.packetsReceived += 1
        guard let first = packet.bytes.first, !packet.isTruncated else {
            statistics.malformedPackets += 1
            return
        }
        switch PacketClass(firstByte: first) {
        case .foreign:
            statistics.foreignPacketsReceived += 1
            guard let address = packet.remote.value else { return }
            delegate?.endpoint(self, didReceiveForeignPacket: packet.bytes, from: address)
        case .shortHeader: handleShortHeader(packet, on: socket)
        case .longHeader: handleLongHeader(packet, on: socket)
        case .unknown: statistics.malformedPackets += 1
        }
    }

    private func dispatch(_ packet: PacketReceiver.Packet, to route: Route, on socket: UDPSocket) {
        switch route {
        case .connection(let connection):
            connection.receive(packet, on: socket)
        case .closing(let closing): closing.packetArrived(sender)
        }
    }

    private func handleShortHeader(_ packet: PacketReceiver.Packet, on socket: UDPSocket) {
        guard let id = ConnectionID(shortHeader: packet.bytes) else {
            statistics.malformedPackets += 1
            return
        }
        if let route = routes[id] {
            if case .connection(let connection) = route { connection.noteDestination(id, packet.bytes) }
            return dispatch(packet, to: route, on: socket)
        }
        statistics.strayPackets += 1
        if configuration.server != nil {
            sendStatelessReset(for: packet, on: socket)
        } else if let address = packet.remote.value {
            // A stateless reset names no connection: let those with this peer look at it. Clients have few.
            for connection in connections.values where connection.remoteAddress == address {
                dispatch(packet, to: .connection(connection), on: socket)
            }
        }
    }

    /// - Parameter isQueued: Whether it comes from the queue of pending handshakes.
    private func handleLongHeader(
        _ packet: PacketReceiver.Packet, on socket: UDPSocket, isQueued: Bool = false
    ) {
        var header = ngtcp2_version_cid()
        let bytes = packet.bytes.assumingMemoryBound(to: UInt8.self)
        let status = ngtcp2_pkt_decode_version_cid(&header, bytes.baseAddress, bytes.count, ConnectionID.ownLength)
        guard status == 0 || status == NGTCP2_ERR_VERSION_NEGOTIATION else {
            statistics.malformedPackets += 1
            return
        }
        let destination = UnsafeRawBufferPointer(start: header.dcid, count: header.dcidlen)
        if let id = ConnectionID(destination), let route = routes[id] {
            return dispatch(packet, to: route, on: socket)
        }
        guard let options = configuration.server, !isClosed else {
            statistics.strayPackets += 1
            return
        }
        if status == NGTCP2_ERR_VERSION_NEGOTIATION {
            sendVersionNegotiation(header, packet, on: socket)
        } else if isQueued {
            accept(packet, options, on: socket)
        } else if !pendingHandshakes.keep(packet, on: socket) {
            statistics.refusedForLoad += 1
        }
    }

    // MARK: Pending handshakes

    private func accept(_ packet: PacketReceiver.Packet, _ options: QUICServerOptions, on socket: UDPSocket) {
        let bytes = packet.bytes.assumingMemoryBound(to: UInt8.self)
        var header = ngtcp2_pkt_hd()
        guard ngtcp2_accept(&header, bytes.baseAddress, bytes.count) == 0 else {
            statistics.strayPackets += 1
            return
        }
        guard let address = packet.remote.value else { return }
        var tokenLength = 0
        let token = UnsafeBufferPointer(start: ptt_token(&header, &tokenLength), count: tokenLength)
        var beginning = QUICConnection.Beginning(packet: header)
        switch examineToken(token, header, packet, options) {
        case .proven(let original): (beginning.originalDestination, beginning.token) = (original, token)
        case .unproven: break
        case .forged: return sendInvalidToken(header, packet, on: socket)
        }
        let verdict = group.admission.withLock {
            $0.admit(address, isProven: beginning.token != nil, at: .now)
        }
        switch verdict {
        case .admitted: break
        case .mustProveAddress: return sendRetry(header, packet, options, on: socket)
        case .refused:
            statistics.refusedForLoad += 1
            return
        }
        let connection = QUICConnection(
            endpoint: self, role: .server(options), remote: address, local: packet.local, socket: socket)
        do {
            try connection.startServer(beginning, options: options)
        } catch {
            logger.error("cannot accept a connection", metadata: ["error": "\(error)", "peer": "\(address)"])
            for id in connection.ids { routes[id] = nil }
            group.admission.withLock { $0.ended(address, wasComplete: false) }
            return
        }
        if let id = ConnectionID(header.dcid) { connection.register(id) }
        connection.admittedFrom = address
        adopt(connection)
        connection.receive(packet, on: socket)
    }

    private enum TokenVerdict {
        /// From a Retry (with the id that the client chose first) or an earlier connection.
        case proven(original: ngtcp2_cid?)
        case unproven
        case forged
    }

    private func examineToken(
        _ bytes: UnsafeBufferPointer<UInt8>, _ header: ngtcp2_pkt_hd, _ packet: PacketReceiver.Packet,
        _ options: QUICServerOptions
    ) -> TokenVerdict {
        guard !bytes.isEmpty, let token = bytes.baseAddress else { return .unproven }
        let key = options.keys.tokenKey
        let address = packet.remote.socketAddress
        var header = header
        if token.pointee == UInt8(NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY) {
            var original = ngtcp2_cid()
            let status = ngtcp2_crypto_verify_retry_token(
                &original, token, bytes.count, key, key.count, header.version, address, packet.remote.length,
                &header.dcid, Self.retryTokenLifetime, Self.wallClock())
            return status == 0 ? .proven(original: original) : .forged
        }
        guard token.pointee == UInt8(NGTCP2_CRYPTO_TOKEN_MAGIC_REGULAR) else { return .unproven }
        let status = ngtcp2_crypto_verify_regular_token(
            token, bytes.count, key, key.count, address, packet.remote.length, Self.addressTokenLifetime,
            Self.wallClock())
        return status == 0 ? .proven(original: nil) : .unproven
    }

    // MARK: Answers without a connection

    private func answer(
        _ packet: PacketReceiver.Packet, on socket: UDPSocket, _ write: (UnsafeMutablePointer<UInt8>, Int) -> Int
    ) -> Bool {
        guard let room = sender.reserve(), let base = room.baseAddress else { return false }
        let length = write(base.assumingMemoryBound(to: UInt8.self), room.count)
        guard length > 0 else { return false }
        sender.commit(length, on: socket, from: packet.local, to: packet.remote)
        return true
    }

    private func sendVersionNegotiation(
        _ header: ngtcp2_version_cid, _ packet: PacketReceiver.Packet, on socket: UDPSocket
    ) {
        // Shorter ones cannot begin a connection, and an answer would amplify (RFC 9000, section 5.2.2).
        guard packet.bytes.count >= 1_200, header.version != 0 else {
            statistics.strayPackets += 1
            return
        }
        let versions: [UInt32] = [1]
        _ = answer(packet, on: socket) { buffer, size in
            ngtcp2_pkt_write_version_negotiation(
                buffer, size, UInt8.random(in: 0...255), header.scid, header.scidlen, header.dcid, header.dcidlen,
                versions, versions.count)
        }
    }

    private func sendRetry(
        _ header: ngtcp2_pkt_hd, _ packet: PacketReceiver.Packet, _ options: QUICServerOptions, on socket: UDPSocket
    ) {
        var header = header
        var source = ngtcp2_cid()
        _ = makeConnectionID(&source)
        var token = [UInt8](repeating: 0, count: 256)
        let key = options.keys.tokenKey
        let length = ngtcp2_crypto_generate_retry_token(
            &token, key, key.count, header.version, packet.remote.socketAddress,
            packet.remote.length, &source, &header.dcid, Self.wallClock())
        guard length > 0 else { return }
        let sent = answer(packet, on: socket) { buffer, size in
            ngtcp2_crypto_write_retry(
                buffer, size, header.version, &header.scid, &source, &header.dcid, token, length)
        }
        if sent { statistics.retriesSent += 1 }
    }

    private func sendInvalidToken(_ header: ngtcp2_pkt_hd, _ packet: PacketReceiver.Packet, on socket: UDPSocket) {
        var header = header
        statistics.strayPackets += 1
        _ = answer(packet, on: socket) { buffer, size in
            ngtcp2_crypto_write_connection_close(
                buffer, size, header.version, &header.scid, &header.dcid, UInt64(NGTCP2_INVALID_TOKEN), nil, 0)
        }
    }

    private func sendStatelessReset(for packet: PacketReceiver.Packet, on socket: UDPSocket) {
        let length = min(Self.resetLength, packet.bytes.count - 1)
        guard length >= Self.resetLengthMinimum, resetBudget.take(at: .now) else { return }
        var id = ngtcp2_cid()
        let base = packet.bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        guard let base else { return }
        ngtcp2_cid_init(&id, base + 1, ConnectionID.ownLength)
        let sent = answer(packet, on: socket) { buffer, _ in writeReset(for: &id, byteCount: length, into: buffer) }
        if sent { statistics.resetsSent += 1 }
    }

    /// Writes a stateless reset for the connection that has one of this endpoint's ids; returns its length.
    func writeReset(for id: inout ngtcp2_cid, byteCount: Int, into buffer: UnsafeMutablePointer<UInt8>) -> Int {
        var token = [UInt8](repeating: 0, count: 16)
        token.withUnsafeMutableBytes { makeResetToken(for: &id, into: $0) }
        let random = SecureRandom.bytes(byteCount - token.count)
        return ngtcp2_pkt_write_stateless_reset(buffer, byteCount, token, random, random.count)
    }

    // MARK: Ids and secrets

    /// Fills in a new id of this endpoint: its worker's number, then chance.
    func makeConnectionID(_ id: inout ngtcp2_cid) -> ConnectionID {
        let worker = configuration.server?.worker ?? 0
        var bytes = SecureRandom.bytes(ConnectionID.ownLength)
        bytes[0] = UInt8(worker >> 8)
        bytes[1] = UInt8(truncatingIfNeeded: worker)
        ngtcp2_cid_init(&id, bytes, bytes.count)
        guard let own = bytes.withUnsafeBytes({ ConnectionID($0) }) else { preconditionFailure("ids are short") }
        return own
    }

    /// Fills in the id that a client gives the server for a start (RFC 9000, section 7.2).
    func makeRandomConnectionID(_ id: inout ngtcp2_cid) {
        ngtcp2_cid_init(&id, SecureRandom.bytes(ConnectionID.ownLength), ConnectionID.ownLength)
    }

    /// The stateless reset token of one of this endpoint's ids; derived, so that it can be given after a restart.
    func makeResetToken(for id: inout ngtcp2_cid, into token: UnsafeMutableRawBufferPointer) {
        let status = ngtcp2_crypto_generate_stateless_reset_token(
            token.baseAddress?.assumingMemoryBound(to: UInt8.self), localSecret, localSecret.count, &id)
        precondition(status == 0, "HKDF-SHA256 works")
    }

    /// Nanoseconds since 1970: tokens outlive the machine's uptime.
    static func wallClock() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return UInt64(max(0, time.tv_sec)) &* 1_000_000_000 &+ UInt64(max(0, time.tv_nsec))
    }
}
