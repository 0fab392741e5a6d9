// The floor against random members: what must hold after every one of many steps.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

/// What an onlooker that only sees the actions believes.
private struct Model {
    private(set) var holder: FloorControlStateMachine.Request?
    private(set) var unanswered: [FloorControlStateMachine.Request: Instant] = [:]
    private(set) var granted = 0
    private(set) var denied = 0
    private(set) var queued: [FloorControlStateMachine.Request: Int] = [:]
    private(set) var grantedFromQueue = 0
    private(set) var ended = 0

    mutating func asked(_ request: FloorControlStateMachine.Request, at now: Instant) {
        if holder != request { unanswered[request] = now }
    }

    mutating func withdrew(_ ssrc: SSRC, _ requestID: FloorRequestID) {
        unanswered = unanswered.filter { $0.key.ssrc != ssrc || $0.key.requestID != requestID }
        queued = queued.filter { $0.key.ssrc != ssrc || $0.key.requestID != requestID }
    }

    mutating func left(_ ssrc: SSRC) {
        unanswered = unanswered.filter { $0.key.ssrc != ssrc }
        queued = queued.filter { $0.key.ssrc != ssrc }
    }

    /// Everybody who waits has a place of their own, known to them, with no gap and by what they matter.
    func isQueueConsistent(allowingHeld isReleasing: Bool) -> Bool {
        let places = queued.sorted { $0.value < $1.value }
        let first = isReleasing ? [1, 2] : [1]
        guard places.isEmpty || first.contains(places[0].value) else { return false }
        for (earlier, later) in zip(places, places.dropFirst()) {
            guard later.value == earlier.value + 1, later.key.priority <= earlier.key.priority else { return false }
        }
        return true
    }

    mutating func observe(_ actions: [FloorControlStateMachine.Action]) {
        for action in actions {
            switch action {
            case .grant(let request, _):
                #expect(holder == nil || holder == request, "two members hold the floor")
                if holder == nil { granted += 1 }
                if let place = queued.removeValue(forKey: request) {
                    // Whoever was before it may have left in the same moment.
                    #expect(place <= 2, "somebody was passed over")
                    grantedFromQueue += 1
                }
                holder = request
                unanswered[request] = nil
            case .deny(let request, let holder):
                #expect(self.holder?.ssrc == holder)
                #expect(self.holder != request, "the holder is denied its own floor")
                denied += 1
                unanswered[request] = nil
                queued[request] = nil
            case .queueFull: Issue.record("a queue of \(queued.count) is full")
            case .queued(let request, let position):
                queued[request] = position
                unanswered[request] = nil
            case .taken(let request): #expect(holder == request)
            case .revoke(let request, _): #expect(holder == request)
            case .idle(let ssrc, let last, let summary):
                #expect(holder?.ssrc == ssrc, "a floor ends that nobody held")
                #expect((last == nil) == (summary.firstMediaAt == nil))
                holder = nil
                ended += 1
            }
        }
    }
}

@Suite struct FloorControlModelTests {
    private static let steps = 200_000
    private static let members = (1...5).map { SSRC(rawValue: UInt32($0)) }

    @Test(arguments: [false, true])
    func `never two holders, every burst ends, every request is answered`(hasQueue: Bool) {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var machine = FloorControlStateMachine(hasQueue: hasQueue)
        var model = Model()
        var now = Instant(nanoseconds: 1)
        var numbers: [SSRC: UInt32] = [:]
        var sequence: UInt16 = 65_000

        for _ in 0..<Self.steps {
            now = now + .milliseconds(Int.random(in: 0...(random.chance(2) ? 6_000 : 40), using: &random))
            while let due = machine.nextDeadline, due <= now {
                model.observe(machine.handle(.deadline, at: due))
                #expect(machine.nextDeadline.map { $0 > due } ?? true, "a deadline does not pass; seed \(seed)")
            }
            let ssrc = Self.members.randomElement(using: &random)!
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<25:
                // Now and then the same request once more.
                if !random.chance(20) || numbers[ssrc] == nil { numbers[ssrc, default: 0] += 1 }
                let number = numbers[ssrc]!
                let request = FloorControlStateMachine.Request(
                    ssrc: ssrc, requestID: FloorRequestID(rawValue: number),
                    keyID: UInt64(ssrc.rawValue) << 32 | UInt64(number), priority: number % 7 == 0 ? 255 : 0,
                    mayQueue: number % 5 != 0)
                let isRepeated = machine.isUnderWay(request)
                if !isRepeated { model.asked(request, at: now) }
                model.observe(machine.handle(.request(request), at: now))
            case 25..<80:
                guard let holder = machine.holder, !random.chance(10) else {
                    let decision = machine.media(ssrc: ssrc, keyID: 0, sequence: sequence, marker: true, at: now)
                    #expect(decision == .noFloor || decision == .wrongKeyID)
                    continue
                }
                sequence &+= random.chance(10) ? 2 : 1
                let late = random.chance(10) ? sequence &- 3 : sequence
                let decision = machine.media(
                    ssrc: holder.ssrc, keyID: holder.keyID, sequence: late, marker: random.chance(50), at: now)
                if case .forward(_, true) = decision { model.observe(machine.handle(.deadline, at: now)) }
                #expect(decision != .noFloor && decision != .wrongKeyID)
            case 80..<95:
                let requestID = FloorRequestID(rawValue: numbers[ssrc] ?? 1)
                let last: UInt16? = random.chance(80) ? sequence &+ UInt16(random.chance(30) ? 2 : 0) : nil
                model.withdrew(ssrc, requestID)
                model.observe(
                    machine.handle(.release(ssrc: ssrc, requestID: requestID, lastSequence: last), at: now))
            default:
                model.left(ssrc)
                model.observe(machine.handle(.left(ssrc: ssrc), at: now))
            }
            #expect(machine.holder == model.holder, "seed \(seed)")
            #expect(model.isQueueConsistent(allowingHeld: machine.holder != nil), "\(model.queued); seed \(seed)")
            #expect(machine.holder != nil || model.queued.isEmpty, "somebody waits for a free floor; seed \(seed)")
            #expect(model.queued.keys.allSatisfy { machine.isUnderWay($0) }, "one was forgotten; seed \(seed)")
            for (request, askedAt) in model.unanswered {
                #expect(now - askedAt <= .milliseconds(6_500), "\(request) is not answered; seed \(seed)")
                #expect(machine.isUnderWay(request), "\(request) was forgotten; seed \(seed)")
            }
        }
        // Left alone, the floor becomes idle by its own deadlines.
        while let due = machine.nextDeadline { model.observe(machine.handle(.deadline, at: due)) }
        #expect(machine.holder == nil)
        #expect(model.unanswered.isEmpty)
        #expect(model.granted == model.ended)
        #expect(model.queued.isEmpty)
        #expect(hasQueue ? model.grantedFromQueue > 1_000 : model.grantedFromQueue == 0)
        #expect(model.granted > 1_000 && model.denied > 1_000, "the model did not explore: \(model)")
    }
}
