// A node of a cluster: carries out what its state machine says. Whatever waits for NATS or the disk has threads of its own.
import Cryptography
import Glibc
import Logging
import MonotonicTime
import NATS
import QUIC
import Reactor
import RelayProtocol
import RelayStore
import Synchronization

/// A relay that stands by until it is the one that serves.
public actor ClusterNode {
    /// What a node says of itself.
    public struct Standing: Equatable, Sendable {
        /// Whether it serves.
        public var serves: Bool
        /// The node that serves, as far as this one knows.
        public var holder: String?
        /// Where that is.
        public var holderPlace: String?
    }

    private nonisolated let loop: EventLoop
    /// Asks and writes the lease.
    private let leaseLoop: EventLoop
    /// Reads and applies the log.
    private let recordsLoop: EventLoop
    /// The loop that this actor lives on.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    /// The loops that are to turn.
    public nonisolated var loops: [EventLoop] { [loop] }

    private let configuration: ClusterConfiguration
    private let store: RelayStore
    private let relay: ClusterIdentity
    private let version: String
    private let logger: Logger
    private let own: ClusterMember
    private var machine: ClusterStateMachine
    private var timer: EventLoop.Timer?
    private var portWatch: PortWatch?
    private var connection: NATSConnection?
    private var log: ClusterLog?
    private let logLimits: ClusterLogLimits
    /// What another relay with this one's name said last, and since when.
    private var namesake: (sequence: UInt64, since: Instant)?
    private var problems: [String: String] = [:]
    private var end: ClusterStateMachine.End?
    private let onEnd: @Sendable (ClusterStateMachine.End) -> Void
    private var untilServing: CheckedContinuation<Void, Never>?
    private var untilReleased: CheckedContinuation<String?, Never>?
    private nonisolated let standingNow = Mutex(Standing(serves: false))

    /// How long an answer of NATS about the lease may take.
    private static let wait: Duration = .seconds(1)
    private static let followInterval: Duration = .milliseconds(250)
    private static let retry: Duration = .seconds(1)
    private static let reportInterval: Duration = .seconds(5)

    /// - Parameters:
    ///   - store: The node's records; what is written while it serves is in the cluster's log first.
    ///   - relay: The relay's key, which all nodes have.
    ///   - onEnd: Called on the node's loop when it may not serve any longer. The program has to end at once: members that stay would
    ///     talk to a part of their channel.
    public init(
        _ configuration: ClusterConfiguration, store: RelayStore, relay: ClusterIdentity, version: String,
        timers: ClusterStateMachine.Timers = .init(), logLimits: ClusterLogLimits = .init(), logger: Logger,
        onEnd: @escaping @Sendable (ClusterStateMachine.End) -> Void
    ) throws {
        self.configuration = configuration
        self.store = store
        self.relay = relay
        self.version = version
        self.logLimits = logLimits
        self.logger = logger
        self.onEnd = onEnd
        own = ClusterMember(
            node: configuration.node, identifier: try store.nodeIdentifier(),
            incarnation: Hexadecimal.encode(SecureRandom.bytes(8)), place: configuration.place)
        machine = ClusterStateMachine(own, timers: timers)
        loop = try EventLoop(name: "cluster")
        leaseLoop = try EventLoop(name: "cluster-lease", mayWait: true)
        recordsLoop = try EventLoop(name: "cluster-log", mayWait: true)
    }

    deinit {
        leaseLoop.stop()
        recordsLoop.stop()
        loop.stop()
    }

    /// What this node is about now.
    public nonisolated var standing: Standing { standingNow.withLock { $0 } }

    /// Connects, follows the log, and returns when this node is to serve.
    public func serve() async {
        connect()
        await withCheckedContinuation { untilServing = $0 }
    }

    /// Hands the lease over.
    ///
    /// - Returns: Where members are to go; nil: no other node serves.
    public func release() async -> String? {
        logger.notice("handing the cluster over")
        return await withCheckedContinuation { continuation in
            untilReleased = continuation
            take(.release)
        }
    }

    // MARK: The connection

    private func connect() {
        let options = configuration.nats
        inBackground(leaseLoop) {
            try NATSConnection(options)
        } then: { node, result in
            switch result {
            case .success(let connection):
                node.note(nil, about: "NATS")
                node.connection = connection
                node.find(connection)
            case .failure(let error):
                node.note(error, about: "NATS")
                node.again(after: Self.retry) { $0.connect() }
            }
        }
    }

    /// Looks for the cluster's records.
    private func find(_ connection: NATSConnection) {
        let (configuration, subject) = (configuration, configuration.nodeSubject(own.node))
        inBackground(leaseLoop) { () throws -> (ClusterDescription, NATSMessage?) in
            guard
                let description = try ClusterAdministration.description(configuration, connection, wait: Self.wait)
            else { throw ClusterError.noRecords(configuration.name) }
            return (description, try connection.last(of: subject, in: configuration.state.name, wait: Self.wait))
        } then: { node, result in
            switch result {
            case .success((let description, let report)) where !node.isTaken(by: report):
                node.note(nil, about: "the cluster")
                node.begin(connection, description)
            case .success:
                node.note(ClusterError.nameTaken(node.own.node), about: "the cluster")
                node.again(after: Self.retry) { $0.find(connection) }
            case .failure(let error):
                node.note(error, about: "the cluster")
                node.again(after: Self.retry) { $0.find(connection) }
            }
        }
    }

    /// Whether another relay has this one's name: it says something every few seconds. One that is silent is gone, or was this one before
    /// its records were replaced.
    private func isTaken(by message: NATSMessage?) -> Bool {
        guard let message, ClusterNodeReport(message: message.bytes)?.identifier != own.identifier else { return false }
        if namesake?.sequence != message.sequence { namesake = (message.sequence, .now) }
        return namesake.map { .now - $0.since < Self.reportInterval * 3 } ?? false
    }

    private func begin(_ connection: NATSConnection, _ description: ClusterDescription) {
        let log = ClusterLog(connection, configuration.log, of: relay) { [weak self] why in
            self?.loop.execute { [weak self] in
                self?.assumeIsolated { $0.take(why.map { .cannotCatchUp($0) } ?? .fenced) }
            }
        }
        self.log = log
        store.share(with: log)
        let follower = ClusterFollower(
            connection: connection, configuration: configuration, description: description, store: store, relay: relay)
        follow(follower)
        report(connection, behind: 0)
        take(.start)
    }

    // MARK: The log

    /// Applies what is new, as long as it stands by.
    private func follow(_ follower: ClusterFollower) {
        self.follower = follower
        guard end == nil, !isCatchingUp, !standing.serves else { return }
        inBackground(recordsLoop) {
            try follower.follow()
        } then: { node, result in
            switch result {
            case .success(let (place, isEnd)):
                node.note(nil, about: "the records")
                node.position = place.position
                if isEnd { node.note(follows: true) }
                node.again(after: isEnd ? Self.followInterval : .zero) { $0.follow(follower) }
            case .failure(let error):
                node.note(error, about: "the records")
                // Without NATS no node follows, and none can take the lease.
                if !(error is NATSError) { node.note(follows: false) }
                node.again(after: Self.retry) { $0.follow(follower) }
            }
        }
    }

    private func note(follows: Bool) {
        guard follows != isCurrent else { return }
        isCurrent = follows
        take(.follows(follows))
    }

    private var isCurrent = false
    private var follower: ClusterFollower?
    private var isCatchingUp = false
    private var position: UInt64 = 0

    private func catchUp(_ epoch: UInt64) {
        guard let follower, let log else { return }
        isCatchingUp = true
        inBackground(recordsLoop) { () throws -> UInt64 in
            let position = try follower.take(epoch: epoch)
            log.begin(epoch, at: position)
            return position
        } then: { node, result in
            switch result {
            case .success(let position):
                node.note(nil, about: "the records")
                node.position = position
                node.take(.caughtUp)
            case .failure(let error):
                node.note(error, about: "the records")
                if error is NATSError { return node.again(after: Self.followInterval) { $0.catchUpAgain(epoch) } }
                node.take(.cannotCatchUp("\(error)"))
            }
        }
    }

    private func catchUpAgain(_ epoch: UInt64) { if end == nil { catchUp(epoch) } }

    /// Looks after the log's length, as long as it serves.
    private func keepLogShort(needed: Int) {
        guard end == nil, standing.serves, let connection, let log else { return }
        let keeper = ClusterLogKeeper(
            connection: connection, configuration: configuration, store: store, relay: relay, log: log,
            limits: logLimits)
        inBackground(recordsLoop) {
            try keeper.look(needed: needed)
        } then: { node, result in
            var needed = needed
            switch result {
            case .success(.isShort): node.note(nil, about: "the length of the log")
            case .success(.isAllNeeded(let bytes)): needed = bytes
            case .success(.shortened(let before, let after)):
                node.note(nil, about: "the length of the log")
                node.logger.notice(
                    "the cluster's log begins anew with all records as they are",
                    metadata: ["bytes": "\(after)", "before": "\(before)"])
            case .failure(let error): node.note(error, about: "the length of the log")
            }
            node.again(after: node.logLimits.interval) { [needed] in $0.keepLogShort(needed: needed) }
        }
    }

    // MARK: The lease

    private func take(_ event: ClusterStateMachine.Event) {
        for action in machine.handle(event, at: .now) { carryOut(action) }
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.take(.deadline) } }
        }
    }

    private func carryOut(_ action: ClusterStateMachine.Action) {
        switch action {
        case .read: read()
        case .write(let lease, let revision): write(lease, over: revision)
        case .watch(let place, let epoch): watch(place, of: epoch)
        case .standBy(let lease): standBy(lease)
        case .catchUp(let epoch): catchUp(epoch)
        case .serve:
            portWatch?.cancel()
            portWatch = nil
            standingNow.withLock { $0 = Standing(serves: true, holder: own.node, holderPlace: own.place) }
            logger.notice("this node serves the cluster now", metadata: ["cluster": "\(configuration.name)"])
            untilServing?.resume()
            untilServing = nil
            keepLogShort(needed: 0)
        case .released(let place):
            untilReleased?.resume(returning: place)
            untilReleased = nil
        case .end(let end):
            self.end = end
            onEnd(end)
        }
    }

    private func read() {
        guard let connection else { return }
        let (subject, stream) = (configuration.lease.subject, configuration.lease.name)
        inBackground(leaseLoop) {
            try connection.last(of: subject, in: stream, wait: Self.wait)
        } then: { node, result in
            switch result {
            case .success(let message):
                node.note(nil, about: "the lease")
                // What cannot be read counts as a holder that this version does not know: it expires.
                let lease = message.map { message in
                    ClusterLease(message: message.bytes)
                        ?? ClusterLease(
                            epoch: 0, node: "?", identifier: "", incarnation: "", place: "", state: .serving,
                            milliseconds: 120_000)
                }
                node.take(.read(lease, revision: message?.sequence ?? 0))
            case .failure(let error):
                node.note(error, about: "the lease")
                node.take(.readFailed)
            }
        }
    }

    private func write(_ lease: ClusterLease, over revision: UInt64) {
        guard let connection else { return }
        let (subject, stream) = (configuration.lease.subject, configuration.lease.name)
        inBackground(leaseLoop) {
            try connection.publish(lease.message, to: subject, of: stream, after: .last(revision), wait: Self.wait)
        } then: { node, result in
            switch result {
            case .success(let revision):
                node.note(nil, about: "the lease")
                node.take(.written(revision: revision))
            case .failure(let error as NATSError) where error.kind == .otherLast: node.take(.refused)
            case .failure(let error):
                node.note(error, about: "the lease")
                node.take(.writeFailed)
            }
        }
    }

    private func standBy(_ lease: ClusterLease?) {
        portWatch?.cancel()
        portWatch = nil
        standingNow.withLock { $0 = Standing(serves: false, holder: lease?.node, holderPlace: lease?.place) }
        guard let lease else { return logger.notice("no node serves the cluster") }
        logger.notice(
            "standing by",
            metadata: ["serving": "\(lease.node)", "place": "\(lease.place)", "epoch": "\(lease.epoch)"])
    }

    private func watch(_ place: String, of epoch: UInt64) {
        Task {
            let address = await address(of: place)
            guard end == nil, !standing.serves, standing.holderPlace == place else { return }
            guard let address else {
                return logger.warning(
                    "the place of the node that serves has no address; its end is noticed only when its lease ends",
                    metadata: ["place": "\(place)"])
            }
            portWatch?.cancel()
            portWatch = PortWatch(address, on: loop) { [weak self] in
                self?.assumeIsolated { $0.take(.portClosed(epoch: epoch)) }
            }
        }
    }

    private func address(of place: String) async -> SocketAddress? {
        guard let place = RelayPlace(place) else { return nil }
        return try? await SocketAddress.resolve(place.host, port: place.port).first
    }

    // MARK: Reports

    /// Tells the others of this node, every few seconds.
    private func report(_ connection: NATSConnection, behind revision: UInt64) {
        guard end == nil else { return }
        let report = ClusterNodeReport(
            node: own.node, identifier: own.identifier, place: own.place, serves: standing.serves, position: position,
            at: Int64(time(nil)), version: version)
        let (subject, stream) = (configuration.nodeSubject(own.node), configuration.state.name)
        inBackground(leaseLoop) { () throws -> UInt64 in
            do throws(NATSError) {
                return try connection.publish(
                    report.message, to: subject, of: stream, after: revision == 0 ? .none : .ofSubject(revision),
                    wait: Self.wait)
            } catch {
                guard error.kind == .otherLast else { throw error }
                return try connection.last(of: subject, in: stream, wait: Self.wait)?.sequence ?? 0
            }
        } then: { node, result in
            // One that is lost is followed by the next one.
            let next = (try? result.get()) ?? revision
            let interval = revision == 0 ? Self.followInterval : Self.reportInterval
            node.again(after: interval) { $0.report(connection, behind: next) }
        }
    }

    // MARK: Threads

    /// Does what may wait on `other`, and goes on here.
    private func inBackground<T: Sendable>(
        _ other: EventLoop, _ body: @escaping @Sendable () throws -> T,
        then: @escaping @Sendable (isolated ClusterNode, Result<T, any Error>) -> Void
    ) {
        other.execute { [weak self, loop] in
            let result = Result { try body() }
            loop.execute { [weak self] in self?.assumeIsolated { then($0, result) } }
        }
    }

    private func again(after delay: Duration, _ body: @escaping @Sendable (isolated ClusterNode) -> Void) {
        _ = loop.schedule(after: delay) { [weak self] in self?.assumeIsolated { body($0) } }
    }

    /// Logs a problem when it begins, changes or ends.
    private func note(_ error: (any Error)?, about subject: String) {
        let text = error.map { "\($0)" }
        guard problems[subject] != text else { return }
        problems[subject] = text
        guard let text else { return logger.notice("the problem is over", metadata: ["about": "\(subject)"]) }
        logger.warning("\(text)", metadata: ["about": "\(subject)"])
    }
}
