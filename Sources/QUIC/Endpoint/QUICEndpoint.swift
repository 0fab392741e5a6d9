// One UDP port with the QUIC connections on it, and the packets that share the port.
import CGnuTLS
import CLinux
import CNgtcp2
import Cryptography
import Glibc
import Logging
import MonotonicTime
import Reactor
import Synchronization

/// A UDP socket that serves as a QUIC version 1 (RFC 9000) server, client, or both, and carries foreign packets (RFC
/// 9443) on the same port.
///
/// It is `Sendable` only so that actors on its loop can hold it: all use is on that loop (checked). It lives until
/// `close`. Work is done in turns: received packets are read, events are reported to the owner, and everything that was
/// queued is sent.
public final class QUICEndpoint: @unchecked Sendable {
    /// What has been counted since the start.
    public struct Statistics: Sendable, Equatable {
        /// Packets that came from the network.
        public internal(set) var packetsReceived = 0
        /// Of these, the ones of class "foreign".
        public internal(set) var foreignPacketsReceived = 0
        /// Dropped: no protocol of this port, longer than allowed, or a header that cannot be read.
        public internal(set) var malformedPackets = 0
        /// Dropped: for no connection that is known here, and no beginning of one.
        public internal(set) var strayPackets = 0
        /// Dropped: a beginning beyond the bounds on connections or handshakes.
        public internal(set) var refusedForLoad = 0
        /// Handshakes of clients that did not succeed.
        public internal(set) var handshakesFailed = 0
        /// Connections accepted.
        public internal(set) var accepted = 0
        /// Retry packets sent.
        public internal(set) var retriesSent = 0
        /// Stateless resets sent.
        public internal(set) var resetsSent = 0
    }

    enum Route {
        case connection(QUICConnection)
        case closing(ClosingConnection)
    }

    /// Ended connections that still answer stragglers; beyond, the oldest is forgotten.
    private static let maximumClosing = 1_024
    /// Rounds of "tell the owner, send" within one turn, before other work on the loop has its turn.
    private static let roundsPerTurn = 8

    /// Stateless resets, which are shorter than what they answer. After a crash, thousands have to hear that it has forgotten them.
    private static let resetsPerSecond = 1_000

    /// The number of connections to flush before received packets are handled again: control messages to thousands of
    /// clients must not delay media.
    static let flushesPerRound = 64

    /// The loop that it lives on.
    public let loop: EventLoop
    /// What it was made with.
    public let configuration: QUICConfiguration
    /// The receiver of the endpoint's events.
    public weak var delegate: (any QUICEndpointDelegate)?
    /// Counters.
    public internal(set) var statistics = Statistics()
    /// Whether `close` was called.
    public private(set) var isClosed = false
    /// Asked before packets are read; false: not now. Then nothing is acknowledged either. Nil: they are always read.
    public var mayRead: (() -> Bool)?
    /// While nothing is read.
    var pauseTimer: EventLoop.Timer?
    /// Threads that help with packets to groups of hundreds. Several endpoints may have the same: they help one of them at a time.
    public var helpers: ThreadPool? {
        didSet {
            loop.checkIsolated()
            fanOutBatches = (0...(helpers?.size ?? 0)).map { _ in FanOutBatch() }
        }
    }

    let logger: Logger
    let credentials: TLSCredentials
    let sender = PacketSender()
    /// One for the loop's thread, and one for each of `helpers`.
    private var fanOutBatches = [FanOutBatch()]
    let receiver = PacketReceiver()
    /// Handshakes that have not been handled yet.
    var pendingHandshakes = PendingHandshakes()
    var sockets: [UDPSocket] = []
    let reusePort: Bool
    var routes: [ConnectionID: Route] = [:]
    private(set) var connections: [ObjectIdentifier: QUICConnection] = [:]
    private var closingConnections: [ClosingConnection] = []
    var deadlines = DeadlineHeap()
    /// Has the library's memory of accepted connections; nil: there is no memory for one.
    private(set) lazy var stage = ConnectionStage()
    private var dirty: [QUICConnection] = []
    private var eventful: [QUICConnection] = []
    private var inTurn = false
    /// Start of this loop turn, before its packets were read and decrypted. Used as the arrival time of what is
    /// reported now.
    public private(set) var turnBegan = Instant.now
    private var turnTimer: EventLoop.Timer?
    /// Rings at the next of `deadlines`, until `close`.
    private var alarm: EventLoop.Alarm?
    private var alarmAt: Instant?
    /// How often the alarm has woken the loop.
    private(set) var alarmWakes = 0
    let localSecret: [UInt8]
    var resetBudget = TokenBucket(depth: resetsPerSecond, perSecond: resetsPerSecond, at: .zero)
    /// Who may begin a connection; a client takes none.
    let group: QUICServerGroup

    /// An endpoint on `address`, bound and listening from now on. Called on the loop.
    ///
    /// - Parameters:
    ///   - address: `.any(port:)` serves IPv4 and IPv6; port 0 lets the kernel choose.
    ///   - reusePort: Lets several endpoints (workers) bind the same port (SO_REUSEPORT).
    /// - Throws: `QUICError.socket`, `.unusableIdentity`, `.serverWithoutIdentity`, `.invalidSetting`.
    public init(
        loop: EventLoop, bind address: SocketAddress, reusePort: Bool = false, configuration: QUICConfiguration,
        logger: Logger
    ) throws(QUICError) {
        loop.checkIsolated()
        guard 1...255 ~= configuration.applicationProtocol.utf8.count else {
            throw QUICError.invalidSetting("the application protocol's name must have 1 to 255 bytes")
        }
        if configuration.server != nil, configuration.identity == nil { throw QUICError.serverWithoutIdentity }
        self.loop = loop
        self.configuration = configuration
        self.logger = logger
        self.reusePort = reusePort
        group =
            configuration.server?.group ?? QUICServerGroup(configuration.server ?? QUICServerOptions(keys: .generate()))
        credentials = try TLSCredentials(identity: configuration.identity)
        localSecret = configuration.server?.keys.tokenKey ?? SecureRandom.bytes(ServerKeys.tokenKeyLength)
        let socket = try UDPSocket(
            address, reusePort: reusePort, bufferSize: configuration.socketBuffer,
            awaitsAddress: configuration.server != nil, reportsErrors: configuration.server == nil)
        if socket.isAwaited {
            logger.warning(
                "this machine does not have the address yet; nobody can connect until it does",
                metadata: ["address": "\(address)"])
        }
        sockets = [try watched(socket)]
        alarm = EventLoop.Alarm { [self] in turn { alarmRang() } }
        sender.didBlock = { [unowned self] socket in
            socket.watch?.update(interest(in: socket, reading: pauseTimer == nil))
        }
    }

    /// The address it is bound to, with the port that the kernel chose.
    public var localAddress: SocketAddress { sockets.first?.localAddress ?? .any() }

    /// Connections, those in handshake included.
    public var connectionCount: Int { connections.count }

    /// Opens a connection to a server at `address`. The returned connection reports its progress to its delegate. Set
    /// the delegate now, and open streams and write early data now.
    ///
    /// - Throws: `QUICError.invalidSetting` when the socket's family cannot reach the address; `.closed`.
    public func connect(to address: SocketAddress, options: QUICClientOptions) throws(QUICError) -> QUICConnection {
        loop.checkIsolated()
        guard !isClosed, let socket = sockets.first else { throw QUICError.closed }
        let connection = QUICConnection(endpoint: self, role: .client(options), remote: address, socket: socket)
        guard connection.remote.length > 0 else {
            throw QUICError.invalidSetting("\(address) cannot be reached from a socket on \(socket.localAddress)")
        }
        try connection.startClient(options)
        adopt(connection)
        markDirty(connection)
        return connection
    }

    /// Sends `packet` followed by a trailer of each one's own to every path of `group`, from this endpoint's socket. Sent at
    /// once, not at the end of the turn; nothing is allocated.
    ///
    /// - Parameters:
    ///   - packet: Must begin with a byte 128…191 (RFC 9443), else receivers take it for QUIC (checked).
    ///   - group: Paths of connections of this endpoint, or of another one on the same port.
    ///   - excluded: The number of the path in the group that gets nothing: who sent the packet.
    public func fanOut(
        _ packet: UnsafeRawBufferPointer, to group: FanOutGroup, except excluded: Int? = nil
    ) -> FanOutResult {
        loop.checkIsolated()
        precondition(packet.first.map(PacketClass.init(firstByte:)) == .foreign, "a foreign packet begins with 128…191")
        guard let socket = sockets.first else { return FanOutResult() }
        return group.send(
            packet, with: fanOutBatches, helpers: helpers, on: socket.descriptor, except: excluded)
    }

    /// Sends one foreign packet to `path` at once, from this endpoint's socket; false: the kernel does not take it.
    ///
    /// - Parameters:
    ///   - packet: Must begin with a byte 128…191 (checked).
    ///   - path: That of a connection of this endpoint, or of another one on the same port.
    public func send(_ packet: UnsafeRawBufferPointer, to path: FanOutPath) -> Bool {
        loop.checkIsolated()
        precondition(packet.first.map(PacketClass.init(firstByte:)) == .foreign, "a foreign packet begins with 128…191")
        guard let socket = sockets.first else { return false }
        var path = path
        let batch = fanOutBatches[0]
        batch.begin(packet, trailerLength: 0)
        withUnsafeMutablePointer(to: &path) {
            _ = batch.add($0)
            batch.flush(socket.descriptor)
        }
        return batch.sent == 1
    }

    /// Closes every connection (their delegates hear `.endpointClosed`) and the sockets. The peers are informed after
    /// earlier writes, as far as their windows allow at once. This is sent once, because nothing remains that could
    /// repeat it.
    public func close(code: UInt64 = 0, reason: String = "") {
        loop.checkIsolated()
        guard !isClosed else { return }
        isClosed = true
        turn {
            for connection in connections.values {
                connection.flush()
                connection.end(.endpointClosed, send: .application((code, reason)))
            }
            sender.send()
        }
        turnTimer?.cancel()
        pauseTimer?.cancel()
        pauseTimer = nil
        if let alarm { loop.set(alarm, at: nil) }
        alarm = nil
        for socket in sockets { socket.watch?.cancel() }
        sockets = []
        pendingHandshakes = PendingHandshakes()
        routes = [:]
        for closing in closingConnections { deadlines.remove(closing.deadline) }
        closingConnections = []
    }

    // MARK: Turns

    /// Runs `body`, reports the resulting events to the owners, and sends everything that was queued.
    func turn(_ body: () -> Void) {
        guard !inTurn else { return body() }
        inTurn = true
        turnBegan = .now
        body()
        receivePendingHandshakes()
        tellAndSend(dueAt: turnBegan)
        // Pacing looks again just after what was sent, which is now: a timer for that would be a wake-up for nothing.
        if !isClosed, dirty.isEmpty, eventful.isEmpty, let next = deadlines.next {
            let now = Instant.now
            if next <= now { tellAndSend(dueAt: now) }
        }
        inTurn = false
        guard !isClosed else { return }
        if !eventful.isEmpty || pendingHandshakes.count > 0 || (!dirty.isEmpty && sender.blocked == nil) {
            scheduleTurn()
        }
        setAlarm()
    }

    private func tellAndSend(dueAt now: Instant) {
        while let due = deadlines.popDue(at: now) { due.handler?() }
        var rounds = 0
        repeat {
            deliverEvents()
            flushConnections()
            rounds += 1
        } while !eventful.isEmpty && rounds < Self.roundsPerTurn
        sender.send()
    }

    private func deliverEvents() {
        // The memory is used again; what comes meanwhile is behind these.
        let count = eventful.count
        for index in 0..<count {
            let connection = eventful[index]
            connection.isEventful = false
            connection.deliverEvents()
        }
        eventful.removeFirst(count)
    }

    private func flushConnections() {
        let count = min(dirty.count, Self.flushesPerRound)
        for index in 0..<count {
            let connection = dirty[index]
            connection.isDirty = false
            connection.flush()
        }
        dirty.removeFirst(count)
    }

    private func scheduleTurn() {
        guard turnTimer == nil else { return }
        turnTimer = loop.schedule(at: .zero) { [self] in
            turnTimer = nil
            if !isClosed { turn {} }
        }
    }

    /// The connection has something to send, or may have.
    func markDirty(_ connection: QUICConnection) {
        guard !isClosed else { return }
        if !connection.isDirty {
            connection.isDirty = true
            dirty.append(connection)
        }
        // Also for one that is known to be dirty: its turn may have met a socket that took nothing.
        if !inTurn { scheduleTurn() }
    }

    /// The connection has something to tell.
    func markEventful(_ connection: QUICConnection) {
        guard !connection.isEventful else { return }
        connection.isEventful = true
        eventful.append(connection)
        if !inTurn { scheduleTurn() }
    }

    // MARK: Time

    func timestamp() -> UInt64 { UInt64(Instant.now.nanoseconds) }

    private func alarmRang() {
        alarmAt = nil
        alarmWakes += 1
    }

    private func setAlarm() {
        let next = deadlines.next
        guard next != alarmAt, let alarm else { return }
        alarmAt = next
        loop.set(alarm, at: next)
    }

    // MARK: Connections

    func adopt(_ connection: QUICConnection) { connections[ObjectIdentifier(connection)] = connection }

    /// `connection` has ended: for `closingPeriod` its ids lead to its closing state.
    func replace(_ connection: QUICConnection, by packet: [UInt8], for closingPeriod: Duration) {
        connections[ObjectIdentifier(connection)] = nil
        if let address = connection.admittedFrom {
            group.admission.withLock { $0.ended(address, wasComplete: connection.isHandshakeComplete) }
        }
        let closing = ClosingConnection(of: connection, packet: packet) { [unowned self] in forget($0) }
        closing.say(through: sender)
        guard !isClosed else { return }
        if closingConnections.count >= Self.maximumClosing { forget(closingConnections[0]) }
        closingConnections.append(closing)
        for id in closing.ids { routes[id] = .closing(closing) }
        deadlines.schedule(closing.deadline, at: .now + closingPeriod)
    }

    private func forget(_ closing: ClosingConnection) {
        deadlines.remove(closing.deadline)
        for id in closing.ids { routes[id] = nil }
        closingConnections.removeAll { $0 === closing }
        closeUnusedSockets()
    }
}
