// A relay: its shipped rules, with what `RelayEngine` and `RelayWorker` do around them.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport

@testable import RelayServer

/// A relay with three channels. Killed, or drained by its operator, it is there again with the same channels and new keys.
final class SimulatedRelay {
    let world: World
    let clock: MachineClock
    private unowned let fleet: Fleet
    /// From 0; the invitations lead to the first one, or to all of a cluster.
    let number: Int
    /// Its part in a cluster; nil: it is alone.
    unowned var node: SimulatedNode?
    /// Where it is.
    let place: RelayPlace
    /// The machine whose pttd it is part of, as the host of a channel nearby; nil: it is a relay for all.
    let machine: Int?
    private(set) var channels: [RelayChannelConfiguration]
    var core: RelayCore
    private(set) var generation = 0
    private(set) var isUp = true
    /// Its machine has no power: nobody says that the port is closed.
    private(set) var isDark = false
    /// It is not needed any more: once down, it stays so.
    private(set) var isRetired = false
    /// Whom it named when it was drained last.
    private(set) var successor: RelayPlace?
    private var quietSince: Instant?
    /// Which key its tickets have. It outlives the relay, but for some starts, which make a new one.
    private(set) var ticketKey = 0
    private var chances: SeededGenerator
    /// What is handled comes from somebody who has recorded it.
    private var isReplaying = false
    private(set) var haltedUntil = Instant.zero
    private lazy var alarm = Alarm(clock, of: self) { relay in relay.act { relay.handle(.deadline) } }
    /// Those that its last end has cut off.
    private var lostConnections: [Connection] = []
    /// What came while it was halted, in order.
    private var waiting: [() -> Void] = []
    private var nextConnection: UInt64 = 1
    private(set) var connections: [ConnectionID: Connection] = [:]
    private var listeners: [Int: [ConnectionID]] = [:]
    private var sealers: [ConnectionID: TrailerSealer] = [:]
    var watch: FloorWatch
    /// Counts how often it has begun or ceased to serve channels, where it is one of several.
    var changesOfChannels = 0
    /// Its channels come and go, and its members are recorded.
    private let isOfCluster: Bool

    init(
        _ world: World, fleet: Fleet, number: Int, place: RelayPlace, on machine: Int? = nil,
        channels: [RelayChannelConfiguration], isOfCluster: Bool = false
    ) {
        self.world = world
        self.isOfCluster = isOfCluster
        clock = machine.map { fleet.devices[$0].clock } ?? MachineClock(world, number: 50 + number)
        self.fleet = fleet
        self.number = number
        self.place = place
        self.machine = machine
        self.channels = channels
        let random = world.random("relay \(number == 0 ? "" : "1/")0")
        core = isOfCluster ? .withoutChannels(random) : RelayCore(channels: channels, random: random)
        chances = world.random("tickets \(number)")
        watch = FloorWatch(world)
    }

    var name: String { machine.map { "host d\($0)" } ?? (number == 0 ? "relay" : "relay\(number)") }

    /// The device whose member is the first to host the channel after it.
    var firstSuccessor: Int? {
        core.channels.first?.succession.connections.first.flatMap { connections[$0]?.device }
    }

    /// Whether it has its port.
    var isListening: Bool { isUp && node?.isListening ?? true }

    /// Whether its machine says that nobody has the port. Other relays than those of a cluster are taken to be behind a firewall that does not.
    var refuses: Bool { node != nil && !isListening && !isDark }

    /// Whether it is not frozen, and has nothing left to do from the time when it was.
    var isRunning: Bool { isUp && world.now >= haltedUntil && waiting.isEmpty }

    /// Whether it takes members now.
    var isServing: Bool { isListening && !core.isDraining && world.now >= haltedUntil }

    /// Which run of which relay it is, for those with the same key.
    var life: Int { node == nil ? generation : generation * SimulatedCluster.nodeCount + number }

    /// Until when anything went wrong with it, by what has happened so far; nil: nothing did.
    private(set) var troubledUntil: Instant?

    /// Whether it has served for all of the time since then.
    func isUntroubled(since time: Instant) -> Bool { isServing && (troubledUntil.map { $0 < time } ?? true) }

    private func trouble(for time: Duration) { troubledUntil = max(troubledUntil ?? .zero, world.now + time) }

    // MARK: Trouble

    /// - Parameters:
    ///   - time: After which it is there again; a host of a channel nearby is when its pttd makes it.
    ///   - losesPower: The machine goes with it.
    func kill(for time: Duration = .zero, losesPower: Bool = false) {
        guard isUp else { return }
        world.note(name, losesPower ? "its machine has no power" : "killed")
        isDark = losesPower
        goDown(for: time)
    }

    private func goDown(for time: Duration) {
        trouble(for: time)
        isUp = false
        quietSince = nil
        generation += 1
        node?.stop()
        alarm.set(nil)
        haltedUntil = .zero
        waiting = []
        let lost = connections.values.sorted { $0.id < $1.id }
        (connections, listeners, sealers) = ([:], [:], [:])
        watch = FloorWatch(world)
        for connection in lost {
            connection.isOpenAtRelay = false
            // Where nobody answers to keep-alives any more.
            world.after(NetworkPath.idleTimeout + .seconds(5)) { [fleet] in
                fleet.devices[connection.device].isTimedOut(connection)
            }
        }
        lostConnections = lost
        guard machine == nil else { return }
        world.after(time) { [self] in if !isRetired { comeBack() } }
    }

    private func comeBack() {
        world.note(name, "is there again")
        isDark = false
        // The keys of a cluster follow from that of the relay.
        if node == nil, chances.chance(30) { ticketKey += 1 }
        let life = "\(number == 0 ? "" : "\(number)/")\(generation)"
        let random = world.random("relay \(life)")
        core = isOfCluster ? .withoutChannels(random) : RelayCore(channels: channels, random: random)
        isUp = true
        if let node {
            lostConnections = []
            return node.start()
        }
        for connection in lostConnections {
            // Told when something comes from there, at the latest by a keep-alive.
            let device = fleet.devices[connection.device]
            world.after(connection.path.milliseconds(0...20_000)) { device.isReset(connection) }
        }
        lostConnections = []
    }

    /// The pttd that it is part of runs again, and hosts the channel at the same place.
    func comeBack(with channels: [RelayChannelConfiguration]) {
        self.channels = channels
        comeBack()
    }

    /// The channel's creator has deleted it: everybody is told, and the relay ends.
    func end(_ reason: String) {
        act { [self] in
            for channel in channels { handle(.end(channel.id, reason)) }
            world.note(name, "ends")
            goDown(for: .zero)
        }
    }

    /// Everything waits until then, in order.
    func halt(for time: Duration) {
        world.note(name, "halted")
        trouble(for: time)
        haltedUntil = max(haltedUntil, world.now + time)
    }

    /// A relay that drains ends after this time, whoever talks.
    static let drainTime = Duration.seconds(4)
    private var downTime = Duration.zero

    /// Runs work of this relay: later, when it is halted; never, when it is killed.
    func act(_ work: @escaping () -> Void) {
        guard isUp else { return }
        guard world.now < haltedUntil || !waiting.isEmpty else { return work() }
        waiting.append(work)
        if waiting.count == 1 { goOn(at: haltedUntil) }
    }

    private func goOn(at time: Instant) {
        let generation = generation
        world.at(time) { [self] in
            guard generation == self.generation else { return }
            guard world.now >= haltedUntil else { return goOn(at: haltedUntil) }
            let due = waiting
            waiting = []
            node?.wakes()
            for work in due where generation == self.generation { work() }
        }
    }

    /// Its operator ends it in good order, as `RelayServer.drain` does, and starts it again after a time.
    ///
    /// - Parameter limit: When it ends, whoever talks.
    func drain(to successor: RelayPlace?, within limit: Duration = drainTime, for time: Duration) {
        guard isUp, !core.isDraining else { return }
        world.note(name, "drains to \(successor.map { "\($0)" } ?? "nowhere")")
        self.successor = successor
        trouble(for: limit + time)
        let generation = generation
        world.after(limit) { [self] in
            // Halted, it ends when it goes on.
            act { if generation == self.generation { self.shutDown(for: time) } }
        }
        act { [self] in
            downTime = time
            // What was due before is still granted. Where nobody is, it goes down at once.
            handle(.drain(to: successor))
            if generation == self.generation { watch.isDraining = true }
        }
    }

    /// It sends everybody to the other one, and does not come back.
    func retire(to successor: RelayPlace) {
        isRetired = true
        drain(to: successor, for: .zero)
    }

    private func shutDown(for time: Duration) {
        guard isUp else { return }
        world.note(name, "goes down")
        for action in core.handle(.shutDown, at: clock.now) { carryOut(action) }
        goDown(for: time)
    }

    /// What must hold after every step: nobody is kept where nobody talks any more.
    func check() {
        guard isUp, core.isDraining else { return }
        guard watch.isIdle, world.now >= haltedUntil, waiting.isEmpty, !core.isDrained else { return quietSince = nil }
        let since = quietSince ?? world.now
        quietSince = since
        if world.now > since + RelayCore.closingTime + .milliseconds(5) {
            world.fail("L", "a relay that drains keeps its members, and nobody talks")
        }
    }

    func setRules(_ number: Int) {
        act { [self] in for channel in channels { handle(.setRules(FleetRules.all[number], of: channel.id)) } }
    }

    func renewKeys() { act { [self] in for channel in channels { handle(.renewMediaKey(channel.id)) } } }

    // MARK: Connections

    /// A handshake comes from a device.
    ///
    /// - Parameters:
    ///   - early: What came with it as early data.
    ///   - isReplay: It is a recorded one.
    ///   - answered: The answer is on its way. It arrives at `lastDown` of the connection, before anything else of the relay.
    func accept(
        device: Int, pin: PublicKeyPin, by path: NetworkPath, early: EarlyJoin? = nil, isReplay: Bool = false,
        answered: @escaping (Connection) -> Void
    ) {
        act { [self] in
            guard isListening else { return }
            let connection = Connection(
                id: ConnectionID(number: nextConnection), device: device, relay: self, by: path, at: world.now)
            nextConnection += 1
            connections[connection.id] = connection
            connection.lastDown = path.reliable(up: false)
            connection.isReplay = isReplay
            if let early, early.ticketKey == ticketKey {
                connection.takesEarlyData = true
                answered(connection)
                handle(.greeted(connection.id, pin))
                take(early.message, on: connection)
            } else {
                connection.isConfirmed = true
                handle(.connected(connection.id, pin))
                answered(connection)
            }
        }
    }

    /// The client of a connection that began with early data has completed its handshake.
    func confirmed(_ connection: Connection, pin: PublicKeyPin) {
        act { [self] in
            guard connections[connection.id] === connection else { return }
            connection.isConfirmed = true
            handle(.connected(connection.id, pin))
        }
    }

    func receive(_ message: ClientMessage, on connection: Connection) {
        act { [self] in if connection.isConfirmed { take(message, on: connection) } }
    }

    private func take(_ message: ClientMessage, on connection: Connection) {
        guard connections[connection.id] === connection else { return }
        if case .floorRequest(let request) = message, let channel = core.shared.connections.channel(of: connection.id) {
            let member = MemberID(fleet.devices[connection.device].pin)
            watch.asked(request, by: member, on: core.channels[channel].name.text)
        }
        isReplaying = connection.isReplay
        handle(.message(connection.id, message))
        isReplaying = false
    }

    /// A client asks whether it is heard by its new path.
    func challenged(_ answered: @escaping () -> Void) { act(answered) }

    func receiveGarbage(on connection: Connection) {
        act { [self] in
            guard connections[connection.id] === connection else { return }
            core.countMalformedMedia()
        }
    }

    func receive(media datagram: [UInt8], on connection: Connection) {
        act { [self] in
            guard connections[connection.id] === connection, connection.isConfirmed else { return }
            guard let header = datagram.withUnsafeBytes({ MediaPacketHeader(parsing: $0) }) else {
                return world.fail("I7", "a packet of device \(connection.device) cannot be read by the relay")
            }
            let (decision, actions) = core.media(header, bytes: datagram, from: connection.id, at: clock.now)
            // Who starts to listen with this packet gets it.
            for action in actions where action.isMediaSwitch { carryOut(action) }
            if case .forward(let channel) = decision {
                watch.forwarded(channel: core.channels[channel].name.text, from: header.ssrc, sequence: header.sequence)
                forward(datagram, channel: channel, except: connection.id)
            }
            for action in actions where !action.isMediaSwitch { carryOut(action) }
            arm()
        }
    }

    /// The other end is gone, or this one has not heard of it for too long.
    func lose(_ connection: Connection) {
        act { [self] in
            guard connections[connection.id] === connection else { return }
            forget(connection)
            handle(.disconnected(connection.id))
        }
    }

    private func forget(_ connection: Connection) {
        connection.isOpenAtRelay = false
        connections[connection.id] = nil
        sealers[connection.id] = nil
        for channel in listeners.keys { listeners[channel]?.removeAll { $0 == connection.id } }
    }

    // MARK: The rules

    func handle(_ event: RelayCore.Event) {
        let actions = core.handle(event, at: clock.now)
        fleet.coverage.record("relay", state: stateName, event: event)
        for action in actions { carryOut(action) }
        guard !core.isDrained else { return shutDown(for: downTime) }
        arm()
    }

    /// An event of the rules of its cluster.
    func note(_ event: some Any, of machine: String, state: String) {
        fleet.coverage.record(machine, state: state, event: event)
    }

    private var stateName: String {
        if core.isDraining { return "draining" }
        guard let channel = core.channels.first else { return "none" }
        if channel.floor.holders.isEmpty { return "idle" }
        if !channel.floor.waiting.isEmpty { return "takenWaiting" }
        return channel.floor.holders.count > 1 ? "shared" : "taken"
    }

    private func carryOut(_ action: RelayCore.Action) {
        switch action {
        case .send(let message, let recipients): for id in recipients { send(message, to: id) }
        case .sendSeries(let series, let recipients):
            for recipient in recipients {
                for message in messages(of: series, for: recipient) { send(message, to: recipient.connection) }
            }
        case .close(let id, let code, let text):
            guard let connection = connections[id] else { return }
            forget(connection)
            world.note(name, "closes connection \(id) of device \(connection.device): \(text)")
            // A handshake that its client gave up meanwhile ends so.
            if code == .protocolViolation, text != "no join in time" {
                world.fail("I7", "the relay finds that device \(connection.device) breaks the protocol: \(text)")
            }
            let device = fleet.devices[connection.device]
            connection.whenItPasses { [world] in
                world.at(max(connection.lastDown, connection.path.reliable(up: false))) {
                    device.isClosed(connection, code: code, text)
                }
            }
        case .startMedia(let id, let channel, let key, _):
            if sealers[id] == nil { sealers[id] = try? TrailerSealer(key: key) }
            if listeners[channel]?.contains(id) != true { listeners[channel, default: []].append(id) }
        case .takeMedia: break  // Its devices send datagrams.
        case .stopMedia(let id, let channel): listeners[channel]?.removeAll { $0 == id }
        case .forward(let packet, let channel, let talker, _): forward(packet, channel: channel, except: talker)
        case .answerRepair(let id, let bytes), .answerBurst(let id, _, let bytes): answer(bytes, to: id)
        case .moved(let channel): node?.moved(channel)
        case .enrol(let id, let enrolment): node?.enrol(id, enrolment)
        case .pushes: break  // Its rules are in one piece.
        case .note(let milestone):
            if isReplaying, case .memberJoined = milestone {
                world.fail("L", "somebody who has recorded a join takes the member's place")
            }
            watch.noted(milestone) { name in
                core.channels.first { core.isServed($0) && $0.name.text == name }?.floor.rules.talkersMaximum ?? 0
            }
            if case .floorRevoked(let channel, let member, let request, .preempted) = milestone {
                fleet.devices.first { MemberID($0.pin) == member }?.isOverridden(request, on: channel.text, by: self)
            }
            world.note(name, "\(milestone)")
        }
    }

    private func messages(of series: MessageSeries, for recipient: MessageSeries.Recipient) -> [ServerMessage] {
        var decoder = MessageDecoder()
        var messages: [ServerMessage] = []
        do {
            for piece in series.pieces(from: recipient.first) {
                try decoder.feed(piece) {
                    if let message = try? ServerMessage(parsing: $0) { messages.append(message) }
                }
            }
        } catch {
            world.fail("I7", "the relay's messages cannot be read: \(error)")
        }
        return messages
    }

    func arm() { alarm.set(core.nextDeadline) }

    // MARK: Sending

    private func send(_ message: ServerMessage, to id: ConnectionID) {
        guard let connection = connections[id] else { return }
        // Through the wire form, as in life.
        guard let parsed = try? ServerMessage(parsing: Array(message.framed().dropFirst(4))) else {
            return world.fail("I7", "the relay's message cannot be read: \(message)")
        }
        let device = fleet.devices[connection.device]
        connection.whenItPasses { [world] in
            connection.lastDown = max(connection.lastDown + .nanoseconds(1), connection.path.reliable(up: false))
            world.at(connection.lastDown) {
                if let question = connection.question { return question(parsed) }
                device.receive(parsed, on: connection)
            }
        }
    }

    private func forward(_ datagram: [UInt8], channel: Int, except talker: ConnectionID) {
        for id in listeners[channel] ?? [] where id != talker {
            guard let connection = connections[id], !connection.isStalled, let packet = try? sealers[id]?.seal(datagram)
            else { continue }
            let device = fleet.devices[connection.device]
            for time in connection.path.datagram(up: false) {
                world.at(time) { device.receive(datagram: packet, on: connection) }
            }
        }
    }

    /// An answer has a stream of its own, so it keeps no order with anything.
    private func answer(_ bytes: [UInt8], to id: ConnectionID) {
        guard let connection = connections[id] else { return }
        let device = fleet.devices[connection.device]
        connection.whenItPasses { [world] in
            world.at(connection.path.reliable(up: false)) { device.receive(answer: bytes, on: connection) }
        }
    }
}
