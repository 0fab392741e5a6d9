// Runs the relay's rules: passes events of the workers' connections to them, and their actions to the worker concerned.
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// `RelayCore` on its loop, with the workers that own the connections. The first worker runs on the same loop, so a
/// relay with one worker is a single thread. The others have a loop each and get their orders by mailbox.
///
/// It is `Sendable` only so that it can be shut down when nobody holds its relay any more: all use is on its loop.
final class RelayEngine: @unchecked Sendable {
    let loop: EventLoop
    var core: RelayCore
    var milestoneHandler: (@Sendable (RelayMilestone, Instant) -> Void)?
    /// Told when all have gone after `.drain`.
    var drainedHandler: (@Sendable () -> Void)?
    let startedAt = Instant.now
    var workers: [RelayWorker] = []
    /// Has the connections over TLS; nil where none are taken.
    let web: RelayWebWorker?
    /// All who have connections, by the numbers that `numbers` gives: the workers, then `web`.
    private var carriers: [any RelayCarrier] = []
    /// What workers share the sending to hundreds with.
    var helpers: ThreadPool?
    let logger: Logger
    let limits: RelayLimits
    let numbers: ConnectionNumbers
    /// From the workers on other loops; nil while there are none.
    let reports: Mailbox<RelayWorkerReport>?
    /// Where connections are; nil where nobody keeps that.
    var places: ConnectionPlaces?

    private let enrol: (@Sendable (ConnectionID, RelayEnrolment) -> Void)?
    private let log: RelayLog
    /// The listeners by channel and carrier, so that none is woken without listeners. Empty with one carrier.
    private var audiences: [[Set<ConnectionID>]] = []
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    private var isDown = false

    /// An engine that listens at `address` from now on. Called on `loop`, which the rules and the first worker live on; the other
    /// workers get loops of their own.
    ///
    /// - Throws: `RelayServerError.listen`, `.system`; nothing of it is left then.
    init(
        on loop: EventLoop, at address: SocketAddress, workers count: Int, configuration: RelayServerConfiguration,
        logger: Logger
    ) throws(RelayServerError) {
        self.loop = loop
        self.logger = logger
        limits = configuration.limits
        core = RelayCore(
            channels: configuration.channels, limits: configuration.limits, timers: configuration.timers,
            roster: configuration.roster, acceptsPushes: configuration.acceptsPushes,
            web: configuration.webPlace, startedAt: .now)
        enrol = configuration.enrol
        log = RelayLog(logger: logger)
        web = configuration.web
        numbers = ConnectionNumbers(workers: count + (web == nil ? 0 : 1))
        do {
            reports = try count > 1 || web != nil ? Mailbox() : nil
        } catch {
            throw .system(error)
        }
        if let keep = configuration.keepPlaces { keepPlaces(every: configuration.placesInterval, keep) }
        do throws(RelayServerError) {
            try open(at: address, workers: count, configuration)
            carriers = workers + (web.map { [$0] } ?? [])
            if let web, let reports { attach(web, as: count, reports) }
        } catch {
            shutDown()
            throw error
        }
        callBack(configuration.formerPlaces)
    }

    /// The endpoint of the worker that lives on the rules' loop.
    var endpoint: QUICEndpoint { workers[0].endpoint }

    /// Tells members that the relay goes down, and closes the port; other workers' threads have ended when this returns.
    func shutDown() {
        isDown = true
        timer?.timer.cancel()
        timer = nil
        _ = core.handle(.shutDown, at: .now)
        reports?.shut()
        web?.detach()
        carriers = []
        for worker in workers.dropFirst() {
            loop.waiting {
                worker.endpoint.loop.runAndWait { worker.shutDown() }
                worker.endpoint.loop.stop()
            }
        }
        workers.first?.shutDown()
        workers = []
        helpers?.stop()
        helpers = nil
    }

    func handle(_ event: RelayCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        if core.isDrained { drainedHandler?() }
    }

    func push(_ request: PushRequest) -> PushVerdict {
        let now = Instant.now
        let (verdict, actions) = core.push(request, at: now)
        carryOut(actions, at: now)
        return verdict
    }

    // MARK: Actions

    private func carryOut(_ actions: [RelayCore.Action], at now: Instant) {
        for action in actions { carryOut(action, at: now) }
    }

    private func carryOut(_ action: RelayCore.Action, at now: Instant) {
        switch action {
        case .send(let message, let recipients):
            guard carriers.count > 1, recipients.count > 1 else { return order(action, recipients.first) }
            // Framed once for the recipients of all workers.
            carryOut(.sendSeries(MessageSeries([message.framed()]), to: recipients.map { .init($0) }), at: now)
        case .sendSeries(let series, let recipients):
            for number in carriers.indices {
                let own =
                    carriers.count == 1 ? recipients : recipients.filter { numbers.worker(of: $0.connection) == number }
                if !own.isEmpty { order(.action(.sendSeries(series, to: own)), of: number) }
            }
        case .enrol(let id, let enrolment):
            guard let enrol else {
                return handle(.enrolled(id, enrolment, .refused(.other, "the relay enrols no members")))
            }
            enrol(id, enrolment)
        case .startMedia(let id, let channel, _, _):
            if carriers.count > 1 {
                while audiences.count <= channel {
                    audiences.append(Array(repeating: [], count: carriers.count))
                }
                audiences[channel][numbers.worker(of: id)].insert(id)
            }
            order(action, id)
        case .stopMedia(let id, let channel):
            if audiences.indices.contains(channel) { audiences[channel][numbers.worker(of: id)].remove(id) }
            order(action, id)
        case .forward(_, let channel, let talker, _):
            // The other workers first: they send while this one does.
            if audiences.indices.contains(channel) {
                for number in carriers.indices.dropFirst() {
                    let audience = audiences[channel][number]
                    if audience.count > (audience.contains(talker) ? 1 : 0) { order(.action(action), of: number) }
                }
            }
            order(.action(action), of: 0)
        case .close(let id, _, _), .answerRepair(let id, _), .answerBurst(let id, _, _): order(action, id)
        case .note(let milestone):
            log.milestone(milestone, at: now)
            milestoneHandler?(milestone, now)
        }
    }

    /// Has the worker of a connection carry out an action; nil: it is for nobody.
    private func order(_ action: RelayCore.Action, _ id: ConnectionID?) {
        if let id { order(.action(action), of: numbers.worker(of: id)) }
    }

    private func order(_ order: RelayWorkerOrder, of number: Int) {
        // What its connections still say when it goes down is for nobody.
        guard carriers.indices.contains(number), !carriers[number].take(order) else { return }
        // The worker's mailbox is full: the dropped order is counted, and its requester is informed.
        switch order {
        case .action(.forward): carriers[number].tally.withLock { $0.mediaDropped += 1 }
        case .action(.answerRepair): carriers[number].tally.withLock { $0.repairsRefused += 1 }
        case .action(.answerBurst(let id, let request, let bytes)): burstNotTaken(request, bytes: bytes.count, by: id)
        case .action, .returnCredit, .count: break
        }
    }

    private func burstNotTaken(_ request: BurstRequestID, bytes: Int, by id: ConnectionID) {
        let now = Instant.now
        carryOut(core.burstNotTaken(request, bytes: bytes, by: id, at: now), at: now)
    }

    /// Wakes at the next deadline of the rules. A timer that turns out early costs one wake; none runs while nothing is
    /// under way.
    private func arm() {
        let deadline = core.nextDeadline
        if let deadline, let timer, timer.timer.isPending, timer.deadline <= deadline { return }
        timer?.timer.cancel()
        timer = nil
        guard let deadline else { return }
        timer = (
            deadline,
            loop.schedule(at: deadline) { [weak self] in
                self?.timer = nil
                self?.handle(.deadline)
            }
        )
    }

    // MARK: Reports

    /// Takes what a worker reports.
    func take(_ report: RelayWorkerReport) {
        // Mail that was on its way when it went down.
        guard !isDown else { return }
        switch report {
        case .event(let event): handle(event)
        case .media(let header, let packet, let id, let arrived):
            media(header, packet, from: id, arrived: arrived)
        case .repairRequest(let request, let id): handle(.message(id, request))
        case .burstNotTaken(let id, let request, let bytes): burstNotTaken(request, bytes: bytes, by: id)
        case .read(let id, let bytes): order(.returnCredit(id, bytes: bytes), of: numbers.worker(of: id))
        case .malformedMedia(let id):
            core.countMalformedMedia()
            log.fault(.dropped, id, .malformed)
        }
    }

    private func media(_ header: MediaPacketHeader, _ packet: [UInt8], from id: ConnectionID, arrived: Instant) {
        let now = Instant.now
        let (decision, actions) = core.media(header, bytes: packet, from: id, at: now)
        switch decision {
        case .drop(let reason):
            log.fault(.dropped, id, reason, at: now)
            carryOut(actions, at: now)
        case .forward(let channel):
            // Who starts to listen with this packet gets it; everything else can wait until it is out.
            for action in actions where action.isMediaSwitch { carryOut(action, at: now) }
            carryOut(.forward(packet, channel: channel, except: id, arrived: arrived), at: now)
            for action in actions where !action.isMediaSwitch { carryOut(action, at: now) }
            arm()
        }
    }

    // MARK: Statistics

    /// What the workers have counted. Those of other threads count their connections and what came to the port only when they
    /// are asked, so of these the answer is what they were at the last time.
    private var tallies: [RelayWorkerTally] {
        carriers.map { carrier in
            _ = carrier.take(.count)
            return carrier.tally.withLock { $0 }
        }
    }

    /// What was counted since the start.
    var counters: RelayCounters { total(of: tallies) }

    private func total(of tallies: [RelayWorkerTally]) -> RelayCounters {
        var counters = core.counters
        for tally in tallies {
            counters.packetsOut += tally.packetsOut
            counters.packetsNotSent += tally.packetsNotSent + tally.mediaDropped + tally.mediaTooLate
            counters.strayPackets += tally.strayPackets
            counters.repairsRefused += tally.repairsRefused
        }
        return counters
    }

    /// The statistics for the operator.
    var statistics: RelayStatistics {
        let tallies = tallies
        var transport = RelayStatistics.Transport()
        var forwarding = LatencyHistogram()
        for tally in tallies {
            transport.add(tally.transport)
            forwarding.add(tally.forwarding)
        }
        var result = RelayStatistics(
            uptime: .now - startedAt,
            connections: tallies.dropLast(web == nil ? 0 : 1).reduce(0) { $0 + $1.connections },
            counters: total(of: tallies), transport: transport, forwarding: forwarding,
            pushTokens: core.pushTokenCount, isDraining: core.isDraining, channels: core.channelStatistics,
            keptBytes: core.keptBytes)
        if web != nil, let tally = tallies.last {
            var links = RelayStatistics.Web()
            links.connections = tally.connections
            links.handshakesFailed = tally.webHandshakesFailed
            links.mediaTooLate = tally.mediaTooLate
            result.web = links
        }
        return result
    }

    // MARK: Places of connections

    /// Stateless resets that are sent at once…
    private static let resetsAtOnce = 10
    /// …and how much later the next: a thousand a second, as many as come back in that time.
    private static let resetInterval: Duration = .milliseconds(10)
    /// A reset may get lost: all of them are sent again so much later.
    private static let secondRound: Duration = .milliseconds(500)

    /// Has `keep` called with where the connections are, a moment after that has changed.
    private func keepPlaces(every interval: Duration, _ keep: @escaping @Sendable (String) -> Void) {
        let loop = loop
        places = ConnectionPlaces { [weak self] in
            loop.execute { [weak self] in
                loop.schedule(after: interval) { [weak self] in if let places = self?.places { keep(places.take()) } }
            }
        }
    }

    /// Informs the connections of an earlier relay with the same keys that it is gone. A client that has already
    /// reconnected is not affected, because it uses another port.
    private func callBack(_ text: String) {
        let bound = limits.connections + limits.connectionsRefused
        let former = text.split(separator: "\n").prefix(bound).compactMap { QUICPeerPlace(text: $0) }
        guard !former.isEmpty else { return }
        logger.info("former connections are told of the restart", metadata: ["count": "\(former.count)"])
        callBack(former, from: 0, isLast: false)
    }

    private func callBack(_ former: [QUICPeerPlace], from start: Int, isLast: Bool) {
        guard !workers.isEmpty else { return }
        let end = min(start + Self.resetsAtOnce, former.count)
        for place in former[start..<end] { endpoint.sendReset(to: place) }
        let isRoundOver = end == former.count
        guard !isRoundOver || !isLast else { return }
        loop.schedule(after: isRoundOver ? Self.secondRound : Self.resetInterval) { [weak self] in
            self?.callBack(former, from: isRoundOver ? 0 : end, isLast: isLast || isRoundOver)
        }
    }
}
