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

/// A relay that serves a part of the channels of its cluster.
public actor ClusterNode: LoopActor {
    /// Why a node may serve no longer.
    public enum End: Equatable, Sendable {
        /// It has no part in the table of shares any more.
        case shares(SharesStateMachine.End)
        /// It is the one that writes the records, and another one has written some.
        case fenced
        /// The same, and its records are not those of the cluster.
        case records(String)
    }

    nonisolated let loop: EventLoop
    /// Asks NATS.
    private let askingLoop: EventLoop
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
    private var connection: NATSConnection?
    private var records: ClusterRecords?
    private let logLimits: ClusterLogLimits
    /// What another relay with this one's name said last, and since when.
    private var namesake: (sequence: UInt64, since: Instant)?
    private var problems: ClusterProblems
    private var hasEnded = false
    private let onEnd: @Sendable (End) -> Void
    private let timers: SharesStateMachine.Timers
    /// Which channels this relay serves; nil: it has not all records yet.
    private var shares: ClusterShares?
    private var calls: ClusterCalls?
    private var answerer: Answerer?
    /// The relay that writes the records, as far as this one knows.
    private var writer: ClusterMember?
    private var isWriter: Bool { writer?.incarnation == own.incarnation }
    private var isReleasing = false
    private var untilServing: CheckedContinuation<ClusterShares, Never>?
    private nonisolated let writesNow = Mutex(false)

    /// How long an answer of NATS may take.
    private static let wait: Duration = .seconds(1)
    private static let retry: Duration = .seconds(1)
    private static let reportInterval: Duration = .seconds(5)

    /// - Parameters:
    ///   - store: The node's records; what is written while it serves is in the cluster's log first.
    ///   - relay: The relay's key, which all nodes have.
    ///   - onEnd: Called on the node's loop when it may not serve any longer. The program has to end at once: members that stay would
    ///     talk to a part of their channel.
    public init(
        _ configuration: ClusterConfiguration, store: RelayStore, relay: ClusterIdentity, version: String,
        timers: SharesStateMachine.Timers = .init(), logLimits: ClusterLogLimits = .init(), logger: Logger,
        onEnd: @escaping @Sendable (End) -> Void
    ) throws {
        self.configuration = configuration
        self.store = store
        self.relay = relay
        self.version = version
        self.logLimits = logLimits
        self.logger = logger
        problems = ClusterProblems(logger: logger)
        self.onEnd = onEnd
        own = ClusterMember(
            node: configuration.node, identifier: try store.nodeIdentifier(),
            incarnation: Hexadecimal.encode(SecureRandom.bytes(8)), place: configuration.place,
            web: configuration.web)
        self.timers = timers
        loop = try EventLoop(name: "cluster")
        askingLoop = try EventLoop(name: "cluster-ask", mayWait: true)
    }

    deinit {
        askingLoop.stop()
        loop.stop()
    }

    /// Whether this node writes the records now.
    public nonisolated var writes: Bool { writesNow.withLock { $0 } }

    /// Connects, follows the log, and returns when all records are here: what this node serves is up to its shares then.
    public func serve() async -> ClusterShares {
        connect()
        return await withCheckedContinuation { untilServing = $0 }
    }

    /// `handler` is told, on a thread that may wait, what of the records other relays have changed.
    public func onRecords(_ handler: @escaping @Sendable (RecordChanges) -> Void) async {
        await records?.onChange(handler)
    }

    // MARK: Requests

    /// Has the relay that writes the records do something.
    ///
    /// - Parameter isRecord: Whether it may change records: what it has changed is here, too, then.
    /// - Throws: `ClusterError.notAnswered`.
    public func ask(_ request: [UInt8], isRecord: Bool) async throws -> [UInt8] {
        guard let calls, let writer, !isWriter else {
            throw ClusterError.notAnswered("it is about to be another one")
        }
        let answer = try await calls.ask([Self.requestTag] + request, of: writer.incarnation)
        guard answer.count >= Self.positionByteCount else { throw ClusterError.notAnswered("the answer is cut off") }
        let position = answer.prefix(Self.positionByteCount).reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
        if isRecord { await records?.followed(to: position) }
        return Array(answer.dropFirst(Self.positionByteCount))
    }

    /// Has each other relay do something.
    ///
    /// - Returns: The answers, whether all have answered, and whether no relay has come or gone lately.
    public func askOthers(_ request: [UInt8]) async -> (all: [[UInt8]], areAll: Bool, isSettled: Bool) {
        guard let calls, let shares else { return ([], false, false) }
        let (others, isSettled) = await (shares.others, shares.isSettled)
        let answers = await withTaskGroup(of: [UInt8]?.self) { group in
            for other in others {
                group.addTask {
                    try? await calls.ask([Self.requestTag] + request, of: other, wait: Self.othersWait)
                }
            }
            return await group.reduce(into: [[UInt8]]()) { answers, answer in
                if let answer, answer.count >= Self.positionByteCount {
                    answers.append(Array(answer.dropFirst(Self.positionByteCount)))
                }
            }
        }
        return (answers, answers.count == others.count, isSettled)
    }

    private static let othersWait: Duration = .seconds(1)

    /// Looks at the other relays for an operator; nil: this one does not serve yet.
    public func lookout() -> ClusterLookout? {
        guard let calls, let shares, let connection else { return nil }
        return ClusterLookout(calls, shares, connection, configuration, own, store)
    }

    /// Answers what other relays ask this one: the answer, and the position in the log of the records that it is of.
    public typealias Answerer = @Sendable (_ request: [UInt8]) async -> (answer: [UInt8], position: UInt64)

    /// From now on `answerer` answers.
    public func onRequest(_ answerer: @escaping Answerer) { self.answerer = answerer }

    /// Answers what another relay asks.
    private func answer(_ request: [UInt8], of caller: String) async -> [UInt8] {
        switch request.first {
        case Self.requestTag:
            guard let answerer else { return [] }
            let (answer, position) = await answerer(Array(request.dropFirst()))
            return position.bigEndianBytes + answer
        case ClusterShares.questionTag: return await shares?.answer(request, of: caller) ?? []
        default: return []
        }
    }

    /// The first byte of what is not of `ClusterShares`.
    static let requestTag: UInt8 = 1
    static let positionByteCount = 8

    /// Hands over what this node serves and writes.
    ///
    /// - Returns: Where members are to go; nil: there is no other node.
    public func release() async -> String? {
        logger.notice("handing the cluster over")
        isReleasing = true
        await shares?.release()
        return isWriter ? nil : writer?.place
    }

    // MARK: The connection

    private func connect() {
        let options = configuration.nats
        inBackground(askingLoop) {
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
        let (configuration, pin, subject) = (configuration, relay.pin, configuration.nodeSubject(own.node))
        inBackground(askingLoop) { () throws -> (ClusterDescription, NATSMessage?) in
            // Before the names of nodes: those of another relay's cluster do not matter.
            let description = try ClusterAdministration.usableDescription(
                configuration, connection, of: pin, wait: Self.wait)
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
        do {
            let records = try ClusterRecords(
                connection, configuration, description, store: store, relay: relay, limits: logLimits, on: loop,
                logger: logger
            ) { [weak self] event in self?.assumeIsolated { $0.note(event) } }
            self.records = records
            records.assumeIsolated { $0.begin() }
        } catch {
            note(error, about: "the records")
            again(after: Self.retry) { $0.begin(connection, description) }
            return
        }
        report(connection)
    }

    private func note(_ event: ClusterRecords.Event) {
        switch event {
        case .follows(let follows):
            if follows, untilServing != nil { beginShares() }
            let epoch = records?.assumeIsolated { $0.epoch } ?? 0
            shares?.assumeIsolated { $0.note(follows: follows, epoch: epoch) }
        case .caughtUp: if isWriter { write() }
        case .cannotCatchUp(let why): if isWriter { end(.records(why)) }
        // Where it hands over, the next one may have begun before this one knows.
        case .fenced: if isWriter, !isReleasing { end(.fenced) }
        }
    }

    /// All records are here for the first time: this relay serves now.
    private func beginShares() {
        guard let connection else { return }
        do {
            let calls = try ClusterCalls(connection, configuration, own, relay: relay, on: loop, logger: logger)
            let shares = try ClusterShares(
                connection, configuration, own, calls, timers: timers, on: loop, logger: logger
            ) { [weak self] action in
                // Not in the midst of what it does.
                self?.loop.execute { [weak self] in self?.assumeIsolated { $0.carryOut(action) } }
            }
            calls.assumeIsolated { calls in
                calls.answer { [weak self] request, caller in await self?.answer(request, of: caller) ?? [] }
            }
            self.calls = calls
            self.shares = shares
            untilServing?.resume(returning: shares)
            untilServing = nil
        } catch {
            note(error, about: "the shares")
            again(after: Self.retry) { if $0.untilServing != nil { $0.beginShares() } }
        }
    }

    private func end(_ end: End) {
        hasEnded = true
        records?.assumeIsolated { $0.end() }
        shares?.assumeIsolated { $0.end() }
        onEnd(end)
    }

    // MARK: Who writes

    private func carryOut(_ action: SharesStateMachine.Action) {
        switch action {
        case .writer(let member, let epoch):
            writer = member
            writesNow.withLock { $0 = false }
            guard let member else { return logger.notice("no relay writes the cluster's records") }
            guard isWriter else {
                records?.assumeIsolated { $0.followAgain() }
                return logger.info("another relay writes the cluster's records", metadata: ["relay": "\(member.node)"])
            }
            records?.assumeIsolated { $0.catchUp(epoch) }
        case .end(let reason): end(.shares(reason))
        default: break
        }
    }

    /// All records are here, and the log knows that this node writes now.
    private func write() {
        writesNow.withLock { $0 = true }
        logger.notice(
            "this node writes the cluster's records now", metadata: ["cluster": "\(configuration.name)"])
        records?.assumeIsolated { $0.write() }
    }

    // MARK: Reports

    /// Tells the others of this node, every few seconds. Nobody else writes that subject, so the servers need not compare: NATS 2.9.10
    /// does not answer for long at times where it has refused messages (docs/decisions/23-all-relays-serve.md).
    private func report(_ connection: NATSConnection) {
        guard !hasEnded else { return }
        let report = ClusterNodeReport(
            node: own.node, identifier: own.identifier, place: own.place, serves: writes,
            position: records?.assumeIsolated { $0.position } ?? 0,
            at: Int64(time(nil)), version: version)
        let (subject, stream) = (configuration.nodeSubject(own.node), configuration.state.name)
        inBackground(askingLoop) {
            try connection.publish(report.message, to: subject, of: stream, after: .any, wait: Self.wait)
        } then: { node, result in
            let wasTold = (try? result.get()) != nil
            node.again(after: wasTold ? Self.reportInterval : Self.retry) { $0.report(connection) }
        }
    }

    private func note(_ error: (any Error)?, about subject: String) { problems.note(error, about: subject) }
}

/// Logs each problem when it begins, changes or ends.
struct ClusterProblems {
    let logger: Logger
    private var problems: [String: String] = [:]

    init(logger: Logger) { self.logger = logger }

    /// How it is with `subject`; nil: well.
    mutating func note(_ error: (any Error)?, about subject: String) {
        let text = error.map { "\($0)" }
        guard problems[subject] != text else { return }
        problems[subject] = text
        guard let text else { return logger.notice("the problem is over", metadata: ["about": "\(subject)"]) }
        logger.warning("\(text)", metadata: ["about": "\(subject)"])
    }
}
