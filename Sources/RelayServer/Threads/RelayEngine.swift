// A running relay as a whole: its workers, and what they leave to it.
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// The workers of a relay, each with a shard of its channels, and what concerns all of them. The first worker runs on the
/// same loop, so a relay with one worker is a single thread.
///
/// It is `Sendable` only so that it can be shut down when nobody holds its relay any more: all use is on its loop.
final class RelayEngine: @unchecked Sendable {
    let loop: EventLoop
    var milestoneHandler: (@Sendable (RelayMilestone, Instant) -> Void)?
    /// Told of each channel that has gone to another relay.
    var movedHandler: (@Sendable (ChannelID) -> Void)?
    /// Told when all have gone after `.drain`.
    var drainedHandler: (@Sendable () -> Void)?
    let startedAt = Instant.now
    let exchange: RelayExchange
    var workers: [RelayWorker] = []
    /// What workers share the sending to hundreds with.
    var helpers: ThreadPool?
    let logger: Logger
    /// Where connections are; nil where nobody keeps that.
    private(set) var places: ConnectionPlaces?
    /// Times that they may be kept without waiting for the interval.
    private var placesBudget: TokenBucket?
    /// As many as that in a row: the members of a small channel come back one after the other.
    private static let placesBurst = 5
    /// What changes within this time is kept at once.
    private static let placesPause = Duration.milliseconds(50)
    /// Whether it goes down as soon as nobody talks any more.
    private(set) var isDraining = false
    private var drainedShards: Set<Int> = []

    private let enrol: (@Sendable (ConnectionID, RelayEnrolment) -> Void)?
    private let log: RelayLog
    private var isDown = false
    /// What other threads were asked and have not answered, with what takes the place of an answer when they end.
    private var questions: [Int: () -> Void] = [:]
    private var lastQuestion = 0

    /// An engine that listens at `address` from now on. Called on `loop`, which the first worker lives on; the others get loops of
    /// their own.
    ///
    /// - Throws: `RelayServerError.listen`, `.system`; nothing of it is left then.
    init(
        on loop: EventLoop, at address: SocketAddress, workers count: Int, configuration: RelayServerConfiguration,
        logger: Logger
    ) throws(RelayServerError) {
        self.loop = loop
        self.logger = logger
        enrol = configuration.enrol
        log = RelayLog(logger: logger)
        let directory = ChannelDirectory(shards: count)
        for channel in configuration.channels.prefix(configuration.limits.channels) { _ = directory.add(channel) }
        do {
            exchange = try RelayExchange(
                workers: count, web: configuration.web, directory: directory, limits: configuration.limits,
                spreadFrom: configuration.spreadFrom)
        } catch {
            throw .system(error)
        }
        if let keep = configuration.keepPlaces { keepPlaces(every: configuration.placesInterval, keep) }
        do throws(RelayServerError) {
            try open(at: address, configuration)
        } catch {
            _ = shutDown()
            throw error
        }
        configuration.web?.attach(exchange)
        callBack(configuration.formerPlaces)
    }

    /// The endpoint of the first worker.
    var endpoint: QUICEndpoint { workers[0].endpoint }

    /// What is left of a relay that has ended.
    struct Remains {
        var counters = RelayCounters()
        var roster: RelayRoster?
    }

    /// Tells members that the relay goes down, and closes the port; other workers' threads have ended when this returns.
    func shutDown() -> Remains {
        isDown = true
        exchange.web?.detach()
        for worker in workers.dropFirst() {
            loop.waiting {
                worker.endpoint.loop.runAndWait { worker.shutDown() }
                worker.endpoint.loop.stop()
            }
        }
        workers.first?.shutDown()
        let remains = Remains(
            counters: counters(of: shards.map(\.core.counters)),
            roster: shards.map(\.core.roster).reduce(nil) { $0?.merging($1) ?? $1 })
        workers = []
        helpers?.stop()
        helpers = nil
        for instead in questions.values { instead() }
        questions = [:]
        return remains
    }

    private var shards: [RelayShard] { workers.compactMap(\.shard) }

    // MARK: Events

    /// Has the shard that it concerns, or all of them, handle an event.
    func handle(_ event: RelayCore.Event) {
        switch event {
        case .drain:
            isDraining = true
            for worker in workers.reversed() { handle(event, on: worker.number) }
        case .setPlaces:
            for worker in workers.reversed() { handle(event, on: worker.number) }
        case .move(let channels, let place):
            for (shard, own) in byShard(channels) { handle(.move(own, to: place), on: shard) }
        case .resume(let channels): for (shard, own) in byShard(channels) { handle(.resume(own), on: shard) }
        case .enrolled(_, let enrolment, _): handle(event, on: enrolment.shard)
        default:
            if let shard = event.channel.flatMap({ exchange.directory.shard(of: $0) }) { handle(event, on: shard) }
        }
    }

    /// The channels that are served, by the shards that have them.
    func byShard(_ channels: [ChannelID]) -> [Int: [ChannelID]] {
        channels.reduce(into: [:]) { result, channel in
            if let shard = exchange.directory.shard(of: channel) { result[shard, default: []].append(channel) }
        }
    }

    private func handle(_ event: RelayCore.Event, on shard: Int) {
        // The answer to an enrolment of an earlier start may name one that is not there now.
        guard workers.indices.contains(shard) else { return }
        if shard == 0 {
            workers.first?.shard?.handle(event)
        } else {
            exchange.post(.report(.event(event)), to: shard)
        }
    }

    /// Asks a shard; `answer` gets nil when the relay ends before.
    ///
    /// What was handed to the shard before is done when it answers.
    func ask<Value: Sendable>(
        _ shard: Int, _ question: @escaping @Sendable (RelayShard) -> Value, _ answer: @escaping (Value?) -> Void
    ) {
        guard shard != 0 else { return answer(workers.first?.shard.map(question)) }
        guard workers.indices.contains(shard) else { return answer(nil) }
        lastQuestion += 1
        let number = lastQuestion
        questions[number] = { answer(nil) }
        let answers = Answers(handler: answer)
        exchange.post(
            .question { [loop, weak self] shard in
                let value = question(shard)
                loop.execute { [weak self] in
                    guard self?.questions.removeValue(forKey: number) != nil else { return }
                    answers.handler(value)
                }
            }, to: shard)
    }

    /// Takes an answer back to the relay's loop, where it came from.
    private struct Answers<Value>: @unchecked Sendable {
        let handler: (Value?) -> Void
    }

    func push(_ request: PushRequest) -> PushVerdict { workers.first?.shard?.push(request) ?? .shutDown }

    /// The live push tokens, which the first shard has.
    var pushTokenCount: Int { workers.first?.shard?.core.pushTokenCount ?? 0 }

    /// Whether it takes nobody any more, and all have gone.
    var isDrained: Bool { isDraining && drainedShards.count == workers.count }

    /// Takes what a shard leaves to the relay as a whole.
    func take(_ report: RelayFrontReport) {
        // Mail that was on its way when it went down.
        guard !isDown else { return }
        switch report {
        case .note(let milestone, let time):
            log.milestone(milestone, at: time)
            milestoneHandler?(milestone, time)
        case .enrol(let id, let enrolment):
            guard let enrol else {
                return handle(.enrolled(id, enrolment, .refused(.other, "the relay enrols no members")))
            }
            enrol(id, enrolment)
        case .pushes(let event, let shard): workers.first?.shard?.take(event, from: shard)
        case .moved(let channel):
            exchange.directory.remove(channel)
            movedHandler?(channel)
        case .drained(let shard):
            drainedShards.insert(shard)
            if isDrained { drainedHandler?() }
        }
    }

    // MARK: Statistics

    /// What the carriers have counted. The links over TLS count their connections only when they are asked, so of these the answer is
    /// what they were at the last time.
    private var tallies: [RelayWorkerTally] {
        var tallies = workers.map { worker in worker.tally.withLock { $0 } }
        if let web = exchange.web {
            _ = web.take(.count)
            tallies.append(web.tally.withLock { $0 })
        }
        return tallies
    }

    /// What was counted since the start, of which the shards' rules have counted `parts`.
    func counters(of parts: [RelayCounters]) -> RelayCounters { total(of: tallies, parts) }

    private func total(of tallies: [RelayWorkerTally], _ parts: [RelayCounters]) -> RelayCounters {
        var counters = RelayCounters()
        for part in parts + tallies.map(\.counters) { counters.add(part) }
        counters.packetsNotSent += tallies.reduce(0) { $0 + $1.mediaTooLate }
        return counters
    }

    /// What a shard knows for the operator; its worker's connections are counted as well.
    struct ShardStatistics: Sendable {
        var counters: RelayCounters
        var channels: [RelayStatistics.Channel]
        var keptBytes: Int

        init(_ shard: RelayShard) {
            shard.worker.count()
            counters = shard.core.counters
            channels = shard.core.channelStatistics
            keptBytes = shard.core.keptBytes
        }
    }

    /// The statistics for the operator, from those of all shards.
    func statistics(of parts: [ShardStatistics]) -> RelayStatistics {
        let tallies = tallies
        var transport = RelayStatistics.Transport()
        var forwarding = LatencyHistogram()
        for tally in tallies {
            if let counted = tally.transport { transport.add(counted) }
            forwarding.add(tally.forwarding)
        }
        let places = exchange.directory.places
        let channels = parts.flatMap(\.channels)
        var result = RelayStatistics(
            uptime: .now - startedAt,
            connections: tallies.prefix(workers.count).reduce(0) { $0 + $1.connections },
            counters: total(of: tallies, parts.map(\.counters)), transport: transport, forwarding: forwarding,
            pushTokens: pushTokenCount, isDraining: isDraining,
            channels: channels.sorted { places[$0.id] ?? 0 < places[$1.id] ?? 0 },
            keptBytes: parts.reduce(0) { $0 + $1.keptBytes })
        if exchange.web != nil, let tally = tallies.last {
            var links = RelayStatistics.Web()
            links.connections = tally.connections
            links.handshakesFailed = tally.webHandshakesFailed
            links.mediaTooLate = tally.mediaTooLate
            result.web = links
        }
        return result
    }

    // MARK: Places of connections

    /// Has `keep` called when it has changed where the connections are: soon after a few changes, and else once in an interval.
    private func keepPlaces(
        every interval: Duration, _ keep: @escaping @Sendable (_ text: @escaping @Sendable () -> String) -> Void
    ) {
        let loop = loop
        placesBudget = TokenBucket(depth: Self.placesBurst, every: interval, at: .now)
        places = ConnectionPlaces { [weak self] in
            loop.execute { [weak self] in
                let soon = Instant.now + min(interval, Self.placesPause)
                guard let due = self?.placesBudget?.nextToken(at: .now) else { return }
                loop.schedule(at: max(due, soon)) { [weak self] in
                    guard let self, let places else { return }
                    _ = placesBudget?.take(at: .now)
                    keep { places.take() }
                }
            }
        }
    }
}

extension RelayCore.Event {
    /// The channel that an event of the relay's owner concerns.
    fileprivate var channel: ChannelID? {
        switch self {
        case .revoke(_, let channel), .readmit(_, let channel, _), .renewMediaKey(let channel),
            .setRules(_, let channel), .setRetention(_, let channel), .end(let channel, _),
            .removeChannel(let channel, _), .renameChannel(let channel, _), .admit(_, _, let channel):
            channel
        case .greeted, .connected, .message, .unknownMessage, .violation, .disconnected, .enrolled, .pushes, .push,
            .drain, .move, .resume, .setPlaces, .shutDown, .deadline:
            nil
        }
    }
}
