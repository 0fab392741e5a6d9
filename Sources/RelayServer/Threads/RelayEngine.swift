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
    /// The listeners by channel and worker, so that no worker is woken without listeners. Empty with one worker.
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
            roster: configuration.roster, acceptsPushes: configuration.acceptsPushes, startedAt: .now)
        enrol = configuration.enrol
        log = RelayLog(logger: logger)
        numbers = ConnectionNumbers(workers: count)
        do {
            reports = try count > 1 ? Mailbox() : nil
        } catch {
            throw .system(error)
        }
        if let keep = configuration.keepPlaces { keepPlaces(every: configuration.placesInterval, keep) }
        do throws(RelayServerError) {
            try open(at: address, workers: count, configuration)
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
        if event.maySetDeadline || core.isDraining { arm() }
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
        case .send(let message, let recipients): send(message.framed(), to: recipients)
        case .sendSeries(let series, let recipients):
            for number in workers.indices {
                let own =
                    workers.count == 1 ? recipients : recipients.filter { numbers.worker(of: $0.connection) == number }
                if !own.isEmpty { order(.sendSeries(series, to: own), of: number) }
            }
        case .close(let id, let code, let reason): order(.close(id, code, reason), of: numbers.worker(of: id))
        case .enrol(let id, let enrolment):
            guard let enrol else {
                return handle(.enrolled(id, enrolment, .refused(.other, "the relay enrols no members")))
            }
            enrol(id, enrolment)
        case .startMedia(let id, let channel, let key, _):
            let worker = numbers.worker(of: id)
            if workers.count > 1 {
                while audiences.count <= channel {
                    audiences.append(Array(repeating: [], count: workers.count))
                }
                audiences[channel][worker].insert(id)
            }
            order(.startMedia(id, channel: channel, key: key), of: worker)
        case .stopMedia(let id, let channel):
            let worker = numbers.worker(of: id)
            if audiences.indices.contains(channel) { audiences[channel][worker].remove(id) }
            order(.stopMedia(id, channel: channel), of: worker)
        case .forward(let packet, let channel, let talker):
            forward(packet, channel: channel, except: talker, arrived: now)
        case .answerRepair(let id, let bytes): order(.answerRepair(id, bytes), of: numbers.worker(of: id))
        case .answerBurst(let id, let request, let bytes):
            order(.answerBurst(id, request, bytes), of: numbers.worker(of: id))
        case .note(let milestone):
            log.milestone(milestone, at: now)
            milestoneHandler?(milestone, now)
        }
    }

    private func send(_ bytes: [UInt8], to recipients: [ConnectionID]) {
        if recipients.count == 1 { return order(.send(bytes, to: recipients), of: numbers.worker(of: recipients[0])) }
        for number in workers.indices {
            let own = workers.count == 1 ? recipients : recipients.filter { numbers.worker(of: $0) == number }
            if !own.isEmpty { order(.send(bytes, to: own), of: number) }
        }
    }

    private func order(_ order: RelayWorkerOrder, of number: Int) {
        let worker = workers[number]
        guard let orders = worker.orders else { return worker.carryOut(order) }
        if !orders.post(order, mayBeLost: order.mayBeLost) { lost(order, of: worker) }
    }

    /// A worker's mailbox is full: the dropped order is counted, and its requester is informed.
    private func lost(_ order: RelayWorkerOrder, of worker: RelayWorker) {
        switch order {
        case .forward: worker.tally.withLock { $0.mediaDropped += 1 }
        case .answerRepair: worker.tally.withLock { $0.repairsRefused += 1 }
        case .answerBurst(let id, let request, let bytes):
            carryOut(core.burstNotTaken(request, bytes: bytes.count, by: id), at: .now)
        case .send, .sendSeries, .close, .startMedia, .stopMedia, .returnCredit, .count: break
        }
    }

    /// Wakes at the next deadline of the rules. A timer that turns out early costs one wake; none runs while nothing is
    /// under way.
    private func arm() {
        guard let deadline = core.nextDeadline else {
            timer?.timer.cancel()
            timer = nil
            return
        }
        arm(deadline)
    }

    private func arm(_ deadline: Instant) {
        if let timer, timer.timer.isPending, timer.deadline <= deadline { return }
        timer?.timer.cancel()
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
        case .burstNotTaken(let id, let request, let bytes):
            carryOut(core.burstNotTaken(request, bytes: bytes, by: id), at: .now)
        case .read(let id, let bytes): order(.returnCredit(id, bytes: bytes), of: numbers.worker(of: id))
        case .malformedMedia(let id):
            core.countMalformedMedia()
            log.dropped(.malformed, from: id, at: .now)
        }
    }

    private func media(_ header: MediaPacketHeader, _ packet: [UInt8], from id: ConnectionID, arrived: Instant) {
        let now = Instant.now
        let (decision, actions) = core.media(header, bytes: packet, from: id, at: now)
        switch decision {
        case .drop(let reason):
            log.dropped(reason, from: id, at: now)
            for action in actions { carryOut(action, at: now) }
        case .forward(let channel):
            // Who starts to listen with this packet gets it; everything else can wait until it is out.
            for action in actions where action.isMediaSwitch { carryOut(action, at: now) }
            forward(packet, channel: channel, except: id, arrived: arrived)
            for action in actions where !action.isMediaSwitch { carryOut(action, at: now) }
            if let deadline = core.floorDeadline(channel: channel) {
                arm(deadline)
            } else {
                // The burst is over, which may let others go.
                arm()
            }
        }
    }

    /// The other workers first: they send while this one does.
    private func forward(_ packet: [UInt8], channel: Int, except talker: ConnectionID, arrived: Instant) {
        let forward = RelayWorkerOrder.forward(packet, channel: channel, except: talker, arrived: arrived)
        if audiences.indices.contains(channel) {
            for number in workers.indices.dropFirst() {
                let audience = audiences[channel][number]
                if audience.count > (audience.contains(talker) ? 1 : 0) { order(forward, of: number) }
            }
        }
        order(forward, of: 0)
    }
}
