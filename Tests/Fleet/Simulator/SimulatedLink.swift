// One end's link to its relay: the shipped rules, with what `RelayClient` and `QUICTransport` do around them.
import Cryptography
import MonotonicTime
import PushToTalkCore
import QUIC
import RelayProtocol
import Vocabulary

@testable import Bridge
@testable import RelayClient

/// The link of one channel that a pttd has joined.
final class SimulatedLink {
    unowned let device: Device
    /// The pttd that it belongs to: nothing happens when that is gone.
    unowned let process: Process
    let world: World
    let clock: MachineClock
    private(set) var core: RelayClientCore
    var connection: Connection?
    var attempt: UInt64 = 0
    var path: LinkPath?
    var known = KnownAddresses()
    var turns = AddressTurns()
    /// Whether the relay is asked now and then for a sign of life.
    var isWatchingIdle = false
    /// What goes with the first packet of the attempt.
    var early: EarlyJoin?
    /// The request for the floor that it made last.
    private(set) var lastRequest: FloorRequestID?
    private var doubt = FloorAnswerTimeout()
    private var outbox = Outbox<RelayLinkEvent>()
    private var isDeliveryScheduled = false
    private lazy var alarm = Alarm(clock, of: self) { $0.take(.deadline) }
    private var lastBurst: UInt32 = 0
    private(set) var isReady = false
    private(set) var readySince = Instant.zero
    /// When it was ready last.
    private(set) var lostAt = Instant.zero
    private var state = RelayLinkState.stopped
    /// Bursts that were begun and have not ended, with the frames that each got.
    private(set) var openBursts: [BurstID: Int] = [:]
    private var current: BurstID?
    /// The burst that has the floor, by what the relay has answered.
    private var granted: BurstID?
    /// The identifiers of those on the channel, by what was told of them.
    private(set) var members: Set<String> = []
    /// Where a relay said last that it is to go on, and over which connection.
    private var named: (place: RelayPlace, by: Connection)?
    /// Told how it is with the host of a channel nearby.
    private var hostHandler: ((RelayHostEvent) -> Void)?
    var probe: LivenessProbe?
    private(set) var resumption = ResumptionWatch()
    var handler: ((RelayLinkEvent) -> Void)?

    init(_ invitation: InvitationLink, device: Device, process: Process) {
        self.device = device
        world = device.world
        clock = device.clock
        self.process = process
        process.linksMade += 1
        core = RelayClientCore(
            invitation: invitation, displayName: DisplayName("device \(device.number)") ?? invitation.channelName,
            timestampAtZero: device.timestampAtZero,
            random: device.world.random("link \(device.number) \(process.life) \(process.linksMade)"))
    }

    var isAlive: Bool { process.isAlive }

    // MARK: RelayLink

    func join() { call(.join) }

    func leave() { call(.leave) }

    func beginBurst(priority: UInt8) -> BurstID {
        lastBurst += 1
        let burst = BurstID(number: lastBurst)
        openBursts[burst] = 0
        current = burst
        world.note(device.name, "link: burst \(lastBurst) begins with priority \(priority)")
        call(.begin(burst, priority: priority))
        return burst
    }

    func send(_ frame: OutgoingFrame) {
        if let current, openBursts[current] != nil { openBursts[current, default: 0] += 1 }
        call(.frame(frame))
    }

    func endBurst() {
        current = nil
        call(.end)
    }

    func abortBurst() {
        current = nil
        call(.abort)
    }

    /// Whether the relay at the other end of a connection has named this one as the place to go on.
    func hasBeenSent(to relay: SimulatedRelay, by connection: Connection) -> Bool {
        named?.by === connection && named?.place == relay.place
    }

    // MARK: Hosts of a channel nearby

    func followHost(_ handler: @escaping (RelayHostEvent) -> Void) {
        hostHandler = handler
        core.offersSuccession = true
    }

    func relayMoved(to places: [RelayPlace]) { if !places.isEmpty { call(.relayMoved(places)) } }

    /// Not from within the rules' present turn.
    private func tellOfHost(_ event: RelayHostEvent) {
        guard let hostHandler else { return }
        process.later { hostHandler(event) }
    }

    func verify(patience: Duration = .zero) {
        guard isAlive, core.isReady, connection != nil else { return }
        let question = LivenessProbe(askedAt: clock.now, timeout: LivenessProbe.timeout + patience)
        let isAsking = probe != nil
        // Of two questions, the one that is over first holds.
        if let probe, probe.deadline <= question.deadline { return }
        probe = question
        if !isAsking { look(attempt, at: clock.now + LivenessProbe.lookInterval) }
    }

    private func look(_ number: UInt64, at time: Instant) {
        if let connection { ping(connection) }
        clock.at(time) { [self] in
            guard number == attempt, isAlive, let question = probe, let connection else { return }
            let isUnacknowledged = core.doubt.isUnanswered(since: question.askedAt)
            let verdict = question.verdict(heard: isUnacknowledged ? nil : connection.heard, at: clock.now)
            if case .look(let time) = verdict { return look(number, at: time) }
            probe = nil
            if verdict == .isGone { gaveUp(connection) }
        }
    }

    /// The relay does not answer.
    private func gaveUp(_ connection: Connection) {
        turns.failed()
        isLost(connection, .lost("the relay does not answer"))
    }

    /// A packet that is answered by a relay that knows the connection; one that knows nothing of it says so.
    private func ping(_ connection: Connection) {
        guard !connection.isStalled, let time = connection.path.datagram(up: true).first else { return }
        world.at(time) { [self, device] in
            if connection.isOpenAtRelay { acknowledge(connection, device) } else { isUnknown(connection) }
        }
    }

    /// A packet comes to where the relay of the connection was: one that is there says that it does not know it, or the machine that nobody has
    /// the port.
    private func isUnknown(_ connection: Connection) {
        guard let there = device.fleet.relay(at: connection.relay.place, for: device) else { return }
        if there.isListening { return device.isReset(connection) }
        guard there.refuses, let time = connection.path.datagram(up: false).first else { return }
        world.at(time) { [self] in
            guard connection === self.connection, isAlive, clock.asleepSince == nil, core.hasAlternative else { return }
            if core.isReady { verify() } else { isLost(connection, .unreachable("no relay listens there")) }
        }
    }

    /// Whether a burst goes on over the next connection.
    private var resumesBursts: Bool { core.offersSuccession || core.hasAlternative }

    /// The burst that has the floor goes on over the next connection, if it does.
    private func noteLoss() { if let granted, resumesBursts { resumption.lost(granted, at: clock.now) } }

    // MARK: Events in

    /// A wish of the user: what comes of it is told after the call.
    private func call(_ event: RelayClientCore.Event) {
        guard isAlive else { return }
        carryOut(handle(event))
        arm()
        guard outbox.needsRound, !isDeliveryScheduled else { return }
        isDeliveryScheduled = true
        process.later { [self] in
            isDeliveryScheduled = false
            deliver()
        }
    }

    /// Something came from the relay or the clock: the user is told at once.
    func take(_ event: RelayClientCore.Event) {
        guard isAlive else { return }
        carryOut(handle(event))
        arm()
        deliver()
    }

    func handle(_ event: RelayClientCore.Event) -> [RelayClientCore.Action] {
        let actions = core.handle(event, at: clock.now)
        if event.isControl {
            device.fleet.coverage.record("link", state: isReady ? "ready" : "notReady", event: event)
        }
        return actions
    }

    private func deliver() {
        guard outbox.beginRound() else { return }
        while let event = outbox.next() { handler?(event) }
    }

    // MARK: From the network

    func receive(_ message: ServerMessage, on connection: Connection) {
        guard connection === self.connection else { return }
        connection.heard = clock.now
        device.fleet.coverage.record("link.message", state: isReady ? "ready" : "notReady", event: message)
        if case .successor(let place) = message {
            named = (place, connection)
            tellOfHost(.sent)
        }
        take(.message(message))
    }

    func receive(datagram: [UInt8], on connection: Connection) {
        guard connection === self.connection, isAlive else { return }
        connection.heard = clock.now
        carryOut(datagram.withUnsafeBytes { core.receive($0, at: clock.now) })
        arm()
        deliver()
    }

    /// A datagram that nobody of the protocol sent: nothing may come of it (I7).
    func receiveGarbage(_ bytes: [UInt8]) {
        guard isAlive, connection != nil else { return }
        let before = core.nextDeadline
        let actions = bytes.withUnsafeBytes { core.receive($0, at: clock.now) }
        if !actions.isEmpty || before != core.nextDeadline {
            world.fail("I7", "\(device.name) does \(actions) for a datagram of rubbish")
        }
    }

    func receive(answer bytes: [UInt8], on connection: Connection) {
        guard connection === self.connection else { return }
        connection.heard = clock.now
        var decoder = RepairStreamDecoder()
        var packets: [[UInt8]] = []
        do { try decoder.feed(bytes, isEnd: true) { packets.append($0) } } catch {
            return world.fail("I7", "\(device.name) cannot read the relay's answer: \(error)")
        }
        guard let id = decoder.id else { return }
        if decoder.isBurst {
            take(
                .burst(
                    request: BurstRequestID(rawValue: id), packets: packets, isWhole: decoder.isWhole, isEnd: true))
        } else {
            take(.repaired(request: id, packets: packets, isEnd: true))
        }
    }

    func isLost(_ connection: Connection, _ error: RelayLinkError) {
        guard connection === self.connection else { return }
        world.note(device.name, "link: \(error)")
        connection.isOpenAtClient = false
        self.connection = nil
        probe = nil
        leavePath()
        attempt += 1
        take(.connectionEnded(error))
        if let granted, !resumesBursts {
            world.fail("I2", "\(device.name): \(granted) goes on over a connection that is lost")
        }
    }

    // MARK: Actions

    func carryOut(_ actions: [RelayClientCore.Action]) {
        for action in actions {
            switch action {
            case .connect: connect()
            case .close:
                noteLoss()
                close()
            case .send(let message): send(message)
            case .sendLoosely(let message): sendLoosely(message)
            case .sendMedia(let datagram): send(media: datagram)
            case .tell(let event):
                noted(event)
                outbox.add(event)
            case .tellOfSuccession(let succession):
                if let own = core.ownID { tellOfHost(.succession(succession, own: own)) }
            case .verify(let patience): verify(patience: patience)
            case .answer, .tellOfPushes, .sendOutsideQUIC, .awaitAnswer: break
            }
        }
    }

    func send(_ message: ClientMessage) {
        guard let connection else { return }
        if case .floorRequest(let request) = message { lastRequest = request.requestID }
        if case .floorRequest = message { doubt.asked(at: clock.now) }
        guard let parsed = try? ClientMessage(parsing: Array(message.framed().dropFirst(4))) else {
            return world.fail("I7", "\(device.name) sends what cannot be read: \(message)")
        }
        let relay = connection.relay
        if !connection.isOpenAtRelay { isUnknown(connection) }
        connection.whenItPasses { [self, device, process, world] in
            let sentAt = world.now
            connection.lastUp = max(connection.lastUp + .nanoseconds(1), connection.path.reliable(up: true))
            world.at(connection.lastUp) { [self] in
                guard isRepeated(on: connection, by: process, since: sentAt) else { return }
                relay.receive(parsed, on: connection)
                acknowledge(connection, device)
            }
        }
    }

    /// Nobody repeats what a pttd had not got through when it was killed, or gave the connection up.
    func isRepeated(on connection: Connection, by process: Process, since sentAt: Instant) -> Bool {
        process.isAlive && connection.isOpenAtClient || world.now < sentAt + .seconds(1)
    }

    /// The relay's end has it, and says so.
    private func acknowledge(_ connection: Connection, _ device: Device) {
        guard connection.isOpenAtRelay, !connection.isStalled, world.now >= connection.relay.haltedUntil else { return }
        for time in connection.path.datagram(up: false).prefix(1) {
            world.at(time) { [clock] in
                if clock.asleepSince == nil { connection.heard = max(connection.heard, clock.now) }
            }
        }
    }

    private func sendLoosely(_ message: ClientMessage) {
        guard let connection, !connection.isStalled,
            let parsed = try? ClientMessage(parsing: Array(message.framed().dropFirst(4)))
        else { return }
        let relay = connection.relay
        for time in connection.path.datagram(up: true) {
            world.at(time) { relay.receive(parsed, on: connection) }
        }
    }

    private func send(media datagram: [UInt8]) {
        guard let connection else {
            carryOut(core.handle(.mediaRefused(datagram), at: clock.now))
            return
        }
        let relay = connection.relay
        if !connection.isOpenAtRelay, connection.datagrams % 16 == 0 { isUnknown(connection) }
        connection.datagrams += 1
        let number = connection.datagrams
        resumption.sent(number)
        carryOut(core.handle(.mediaSent(number, datagram), at: clock.now))
        let times = connection.isStalled ? [] : connection.path.datagram(up: true)
        for time in times { world.at(time) { relay.receive(media: datagram, on: connection) } }
        // The other machine's relay may be gone before it says so.
        if device.fleet.resumesBursts, let time = times.first {
            world.at(time + .milliseconds(3)) { [self] in confirm(number, on: connection) }
            return
        }
        // What the relay acknowledges waits for a halted one.
        let told = max(times.first.map { $0 + .milliseconds(8) } ?? world.now + .milliseconds(120), relay.haltedUntil)
        world.at(max(told, connection.path.downBlocked)) { [self] in
            clock.whenAwake { [self] in settle(number, on: connection, isLost: times.isEmpty) }
        }
    }

    /// What became of a datagram is known.
    private func settle(_ number: UInt64, on connection: Connection, isLost: Bool = false) {
        guard connection === self.connection, isAlive else { return }
        if !isLost { resumption.acknowledged(number) }
        carryOut(core.handle(isLost ? .mediaLost(number) : .mediaAcknowledged(number), at: clock.now))
        arm()
        deliver()
    }

    /// The relay has that datagram, and acknowledges it. What is lost of that comes with later acknowledgements.
    private func confirm(_ number: UInt64, on connection: Connection) {
        guard connection.isOpenAtRelay, isAlive else { return }
        guard world.now >= connection.relay.haltedUntil else {
            return world.at(connection.relay.haltedUntil) { [self] in confirm(number, on: connection) }
        }
        guard let time = connection.path.datagram(up: false).first else {
            return world.after(.milliseconds(40)) { [self] in confirm(number, on: connection) }
        }
        world.at(time) { [self] in clock.whenAwake { [self] in settle(number, on: connection) } }
    }

    private func arm() { alarm.set(core.nextDeadline) }

    // MARK: What is told

    private func noted(_ event: RelayLinkEvent) {
        switch event {
        case .state(let state):
            if isReady { lostAt = world.now }
            if case .ready = state { isReady = true } else { isReady = false }
            self.state = state
            readySince = world.now
            if let event = RelayHostEvent(state) { tellOfHost(event) }
            world.note(device.name, "link: \(state)")
        case .transmissionEnded(let burst, let end, let report):
            world.note(
                device.name,
                "link: \(burst) \(end), sent \(report.sent) erased \(report.erased) dropped \(report.dropped)")
            guard let frames = openBursts.removeValue(forKey: burst) else {
                return world.fail("I2", "\(device.name) is told the end of \(burst) twice")
            }
            if resumesBursts,
                let wrong = resumption.ended(burst, end, report, hadFloor: burst == granted, at: clock.now)
            {
                // Not when the channel has been left or deleted.
                process.later { [self] in
                    if state.mayBeReadySoon || isReady { world.fail("I5", "\(device.name): \(burst) \(wrong)") }
                }
            }
            if burst == current { current = nil }
            if burst == granted { granted = nil }
            if let bridge = process.director.bridge, bridge.link === self, bridge.machine.burst == burst,
                let transmission = process.channel.machine.transmission
            {
                process.talker.burstEnded(end, transmission: transmission.begunAt, at: clock.now)
            }
            if report.sent + report.erased + report.dropped != frames {
                world.fail("I5", "\(device.name): of \(burst) \(frames) frames were given, and \(report) is told")
            }
            if end == .notAnswered { examineSoon() }
        case .frame: break
        case .members(let all, _):
            members = Set(all.map(\.id))
            world.note(device.name, "link: \(event)")
        case .memberJoined(let member):
            members.insert(member.id)
            world.note(device.name, "link: \(event)")
        case .memberLeft(let member):
            members.remove(member.id)
            world.note(device.name, "link: \(event)")
        case .floorQueued(let burst, _):
            if granted == burst { granted = nil }
            resumption.queued(burst)
            world.note(device.name, "link: \(event)")
        case .floorGranted(let burst, _):
            granted = burst
            resumption.granted(burst)
            world.note(device.name, "link: \(event)")
        default: world.note(device.name, "link: \(event)")
        }
    }

    private func examineSoon() {
        doubt.unanswered()
        let number = attempt
        process.later { [self] in examine(number) }
    }

    private func examine(_ number: UInt64) {
        guard number == attempt, let connection else { return }
        switch doubt.verdict(heard: connection.heard, at: clock.now) {
        case .isThere: break
        case .isGone: gaveUp(connection)
        case .look(let time): clock.at(time) { [self] in if isAlive { examine(number) } }
        }
    }
}

extension RelayClientCore.Event {
    /// Whether it is none of those that come with every packet.
    fileprivate var isControl: Bool {
        switch self {
        case .frame, .mediaSent, .mediaAcknowledged, .mediaLost, .mediaRefused, .message: false
        default: true
        }
    }
}
