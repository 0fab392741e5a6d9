// The relays of a cluster: the shipped rules of who serves, and the lease in NATS.
import MonotonicTime
import QUIC
import RelayProtocol
import TestSupport

@testable import RelayCluster
@testable import RelayServer

/// Three relays with one name, of which one serves, and the register in which they keep their lease. It is there for those who reach it,
/// answers late, and loses answers.
final class SimulatedCluster: FleetCluster {
    static let nodeCount = 3
    /// Where the name of the invitations leads.
    static let addresses = (1...nodeCount).compactMap { SocketAddress("192.0.2.\($0)", port: 1) }

    private let world: World
    private var chances: SeededGenerator
    private var nodes: [SimulatedNode] = []
    private var lease: ClusterLease?
    private var revision: UInt64 = 0
    /// Until when no server can write, for they look for a leader.
    private var leaderlessUntil = Instant.zero
    /// Of the relay that served last.
    private var lastEpoch: UInt64 = 0

    init(_ world: World, fleet: Fleet, channels: [RelayChannelConfiguration]) {
        self.world = world
        chances = world.random("NATS")
        nodes = (0..<Self.nodeCount).map { number in
            let place = RelayPlace(host: "node\(number)", port: 1)!
            let relay = SimulatedRelay(world, fleet: fleet, number: number, place: place, channels: channels)
            let node = SimulatedNode(self, relay: relay, chances: world.random("node \(number)"))
            relay.node = node
            return node
        }
    }

    var members: [any FleetClusterMember] { nodes }

    var serving: SimulatedRelay? { nodes.first { $0.isListening && !$0.isGoing }?.relay }

    var unrest: String? { nil }

    // MARK: NATS

    func loseLeader(for time: Duration) { leaderlessUntil = max(leaderlessUntil, world.now + time) }

    /// Whether that node reaches a majority of the servers.
    func isReached(by node: SimulatedNode) -> Bool { world.now >= max(leaderlessUntil, node.cutOffUntil) }

    func readLease(_ node: SimulatedNode) {
        ask(node, orElse: .readFailed) { [self] in .read(lease, revision: revision) }
    }

    func write(_ new: ClusterLease, over: UInt64, by node: SimulatedNode) {
        ask(node, orElse: .writeFailed) { [self] in
            guard over == revision else { return .refused }
            (lease, revision) = (new, revision + 1)
            return .written(revision: revision)
        }
    }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &chances))
    }

    /// A question and its answer: each takes its time, or is lost.
    private func ask(
        _ node: SimulatedNode, orElse failure: ClusterStateMachine.Event,
        _ question: @escaping () -> ClusterStateMachine.Event
    ) {
        let life = node.life
        func tell(_ event: ClusterStateMachine.Event, after delay: Duration) {
            world.after(delay) { node.relay.act { if node.life == life { node.take(event) } } }
        }
        world.after(milliseconds(1...200)) { [self] in
            guard isReached(by: node), !chances.chance(3) else { return tell(failure, after: milliseconds(1...1_000)) }
            let answer = question()
            tell(chances.chance(4) ? failure : answer, after: milliseconds(1...300))
        }
    }

    // MARK: What must hold

    /// A relay begins to serve.
    func begins(_ epoch: UInt64) {
        if epoch <= lastEpoch { world.fail("I4", "a relay serves in epoch \(epoch), after one in \(lastEpoch)") }
        lastEpoch = epoch
    }

    /// Two relays never serve at a time. One that hands over lets its bursts end; a frozen one looks at its clock before anything else.
    func check() {
        let serving = nodes.filter { $0.isListening && !$0.isGoing && $0.relay.isRunning }
        if serving.count > 1 { world.fail("I4", "\(serving.count) relays of a cluster serve") }
    }
}

/// One node: what `ClusterNode` and the program do around the rules.
final class SimulatedNode: FleetClusterMember {
    private unowned let cluster: SimulatedCluster
    let relay: SimulatedRelay
    private let world: World
    private var chances: SeededGenerator
    private var member: ClusterMember
    private var machine: ClusterStateMachine
    /// Counts the runs of its program.
    private(set) var life = 0
    /// Whether it serves: one that stands by has no port.
    private(set) var isListening = false
    private var hasReleased = false
    private var epoch: UInt64 = 0
    private var watched: UInt64?
    private var downTime = Duration.zero
    private(set) var cutOffUntil = Instant.zero
    private lazy var alarm = Alarm(relay.clock, of: self) { node in node.relay.act { node.take(.deadline) } }

    init(_ cluster: SimulatedCluster, relay: SimulatedRelay, chances: SeededGenerator) {
        self.cluster = cluster
        self.relay = relay
        self.chances = chances
        world = relay.world
        member = ClusterMember(
            node: "n\(relay.number)", identifier: "i\(relay.number)", incarnation: "", place: "\(relay.place)")
        machine = ClusterStateMachine(member)
    }

    /// Whether it hands over: nobody new is let in, or will be soon.
    var isGoing: Bool { machine.isReleasing || hasReleased }

    private func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &chances))
    }

    // MARK: The program

    func start() {
        life += 1
        member.incarnation = "\(member.node) \(life)"
        machine = ClusterStateMachine(member)
        take(.start)
        later(after: milliseconds(1...300)) { node in node.take(.follows(true)) }
    }

    /// The process has ended.
    func stop() {
        life += 1
        (isListening, hasReleased, watched) = (false, false, nil)
        alarm.set(nil)
    }

    /// Its operator ends it in good order, and starts it again after a time.
    func handOver(for time: Duration) {
        relay.act { [self] in
            downTime = time
            take(.release)
        }
    }

    func cutOff(for time: Duration, fromTableOnly: Bool) { cutOffUntil = max(cutOffUntil, world.now + time) }

    /// Does the work, unless the process ends before.
    private func later(after delay: Duration, _ work: @escaping (SimulatedNode) -> Void) {
        let life = life
        world.after(delay) { [self] in relay.act { [self] in if life == self.life { work(self) } } }
    }

    // MARK: The rules

    func take(_ event: ClusterStateMachine.Event) {
        relay.note(event, of: "cluster", state: isListening ? "serving" : "standingBy")
        for action in machine.handle(event, at: relay.clock.now) { carryOut(action) }
        alarm.set(machine.nextDeadline)
    }

    private func carryOut(_ action: ClusterStateMachine.Action) {
        switch action {
        case .read: cluster.readLease(self)
        case .write(let lease, let revision): cluster.write(lease, over: revision, by: self)
        case .standBy: watched = nil
        case .watch(let place, let epoch):
            watched = epoch
            watch(place, of: epoch, wasOpen: false)
        case .catchUp(let epoch):
            self.epoch = epoch
            catchUp()
        case .serve:
            world.note(relay.name, "serves the cluster in epoch \(epoch)")
            isListening = true
            cluster.begins(epoch)
        case .released(let place):
            hasReleased = true
            guard isListening else { return relay.kill(for: downTime) }
            relay.drain(to: place.flatMap { RelayPlace($0) }, for: downTime)
        case .end(let why):
            world.note(relay.name, "serves no longer: \(why)")
            relay.kill(for: .seconds(1))
        }
    }

    private func catchUp() {
        later(after: milliseconds(1...1_500)) { node in
            if node.cluster.isReached(by: node) { node.take(.caughtUp) } else { node.catchUp() }
        }
    }

    /// Looks at the port of the relay that serves, as `PortWatch` does: it counts as closed after it was open.
    private func watch(_ place: String, of epoch: UInt64, wasOpen: Bool) {
        later(after: .milliseconds(250)) { node in
            guard node.watched == epoch, let there = node.cluster.relay(at: place) else { return }
            guard wasOpen, there.refuses else {
                return node.watch(place, of: epoch, wasOpen: wasOpen || there.isListening)
            }
            node.watched = nil
            node.take(.portClosed(epoch: epoch))
        }
    }
}
