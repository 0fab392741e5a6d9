// The connections over TLS of a relay, for its rules one more carrier. No rules.
import Cryptography
import Logging
import MonotonicTime
import RelayProtocol
import Synchronization

/// A WebSocket as the relay sees it. Everything is called on the thread of the `RelayWebWorker`.
public protocol RelayWebSocket: AnyObject {
    /// Whether the socket takes bytes at once.
    var isWritable: Bool { get }
    /// Writes a binary message; it leaves with `flush`.
    func write(_ message: [UInt8])
    /// Sends what was written.
    func flush()
    /// The client has been let into a channel.
    func proved()
    /// Calls `RelayWebPeer.deadlineCame` at that time instead of an earlier one; nil: not at all.
    func wake(at time: Instant?)
    /// Sends a Close frame behind what was written, and closes.
    func close(code: UInt16, reason: String)
}

/// Has the connections of a relay that came over TLS (docs/relay-protocol.md, section 21).
///
/// It does everything on one thread of its owner, which `run` leads to. Give it to the relay as
/// `RelayServerConfiguration.web`; a relay that stops closes its connections.
public final class RelayWebWorker: @unchecked Sendable {
    /// Orders that wait for its thread beyond which media are dropped.
    private static let ordersMaximum = 32_768

    let tally = Mutex(RelayWorkerTally())
    private let key: SigningKey
    private let run: @Sendable (@escaping @Sendable () -> Void) -> Void
    private let log: RelayLog
    private let exchange = Mutex<RelayExchange?>(nil)
    private let ordersWaiting = Atomic<Int>(0)

    // Its thread's from here on.
    private var peers: [ConnectionID: RelayWebPeer] = [:]
    private var listeners: [Int: [ConnectionID: RelayWebPeer]] = [:]
    private var watches = ShardWatches(shards: 0, own: nil)
    /// Links that are passed on to other relays, and what ends them.
    private var passages: [ObjectIdentifier: () -> Void] = [:]

    /// A worker that has no relay yet.
    ///
    /// - Parameter run: Has something done on the thread that the connections live on, in the order of the calls.
    /// - Throws: `WebLinkError.unsuitableKey` when the relay's key is not on P-256.
    public init(
        identity: Identity, logger: Logger, run: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void
    ) throws(WebLinkError) {
        guard let key = SigningKey(identity) else { throw .unsuitableKey }
        self.key = key
        self.run = run
        log = RelayLog(logger: logger)
    }

    // MARK: The relay's side, on its loop

    /// A relay has begun, which this is a carrier of.
    func attach(_ exchange: RelayExchange) {
        run { [self] in watches = ShardWatches(shards: exchange.workers, own: nil) }
        self.exchange.withLock { $0 = exchange }
    }

    /// The relay goes down.
    func detach() {
        exchange.withLock { $0 = nil }
        run { [self] in
            let all = peers.values.sorted { $0.id < $1.id }
            peers = [:]
            listeners = [:]
            for peer in all { peer.close(.goingDown, Self.goingDown) }
            let ends = passages.values
            passages = [:]
            for end in ends { end() }
        }
    }

    /// What clients are told when the relay goes down.
    public static let goingDown = "the relay is going down"

    // MARK: The listener's side, on its thread

    /// A client has connected and its WebSocket is open.
    ///
    /// - Returns: nil when the relay does not run.
    public func accept(_ socket: any RelayWebSocket) -> RelayWebPeer? {
        guard let exchange = exchange.withLock({ $0 }) else { return nil }
        let id = exchange.numbers.next(of: exchange.workers)
        let peer = RelayWebPeer(
            id, socket: socket, worker: self, shard: Int(id.number / UInt64(exchange.carriers)) % exchange.workers,
            rules: WebPeerStateMachine(key: key, limits: exchange.limits, at: .now))
        peers[peer.id] = peer
        peer.arm()
        return peer
    }

    /// A link is passed on to another relay, and is to end with this one.
    ///
    /// - Parameters:
    ///   - passage: Names it.
    ///   - end: Ends it; nil: it has ended.
    public func keep(_ passage: AnyObject, end: (() -> Void)?) { passages[ObjectIdentifier(passage)] = end }

    func handle(_ peer: RelayWebPeer, _ event: WebPeerStateMachine.Event) {
        guard peers[peer.id] === peer, let exchange = exchange.withLock({ $0 }) else { return }
        handle(peer, event, exchange, at: .now)
    }

    private func handle(
        _ peer: RelayWebPeer, _ event: WebPeerStateMachine.Event, _ exchange: RelayExchange, at now: Instant
    ) {
        let isKept = !watches.areHanging(exchange, at: now)
        let droppedBefore = peer.rules.mediaDropped
        peer.rules.handle(
            event, at: now, mayAcknowledge: isKept, isWritable: { peer.socket?.isWritable ?? false }
        ) { action in
            carryOut(action, of: peer, exchange, at: now)
        }
        peer.socket?.flush()
        let dropped = peer.rules.mediaDropped - droppedBefore
        if dropped > 0 { tally.withLock { $0.mediaTooLate += dropped } }
        if peers[peer.id] === peer { peer.arm() }
    }

    private func carryOut(
        _ action: WebPeerStateMachine.Action, of peer: RelayWebPeer, _ exchange: RelayExchange, at now: Instant
    ) {
        switch action {
        case .write(let message): peer.socket?.write(message)
        case .connected(let pin):
            peer.pin = pin
            report(.announced(peer.id, .connected(peer.id, pin), nil), of: peer, exchange, at: now)
        case .message(let bytes):
            do throws(RelayMessageError) {
                tell(try ClientMessage(parsing: bytes), of: peer, exchange, at: now)
            } catch {
                guard error.isViolation else {
                    log.fault(.unknownMessage, peer.id)
                    return report(.event(.unknownMessage(peer.id)), of: peer, exchange, at: now)
                }
                report(.event(.violation(peer.id, error.description)), of: peer, exchange, at: now)
            }
        case .media(let packet):
            guard let header = MediaPacketHeader(parsing: packet, limit: exchange.limits.datagramBytes) else {
                return report(.malformedMedia(from: peer.id), of: peer, exchange, at: now)
            }
            report(.media(header, packet, from: peer.id, arrived: now), of: peer, exchange, at: now)
        case .answerNotTaken: peer.wasAnswerTaken = false
        case .note(let error):
            log.fault(.violation, peer.id, more: ["why": "\(error)"], at: now)
            if !peer.isKnown { tally.withLock { $0.webHandshakesFailed += 1 } }
        case .close(let code, let reason): end(peer, code, reason, exchange, at: now)
        }
    }

    private func end(
        _ peer: RelayWebPeer, _ code: RelayCloseCode, _ reason: String, _ exchange: RelayExchange, at now: Instant
    ) {
        guard remove(peer) else { return }
        if code == .internalError { log.fault(.slowPeer, peer.id) }
        peer.close(code, reason)
        if peer.isKnown { report(.event(.disconnected(peer.id)), of: peer, exchange, at: now) }
    }

    /// The connection is gone.
    func closed(_ peer: RelayWebPeer) {
        guard remove(peer), peer.isKnown, let exchange = exchange.withLock({ $0 }) else { return }
        report(.event(.disconnected(peer.id)), of: peer, exchange, at: .now)
    }

    private func remove(_ peer: RelayWebPeer) -> Bool {
        guard peers[peer.id] === peer else { return false }
        peers[peer.id] = nil
        if let channel = peer.channel { listeners[channel]?[peer.id] = nil }
        return true
    }

    /// A client says something. The first message that names a channel leads its connection to the channel's shard.
    private func tell(_ message: ClientMessage, of peer: RelayWebPeer, _ exchange: RelayExchange, at now: Instant) {
        let former = peer.route.shard
        if peer.route.moves(by: message, { exchange.directory.shard(of: $0) }), let pin = peer.pin {
            report(.event(.disconnected(peer.id)), to: former, exchange, at: now)
            report(.announced(peer.id, .connected(peer.id, pin), nil), of: peer, exchange, at: now)
        }
        report(.event(.message(peer.id, message)), of: peer, exchange, at: now)
    }

    private func report(
        _ report: RelayWorkerReport, of peer: RelayWebPeer, _ exchange: RelayExchange, at now: Instant
    ) {
        self.report(report, to: peer.route.shard, exchange, at: now)
    }

    private func report(_ report: RelayWorkerReport, to shard: Int, _ exchange: RelayExchange, at now: Instant) {
        if !exchange.post(.report(report), to: shard) { tally.withLock { $0.counters.packetsNotSent += 1 } }
        watches.reported(to: shard, exchange, at: now)
    }

    // MARK: Orders, on its thread

    private func carryOut(_ order: RelayWorkerOrder) {
        switch order {
        case .action(let action): carryOut(action)
        case .count:
            let count = peers.count
            tally.withLock { $0.connections = count }
        case .returnCredit: break
        }
    }

    private func carryOut(_ action: RelayCore.Action) {
        switch action {
        case .send(let message, let recipients):
            let bytes = message.encoded()
            for id in recipients {
                guard let peer = peers[id] else { continue }
                // Anybody can make a key; who is let in is somebody.
                switch message {
                case .welcome, .pushWelcome: peer.socket?.proved()
                default: break
                }
                handle(peer, .send(bytes))
            }
        case .sendSeries(let series, let recipients):
            let messages = series.messages
            for recipient in recipients {
                for message in messages.dropFirst(recipient.first) {
                    if let peer = peers[recipient.connection] { handle(peer, .send(message)) }
                }
            }
        case .close(let id, let code, let reason):
            guard let peer = peers[id], remove(peer) else { return }
            peer.close(code, reason)
            // The shard that it has left may have decided so, while the one that it is on knows nothing of it.
            if peer.route.hasMoved, let exchange = exchange.withLock({ $0 }) {
                report(.event(.disconnected(id)), of: peer, exchange, at: .now)
            }
        case .startMedia(let id, let channel, _, _):
            guard let peer = peers[id] else { return }
            // A connection is on one channel.
            peer.channel = channel
            listeners[channel, default: [:]][id] = peer
        case .stopMedia(let id, let channel): listeners[channel]?[id] = nil
        case .forward(let packet, let channel, let talker, let arrived):
            forward(packet, channel: channel, except: talker, arrived: arrived)
        case .answerRepair(let id, let bytes):
            if !answer(bytes, to: id) { tally.withLock { $0.counters.repairsRefused += 1 } }
        case .answerBurst(let id, let request, let bytes):
            if !answer(bytes, to: id), let peer = peers[id], let exchange = exchange.withLock({ $0 }) {
                report(.burstNotTaken(id, request, bytes: bytes.count), of: peer, exchange, at: .now)
            }
        case .takeMedia, .enrol, .pushes, .moved, .note: break  // The shard's.
        }
    }

    private func answer(_ bytes: [UInt8], to id: ConnectionID) -> Bool {
        guard let peer = peers[id] else { return true }
        peer.wasAnswerTaken = true
        handle(peer, .answer(bytes))
        return peer.wasAnswerTaken
    }

    private func forward(_ packet: [UInt8], channel: Int, except talker: ConnectionID, arrived: Instant) {
        guard let audience = listeners[channel], let exchange = exchange.withLock({ $0 }) else { return }
        let now = Instant.now
        var count = 0
        // A listener that is closed by this is taken out of `listeners`, not of this copy.
        for (id, peer) in audience where id != talker && peers[id] === peer {
            handle(peer, .media(packet), exchange, at: now)
            count += 1
        }
        guard count > 0 else { return }
        let time = Instant.now - arrived
        tally.withLock { tally in
            tally.forwarding.count(time)
            tally.counters.packetsOut += count
        }
    }
}

extension RelayWebWorker {
    /// Has an order carried out, on its thread. False when it was dropped, which is allowed only where `mayBeLost` says so.
    func take(_ order: RelayWorkerOrder) -> Bool {
        guard !order.mayBeLost || ordersWaiting.load(ordering: .relaxed) < Self.ordersMaximum else { return false }
        ordersWaiting.add(1, ordering: .relaxed)
        run { [self] in
            ordersWaiting.subtract(1, ordering: .relaxed)
            carryOut(order)
        }
        return true
    }
}

/// One connection of a `RelayWebWorker`; used on its thread.
public final class RelayWebPeer {
    let id: ConnectionID
    var rules: WebPeerStateMachine
    /// The shard that hears what it says.
    var route: ConnectionRoute
    /// Its client's key, which it has proven; from then on the shard knows of the connection.
    var pin: PublicKeyPin?
    var isKnown: Bool { pin != nil }
    var wasAnswerTaken = true
    /// The channel whose media went to it last.
    var channel: Int?
    /// When it is woken, if nothing happens before.
    private var wakesAt: Instant?
    private(set) weak var socket: (any RelayWebSocket)?
    private unowned let worker: RelayWebWorker

    init(
        _ id: ConnectionID, socket: any RelayWebSocket, worker: RelayWebWorker, shard: Int, rules: WebPeerStateMachine
    ) {
        self.id = id
        route = ConnectionRoute(shard: shard)
        self.socket = socket
        self.worker = worker
        self.rules = rules
    }

    /// A binary message came.
    public func received(_ message: [UInt8]) { worker.handle(self, .received(message)) }

    /// The socket takes bytes again.
    public func becameWritable() { worker.handle(self, .writable) }

    /// See `RelayWebSocket.wake`.
    public func deadlineCame() {
        wakesAt = nil
        worker.handle(self, .deadline)
    }

    /// The connection is gone, by either side.
    public func closed() { worker.closed(self) }

    /// A timer that turns out early costs one wake; to set it anew for each packet would cost more.
    func arm() {
        let deadline = rules.nextDeadline
        if let wakesAt, let deadline, wakesAt <= deadline { return }
        wakesAt = deadline
        socket?.wake(at: deadline)
    }

    func close(_ code: RelayCloseCode, _ reason: String) {
        socket?.wake(at: nil)
        socket?.close(code: WebLinkLimits.closeCodeBase + UInt16(code.rawValue), reason: reason)
    }
}
