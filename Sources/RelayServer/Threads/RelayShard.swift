// One thread's share of a relay's channels: runs their rules, sends their media, and has the carriers do the rest.
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// The rules of some of a relay's channels, on the thread of a `RelayWorker`.
///
/// The members' connections may be on any thread: what they say comes as `RelayWorkerReport`, what they are told goes as
/// `RelayWorkerOrder`. Media go from here to all listeners on QUIC, whoever has their connections, because they are plain
/// UDP packets from the port that all workers share. So a packet changes threads at most once, on its way here.
final class RelayShard {
    let number: Int
    var core: RelayCore
    unowned let worker: RelayWorker
    private let exchange: RelayExchange
    private let log: RelayLog
    private let tellFront: (RelayFrontReport) -> Void
    private var outlets: [ConnectionID: MediaOutlet] = [:]
    private var inlets = MediaInlets()
    /// The threads that have its members' connections.
    private var carriers: ShardWatches
    /// By the channel's number in the rules.
    private var groups: [ListenerGroup] = []
    private var groupOf: [ConnectionID: Int] = [:]
    /// Who listens over TLS, by the channel's number: without any, nothing is sent there.
    private var webAudiences: [Int: Set<ConnectionID>] = [:]
    /// The first shard's: connections of other shards that get pushes.
    private var pushShards: [ConnectionID: Int] = [:]
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    private var hasDrained = false

    /// Called on the worker's loop.
    ///
    /// - Parameter tellFront: Passes on what concerns the relay as a whole.
    init(
        _ core: RelayCore, of worker: RelayWorker, _ exchange: RelayExchange, logger: Logger,
        tellFront: @escaping (RelayFrontReport) -> Void
    ) {
        self.core = core
        self.worker = worker
        self.exchange = exchange
        self.tellFront = tellFront
        number = worker.number
        carriers = ShardWatches(shards: exchange.workers, own: worker.number)
        log = RelayLog(logger: logger)
    }

    private var loop: EventLoop { worker.endpoint.loop }

    /// Its connections are told goodbye by their carriers.
    func shutDown() {
        timer?.timer.cancel()
        timer = nil
        _ = core.handle(.shutDown, at: .now)
        // Each has the other.
        for outlet in outlets.values { outlet.inlet = nil }
        outlets = [:]
        inlets = MediaInlets()
        groups = []
    }

    func handle(_ event: RelayCore.Event) {
        let now = Instant.now
        switch event {
        case .disconnected(let id): forget(id)
        // Nothing may come any more that a report could go with.
        case .message(let id, .floorRelease): if let inlet = outlets[id]?.inlet { report(to: inlet) }
        case .deadline: for inlet in inlets.takeDue(at: now) { report(to: inlet) }
        default: break
        }
        carryOut(core.handle(event, at: now), at: now)
        arm()
        guard core.isDrained, !hasDrained else { return }
        hasDrained = true
        tellFront(.drained(shard: number))
    }

    func push(_ request: PushRequest) -> PushVerdict {
        let now = Instant.now
        let (verdict, actions) = core.push(request, at: now)
        carryOut(actions, at: now)
        return verdict
    }

    /// Something about push tokens, of a connection of another shard.
    func take(_ event: PushEvent, from shard: Int) {
        if let connection = event.connection { pushShards[connection.id] = connection.isThere ? shard : nil }
        handle(.pushes(event))
    }

    // MARK: Reports

    /// Takes what a carrier reports.
    func take(_ report: RelayWorkerReport) {
        switch report {
        case .event(let event): handle(event)
        case .announced(let id, let event, let path):
            if let path {
                if let outlet = outlets[id] { move(outlet, to: path) } else { outlets[id] = MediaOutlet(id, at: path) }
            }
            handle(event)
        case .moved(let id, let path): if let outlet = outlets[id] { move(outlet, to: path) }
        case .media(let header, let packet, let id, let arrived): media(header, packet, from: id, arrived: arrived)
        case .repairRequest(let request, let id): handle(.message(id, request))
        case .burstNotTaken(let id, let request, let bytes): burstNotTaken(request, bytes: bytes, by: id)
        case .read(let id, let bytes): order(.returnCredit(id, bytes: bytes), of: exchange.numbers.carrier(of: id))
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
            forward(packet, channel: channel, except: id, arrived: arrived)
            for action in actions where !action.isMediaSwitch { carryOut(action, at: now) }
            arm()
        }
    }

    private func burstNotTaken(_ request: BurstRequestID, bytes: Int, by id: ConnectionID) {
        let now = Instant.now
        carryOut(core.burstNotTaken(request, bytes: bytes, by: id, at: now), at: now)
    }

    // MARK: Actions

    private func carryOut(_ actions: [RelayCore.Action], at now: Instant) {
        for action in actions { carryOut(action, at: now) }
    }

    private func carryOut(_ action: RelayCore.Action, at now: Instant) {
        switch action {
        case .send(.push(let push), let recipients):
            for id in recipients {
                // The shard that has the connection expects the receipt.
                if let shard = pushShards[id] {
                    exchange.post(.report(.event(.push(push, to: id))), to: shard)
                } else {
                    order(action, id)
                }
            }
        case .send(let message, let recipients):
            guard exchange.carriers > 1, recipients.count > 1 else { return order(action, recipients.first) }
            // Framed once for the recipients of all carriers.
            carryOut(.sendSeries(MessageSeries([message.framed()]), to: recipients.map { .init($0) }), at: now)
        case .sendSeries(let series, let recipients):
            guard exchange.carriers > 1 else { return order(.action(action), of: 0) }
            for carrier in 0..<exchange.carriers {
                let own = recipients.filter { exchange.numbers.carrier(of: $0.connection) == carrier }
                if !own.isEmpty { order(.action(.sendSeries(series, to: own)), of: carrier) }
            }
        case .enrol(let id, let enrolment): tellFront(.enrol(id, enrolment))
        case .startMedia(let id, let channel, let key, let ssrc): startMedia(id, channel, key, ssrc)
        case .takeMedia(let id, let key, let ssrc): takeMedia(id, key, ssrc)
        case .stopMedia(let id, let channel): stopMedia(id, channel)
        case .forward(let packet, let channel, let talker, let arrived):
            forward(packet, channel: channel, except: talker, arrived: arrived)
        case .close(let id, _, _):
            forget(id)
            order(action, id)
        case .answerRepair(let id, _), .answerBurst(let id, _, _): order(action, id)
        case .pushes(let event): tellFront(.pushes(event, shard: number))
        case .moved(let channel): tellFront(.moved(channel))
        case .note(let milestone): tellFront(.note(milestone, now))
        }
    }

    /// Has the carrier of a connection carry out an action; nil: it is for nobody.
    private func order(_ action: RelayCore.Action, _ id: ConnectionID?) {
        if let id { order(.action(action), of: exchange.numbers.carrier(of: id)) }
    }

    private func order(_ order: RelayWorkerOrder, of carrier: Int) {
        let isTaken: Bool
        if carrier == number {
            worker.carryOut(order)
            isTaken = true
        } else if carrier < exchange.workers {
            isTaken = exchange.post(.order(order), to: carrier)
            carriers.reported(to: carrier, exchange, at: .now)
        } else {
            isTaken = exchange.web?.take(order) ?? true
        }
        guard !isTaken else { return }
        // The carrier has too much mail: the dropped order is counted, and its requester is informed.
        switch order {
        case .action(.forward): worker.tally.withLock { $0.counters.packetsNotSent += 1 }
        case .action(.answerRepair): worker.tally.withLock { $0.counters.repairsRefused += 1 }
        case .action(.answerBurst(let id, let request, let bytes)): burstNotTaken(request, bytes: bytes.count, by: id)
        case .action, .returnCredit, .count: break
        }
    }

    // MARK: Media

    private func group(_ channel: Int) -> ListenerGroup {
        // Channels may be added while it runs.
        while groups.count <= channel { groups.append(ListenerGroup()) }
        return groups[channel]
    }

    private func startMedia(_ id: ConnectionID, _ channel: Int, _ key: TrailerKey, _ ssrc: SSRC) {
        guard exchange.numbers.carrier(of: id) < exchange.workers else {
            webAudiences[channel, default: []].insert(id)
            return order(.startMedia(id, channel: webNumber(of: channel), key: key, ssrc: ssrc), id)
        }
        guard let outlet = outlets[id] else { return }
        guard outlet.makeSealer(key, maximum: exchange.limits.downlinkPackets) else {
            log.fault(.noSealer, id)
            return
        }
        groupOf[id] = channel
        group(channel).insert(outlet)
    }

    private func stopMedia(_ id: ConnectionID, _ channel: Int) {
        guard exchange.numbers.carrier(of: id) < exchange.workers else {
            webAudiences[channel]?.remove(id)
            return order(.stopMedia(id, channel: webNumber(of: channel)), id)
        }
        if groups.indices.contains(channel) { groups[channel].remove(id) }
    }

    /// A channel's number for the carrier of the links over TLS, which has listeners of all shards.
    private func webNumber(of channel: Int) -> Int { channel * exchange.workers + number }

    private func move(_ outlet: MediaOutlet, to path: FanOutPath) {
        group(groupOf[outlet.id] ?? 0).move(outlet, to: path)
    }

    /// A connection is gone, or goes on in another shard.
    private func forget(_ id: ConnectionID) {
        guard let outlet = outlets.removeValue(forKey: id) else { return }
        if let inlet = outlet.inlet { inlets.remove(inlet) }
        if let channel = groupOf.removeValue(forKey: id) { groups[channel].remove(id) }
    }

    private func forward(_ packet: [UInt8], channel: Int, except talker: ConnectionID, arrived: Instant) {
        // Those over TLS first: their thread sends while this one does.
        if !webAudiences.isEmpty, let audience = webAudiences[channel],
            audience.count > (audience.contains(talker) ? 1 : 0)
        {
            let number = webNumber(of: channel)
            order(.action(.forward(packet, channel: number, except: talker, arrived: arrived)), of: exchange.workers)
        }
        guard groups.indices.contains(channel), groups[channel].recipients.count > 0 else { return }
        let group = groups[channel]
        let result = packet.withUnsafeBytes {
            worker.endpoint.fanOut($0, to: group.recipients, except: group.number(of: talker))
        }
        let time = Instant.now - arrived
        worker.tally.withLock { tally in
            tally.forwarding.count(time)
            tally.counters.packetsOut += result.sent
            tally.counters.packetsNotSent += result.failed
        }
        closeExhausted(in: group)
    }

    private func closeExhausted(in group: ListenerGroup) {
        for id in group.removeExhausted() { closeExhausted(id) }
    }

    private func closeExhausted(_ id: ConnectionID) {
        log.fault(.exhausted, id)
        let phrase = "the connection's packet counter is used up"
        order(.close(id, .internalError, phrase), id)
        handle(.disconnected(id))
    }

    // MARK: Media outside QUIC

    private func takeMedia(_ id: ConnectionID, _ key: TrailerKey, _ ssrc: SSRC) {
        // Those over TLS have no outlet.
        if let outlet = outlets[id], outlet.inlet == nil { inlets.insert(outlet, key: key, ssrc: ssrc) }
    }

    /// Takes a packet that came outside QUIC, wherever from: its trailer says whose it is. False: nobody's, or it has come before.
    func takeForeign(_ datagram: UnsafeRawBufferPointer, arrived: Instant) -> Bool {
        guard let inlet = inlets.inlet(of: datagram), let (count, counter) = try? inlet.opener.open(datagram) else {
            return false
        }
        let packet = Array(UnsafeRawBufferPointer(rebasing: datagram[..<count]))
        if let header = MediaPacketHeader(parsing: packet, limit: exchange.limits.datagramBytes) {
            media(header, packet, from: inlet.outlet.id, arrived: arrived)
        } else {
            take(.malformedMedia(from: inlet.outlet.id))
        }
        let hadDeadline = inlets.deadline != nil
        if inlets.note(counter, of: inlet, at: arrived) { report(to: inlet) }
        if !hadDeadline, inlets.deadline != nil { arm() }
        return true
    }

    /// Tells the sender of an inlet what has come. A talker concludes from that that it is heard: so it is told nothing while the thread
    /// hangs that would tell it that its turn is over.
    private func report(to inlet: MediaInlet) {
        let (outlet, now) = (inlet.outlet, Instant.now)
        let carrier = exchange.numbers.carrier(of: outlet.id)
        guard !carriers.isHanging(carrier, exchange, at: now) else { return inlets.list(inlet, at: now) }
        guard let report = inlet.takeReport(at: now) else { return }
        withUnsafeTemporaryAllocation(
            byteCount: UplinkReport.byteCount + MediaTrailer.byteCount, alignment: 8
        ) { datagram in
            report.write(to: datagram)
            guard outlet.seal(datagram) else { return }
            _ = worker.endpoint.send(UnsafeRawBufferPointer(datagram), to: outlet.path)
        }
        if outlet.isExhausted { return closeExhausted(outlet.id) }
        if let channel = groupOf[outlet.id] { closeExhausted(in: group(channel)) }
    }

    // MARK: Time

    /// Wakes at the next deadline of the rules. A timer that turns out early costs one wake; none runs while nothing is
    /// under way.
    private func arm() {
        let deadline = earlier(core.deadlineInPlace(), inlets.deadline)
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
}
