// One relay of a cluster: what `ClusterShares` and the program do around the rules.
import MonotonicTime
import RelayProtocol
import TestSupport

@testable import RelayCluster
@testable import RelayServer

final class SimulatedNode {
    private unowned let cluster: SimulatedCluster
    let relay: SimulatedRelay
    private let world: World
    private var chances: SeededGenerator
    private var own: ClusterMember
    private var machine: SharesStateMachine
    /// What its process has read of the table's stream.
    var chain = ShareTableChain()
    /// Counts the runs of its program.
    private(set) var life = 0
    private(set) var isListening = false
    private(set) var cutOffUntil = Instant.zero
    private(set) var withoutTableUntil = Instant.zero
    private var downTime = Duration.zero
    /// The relay that writes the records, as far as this one knows.
    private(set) var writer: ClusterMember?
    private var watched: [String: String] = [:]
    /// What its program is about to do, in order.
    private var orders: [(SimulatedNode) -> Void] = []
    private var owned: Set<Int> = []
    /// Channels of these whose floors other relays still have.
    private var held: Set<ChannelID> = []
    /// Shares that are about to be given away.
    private var paused: Set<Int> = []
    /// Since when nobody talks on channels that go to another relay.
    private var quietSince: [ChannelID: Instant] = [:]
    private lazy var alarm = Alarm(relay.clock, of: self) { node in node.relay.act { node.take(.deadline) } }

    init(_ cluster: SimulatedCluster, relay: SimulatedRelay, chances: SeededGenerator) {
        self.cluster = cluster
        self.relay = relay
        self.chances = chances
        world = relay.world
        own = ClusterMember(
            node: "n\(relay.number)", identifier: "i\(relay.number)", incarnation: "", place: "\(relay.place)")
        machine = SharesStateMachine(own)
    }

    var incarnation: String { own.incarnation }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &chances))
    }

    // MARK: The program

    func start() {
        own.incarnation = "\(own.node) \(life)"
        machine = SharesStateMachine(own)
        catchUp()
    }

    /// It listens when it has all records.
    private func catchUp() {
        later(after: milliseconds(1...1_500)) { node in
            guard node.cluster.isReached(by: node) else { return node.catchUp() }
            node.isListening = true
            node.take(.follows(true))
            node.take(.start)
        }
    }

    func stop() {
        life += 1
        isListening = false
        chain = ShareTableChain()
        writer = nil
        (watched, orders, owned, held, paused, quietSince) = ([:], [], [], [], [], [:])
        alarm.set(nil)
    }

    func handOver(for time: Duration) {
        relay.act { [self] in
            downTime = time
            if isListening { take(.release) } else { relay.kill(for: time) }
        }
    }

    func cutOff(for time: Duration, fromTableOnly: Bool) {
        if fromTableOnly {
            withoutTableUntil = max(withoutTableUntil, world.now + time)
        } else {
            cutOffUntil = max(cutOffUntil, world.now + time)
        }
    }

    func wakes() {
        if let due = machine.nextDeadline, due <= relay.clock.now, isListening { take(.deadline) }
    }

    /// Does the work, unless the process ends before.
    func later(after delay: Duration, _ work: @escaping (SimulatedNode) -> Void) {
        let life = life
        world.after(delay) { [self] in relay.act { [self] in if life == self.life { work(self) } } }
    }

    // MARK: The rules

    func take(_ event: SharesStateMachine.Event) {
        relay.note(event, of: "shares", state: machine.shares.isEmpty ? "none" : "some")
        let life = life
        for action in machine.handle(event, at: relay.clock.now) where life == self.life { carryOut(action) }
        if life == self.life { alarm.set(machine.nextDeadline) }
    }

    /// Answers a question of another relay.
    func answer(_ question: ShareVotes.Question, of asker: String) -> Bool {
        machine.answer(question, of: asker, at: relay.clock.now)
    }

    private func carryOut(_ action: SharesStateMachine.Action) {
        switch action {
        case .read: cluster.read(by: self)
        case .write(let table, let revision): cluster.write(table, over: revision, by: self)
        case .watch(let places):
            let added = places.filter { watched[$0.key] == nil }
            watched = places
            for (incarnation, place) in added.sorted(by: { $0.key < $1.key }) {
                watch(place, of: incarnation, wasOpen: false)
            }
        case .askForPromises(let others): cluster.ask(.promise, others, by: self)
        case .askForConsent(let relay, let others): cluster.ask(.consent(to: relay), others, by: self)
        case .released:
            let next = writer.flatMap { $0.incarnation == incarnation ? nil : RelayPlace($0.place) }
            relay.drain(to: next, for: downTime)
        case .end(let why):
            world.note(relay.name, "serves no longer: \(why)")
            relay.kill(for: .seconds(1))
        case .writer(let member, let epoch):
            writer = member
            if member?.incarnation == incarnation { cluster.writes(relay, epoch) }
        case .take, .unhold, .pause, .resume, .move, .places: order { $0.carryOut(order: action) }
        }
    }

    /// Looks at the port of another relay, as `PortWatch` does: it counts as closed after it was open.
    private func watch(_ place: String, of incarnation: String, wasOpen: Bool) {
        later(after: .milliseconds(250)) { node in
            guard node.watched[incarnation] != nil, let there = node.cluster.relay(at: place) else { return }
            guard wasOpen, there.refuses else {
                return node.watch(place, of: incarnation, wasOpen: wasOpen || there.isListening)
            }
            node.take(.portClosed(incarnation: incarnation))
        }
    }

    // MARK: Orders

    /// The program does one thing after the other, and waits for the disk now and then, seldom for long.
    private func order(_ work: @escaping (SimulatedNode) -> Void) {
        orders.append(work)
        if orders.count == 1 { doNext() }
    }

    private func doNext() {
        let most = chances.chance(90) ? 2 : cluster.isPeaceful || chances.chance(90) ? 80 : 1_500
        later(after: milliseconds(0...most)) { node in
            guard let work = node.orders.first else { return }
            let life = node.life
            work(node)
            guard life == node.life else { return }
            node.orders.removeFirst()
            if !node.orders.isEmpty { node.doNext() }
        }
    }

    private func carryOut(order: SharesStateMachine.Action) {
        switch order {
        case .take(let share, let held):
            owned.insert(share)
            self.held.formUnion(held.compactMap { ChannelID($0) })
            serve(channels(of: share))
        case .unhold(let channels):
            let channels = channels.compactMap { ChannelID($0) }
            held.subtract(channels)
            relay.resume(channels)
        case .pause(let shares):
            paused.formUnion(shares)
            let served = shares.reduce(into: [:]) { $0[$1] = Set(channels(of: $1)) }
            let busy = relay.pause(shares.flatMap(channels))
            take(.paused(served.mapValues { Set($0.intersection(busy).map(\.description)) }))
        case .resume(let shares):
            paused.subtract(shares)
            relay.resume(shares.flatMap(channels))
        case .move(let share, let place):
            owned.remove(share)
            paused.remove(share)
            held.subtract(channels(of: share))
            relay.move(channels(of: share), to: RelayPlace(place) ?? relay.place)
        case .places(let places):
            relay.handle(.setPlaces(ChannelPlaces(shares: places.map { ChannelPlaces.Place($0) })))
        case .read, .write, .watch, .askForPromises, .askForConsent, .writer, .released, .end: break
        }
    }

    private func channels(of share: Int) -> [ChannelID] { relay.channels.map(\.id).filter { $0.share() == share } }

    private func serve(_ channels: [ChannelID]) {
        // One that is still on its way to another relay is served again when it is gone.
        for id in channels where relay.core.configuration(of: id) == nil {
            guard let (configuration, members) = cluster.record(of: id, in: relay.channels) else { continue }
            relay.serve(
                configuration, members: members, isPaused: held.contains(id) || paused.contains(id.share()))
        }
    }

    func moved(_ channel: ChannelID) {
        relay.isGone(channel)
        quietSince[channel] = nil
        order { node in
            node.take(.left(channel.description))
            if node.owned.contains(channel.share()) { node.serve([channel]) }
        }
    }

    func enrol(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {
        later(after: cluster.delay() + cluster.delay()) { node in
            let verdict = node.cluster.enrol(enrolment, by: node)
            node.relay.handle(.enrolled(connection, enrolment, verdict))
        }
    }

    /// The records that it follows have another member.
    func learn(of member: MemberID, on channel: ChannelID) {
        later(after: milliseconds(1...250)) { node in
            guard node.cluster.isReached(by: node) else { return node.learn(of: member, on: channel) }
            node.order { node in
                guard node.owned.contains(channel.share()) else { return }
                node.relay.handle(.readmit(member, to: channel, as: RelayMembership()))
            }
        }
    }

    // MARK: What must hold

    /// Nobody is kept on a channel that goes to another relay, and on which nobody talks.
    func check() {
        guard relay.isUp, !relay.core.moving.isEmpty else { return }
        for number in relay.core.moving {
            let channel = relay.core.channels[number].configuration
            guard relay.isRunning, !relay.watch.hasTalker(on: channel.name.text) else {
                quietSince[channel.id] = nil
                continue
            }
            let since = quietSince[channel.id] ?? world.now
            quietSince[channel.id] = since
            if world.now > since + RelayCore.closingTime + .milliseconds(5) {
                world.fail("L", "\(relay.name) keeps the members of \(channel.name), and nobody talks")
            }
        }
    }

    /// Whether it serves exactly these shares, their floors are its own, and nothing is under way.
    func serves(_ shares: [Int], of table: ShareTable) -> Bool {
        guard relay.isRunning, isListening, orders.isEmpty, held.isEmpty, paused.isEmpty, owned == Set(shares),
            machine.shares == owned
        else { return false }
        return relay.channels.allSatisfy { channel in
            let isServed = relay.core.configuration(of: channel.id) != nil
            return isServed == owned.contains(channel.id.share()) && !relay.watch.paused.contains(channel.name.text)
        }
    }
}

extension ChannelPlaces.Place {
    fileprivate init(_ place: SharesStateMachine.Place) {
        switch place {
        case .here: self = .here
        case .elsewhere(let text, _): self = RelayPlace(text).map { .elsewhere($0) } ?? .nowhere
        case .nowhere: self = .nowhere
        }
    }
}
