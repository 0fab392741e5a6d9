// The floor against random members behind a bad network: what must hold after every one of many steps.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct FloorControlModelTests {
    private static let steps = 40_000
    private static let rules = [
        FloorRules(), FloorRules(hasQueue: true), FloorRules(hasQueue: true, preemptionStep: 10),
        FloorRules(mode: .fullDuplex), FloorRules(mode: .fullDuplex, hasQueue: true, preemptionStep: 1),
        FloorRules(mode: .cutIn),
    ]

    @Test(arguments: rules)
    func `never too many holders, nobody starves or is stuck, whoever waits knows it, every grant ends`(
        rules: FloorRules
    ) {
        let seed = SeededGenerator.seed()
        var world = FloorWorld(rules: rules, seed: seed)
        for _ in 0..<Self.steps { world.step() }
        // Left alone, the floor becomes idle by its own deadlines, and whoever waits has it before that.
        world.drain()
        let model = world.model
        #expect(world.machine.holders.isEmpty && model.onFloor.isEmpty, "seed \(seed)")
        #expect(world.machine.waiting.isEmpty && model.pending.isEmpty, "seed \(seed)")
        #expect(model.granted == model.ended, "seed \(seed)")
        // The model has been everywhere.
        #expect(model.granted > 500 && model.denied > 50 && model.emergencies > 25, "\(model)")
        #expect(model.mostTalkers == rules.talkersMaximum, "\(model)")
        // In full duplex emergencies alone seldom find the floor full.
        #expect(rules == FloorRules(mode: .fullDuplex) || model.preempted > 20, "\(model)")
        #expect(rules.queues ? model.fromQueue > 100 : model.fromQueue == 0, "\(model)")
        #expect(model.renewed.granted > 20, "\(model)")
        #expect(rules.queues ? model.renewed.waiting > 100 : true, "\(model)")
        #expect(world.lateDropped > 100 && world.duplicates > 100, "the network was too good")
    }
}

extension FloorControlModelTests {
    @Test func `rules that change at any time begin to hold between two bursts, and nobody is forgotten for it`() {
        let seed = SeededGenerator.seed()
        var world = FloorWorld(rules: FloorRules(), seed: seed)
        world.otherRules = Self.rules
        for _ in 0..<Self.steps { world.step() }
        world.drain()
        let model = world.model
        #expect(world.machine.holders.isEmpty && model.onFloor.isEmpty, "seed \(seed)")
        #expect(world.machine.waiting.isEmpty && model.pending.isEmpty, "seed \(seed)")
        #expect(model.granted == model.ended, "seed \(seed)")
        #expect(model.rules == world.machine.rules, "seed \(seed)")
        #expect(model.ruleChanges > 20 && model.fromQueue > 20 && model.preempted > 20, "\(model)")
    }
}

/// Members that press, talk, let go and vanish; a network that loses, doubles and reorders what they send.
private struct FloorWorld {
    enum Message {
        case request(FloorRequest)
        case release(SSRC, FloorRequestID, last: UInt16?)
        case media(FloorRequest, UInt16, marker: Bool)
        case left(SSRC)
    }

    static let members = (1...9).map { SSRC(rawValue: UInt32($0)) }
    let seed: UInt64
    var random: SeededGenerator
    var machine: FloorControlStateMachine
    var model: FloorModel
    var now = Instant(nanoseconds: 1)
    var onTheWay: [(at: Instant, Message)] = []
    var numbers: [SSRC: UInt32] = [:]
    var lastTaken: [SSRC: FloorRequestID] = [:]
    var sequences: [SSRC: UInt16] = [:]
    var epoch: UInt64 = 0
    var lateDropped = 0
    var duplicates = 0
    /// What the operator changes the rules to, now and then.
    var otherRules: [FloorRules] = []

    init(rules: FloorRules, seed: UInt64) {
        self.seed = seed
        random = SeededGenerator(seed: seed)
        machine = FloorControlStateMachine(rules: rules)
        model = FloorModel(rules: rules)
    }

    mutating func send(_ message: Message) {
        if random.chance(4) { return }
        let copies = random.chance(6) ? 2 : 1
        duplicates += copies - 1
        for _ in 0..<copies {
            let delay = Int.random(in: 0...(random.chance(20) ? 400 : 20), using: &random)
            onTheWay.append((now + .milliseconds(delay), message))
        }
    }

    mutating func step() {
        act()
        now = now + .milliseconds(Int.random(in: 0...(random.chance(1) ? 6_000 : 30), using: &random))
        // What is on the way arrives in the order of its delays, the floor's own deadlines between.
        while let next = onTheWay.indices.min(by: { onTheWay[$0].at < onTheWay[$1].at }), onTheWay[next].at <= now {
            let (at, message) = onTheWay.remove(at: next)
            passDeadlines(until: at)
            arrive(message, at: at)
            model.check(machine, at: at, seed)
        }
        passDeadlines(until: now)
        model.check(machine, at: now, seed)
    }

    mutating func drain() {
        onTheWay = []
        while let due = machine.nextDeadline {
            model.observe(machine.handle(.deadline, at: due))
            model.check(machine, at: due, seed)
        }
    }

    mutating func passDeadlines(until limit: Instant) {
        while let due = machine.nextDeadline, due <= limit {
            model.observe(machine.handle(.deadline, at: due))
            if let next = machine.nextDeadline, next <= due {
                Issue.record("a deadline does not pass; seed \(seed)")
                return
            }
        }
    }

    /// Somebody does something.
    mutating func act() {
        if !otherRules.isEmpty, random.chance(2), let rules = otherRules.randomElement(using: &random) {
            model.observe(machine.handle(.rules(rules), at: now))
        }
        guard let ssrc = Self.members.randomElement(using: &random) else { return }
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<22:
            let number = numbers[ssrc, default: 0] + 1
            numbers[ssrc] = number
            let priority: UInt8 = random.chance(4) ? 255 : UInt8(ssrc.rawValue / 3 * 10)
            let keyID = UInt64(ssrc.rawValue) << 32 | UInt64(number)
            send(
                .request(
                    FloorRequest(
                        ssrc: ssrc, requestID: FloorRequestID(rawValue: number), keyID: keyID, priority: priority,
                        mayQueue: !random.chance(15))))
        case 22..<76:
            guard let holder = machine.holders.randomElement(using: &random) else { return }
            let sequence = sequences[holder.ssrc, default: 65_000]
            sequences[holder.ssrc] = sequence &+ 1
            send(.media(holder, sequence, marker: random.chance(10)))
        case 76..<96:
            // Who talks, who waits, or somebody with nothing to give back.
            let requests = machine.holders + machine.waiting
            guard let request = requests.randomElement(using: &random) else { return }
            let last = sequences[request.ssrc].map { $0 &- 1 }
            send(.release(request.ssrc, request.requestID, last: random.chance(15) ? nil : last))
        case 96..<99:
            // The media key is renewed: who waits asks once more under the new one, though the grant may be on its way.
            let requests = machine.waiting + machine.holders.filter { model.onFloor[$0]?.forwarded.isEmpty ?? false }
            guard var request = requests.randomElement(using: &random) else { return }
            epoch += 1
            numbers[request.ssrc, default: 0] += 1
            request.requestID = FloorRequestID(rawValue: numbers[request.ssrc, default: 0])
            request.keyID = epoch << 48 | UInt64(request.ssrc.rawValue) << 32 | UInt64(request.requestID.rawValue)
            send(.request(request))
        default: send(.left(ssrc))
        }
    }

    mutating func arrive(_ message: Message, at now: Instant) {
        switch message {
        case .request(let request):
            // As the relay does: only a newer request, or one under way once more.
            if !machine.isUnderWay(request) {
                guard request.requestID > lastTaken[request.ssrc] ?? FloorRequestID(rawValue: 0) else {
                    lateDropped += 1
                    return
                }
                lastTaken[request.ssrc] = request.requestID
                model.asked(request, at: now)
            }
            model.observe(machine.handle(.request(request), at: now))
        case .release(let ssrc, let requestID, let last):
            model.withdrew(ssrc, requestID)
            model.released(ssrc, requestID)
            model.observe(machine.handle(.release(ssrc: ssrc, requestID: requestID, lastSequence: last), at: now))
        case .media(let request, let sequence, let marker):
            let decision = machine.media(
                ssrc: request.ssrc, keyID: request.keyID, sequence: sequence, marker: marker, at: now)
            let isOnFloor = model.onFloor[request] != nil
            switch decision {
            case .forward(_, let endsBurst):
                model.forwarded(request, sequence)
                if endsBurst { model.observe(machine.handle(.deadline, at: now)) }
            case .drop(.noFloor) where model.onFloor.keys.contains { $0.ssrc == request.ssrc },
                .drop(.wrongKeyID) where isOnFloor, .drop(.duplicate) where !isOnFloor,
                .drop(.afterRelease) where !isOnFloor:
                Issue.record("\(decision) for \(request); seed \(seed)")
            case .drop: break
            }
        case .left(let ssrc):
            model.withdrew(ssrc)
            model.observe(machine.handle(.left(ssrc: ssrc), at: now))
        }
    }
}
