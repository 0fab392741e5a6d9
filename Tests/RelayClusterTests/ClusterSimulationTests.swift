// Several nodes and one register, with everything that can go wrong between them, from a seed: never do two serve at a time.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayCluster

/// The register as JetStream keeps it, and nodes that are cut off, frozen, killed and started again.
private struct ClusterWorld {
    struct Node {
        var machine: ClusterStateMachine
        var member: ClusterMember
        var isRunning = true
        /// Its clock stands still while it is frozen; what came meanwhile comes afterwards.
        var frozenUntil = Instant.zero
        var isCutOffUntil = Instant.zero
        var serves = false
        /// Of the lease that it holds.
        var epoch: UInt64 = 0
        var watched: UInt64?
    }

    struct Pending {
        var at: Instant
        var node: Int
        var incarnation: String
        var event: ClusterStateMachine.Event
    }

    private let timers: ClusterStateMachine.Timers
    var random: SeededGenerator
    var now = Instant.zero
    var nodes: [Node] = []
    var pending: [Pending] = []
    var lease: ClusterLease?
    var revision: UInt64 = 0
    /// Nobody reaches a majority of the servers until then.
    var isLeaderless = Instant.zero
    var epochs: [UInt64] = []
    var servedFor = Duration.zero
    var problem: String?

    init(seed: UInt64, nodes count: Int, timers: ClusterStateMachine.Timers = .init()) {
        self.timers = timers
        random = SeededGenerator(seed: seed)
        for number in 0..<count {
            let member = ClusterMember(
                node: "n\(number)", identifier: "i\(number)", incarnation: "r\(number)", place: "p\(number):1")
            nodes.append(Node(machine: ClusterStateMachine(member, timers: timers), member: member))
        }
        for number in 0..<count { begin(number) }
    }

    private mutating func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &random))
    }
    private mutating func isOne(in count: Int) -> Bool { Int.random(in: 0..<count, using: &random) == 0 }

    private mutating func answer(_ number: Int, _ event: ClusterStateMachine.Event, after delay: Duration) {
        pending.append(
            Pending(at: now + delay, node: number, incarnation: nodes[number].member.incarnation, event: event))
    }

    private mutating func feed(_ number: Int, _ event: ClusterStateMachine.Event) {
        for action in nodes[number].machine.handle(event, at: now) { carryOut(action, of: number) }
    }

    private mutating func carryOut(_ action: ClusterStateMachine.Action, of number: Int) {
        let isHeard = now >= isLeaderless && now >= nodes[number].isCutOffUntil
        switch action {
        case .read:
            guard isHeard, !isOne(in: 30) else { return answer(number, .readFailed, after: milliseconds(1...1_000)) }
            answer(number, .read(lease, revision: revision), after: milliseconds(1...400))
        case .write(let new, let over):
            guard isHeard, !isOne(in: 30) else { return answer(number, .writeFailed, after: milliseconds(1...1_000)) }
            guard over == revision else { return answer(number, .refused, after: milliseconds(1...400)) }
            lease = new
            revision += 1
            // The answer may be lost.
            answer(number, isOne(in: 20) ? .writeFailed : .written(revision: revision), after: milliseconds(1...900))
        case .watch(_, let epoch): nodes[number].watched = epoch
        case .standBy: break
        case .catchUp(let epoch):
            nodes[number].epoch = epoch
            answer(number, .caughtUp, after: milliseconds(1...3_000))
        case .serve:
            nodes[number].serves = true
            epochs.append(nodes[number].epoch)
        case .released, .end: stop(number)
        }
    }

    /// The process ends.
    private mutating func stop(_ number: Int) {
        let (didServe, epoch) = (nodes[number].serves, nodes[number].epoch)
        (nodes[number].isRunning, nodes[number].serves) = (false, false)
        guard didServe else { return }
        for other in nodes.indices where nodes[other].isRunning && nodes[other].watched == epoch {
            answer(other, .portClosed(epoch: epoch), after: milliseconds(1...500))
        }
    }

    private mutating func begin(_ number: Int) {
        feed(number, .start)
        feed(number, .follows(true))
    }

    private mutating func start(_ number: Int) {
        nodes[number].member.incarnation += "'"
        nodes[number].machine = ClusterStateMachine(nodes[number].member, timers: timers)
        nodes[number].isRunning = true
        nodes[number].frozenUntil = .zero
        begin(number)
    }

    private mutating func disturb() {
        let number = Int.random(in: nodes.indices, using: &random)
        switch Int.random(in: 0..<9, using: &random) {
        case 0: nodes[number].isCutOffUntil = now + milliseconds(100...35_000)
        case 1: isLeaderless = now + milliseconds(100...9_000)
        case 2 where nodes[number].isRunning: nodes[number].frozenUntil = now + milliseconds(100...35_000)
        case 3 where nodes[number].isRunning && now >= nodes[number].frozenUntil: stop(number)
        case 4 where nodes[number].isRunning && now >= nodes[number].frozenUntil: feed(number, .release)
        case 5, 6, 7: if !nodes[number].isRunning { start(number) }
        default: break
        }
    }

    /// One step of 10 ms.
    mutating func step(disturbs: Bool) {
        now = now + .milliseconds(10)
        if disturbs, isOne(in: 150) { disturb() }
        for number in nodes.indices where nodes[number].isRunning && now >= nodes[number].frozenUntil {
            // What a node does first when it wakes: what is due, in any order.
            while true {
                let due = pending.indices.filter { index in
                    pending[index].node == number && pending[index].at <= now
                }
                guard let index = due.randomElement(using: &random) else { break }
                let item = pending.remove(at: index)
                if item.incarnation == nodes[number].member.incarnation, nodes[number].isRunning {
                    feed(number, item.event)
                }
            }
            if nodes[number].isRunning, let deadline = nodes[number].machine.nextDeadline, now >= deadline {
                feed(number, .deadline)
            }
        }
        // A frozen process sends nothing, and looks at its clock before anything else. One that hands over lets its bursts end.
        let serving = nodes.indices.filter { number in
            nodes[number].serves && now >= nodes[number].frozenUntil && !nodes[number].machine.isReleasing
        }
        if serving.count > 1 { problem = "\(serving) serve at \(now)" }
        if serving.count == 1 { servedFor += .milliseconds(10) }
    }

    mutating func endFaults() {
        isLeaderless = .zero
        for number in nodes.indices {
            (nodes[number].isCutOffUntil, nodes[number].frozenUntil) = (.zero, .zero)
            if !nodes[number].isRunning { start(number) }
        }
    }

    var servingCount: Int { nodes.count { $0.serves } }
}

@Suite struct ClusterSimulationTests {
    @Test func `two nodes never serve at a time, and one does when nothing is wrong any more`() {
        let seed = SeededGenerator.seed()
        for number in 0..<80 {
            var world = ClusterWorld(seed: seed &+ UInt64(number), nodes: 2 + number % 3)
            for _ in 0..<12_000 {
                world.step(disturbs: true)
                if let problem = world.problem {
                    Issue.record("seed \(seed &+ UInt64(number)): \(problem)")
                    return
                }
            }
            world.endFaults()
            for _ in 0..<4_500 { world.step(disturbs: false) }
            #expect(world.servingCount == 1, "seed \(seed &+ UInt64(number))")
            #expect(world.epochs == world.epochs.sorted(), "epochs only grow")
            #expect(world.servedFor > .seconds(20), "seed \(seed &+ UInt64(number)): \(world.servedFor)")
        }
    }

    @Test func `a holder that ends too late would be found`() {
        let seed = SeededGenerator.seed()
        var timers = ClusterStateMachine.Timers()
        timers.margin = .seconds(-30)
        let isFound = (0..<80).contains { number in
            var world = ClusterWorld(seed: seed &+ UInt64(number), nodes: 3, timers: timers)
            for _ in 0..<12_000 where world.problem == nil { world.step(disturbs: true) }
            return world.problem != nil
        }
        #expect(isFound)
    }
}
