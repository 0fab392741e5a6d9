// What an onlooker believes of a floor who sees only what comes out of it, and what must hold after every step.
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayServer

typealias FloorRequest = FloorControlStateMachine.Request

extension FloorRequest {
    /// A request of a member with one connection, whose source tells who it is.
    init(ssrc: SSRC, requestID: FloorRequestID, keyID: UInt64, priority: UInt8 = 0, mayQueue: Bool = false) {
        let number = withUnsafeBytes(of: ssrc.rawValue.bigEndian) { [UInt8]($0) }
        guard let member = MemberID(bytes: [UInt8](repeating: 0, count: 12) + number) else {
            preconditionFailure("a member has 16 bytes")
        }
        self.init(
            ssrc: ssrc, member: member, requestID: requestID, keyID: keyID, priority: priority, mayQueue: mayQueue)
    }
}

/// The floor as its members see it.
struct FloorModel {
    private(set) var rules: FloorRules
    private(set) var ruleChanges = 0
    /// Who has the floor, and whether the burst is ending; and what has been forwarded of it.
    private(set) var onFloor: [FloorRequest: (isEnding: Bool, forwarded: Set<UInt16>)] = [:]
    /// Who asked and has neither the floor nor a refusal: when, and the place that it was told.
    private(set) var pending: [FloorRequest: (arrival: Int, at: Instant, place: Int?)] = [:]
    private(set) var granted = 0
    private(set) var ended = 0
    private(set) var denied = 0
    private(set) var fromQueue = 0
    private(set) var preempted = 0
    private(set) var emergencies = 0
    private(set) var mostTalkers = 0
    /// Requests that came once more under another media key: of those who waited, and of those granted meanwhile.
    private(set) var renewed = (waiting: 0, granted: 0)
    private var arrivals = 0
    /// Has the floor already, in its older form.
    private var keepsFloor: FloorRequest?

    init(rules: FloorRules) { self.rules = rules }

    mutating func asked(_ request: FloorRequest, at now: Instant) {
        if let older = pending.keys.first(where: { request.renews($0) }), let its = pending.removeValue(forKey: older) {
            renewed.waiting += 1
            pending[request] = (its.arrival, now, nil)
            return
        }
        if let older = onFloor.first(where: { request.renews($0.key) })?.value, !older.isEnding, older.forwarded.isEmpty
        {
            renewed.granted += 1
            keepsFloor = request
        }
        arrivals += 1
        pending[request] = (arrivals, now, nil)
    }

    mutating func withdrew(_ ssrc: SSRC, _ requestID: FloorRequestID? = nil) {
        pending = pending.filter { $0.key.ssrc != ssrc || (requestID != nil && $0.key.requestID != requestID) }
    }

    mutating func released(_ ssrc: SSRC, _ requestID: FloorRequestID) {
        for request in onFloor.keys where request.ssrc == ssrc && request.requestID == requestID {
            onFloor[request]?.isEnding = true
        }
    }

    mutating func forwarded(_ request: FloorRequest, _ sequence: UInt16) {
        if onFloor[request]?.forwarded.insert(sequence).inserted != true {
            Issue.record("forwarded twice, or without the floor")
        }
    }

    mutating func observe(_ actions: [FloorControlStateMachine.Action]) {
        for action in actions {
            switch action {
            case .grant(let request, _): grant(request)
            case .taken(let request): #expect(onFloor[request] != nil)
            case .deny(let request, let holder):
                #expect(onFloor.keys.contains { $0.ssrc == holder }, "denied in favour of nobody")
                refuse(request)
            case .queueFull, .retryLater: Issue.record("\(action) where there is no cause for it")
            case .notPermitted(let request): refuse(request)
            case .queued(let request, let place):
                #expect(pending[request] != nil, "a place for who does not wait")
                pending[request]?.place = place
            case .revoke(let request, let cause):
                #expect(onFloor[request]?.isEnding == false, "taken away twice")
                onFloor[request]?.isEnding = true
                guard cause == .preempted else { continue }
                preempted += 1
                #expect(pending.keys.contains { rules.preempts($0.priority, request.priority) }, "pre-empted by nobody")
            case .idle(let ssrc, let last, let summary):
                let burst = onFloor.removeValue(forKey: summary.request)
                #expect(burst != nil && summary.request.ssrc == ssrc, "a burst ends that was not granted")
                #expect((last == nil) == (burst?.forwarded.isEmpty ?? false))
                ended += 1
            case .rules(let new):
                #expect(onFloor.isEmpty, "the rules change while somebody talks")
                #expect(new != rules, "the rules change to what they are")
                rules = new
                ruleChanges += 1
            }
        }
    }

    private mutating func grant(_ request: FloorRequest) {
        guard onFloor[request] == nil else { return }
        #expect(!onFloor.keys.contains { $0.ssrc == request.ssrc }, "one member has the floor twice")
        onFloor[request] = (false, [])
        mostTalkers = max(mostTalkers, onFloor.count)
        #expect(onFloor.count <= rules.talkersMaximum, "too many have the floor")
        granted += 1
        if request.isEmergency { emergencies += 1 }
        guard let mine = pending.removeValue(forKey: request) else { return #expect(Bool(false), "not asked for") }
        if mine.place != nil { fromQueue += 1 }
        guard rules.mode != .cutIn, keepsFloor != request else { return }
        for (other, its) in pending where !onFloor.keys.contains(where: { $0.ssrc == other.ssrc }) {
            #expect(other.priority <= request.priority, "somebody more important was passed over")
            #expect(other.priority < request.priority || its.arrival > mine.arrival, "somebody was passed over")
        }
    }

    private mutating func refuse(_ request: FloorRequest) {
        #expect(onFloor[request] == nil, "who has the floor is refused")
        #expect(pending.removeValue(forKey: request) != nil, "refused twice")
        denied += 1
    }

    /// Between two steps: the machine and the onlooker agree, everybody who waits knows it, and who is overridden gives way.
    func check(_ machine: FloorControlStateMachine, at now: Instant, _ seed: UInt64) {
        if let problem = problem(machine, at: now) { Issue.record("\(problem); seed \(seed)") }
    }

    private func problem(_ machine: FloorControlStateMachine, at now: Instant) -> String? {
        let holders = machine.holders
        let waiting = machine.waiting
        if holders.count != onFloor.count || !holders.allSatisfy({ onFloor[$0] != nil }) {
            return "not who was granted"
        }
        if waiting.count != pending.count || !waiting.allSatisfy({ pending[$0] != nil }) { return "one was forgotten" }
        let ending = onFloor.values.count(where: \.isEnding)
        for (index, request) in waiting.enumerated() {
            guard let its = pending[request] else { return "one was forgotten" }
            if its.place != index + 1, its.place != nil || index >= ending { return "not told its place" }
            if its.place == nil, now - its.at > .milliseconds(2_100) { return "not answered" }
            guard index >= ending else { continue }
            if onFloor.count < rules.talkersMaximum { return "somebody waits for a free floor" }
            if onFloor.contains(where: { !$0.value.isEnding && rules.preempts(request.priority, $0.key.priority) }) {
                return "who is overridden goes on talking"
            }
        }
        return nil
    }
}
