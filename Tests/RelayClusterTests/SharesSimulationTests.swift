// Several relays that all serve and their table, with everything that can go wrong between them, from a seed: never do two grant the floor
// of one channel, and in the end each channel has one relay.
import MonotonicTime
import TestSupport
import Testing

@testable import RelayCluster

/// The table as JetStream keeps it, and relays that are cut off, frozen, killed, ended in good order and started again, while people talk.
private struct SharesWorld {
    static let shares = 8
    static let channelsEach = 2

    /// A channel at a relay.
    struct Place {
        var isPaused = false
        var isMoving = false
        /// Somebody talks until then.
        var burstEnd: Instant?
        /// When its members have gone to another relay.
        var goneAt: Instant?
    }

    struct Node {
        var machine: SharesStateMachine
        var member: ClusterMember
        var isRunning = true
        var frozenUntil = Instant.zero
        var isCutOffUntil = Instant.zero
        /// It reaches the other relays, and not the table.
        var hasNoTableUntil = Instant.zero
        var places: [String: Place] = [:]
        /// Channels whose floors other relays still have.
        var held: Set<String> = []
        var pausedShares: Set<Int> = []
        var watched: [String: String] = [:]
        var endsAt: Instant?
        /// The relay that writes the records, as far as this one knows.
        var writer: String?
        var isReleasing = false
    }

    struct Pending {
        var at: Instant
        var node: Int
        var incarnation: String
        var event: SharesStateMachine.Event
    }

    /// What relays of this world do not do.
    enum Neglect { case nothing, pausing, holding, voting }

    let timers: SharesStateMachine.Timers
    let neglect: Neglect
    var random: SeededGenerator
    var now = Instant.zero
    var nodes: [Node] = []
    var pending: [Pending] = []
    /// Questions of relays to each other.
    struct Question {
        var at: Instant
        var asked: String
        var asker: String
        var what: ShareVotes.Question
        var sent: Instant
    }

    var questions: [Question] = []
    /// Relays that were removed while their process was there.
    var removed = 0
    /// Relays that have ended because they could not renew their entry.
    var lost = 0
    /// Pauses that take effect in a moment.
    var pauses: [(at: Instant, node: Int, incarnation: String, shares: [Int])] = []
    var table: ShareTable?
    var revision: UInt64 = 0
    var isLeaderless = Instant.zero
    /// Of the relay that has begun to write the records last.
    var writerEpoch: UInt64 = 0
    var bursts = 0
    var moves = 0
    var problem: String?

    init(
        seed: UInt64, nodes count: Int, timers: SharesStateMachine.Timers = .init(), neglect: Neglect = .nothing
    ) {
        self.timers = timers
        self.neglect = neglect
        random = SeededGenerator(seed: seed)
        for number in 0..<count {
            let member = ClusterMember(
                node: "n\(number)", identifier: "i\(number)", incarnation: "r\(number)", place: "p\(number):1")
            nodes.append(Node(machine: Self.machine(member, timers), member: member))
        }
        for number in 0..<count { begin(number) }
    }

    private static func machine(
        _ member: ClusterMember, _ timers: SharesStateMachine.Timers
    ) -> SharesStateMachine { SharesStateMachine(member, shares: shares, timers: timers) }

    static func channels(of share: Int) -> [String] { (0..<channelsEach).map { "c\(share).\($0)" } }

    private mutating func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &random))
    }
    private mutating func isOne(in count: Int) -> Bool { Int.random(in: 0..<count, using: &random) == 0 }

    private mutating func answer(_ number: Int, _ event: SharesStateMachine.Event, after delay: Duration) {
        pending.append(
            Pending(at: now + delay, node: number, incarnation: nodes[number].member.incarnation, event: event))
    }

    private mutating func feed(_ number: Int, _ event: SharesStateMachine.Event) {
        for action in nodes[number].machine.handle(event, at: now) where nodes[number].isRunning {
            carryOut(action, of: number)
        }
    }

    private mutating func carryOut(_ action: SharesStateMachine.Action, of number: Int) {
        let reached = max(isLeaderless, nodes[number].isCutOffUntil, nodes[number].hasNoTableUntil)
        let isHeard = now >= reached
        switch action {
        case .read:
            guard isHeard, !isOne(in: 40) else { return answer(number, .readFailed, after: milliseconds(1...1_000)) }
            answer(number, .read(table, revision: revision), after: milliseconds(1...100))
        case .write(let new, let over):
            guard isHeard, !isOne(in: 40) else { return answer(number, .writeFailed, after: milliseconds(1...1_000)) }
            guard over == revision else { return answer(number, .refused, after: milliseconds(1...100)) }
            table = new
            revision += 1
            answer(number, isOne(in: 20) ? .writeFailed : .written(revision: revision), after: milliseconds(1...300))
        case .watch(let places): nodes[number].watched = places
        case .take(let share, let held):
            if neglect != .holding { nodes[number].held.formUnion(held) }
            for channel in Self.channels(of: share) {
                if nodes[number].places[channel]?.isMoving == true { continue }
                nodes[number].places[channel] = Place(isPaused: nodes[number].held.contains(channel))
            }
        case .unhold(let channels):
            nodes[number].held.subtract(channels)
            for channel in channels { nodes[number].places[channel]?.isPaused = false }
        case .pause(let shares):
            nodes[number].pausedShares.formUnion(shares)
            let delay = milliseconds(1...30)
            pauses.append((now + delay, number, nodes[number].member.incarnation, shares))
        case .resume(let shares):
            nodes[number].pausedShares.subtract(shares)
            for channel in shares.flatMap(Self.channels) { nodes[number].places[channel]?.isPaused = false }
        case .move(let share, _):
            moves += 1
            nodes[number].held.subtract(Self.channels(of: share))
            nodes[number].pausedShares.remove(share)
            for channel in Self.channels(of: share) {
                nodes[number].places[channel]?.isMoving = true
                if nodes[number].places[channel]?.burstEnd == nil {
                    nodes[number].places[channel]?.goneAt = now + .milliseconds(500)
                }
            }
        case .askForPromises(let others): ask(.promise, others, number)
        case .askForConsent(let relay, let others): ask(.consent(to: relay), others, number)
        case .places: break
        case .writer(let member, let epoch): writes(member?.incarnation, in: epoch, number)
        case .released: nodes[number].endsAt = now + .seconds(10)
        case .end(let reason):
            switch reason {
            case .removed: removed += 1
            case .leaseLost: lost += 1
            case .tooMany, .forked: break
            }
            stop(number)
        }
    }

    private mutating func writes(_ writer: String?, in epoch: UInt64, _ number: Int) {
        let own = nodes[number].member.incarnation
        if writer == own {
            if epoch <= writerEpoch { problem = "\(own) writes the records in epoch \(epoch), after \(writerEpoch)" }
            writerEpoch = epoch
        } else if nodes[number].writer == own, !nodes[number].isReleasing {
            problem = "\(own) writes the records no more, and goes on"
        }
        nodes[number].writer = writer
    }

    private mutating func ask(_ what: ShareVotes.Question, _ others: [String], _ number: Int) {
        guard now >= nodes[number].isCutOffUntil else { return }
        for other in others where !isOne(in: 10) {
            questions.append(
                Question(
                    at: now + milliseconds(1...200), asked: other, asker: nodes[number].member.incarnation, what: what,
                    sent: now))
        }
    }

    /// What relays are asked, and answer.
    private mutating func answerQuestions(_ number: Int) {
        let incarnation = nodes[number].member.incarnation
        let due = questions.filter { $0.asked == incarnation && $0.at <= now }
        questions.removeAll { $0.asked == incarnation && $0.at <= now }
        guard now >= nodes[number].isCutOffUntil else { return }
        for question in due {
            let isGranted = nodes[number].machine.answer(question.what, of: question.asker, at: now)
            guard isGranted || neglect == .voting,
                let asker = nodes.indices.first(where: { nodes[$0].member.incarnation == question.asker }),
                !isOne(in: 10)
            else { continue }
            let event: SharesStateMachine.Event =
                switch question.what {
                case .promise: .promised(by: incarnation, askedAt: question.sent)
                case .consent(let relay): .consented(by: incarnation, to: relay)
                }
            answer(asker, event, after: milliseconds(1...200))
        }
    }

    private mutating func pause(_ number: Int, _ shares: [Int]) {
        var busy: [Int: Set<String>] = [:]
        for share in shares {
            for channel in Self.channels(of: share) where nodes[number].places[channel] != nil {
                if nodes[number].places[channel]?.burstEnd != nil {
                    busy[share, default: []].insert(channel)
                } else if neglect != .pausing {
                    nodes[number].places[channel]?.isPaused = true
                }
            }
        }
        answer(number, .paused(busy), after: milliseconds(1...20))
    }

    /// The process ends.
    private mutating func stop(_ number: Int) {
        let incarnation = nodes[number].member.incarnation
        (nodes[number].isRunning, nodes[number].places, nodes[number].endsAt) = (false, [:], nil)
        (nodes[number].writer, nodes[number].isReleasing) = (nil, false)
        (nodes[number].held, nodes[number].pausedShares) = ([], [])
        for other in nodes.indices where nodes[other].isRunning && nodes[other].watched[incarnation] != nil {
            answer(other, .portClosed(incarnation: incarnation), after: milliseconds(1...500))
        }
    }

    private mutating func begin(_ number: Int) {
        feed(number, .start)
        feed(number, .follows(true))
    }

    private mutating func start(_ number: Int) {
        nodes[number].member.incarnation += "'"
        nodes[number].machine = Self.machine(nodes[number].member, timers)
        (nodes[number].isRunning, nodes[number].frozenUntil) = (true, .zero)
        begin(number)
    }

    private mutating func disturb() {
        let number = Int.random(in: nodes.indices, using: &random)
        let isAwake = nodes[number].isRunning && now >= nodes[number].frozenUntil
        switch Int.random(in: 0..<11, using: &random) {
        case 0: nodes[number].isCutOffUntil = now + milliseconds(100...35_000)
        case 1: isLeaderless = now + milliseconds(100...9_000)
        case 2 where isAwake: nodes[number].frozenUntil = now + milliseconds(100...35_000)
        case 3 where isAwake: stop(number)
        case 4, 5:
            if isAwake {
                nodes[number].isReleasing = true
                feed(number, .release)
            }
        case 9: nodes[number].hasNoTableUntil = now + milliseconds(100...25_000)
        case 6, 7, 8: if !nodes[number].isRunning { start(number) }
        default: break
        }
    }

    /// People talk, and stop.
    private mutating func talk(_ number: Int) {
        for (channel, place) in nodes[number].places.sorted(by: { $0.key < $1.key }) {
            if let end = place.burstEnd, now >= end {
                nodes[number].places[channel]?.burstEnd = nil
                if place.isMoving { nodes[number].places[channel]?.goneAt = now + .milliseconds(500) }
            }
            if let gone = place.goneAt, now >= gone {
                nodes[number].places[channel] = nil
                let share = Int(channel.dropFirst().prefix { $0 != "." }) ?? 0
                // Its relay may have got it back meanwhile.
                if nodes[number].machine.shares.contains(share) {
                    let isPaused = nodes[number].held.contains(channel) || nodes[number].pausedShares.contains(share)
                    nodes[number].places[channel] = Place(isPaused: isPaused)
                }
                answer(number, .left(channel), after: milliseconds(1...20))
            }
        }
        guard isOne(in: 12), let channel = nodes[number].places.keys.sorted().randomElement(using: &random),
            let place = nodes[number].places[channel], !place.isPaused, !place.isMoving, place.burstEnd == nil
        else { return }
        bursts += 1
        for other in nodes.indices where other != number && nodes[other].isRunning && now >= nodes[other].frozenUntil {
            if nodes[other].places[channel]?.burstEnd != nil {
                problem =
                    "\(nodes[number].member.node) grants the floor of \(channel) at \(now), which \(nodes[other].member.node) has"
            }
        }
        let end = now + milliseconds(300...4_000)
        nodes[number].places[channel]?.burstEnd = end
    }

    /// One step of 10 ms.
    mutating func step(disturbs: Bool) {
        now = now + .milliseconds(10)
        if disturbs, isOne(in: 150) { disturb() }
        // As a service manager does.
        if !disturbs { for number in nodes.indices where !nodes[number].isRunning { start(number) } }
        for number in nodes.indices where nodes[number].isRunning && now >= nodes[number].frozenUntil {
            while true {
                let due = pending.indices.filter { pending[$0].node == number && pending[$0].at <= now }
                guard let index = due.randomElement(using: &random) else { break }
                let item = pending.remove(at: index)
                if item.incarnation == nodes[number].member.incarnation, nodes[number].isRunning {
                    feed(number, item.event)
                }
            }
            if nodes[number].isRunning, let deadline = nodes[number].machine.nextDeadline, now >= deadline {
                feed(number, .deadline)
            }
            if nodes[number].isRunning { answerQuestions(number) }
            for pause in pauses where pause.node == number && pause.at <= now && nodes[number].isRunning {
                if pause.incarnation == nodes[number].member.incarnation { self.pause(number, pause.shares) }
            }
            pauses.removeAll { $0.node == number && $0.at <= now }
            if let end = nodes[number].endsAt, now >= end { stop(number) }
        }
        // A process that was frozen looks at its clock before anything else.
        for number in nodes.indices where nodes[number].isRunning && now >= nodes[number].frozenUntil { talk(number) }
    }

    mutating func endFaults() {
        isLeaderless = .zero
        for number in nodes.indices {
            (nodes[number].isCutOffUntil, nodes[number].frozenUntil) = (.zero, .zero)
            nodes[number].hasNoTableUntil = .zero
        }
    }

    /// What is not as it is to be when all is well.
    var remains: [String] {
        var remains: [String] = []
        for share in 0..<Self.shares {
            let owners = nodes.filter { $0.isRunning && $0.machine.shares.contains(share) }
            if owners.count != 1 { remains.append("share \(share) has \(owners.count) owners") }
            for channel in Self.channels(of: share) where owners.first?.places[channel].map(\.isPaused) ?? true {
                remains.append("nobody can talk on \(channel)")
            }
        }
        let writers = Set(nodes.map(\.writer))
        if writers.count != 1 || !nodes.contains(where: { $0.isRunning && $0.member.incarnation == writers.first }) {
            remains.append("not one relay writes the records: \(writers)")
        }
        let counts = nodes.map(\.machine.shares.count)
        if let most = counts.max(), let least = counts.min(), most - least > 2 { remains.append("unequal: \(counts)") }
        return remains
    }
}

@Suite struct SharesSimulationTests {
    @Test func `no two relays grant the floor of one channel, and each channel has one when nothing is wrong any more`()
    {
        let seed = SeededGenerator.seed()
        var (bursts, moves) = (0, 0)
        for number in 0..<40 {
            var world = SharesWorld(seed: seed &+ UInt64(number), nodes: 2 + number % 4)
            for _ in 0..<12_000 {
                world.step(disturbs: true)
                if let problem = world.problem {
                    Issue.record("seed \(seed &+ UInt64(number)): \(problem)")
                    return
                }
            }
            world.endFaults()
            for _ in 0..<5_500 { world.step(disturbs: false) }
            #expect(world.remains.isEmpty, "seed \(seed &+ UInt64(number))")
            (bursts, moves) = (bursts + world.bursts, moves + world.moves)
        }
        #expect(bursts > 8_000 && moves > 200, "\(bursts) bursts, \(moves) moves")
    }

    /// Three relays with as many shares each.
    private func settled() -> SharesWorld {
        var world = SharesWorld(seed: SeededGenerator.seed(), nodes: 3)
        for _ in 0..<1_500 { world.step(disturbs: false) }
        #expect(world.remains.isEmpty)
        return world
    }

    @Test func `a relay that is frozen is removed early, and ends when it wakes`() {
        var world = settled()
        let began = world.now
        let writer = world.nodes[0].writer
        let frozen = world.nodes.firstIndex { $0.member.incarnation == writer } ?? 0
        world.nodes[frozen].frozenUntil = began + .seconds(60)
        let others = [0, 1, 2].filter { $0 != frozen }
        func isTakenOver() -> Bool {
            let (one, other) = (world.nodes[others[0]], world.nodes[others[1]])
            return one.machine.shares.count + other.machine.shares.count == 8 && one.writer == other.writer
                && one.writer != writer
        }
        while !isTakenOver(), world.now < began + .seconds(30) { world.step(disturbs: false) }
        #expect(world.now - began > .seconds(6) && world.now - began < .seconds(12), "\(world.now - began)")
        while world.now < began + .seconds(61) { world.step(disturbs: false) }
        #expect(world.removed + world.lost == 1 && world.problem == nil)
    }

    @Test func `relays go on while nobody can write, with the promises of a majority, and not without`() {
        var world = settled()
        world.isLeaderless = world.now + .seconds(13)
        let end = world.now + .seconds(20)
        while world.now < end { world.step(disturbs: false) }
        #expect(world.removed + world.lost == 0, "all three go on")
        // One of three has ended as well, with the server that leads.
        world = settled()
        world.isLeaderless = world.now + .seconds(13)
        world.nodes[2].frozenUntil = world.now + .seconds(60)
        let later = world.now + .seconds(35)
        func areTakenOver() -> Bool { world.nodes[0].machine.shares.count + world.nodes[1].machine.shares.count == 8 }
        while !areTakenOver(), world.now < later { world.step(disturbs: false) }
        #expect(world.removed + world.lost == 0, "two of three go on")
        #expect(areTakenOver(), "and serve what the third one did")
        // Two have.
        world = settled()
        world.isLeaderless = world.now + .seconds(13)
        for number in 1...2 { world.nodes[number].frozenUntil = world.now + .seconds(30) }
        let soon = world.now + .seconds(8)
        while world.now < soon { world.step(disturbs: false) }
        #expect(world.lost == 1 && world.problem == nil, "one of three does not know what the others do")
    }

    private func isFound(
        _ timers: SharesStateMachine.Timers = .init(), _ neglect: SharesWorld.Neglect = .nothing, nodes: Int = 3
    ) -> Bool {
        let seed = SeededGenerator.seed()
        return (0..<80).contains { number in
            var world = SharesWorld(seed: seed &+ UInt64(number), nodes: nodes, timers: timers, neglect: neglect)
            for _ in 0..<12_000 where world.problem == nil { world.step(disturbs: true) }
            return world.problem != nil
        }
    }

    @Test func `a relay that ends too late would be found`() {
        var timers = SharesStateMachine.Timers()
        timers.margin = .seconds(-30)
        #expect(isFound(timers))
    }

    @Test func `floors that are granted while a share moves would be found`() {
        #expect(isFound(.init(), .voting, nodes: 5))
        #expect(isFound(.init(), .pausing))
        #expect(isFound(.init(), .holding))
    }
}
