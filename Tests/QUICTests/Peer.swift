// An endpoint on a loop of its own that writes down what its delegates are told.
import Logging
import MonotonicTime
import QUIC
import Reactor
import Testing

/// One side of a test. Its state belongs to its loop; tests look at it through `on` and `wait`.
final class Peer: QUICEndpointDelegate, QUICConnectionDelegate, @unchecked Sendable {
    static let applicationProtocol = "test/1"

    let loop: EventLoop
    let identity: QUICIdentity?
    private(set) var endpoint: QUICEndpoint!
    var accepted: [QUICConnection] = []
    var acceptedEarly: [Bool] = []
    var readyCount = 0
    var reasons: [QUICCloseReason] = []
    var datagrams: [[UInt8]] = []
    var earlyDatagrams: [[UInt8]] = []
    var foreign: [[UInt8]] = []
    var foreignFrom: [SocketAddress] = []
    var streams: [QUICStream] = []
    var received: [Int64: [UInt8]] = [:]
    var earlyBytes: [UInt8] = []
    var ended: Set<Int64> = []
    var streamCloses: [Int64: UInt64?] = [:]
    var moves: [SocketAddress] = []
    var acknowledged: [UInt64] = []
    var lost: [UInt64] = []
    var migrations: [Bool] = []
    var refusals = 0
    var resumption: ResumptionState?
    /// Not read while set: the stream's bytes stay with the sender.
    var reading = true
    /// What a stream still has to send, as room appears.
    var outgoing: [Int64: ArraySlice<UInt8>] = [:]
    /// Called with every piece that a stream delivers.
    /// Streams of which the peer abandoned a direction.
    var abandoned: [Int64] = []
    var onBytes: (QUICStream, [UInt8]) -> Void = { _, _ in }

    init(
        server: QUICServerOptions? = nil, identity: QUICIdentity?, bind: SocketAddress = .loopback(),
        reusePort: Bool = false, configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
    ) async throws {
        loop = try EventLoop(name: server == nil ? "test client" : "test server")
        self.identity = identity
        try await loop.run { [self] in
            var configuration = QUICConfiguration(
                applicationProtocol: Self.applicationProtocol, identity: identity, server: server)
            configure(&configuration)
            endpoint = try QUICEndpoint(
                loop: loop, bind: bind, reusePort: reusePort, configuration: configuration,
                logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
            endpoint.delegate = self
        }
    }

    static func server(
        keys: ServerKeys = .generate(), verification: PeerVerification = .anyKey,
        addressValidation: QUICServerOptions.AddressValidation = .never, identity: QUICIdentity? = nil,
        bind: SocketAddress = .loopback(),
        configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
    ) async throws -> Peer {
        try await Peer(
            server: QUICServerOptions(
                keys: keys, verification: verification, addressValidation: addressValidation, worker: 0x0102),
            identity: identity ?? makeIdentity(), bind: bind, configure: configure)
    }

    static func client(
        identity: QUICIdentity? = nil, bind: SocketAddress = .loopback(),
        configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
    ) async throws -> Peer {
        try await Peer(identity: identity ?? makeIdentity(), bind: bind, configure: configure)
    }

    var address: SocketAddress { get async throws { try await on { $0.endpoint.localAddress } } }

    /// A client's connection to `server`, pinned to its key; `start` runs before the first packet is sent.
    func connect(
        to server: Peer, at address: SocketAddress? = nil, keepAlive: Duration? = nil,
        verification: PeerVerification? = nil, resumption: ResumptionState? = nil,
        start: @escaping @Sendable (QUICConnection) throws -> Void = { _ in }
    ) async throws -> QUICConnection {
        let target: SocketAddress
        if let address { target = address } else { target = try await server.address }
        let pin = try #require(server.identity?.keySHA256)
        return try await on { peer in
            let connection = try peer.endpoint.connect(
                to: target,
                options: QUICClientOptions(
                    verification: verification ?? .pinned([pin]), keepAlive: keepAlive, resumption: resumption))
            connection.delegate = peer
            try start(connection)
            return connection
        }
    }

    /// Moves to a new local port as soon as the handshake is confirmed.
    func migrate(
        _ connection: QUICConnection, _ kind: QUICConnection.MigrationKind = .afterValidation
    ) async throws {
        try await wait("confirmed") { _ in
            do {
                try connection.migrate(to: .loopback(), kind)
                return true
            } catch { return false }
        }
    }

    @discardableResult
    func on<T: Sendable>(_ body: @escaping @Sendable (Peer) throws -> T) async throws -> T {
        try await loop.run { try body(self) }
    }

    /// Waits until `condition` holds; fails the test after `timeout`.
    func wait(
        _ what: Comment, timeout: Duration = .seconds(20), sourceLocation: SourceLocation = #_sourceLocation,
        until condition: @escaping @Sendable (Peer) -> Bool
    ) async throws {
        let deadline = Instant.now + timeout
        while try await !on(condition) {
            try #require(Instant.now < deadline, what, sourceLocation: sourceLocation)
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    func stop() async throws {
        try await on { $0.endpoint.close() }
        loop.stop()
    }

    // MARK: Delegate

    func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
        accepted.append(connection)
        acceptedEarly.append(!connection.isReady)
        connection.delegate = self
    }

    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {
        foreign.append(Array(packet))
        foreignFrom.append(address)
    }

    func connectionDidBecomeReady(_ connection: QUICConnection) { readyCount += 1 }

    func connection(_ connection: QUICConnection, didOpen stream: QUICStream) { streams.append(stream) }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        if reading { drain(stream) }
    }

    func drain(_ stream: QUICStream) {
        let early = stream.isEarlyData
        let (bytes, isEnd) = stream.read()
        received[stream.id, default: []] += bytes
        if early { earlyBytes += bytes }
        if isEnd { ended.insert(stream.id) }
        if !bytes.isEmpty { onBytes(stream, bytes) }
    }

    func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream) { pump(stream) }

    /// Sends as much of what is outgoing as there is room for, and ends the stream after it.
    func pump(_ stream: QUICStream) {
        guard let rest = outgoing[stream.id] else { return }
        let piece = rest.prefix(stream.availableCapacity)
        let remaining = rest.dropFirst(piece.count)
        outgoing[stream.id] = remaining.isEmpty ? nil : remaining
        do { try stream.write(Array(piece), finish: remaining.isEmpty) } catch { Issue.record(error) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        streamCloses[stream.id] = .some(errorCode)
    }

    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) { abandoned.append(stream.id) }

    func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool) {
        datagrams.append(datagram)
        if isEarlyData { earlyDatagrams.append(datagram) }
    }

    func connection(_ connection: QUICConnection, didAcknowledgeDatagram id: UInt64) { acknowledged.append(id) }

    func connection(_ connection: QUICConnection, didLoseDatagram id: UInt64) { lost.append(id) }

    func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress) { moves.append(oldAddress) }

    func connection(_ connection: QUICConnection, didEndMigration succeeded: Bool) { migrations.append(succeeded) }

    func connectionWasRefused(_ connection: QUICConnection) { refusals += 1 }

    func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState) {
        self.resumption = resumption
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) { reasons.append(reason) }
}

/// A server and a client, connected.
func connectedPair(
    keepAlive: Duration? = nil, configure: @escaping @Sendable (inout QUICConfiguration) -> Void = { _ in }
) async throws -> (server: Peer, client: Peer, connection: QUICConnection) {
    let server = try await Peer.server(configure: configure)
    let client = try await Peer.client(configure: configure)
    let connection = try await client.connect(to: server, keepAlive: keepAlive)
    try await client.wait("the client is ready") { $0.readyCount == 1 }
    try await server.wait("the server is ready") { $0.readyCount == 1 }
    return (server, client, connection)
}

extension QUICEndpoint {
    /// A fan-out to connections that make no lasting group.
    func fanOut(
        _ packet: UnsafeRawBufferPointer, to connections: [QUICConnection], trailerLength: Int = 0,
        finish: @escaping @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void = { _, _ in }
    ) -> FanOutResult {
        fanOut(packet, to: FanOutGroup(connections, trailerLength: trailerLength, finish: finish))
    }
}

extension FanOutGroup {
    /// A group of those connections that are ready.
    convenience init(
        _ connections: [QUICConnection], trailerLength: Int = 0,
        finish: @escaping @Sendable (_ number: Int, _ datagram: UnsafeMutableRawBufferPointer) -> Void = { _, _ in }
    ) {
        self.init(trailerLength: trailerLength, finish: finish)
        for path in connections.compactMap(\.fanOutPath) { append(path) }
    }
}
