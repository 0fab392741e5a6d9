// A relay and its clients in one thread, with a network and a clock of their own: hours pass in seconds, from one seed.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

/// What the simulated network and machines do to each other.
struct SimulatedFaults {
    var lossPercent = 0
    var duplicatePercent = 0
    /// Packets are late by up to this, so that they overtake each other.
    var jitter: Duration = .zero
    var dropsLinks = false
    var restartsRelay = false
    /// Now and then one direction of one client's path is gone for 2 s.
    var hasGaps = false
    /// A talker's transport never tells that a packet was lost which was sent just before the release.
    var hidesLossAtRelease = false
}

/// One connection between a client and the relay of one generation.
final class SimulatedConnection {
    let id: ConnectionID
    let client: Int
    let generation: Int
    var isOpen = true
    /// The network between is broken: nothing that is on its way arrives.
    var isCut = false
    /// The control stream is reliable and in order; so is its time.
    var lastUp = Instant.zero
    var lastDown = Instant.zero

    init(id: ConnectionID, client: Int, generation: Int) {
        self.id = id
        self.client = client
        self.generation = generation
    }
}

/// What one client said and heard.
struct SimulatedLog {
    var begun = 0
    var ended: [BurstID: (TransmissionEnd, TransmissionReport)] = [:]
    var endedAt: [BurstID: Instant] = [:]
    /// The frames that were handed to the core, by burst.
    var said: [BurstID: Int] = [:]
    var isReady = false
    var lastReadyChange = Instant.zero
    /// While another talks: the member, the burst it says, and the frames that came.
    var hearing: (talker: String, burst: UInt8?, frames: Set<UInt16>)?
    /// Finished bursts that were heard: talker, burst, frames.
    var heard: [(talker: String, burst: UInt8?, frames: Int, lost: Int, end: ReceptionEnd)] = []
    /// The frames that were heard, by talker and burst, in however many pieces.
    var pieces: [String: Set<UInt16>] = [:]
    /// The last frame of the pieces that are over.
    var heardThrough: [String: UInt16] = [:]
    var violations: [String] = []
}

/// The world: a queue of what is to happen when.
final class SimulatedWorld {
    private(set) var now = Instant(nanoseconds: 1_000_000_000)
    var random: SeededGenerator
    let faults: SimulatedFaults
    private var queue: [(at: Instant, order: Int, work: () -> Void)] = []
    private var order = 0

    let channel: RelayChannelConfiguration
    private var roster = RelayRoster.open
    /// Whether all members are alike.
    let isPlain: Bool
    private(set) var relay: RelayCore
    private(set) var generation = 0
    private var isRelayUp = true
    /// Until when the relay's process is stopped, and what waits for it: its timers, and what has arrived.
    private var relayStoppedUntil = Instant.zero
    private var lateTimers: [() -> Void] = []
    private var lateArrivals: [() -> Void] = []
    private var relayWake: Instant?
    private var listeners: [ConnectionID] = []
    private var sealers: [ConnectionID: TrailerSealer] = [:]
    private var inlets: [ConnectionID: (opener: TrailerOpener, receipts: UplinkReceipts)] = [:]
    private var connections: [ConnectionID: SimulatedConnection] = [:]
    private var nextConnection: UInt64 = 1

    private(set) var clients: [RelayClientCore] = []
    private var clientConnections: [SimulatedConnection?] = []
    private var attempts: [Int] = []
    private var clientWakes: [Instant?] = []
    var logs: [SimulatedLog] = []
    private var names: [String] = []
    /// Until when nothing gets through, by client.
    private var gapsUp: [Int: Instant] = [:]
    private var gapsDown: [Int: Instant] = [:]
    private(set) var gaps = 0
    private var nextDatagram: UInt64 = 0
    /// When a client last gave the floor back, and when the relay read that.
    private var releasedAt: [Int: Instant] = [:]
    private var releaseReadAt = Instant.zero
    /// Of the bursts that were released, in their order: the packets that the relay got, by client, and how long it waited for the last.
    private(set) var forwarded: [Int: [Int]] = [:]
    private(set) var waits: [Duration] = []

    /// - Parameter priorities: Those of the members, in their order; without any, everybody may join.
    init(
        clients count: Int, faults: SimulatedFaults, rules: FloorRules = FloorRules(), priorities: [UInt8] = [],
        seed: UInt64
    ) {
        random = SeededGenerator(seed: seed)
        self.faults = faults
        channel = .yard(rules)
        isPlain = priorities.isEmpty
        if !priorities.isEmpty {
            let members = priorities.enumerated().map {
                (MemberID(.numbered($0)), RelayMembership(priority: $1))
            }
            roster = RelayRoster(memberships: [channel.id: Dictionary(uniqueKeysWithValues: members)])
        }
        relay = RelayCore(channels: [channel], roster: roster, random: SeededGenerator(seed: seed))
        for number in 0..<count {
            let link = try! InvitationLink(
                host: "relay", port: 1, channelName: channel.name, channel: channel.id, token: channel.token,
                pin: .numbered(0))
            names.append("\(number)")
            clients.append(
                RelayClientCore(invitation: link, displayName: DisplayName("\(number)")!, timestampAtZero: 7))
            // One half of them sends outside QUIC, the other half in its datagrams.
            clients[number].sendsOutsideQUIC = number.isMultiple(of: 2)
            clientConnections.append(nil)
            attempts.append(0)
            clientWakes.append(nil)
            logs.append(SimulatedLog())
        }
    }

    // MARK: Time

    func after(_ delay: Duration, _ work: @escaping () -> Void) { at(now + delay, work) }

    func at(_ time: Instant, _ work: @escaping () -> Void) {
        order += 1
        let entry = (at: max(time, now), order: order, work: work)
        var low = 0
        var high = queue.count
        while low < high {
            let middle = (low + high) / 2
            // Latest first, so that the next is taken from the end.
            if (queue[middle].at, queue[middle].order) > (entry.at, entry.order) {
                low = middle + 1
            } else {
                high = middle
            }
        }
        queue.insert(entry, at: low)
    }

    func run(until end: Instant) {
        while let next = queue.last, next.at <= end {
            queue.removeLast()
            now = next.at
            next.work()
        }
        now = end
    }

    private func latency() -> Duration { .milliseconds(Int.random(in: 1...30, using: &random)) }

    private func packetDelays() -> [Duration] {
        guard !random.chance(faults.lossPercent) else { return [] }
        return (0..<(random.chance(faults.duplicatePercent) ? 2 : 1)).map { _ in
            .milliseconds(5) + .nanoseconds(Int64.random(in: 0...faults.jitter.nanoseconds, using: &random))
        }
    }

    // MARK: Gaps

    /// Nothing passes in one direction for 2 s; while any gap lasts, and a moment after it, there is no other.
    func gap(of client: Int, up: Bool) {
        let last = max(gapsUp.values.max() ?? .zero, gapsDown.values.max() ?? .zero)
        guard faults.hasGaps, now > last + .seconds(1) else { return }
        gaps += 1
        if up { gapsUp[client] = now + .seconds(2) } else { gapsDown[client] = now + .seconds(2) }
    }

    private func isGone(_ gaps: [Int: Instant], _ client: Int) -> Bool { now < gaps[client] ?? .zero }

    /// When what is sent reliably arrives: a lost packet comes again after some round trips, and after a gap soon.
    private func reliableArrival(_ gaps: [Int: Instant], _ client: Int) -> Instant {
        var time = now + latency()
        while random.chance(faults.lossPercent) { time = time + .milliseconds(80) }
        if let end = gaps[client], end > now {
            time = max(time, end + .milliseconds(Int.random(in: 10...250, using: &random)))
        }
        return time
    }

    /// Nothing passes between a client and the relay, in one direction or both.
    func blackOut(_ client: Int, up: Bool, down: Bool, for time: Duration) {
        if up { gapsUp[client] = now + time }
        if down { gapsDown[client] = now + time }
    }

    // MARK: The relay

    /// The relay's process is stopped for `time`. What comes meanwhile waits in the kernel, and is read when it goes on: before its timers
    /// run, or after.
    func stopRelay(for time: Duration, timersFirst: Bool) {
        relayStoppedUntil = now + time
        at(relayStoppedUntil) { [self] in
            let (timers, arrivals) = (lateTimers, lateArrivals)
            (lateTimers, lateArrivals) = ([], [])
            for work in timersFirst ? timers + arrivals : arrivals + timers { work() }
        }
    }

    /// What the kernel keeps of datagrams for a process that does not read them.
    private static let socketBuffer = 500

    /// Does what reaches the relay's process.
    private func relayDoes(isTimer: Bool = false, isDatagram: Bool = false, _ work: @escaping () -> Void) {
        guard now < relayStoppedUntil else { return work() }
        if isTimer { return lateTimers.append(work) }
        if !isDatagram || lateArrivals.count < Self.socketBuffer { lateArrivals.append(work) }
    }

    private func relayHandles(_ event: RelayCore.Event) {
        if case .message(let id, .floorRelease) = event { report(to: id) }
        carryOut(relay.handle(event, at: now))
    }

    private func carryOut(_ actions: [RelayCore.Action]) {
        for action in actions {
            switch action {
            case .send(let message, let recipients):
                for id in recipients { sendDown(message, to: id) }
            case .sendSeries(let series, let recipients):
                for recipient in recipients {
                    for message in series.messages(for: recipient) { sendDown(message, to: recipient.connection) }
                }
            case .close(let id, let code, let text):
                guard let connection = connections.removeValue(forKey: id) else { continue }
                forget(id)
                connection.isOpen = false
                at(connection.lastDown + .milliseconds(1)) { [self] in
                    guard clientConnections[connection.client] === connection else { return }
                    clientConnections[connection.client] = nil
                    clientHandles(
                        connection.client, .connectionEnded(code == .replaced ? .replaced : .closedByRelay(text)))
                }
            case .startMedia(let id, _, let key, _):
                if sealers[id] == nil { sealers[id] = try! TrailerSealer(key: key) }
                listeners.append(id)
            case .takeMedia(let id, let key, let ssrc):
                inlets[id] = (try! TrailerOpener(key: key), UplinkReceipts(of: ssrc))
            case .stopMedia(let id, _): listeners.removeAll { $0 == id }
            case .forward(let packet, _, let talker, _): forward(packet, except: talker)
            case .answerRepair(let id, let bytes), .answerBurst(let id, _, let bytes): sendAnswer(bytes, to: id)
            case .enrol, .pushes, .moved: break  // Its roster is open, and its rules are in one piece.
            case .note(.burstEnded(_, let burst)): noteEnd(of: burst)
            case .note: break
            }
        }
        wakeRelay()
    }

    private func noteEnd(of burst: RelayBurstSummary) {
        guard burst.reason == .released, burst.packets > 0,
            let client = clients.firstIndex(where: { $0.session?.ssrc == burst.ssrc })
        else { return }
        forwarded[client, default: []].append(burst.packets)
        waits.append(now - releaseReadAt)
    }

    private func forget(_ id: ConnectionID) {
        (sealers[id], inlets[id]) = (nil, nil)
        listeners.removeAll { $0 == id }
    }

    private func wakeRelay() {
        guard let due = relay.nextDeadline, due < relayWake ?? Instant(nanoseconds: .max) else { return }
        relayWake = due
        let generation = generation
        at(due) { [self] in
            relayDoes(isTimer: true) { [self] in
                guard generation == self.generation else { return }
                relayWake = nil
                relayHandles(.deadline)
            }
        }
    }

    private func sendDown(_ message: ServerMessage, to id: ConnectionID) {
        guard let connection = connections[id] else { return }
        // Through the wire form, as in life.
        let parsed = try! ServerMessage(parsing: Array(message.framed().dropFirst(4)))
        connection.lastDown = max(
            connection.lastDown + .nanoseconds(1), reliableArrival(gapsDown, connection.client))
        at(connection.lastDown) { [self] in
            guard clientConnections[connection.client] === connection, connection.isOpen || !isRelayUp else { return }
            clientHandles(connection.client, .message(parsed))
        }
    }

    private func relayReceives(_ datagram: [UInt8], from connection: SimulatedConnection) {
        guard connection.generation == generation, isRelayUp, !connection.isCut,
            connections[connection.id] === connection
        else { return }
        guard let header = datagram.withUnsafeBytes({ MediaPacketHeader(parsing: $0) }) else {
            return logs[connection.client].violations.append("a packet that the relay cannot read")
        }
        let (decision, actions) = relay.media(header, bytes: datagram, from: connection.id, at: now)
        if case .forward = decision { forward(datagram, except: connection.id) }
        carryOut(actions)
    }

    private func relayReceives(outsideQUIC datagram: [UInt8], from connection: SimulatedConnection) {
        let id = connection.id
        guard isRelayUp, connections[id] === connection, let opener = inlets[id]?.opener,
            let (count, counter) = datagram.withUnsafeBytes({ try? opener.open($0) })
        else { return }
        relayReceives(Array(datagram.prefix(count)), from: connection)
        if inlets[id]?.receipts.received(counter, at: now) == true { report(to: id) }
    }

    private func report(to id: ConnectionID) {
        guard let report = inlets[id]?.receipts.takeReport(at: now) else { return }
        var packet = [UInt8](repeating: 0, count: UplinkReport.byteCount)
        packet.withUnsafeMutableBytes { report.write(to: $0) }
        send(packet, outsideQUICTo: id)
    }

    private func forward(_ datagram: [UInt8], except talker: ConnectionID) {
        for id in listeners where id != talker { send(datagram, outsideQUICTo: id) }
    }

    private func send(_ packet: [UInt8], outsideQUICTo id: ConnectionID) {
        guard let listener = connections[id], let datagram = try? sealers[id]?.seal(packet),
            !isGone(gapsDown, listener.client)
        else { return }
        for delay in packetDelays() {
            after(delay) { [self] in
                guard clientConnections[listener.client] === listener else { return }
                let actions = datagram.withUnsafeBytes { clients[listener.client].receive($0, at: now) }
                carryOut(actions, client: listener.client)
            }
        }
    }

    /// An answer has a stream of its own, so it keeps no order with anything.
    private func sendAnswer(_ bytes: [UInt8], to id: ConnectionID) {
        guard let connection = connections[id] else { return }
        at(reliableArrival(gapsDown, connection.client)) { [self] in
            guard clientConnections[connection.client] === connection, connection.isOpen else { return }
            var decoder = RepairStreamDecoder()
            var packets: [[UInt8]] = []
            try! decoder.feed(bytes, isEnd: true) { packets.append($0) }
            guard decoder.isBurst else {
                return clientHandles(
                    connection.client, .repaired(request: decoder.id!, packets: packets, isEnd: true))
            }
            let request = BurstRequestID(rawValue: decoder.id!)
            clientHandles(
                connection.client,
                .burst(request: request, packets: packets, isWhole: decoder.isWhole, isEnd: true))
        }
    }

    /// The relay dies and another one comes up after `pause`, with the same channels and new keys.
    func restartRelay(after pause: Duration) {
        isRelayUp = false
        generation += 1
        relayWake = nil
        let lost = connections.values.sorted { $0.id < $1.id }
        connections = [:]
        listeners = []
        (sealers, inlets) = ([:], [:])
        for connection in lost {
            // Told by a stateless reset, sooner or later.
            after(pause + .milliseconds(Int.random(in: 0...3_000, using: &random))) { [self] in
                guard clientConnections[connection.client] === connection else { return }
                clientConnections[connection.client] = nil
                clientHandles(connection.client, .connectionEnded(.lost("restarted")))
            }
        }
        relay = RelayCore(channels: [channel], roster: roster, random: random)
        after(pause) { [self] in isRelayUp = true }
    }

    /// The network between a client and the relay breaks; both find out, at different times.
    func dropLink(of client: Int) {
        guard let connection = clientConnections[client], connection.isOpen else { return }
        connection.isOpen = false
        connection.isCut = true
        after(.milliseconds(Int.random(in: 0...3_000, using: &random))) { [self] in
            guard connection.generation == generation, connections.removeValue(forKey: connection.id) != nil else {
                return
            }
            forget(connection.id)
            relayHandles(.disconnected(connection.id))
        }
        after(.milliseconds(Int.random(in: 0...3_000, using: &random))) { [self] in
            guard clientConnections[client] === connection else { return }
            clientConnections[client] = nil
            clientHandles(client, .connectionEnded(.lost("dropped")))
        }
    }

    // MARK: The clients

    func clientHandles(_ number: Int, _ event: RelayClientCore.Event) {
        carryOut(clients[number].handle(event, at: now), client: number)
    }

    private func carryOut(_ actions: [RelayClientCore.Action], client number: Int) {
        for action in actions {
            switch action {
            case .connect: connect(number)
            case .close:
                attempts[number] += 1
                guard let connection = clientConnections[number] else { continue }
                clientConnections[number] = nil
                connection.isOpen = false
                // The last word is said once: where it is lost, the relay has to notice by itself.
                after(isGone(gapsUp, number) ? .seconds(45) : latency()) { [self] in
                    relayDoes { [self] in
                        guard connection.generation == generation,
                            connections.removeValue(forKey: connection.id) != nil
                        else { return }
                        forget(connection.id)
                        relayHandles(.disconnected(connection.id))
                    }
                }
            case .send(let message):
                guard let connection = clientConnections[number] else { continue }
                let parsed = try! ClientMessage(parsing: Array(message.framed().dropFirst(4)))
                let isRelease =
                    if case .floorRelease(let release) = parsed { release.lastSequence != nil } else { false }
                if isRelease { releasedAt[number] = now }
                connection.lastUp = max(connection.lastUp + .nanoseconds(1), reliableArrival(gapsUp, number))
                at(connection.lastUp) { [self] in
                    relayDoes { [self] in
                        // What was sent before the end is read before it.
                        guard connections[connection.id] === connection, !connection.isCut, isRelayUp else { return }
                        if isRelease { releaseReadAt = now }
                        relayHandles(.message(connection.id, parsed))
                    }
                }
            case .sendLoosely(let message):
                guard let connection = clientConnections[number], !isGone(gapsUp, number) else { continue }
                let datagram = Array(message.framed().dropFirst(4))
                guard let delay = packetDelays().first else { continue }
                after(delay) { [self] in
                    relayDoes(isDatagram: true) { [self] in
                        guard connection.isOpen, connections[connection.id] === connection, isRelayUp,
                            let request = RepairDatagram.request(in: datagram, limit: relay.limits.datagramBytes)
                        else { return }
                        relayHandles(.message(connection.id, request))
                    }
                }
            case .sendMedia(let datagram):
                guard let connection = clientConnections[number] else { continue }
                nextDatagram += 1
                let datagramID = nextDatagram
                carryOut(clients[number].handle(.mediaSent(datagramID, datagram), at: now), client: number)
                // A QUIC datagram does not come twice.
                let delay = isGone(gapsUp, number) ? nil : packetDelays().first
                if let delay {
                    after(delay) { [self] in
                        relayDoes(isDatagram: true) { [self] in relayReceives(datagram, from: connection) }
                    }
                }
                // Some acknowledgements are late, so that what arrived is taken for lost.
                let isAcknowledged = delay != nil && !random.chance(faults.lossPercent / 4)
                let sentAt = now
                let told = max(now, gapsUp[number] ?? .zero, gapsDown[number] ?? .zero, relayStoppedUntil)
                at(told + .milliseconds(Int.random(in: 40...160, using: &random))) { [self] in
                    guard clientConnections[number] === connection, connection.isOpen else { return }
                    let isLast = releasedAt[number].map { $0 >= sentAt && $0 - sentAt < .milliseconds(50) } ?? false
                    if faults.hidesLossAtRelease, isLast, delay == nil { return }
                    clientHandles(number, isAcknowledged ? .mediaAcknowledged(datagramID) : .mediaLost(datagramID))
                }
            case .sendOutsideQUIC(let datagram):
                guard let connection = clientConnections[number], !isGone(gapsUp, number) else { continue }
                // The network may bring it twice.
                for delay in packetDelays() {
                    after(delay) { [self] in
                        relayDoes(isDatagram: true) { [self] in relayReceives(outsideQUIC: datagram, from: connection) }
                    }
                }
            case .awaitAnswer, .verify, .tellOfPushes, .tellOfSuccession, .answer: break
            case .tell(let event): note(event, number)
            }
        }
        wakeClient(number)
    }

    private func connect(_ number: Int) {
        attempts[number] += 1
        let attempt = attempts[number]
        var time = now + latency() + latency()
        // What is repeated comes through once the path is there again.
        let gap = max(gapsUp[number] ?? .zero, gapsDown[number] ?? .zero)
        if gap > now { time = max(time, gap + .milliseconds(Int.random(in: 10...1_000, using: &random))) }
        at(time) { [self] in relayDoes { [self] in connected(number, attempt) } }
    }

    private func connected(_ number: Int, _ attempt: Int) {
        guard attempts[number] == attempt, isRelayUp else { return }
        let connection = SimulatedConnection(
            id: ConnectionID(number: nextConnection), client: number, generation: generation)
        nextConnection += 1
        connections[connection.id] = connection
        clientConnections[number] = connection
        clientHandles(number, .connected)
        relayHandles(.connected(connection.id, .numbered(number)))
    }

    private func wakeClient(_ number: Int) {
        guard let due = clients[number].nextDeadline, due < clientWakes[number] ?? Instant(nanoseconds: .max)
        else { return }
        clientWakes[number] = due
        at(due) { [self] in
            clientWakes[number] = nil
            clientHandles(number, .deadline)
        }
    }

    // MARK: What they tell

    private func note(_ event: RelayLinkEvent, _ number: Int) {
        func wrong(_ text: String) { logs[number].violations.append("at \(now): client \(number): \(text)") }
        switch event {
        case .state(let state):
            if case .ready = state { logs[number].isReady = true } else { logs[number].isReady = false }
            logs[number].lastReadyChange = now
        case .transmissionEnded(let burst, let end, let report):
            if logs[number].ended[burst] != nil { wrong("\(burst) ended twice") }
            logs[number].ended[burst] = (end, report)
            logs[number].endedAt[burst] = now
        case .burstBegan(let talker):
            if logs[number].hearing != nil { wrong("two talkers at once") }
            if talker.name == names[number] { wrong("hears itself") }
            logs[number].hearing = (talker.name, nil, [])
        case .frame(let frame):
            guard var hearing = logs[number].hearing else { return wrong("a frame outside of a burst") }
            guard frame.payload.count == 4 else { return wrong("a frame that nobody said") }
            if "\(frame.payload[0])" != hearing.talker {
                wrong("a frame of \(frame.payload[0]) in a burst of \(hearing.talker)")
            }
            if let burst = hearing.burst, burst != frame.payload[1] { wrong("frames of two bursts in one") }
            hearing.burst = frame.payload[1]
            let index = UInt16(frame.payload[2]) << 8 | UInt16(frame.payload[3])
            if !hearing.frames.insert(index).inserted { wrong("a frame twice") }
            let burst = "\(hearing.talker) \(frame.payload[1])"
            if !logs[number].pieces[burst, default: []].insert(index).inserted {
                wrong("a frame twice, in two pieces of a burst")
            }
            if let last = logs[number].heardThrough[burst], index <= last {
                wrong("a frame of before what an earlier piece of the burst ended with")
            }
            logs[number].hearing = hearing
        case .burstEnded(let talker, let end, let report):
            guard let hearing = logs[number].hearing, hearing.talker == talker.name else {
                return wrong("an end without a burst")
            }
            if report.received != hearing.frames.count { wrong("a report that miscounts") }
            if let burst = hearing.burst, let last = hearing.frames.max() {
                logs[number].heardThrough["\(talker.name) \(burst)", default: 0] = last
            }
            logs[number].heard.append((hearing.talker, hearing.burst, hearing.frames.count, report.lost, end))
            logs[number].hearing = nil
        default: break
        }
    }
}
