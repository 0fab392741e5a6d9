// A client of the relay without any rules: sends what a test wants, also what no client may send.
import CNgtcp2
import Cryptography
import Logging
import MonotonicTime
import Reactor
import RelayProtocol

@testable import QUIC

/// A QUIC connection to a relay with everything it receives recorded.
final class RawPeer: QUICEndpointDelegate, QUICConnectionDelegate, @unchecked Sendable {
    enum Event: Sendable {
        case ready
        case message(ServerMessage)
        case media([UInt8])
        case ticket(ResumptionState)
        case closed(QUICCloseReason)
    }

    let recorder = Recorder<Event>()
    let loop: EventLoop
    private var endpoint: QUICEndpoint?
    private var connection: QUICConnection?
    private var stream: QUICStream?
    private var decoder = MessageDecoder()
    private var isReading = true

    /// - Parameters:
    ///   - window: Bytes of a stream that the relay may send ahead of what was read.
    ///   - resumption: What an earlier connection of the same identity has left.
    ///   - early: Goes on the control stream with the first packet.
    init(
        _ name: String, port: UInt16, pin: PublicKeyPin, identity: Identity? = nil, window: Int? = nil,
        maximumDatagram: Int? = nil, resumption: ResumptionState? = nil, early: [UInt8] = []
    ) async throws {
        loop = try EventLoop(name: name)
        let identity = try identity ?? Identity(generating: name)
        try await loop.run { [self] in
            var configuration = QUICConfiguration(
                applicationProtocol: RelayProtocolLimits.applicationProtocol,
                identity: QUICIdentity(
                    certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der))
            if let maximumDatagram { configuration.maximumDatagram = maximumDatagram }
            if let window { configuration.streamReceiveWindow = window }
            let endpoint = try QUICEndpoint(
                loop: loop, bind: .any(), configuration: configuration, logger: quietLogger(name))
            endpoint.delegate = self
            self.endpoint = endpoint
            connection = try endpoint.connect(
                to: .loopback(port: port),
                options: QUICClientOptions(verification: .pinned([pin.bytes]), resumption: resumption))
            connection?.delegate = self
            if !early.isEmpty {
                stream = try connection?.openStream()
                try stream?.write(early)
            }
        }
        try await recorder.wait("the handshake") { if case .ready = $0 { true } else { nil } }
    }

    deinit { loop.stop() }

    /// Joins the channel of an invitation.
    static func joined(
        _ name: String, _ relay: TestRelay, identity: Identity? = nil, window: Int? = nil
    ) async throws -> (RawPeer, ServerMessage.Welcome) {
        let link = try await relay.invitation()
        let peer = try await RawPeer(name, port: link.port, pin: link.pin, identity: identity, window: window)
        try await peer.send(
            .join(.init(channel: link.channel, token: link.token, displayName: DisplayName(name)!)))
        let (welcome, _) = try await peer.recorder.wait("the welcome") {
            if case .message(.welcome(let welcome)) = $0 { welcome } else { nil }
        }
        return (peer, welcome)
    }

    func send(_ message: ClientMessage) async throws { try await send(bytes: message.framed()) }

    func send(bytes: [UInt8]) async throws {
        try await loop.run { [self] in
            if stream == nil { stream = try connection?.openStream() }
            try stream?.write(bytes)
        }
    }

    func send(datagram: [UInt8]) async throws {
        try await loop.run { [self] in _ = try connection?.sendDatagram(datagram) }
    }

    /// Sends a packet outside QUIC as it is: its trailer is a part of it.
    func send(outsideQUIC packet: [UInt8]) async throws {
        try await loop.run { [self] in connection?.send(foreign: packet) }
    }

    func openSecondStream() async throws {
        try await loop.run { [self] in
            if stream == nil { stream = try connection?.openStream() }
            try connection?.openStream().write([1])
        }
    }

    /// Takes no control message any more; what comes stays with the relay.
    func stopReading() async throws { try await loop.run { [self] in isReading = false } }

    /// Ends the sending side of the control stream.
    func finish() async throws { try await loop.run { [self] in stream?.finish() } }

    /// Takes nothing more of the control stream (STOP_SENDING), and goes on sending.
    func stopTaking() async throws {
        try await loop.run { [self] in
            guard let connection, let conn = connection.conn, let stream else { return }
            _ = ptt_shutdown_stream_read(conn, stream.id, 7)
            endpoint?.markDirty(connection)
        }
    }

    /// Abandons both directions of the control stream.
    func reset() async throws { try await loop.run { [self] in stream?.reset(errorCode: 7) } }

    /// The longest datagram that the relay takes, by its word.
    func relayDatagramFrameSize() async throws -> Int? {
        try await loop.run { [self] in connection?.peerDatagramFrameSize }
    }

    /// How many streams more the relay lets this end open.
    func availableStreams() async throws -> Int? { try await loop.run { [self] in connection?.availableStreams } }

    /// What became of the early data.
    func earlyData() async throws -> QUICConnection.EarlyData? {
        try await loop.run { [self] in connection?.earlyData }
    }

    /// The code with which the relay closed the connection.
    func closeCode() async throws -> RelayCloseCode? {
        let (reason, _) = try await recorder.wait("the close") {
            if case .closed(let reason) = $0 { reason } else { nil }
        }
        guard case .closedByPeer(let code, _) = reason else { return nil }
        return RelayCloseCode(rawValue: code)
    }

    func close() async throws { try await loop.run { [self] in endpoint?.close() } }

    // MARK: Delegates

    func connectionDidBecomeReady(_ connection: QUICConnection) { recorder.record(.ready) }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        guard isReading else { return }
        try? decoder.feed(stream.read().bytes) { bytes in
            if let message = try? ServerMessage(parsing: bytes) { recorder.record(.message(message)) }
        }
    }

    func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState) {
        recorder.record(.ticket(resumption))
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        recorder.record(.closed(reason))
    }

    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {
        recorder.record(.media(Array(packet)))
    }
}
