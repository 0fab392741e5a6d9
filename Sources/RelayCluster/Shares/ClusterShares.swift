// A relay's part in a cluster: carries out what the state machine says, as far as it concerns NATS and the ports of others.
import Logging
import MonotonicTime
import NATS
import QUIC
import Reactor
import RelayProtocol

/// Keeps a relay's entry in the table of shares, and tells it which shares it serves.
public actor ClusterShares: LoopActor {
    nonisolated let loop: EventLoop
    /// Reads and writes the table.
    private let tableLoop: EventLoop
    /// The loop that this actor lives on: its node's.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// What the relay is to do about its shares, in this order; what concerns the table and the other relays is not among it.
    public nonisolated let orders: AsyncStream<SharesStateMachine.Action>
    private let give: AsyncStream<SharesStateMachine.Action>.Continuation
    private let stream: ShareTableStream
    private let calls: ClusterCalls
    private let logger: Logger
    /// Told who writes the records, and when this relay is to end.
    private let tellNode: @Sendable (SharesStateMachine.Action) -> Void
    private var machine: SharesStateMachine
    private var timer: EventLoop.Timer?
    private var watches: [String: PortWatch] = [:]
    private var watched: [String: String] = [:]
    private var changedAt = Instant.now
    private var problems: ClusterProblems
    private var hasReleased = false
    private var hasEnded = false
    private var untilReleased: CheckedContinuation<Void, Never>?
    private var untilEntered: CheckedContinuation<Void, Never>?

    /// How long an answer of NATS may take.
    private static let wait: Duration = .seconds(1)
    /// How long a relay that begins waits for its entry in the table. It serves all the same when NATS answers later.
    private static let entryTime: Duration = .seconds(5)

    init(
        _ connection: NATSConnection, _ configuration: ClusterConfiguration, _ own: ClusterMember,
        _ calls: ClusterCalls, timers: SharesStateMachine.Timers, on loop: EventLoop, logger: Logger,
        tellNode: @escaping @Sendable (SharesStateMachine.Action) -> Void
    ) throws {
        self.calls = calls
        stream = ShareTableStream(connection, configuration.shares)
        self.loop = loop
        self.logger = logger
        problems = ClusterProblems(logger: logger)
        self.tellNode = tellNode
        machine = SharesStateMachine(own, timers: timers)
        tableLoop = try EventLoop(name: "cluster-share", mayWait: true)
        (orders, give) = AsyncStream.makeStream()
    }

    deinit { tableLoop.stop() }

    /// The relay listens, and takes orders. Returns when the others can know of it, or after `entryTime`.
    public func start() async {
        take(.start)
        await withCheckedContinuation { continuation in
            untilEntered = continuation
            again(after: Self.entryTime) { $0.entered() }
        }
    }

    private func entered() {
        untilEntered?.resume()
        untilEntered = nil
    }

    /// Whether the relay has all records.
    ///
    /// - Parameter epoch: The last one in which a relay has written them.
    func note(follows: Bool, epoch: UInt64) { take(.follows(follows, epoch: epoch)) }

    /// The answer to `SharesStateMachine.Action.pause`.
    public func paused(_ busy: [Int: Set<ChannelID>]) {
        take(.paused(busy.mapValues { Set($0.map(\.description)) }))
    }

    /// Channels have gone to the relay that serves them now, or are no channels any more.
    public func left(_ channels: Set<ChannelID>) {
        for channel in channels { take(.left(channel.description)) }
    }

    /// Gives all shares to other relays; returns when that is done, or not possible.
    public func release() async {
        guard !hasReleased else { return }
        await withCheckedContinuation { continuation in
            untilReleased = continuation
            take(.release)
        }
    }

    // MARK: Rules

    /// The relay takes no part any more.
    func end() {
        hasEnded = true
        timer?.cancel()
    }

    private func take(_ event: SharesStateMachine.Event) {
        guard !hasEnded else { return }
        for action in machine.handle(event, at: .now) { carryOut(action) }
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.take(.deadline) } }
        }
    }

    private func carryOut(_ action: SharesStateMachine.Action) {
        switch action {
        case .read: read()
        case .write(let table, let revision): write(table, over: revision)
        case .watch(let places): watch(places)
        case .askForPromises(let others): ask(.promise, others)
        case .askForConsent(let relay, let others): ask(.consent(to: relay), others)
        case .released:
            hasReleased = true
            untilReleased?.resume()
            untilReleased = nil
        case .writer, .end: tellNode(action)
        case .take, .unhold, .pause, .resume, .move, .places: give.yield(action)
        }
    }

    private func read() {
        inBackground(tableLoop) { [stream] in
            try stream.read()
        } then: { shares, result in
            switch result {
            case .success((let table, let revision)):
                shares.note(nil)
                shares.take(.read(table, revision: revision))
            case .failure(ClusterError.sharesForked): shares.take(.forked)
            case .failure(let error):
                shares.note(error)
                shares.take(.readFailed)
            }
        }
    }

    private func write(_ table: ShareTable, over revision: UInt64) {
        inBackground(tableLoop) { [stream] in
            try stream.write(table, over: revision)
        } then: { shares, result in
            switch result {
            case .success(let revision?):
                shares.note(nil)
                shares.entered()
                shares.take(.written(revision: revision))
            case .success(nil): shares.take(.refused)
            case .failure(ClusterError.sharesForked): shares.take(.forked)
            case .failure(let error):
                shares.note(error)
                shares.take(.writeFailed)
            }
        }
    }

    // MARK: Votes

    /// The first byte of a question to another relay.
    static let questionTag: UInt8 = 2
    private static let granted: [UInt8] = [1]

    private func ask(_ question: ShareVotes.Question, _ others: [String]) {
        let sent = Instant.now
        for other in others {
            Task {
                let answer: [UInt8]
                do {
                    answer = try await calls.ask([Self.questionTag] + question.message, of: other, wait: Self.wait)
                } catch {
                    logger.debug("no vote", metadata: ["of": "\(other)", "about": "\(question)", "why": "\(error)"])
                    return
                }
                guard answer == Self.granted else {
                    logger.debug("a vote was refused", metadata: ["by": "\(other)", "about": "\(question)"])
                    return
                }
                switch question {
                case .promise: take(.promised(by: other, askedAt: sent))
                case .consent(let relay): take(.consented(by: other, to: relay))
                }
            }
        }
    }

    /// Answers a question of another relay.
    func answer(_ message: [UInt8], of caller: String) -> [UInt8] {
        guard let question = ShareVotes.Question(message: Array(message.dropFirst())) else { return [] }
        return machine.answer(question, of: caller, at: .now) ? Self.granted : []
    }

    // MARK: Ports

    /// The table of shares as it was read last; nil: it was not yet.
    var table: ShareTable? { machine.table }
    /// The incarnations of the other relays.
    var others: [String] { watched.keys.sorted() }
    /// Whether no relay has come or gone for so long that all members are back.
    var isSettled: Bool { .now - changedAt >= Self.settlingTime }
    private static let settlingTime: Duration = .seconds(30)

    private func watch(_ places: [String: String]) {
        watched = places
        changedAt = .now
        for (incarnation, watch) in watches where places[incarnation] == nil {
            watch.cancel()
            watches[incarnation] = nil
        }
        for (incarnation, place) in places where watches[incarnation] == nil {
            Task {
                guard let place = RelayPlace(place),
                    let address = try? await SocketAddress.resolve(place.host, port: place.port).first
                else {
                    return logger.warning(
                        "the place of a relay has no address; its end is noticed only when it has not written for long",
                        metadata: ["place": "\(place)"])
                }
                guard watched[incarnation] != nil, watches[incarnation] == nil else { return }
                watches[incarnation] = PortWatch(address, on: loop) { [weak self] in
                    self?.assumeIsolated { $0.take(.portClosed(incarnation: incarnation)) }
                }
            }
        }
    }

    private func note(_ error: (any Error)?) { problems.note(error, about: "the shares") }
}
