// Delivers pushes: which program they belong to, how long they wait, and how the program is asked. No I/O, no clock.

import MonotonicTime
import Vocabulary

/// The pushes to the active channel, as a state machine without I/O. `ChannelManagerStateMachine` contains it.
///
/// At most one `incomingPushResult` and one service update are outstanding at a time. A program that is not running is
/// started for a push; until it runs, pushes wait, with limits on their number and time. The token ends with the
/// membership, and all waiting pushes with it.
public struct PushStateMachine: Sendable {
    /// The numbers in the rules of pushes.
    public struct Configuration: Hashable, Sendable {
        /// Pushes that wait at the same time; a further one is dropped.
        public var waitingMax = 16
        /// How long a push for now may wait for the program to start, or for the pushes before it.
        public var immediateLimit = Duration.seconds(10)
        /// How long the program may take to answer `incomingPushResult`.
        public var answerLimit = Duration.seconds(10)
        /// How long the program may take to complete a service update.
        public var serviceUpdateLimit = Duration.seconds(30)
        /// How long the program may take to start.
        public var startLimit = Duration.seconds(25)
        /// Service updates of high priority within `budgetPeriod`; further ones count as low.
        public var highPriorityBudget = 6
        /// The rolling period of the budget.
        public var budgetPeriod = Duration.seconds(3600)

        /// The defaults: 16 waiting; 10 s for now and for an answer, 30 s for a service update, 25 s to start; 6 an hour.
        public init() {}
    }

    /// Something that happened to pushes or to the program behind the channel.
    public enum Event: Hashable, Sendable {
        /// The channel was joined; nil: without a program, so there is no token.
        case joined(PushToken?, ChannelProgram, canStartProgram: Bool)
        /// The channel was left: the token is void.
        case left
        /// A push came.
        case received(Push)
        /// The program runs, and its delegate can be called.
        case programCame
        /// The program left.
        case programLeft
        /// `Action.startProgram` did not work.
        case programNotStarted(reason: String)
        /// The program answered `Action.ask`.
        case answered(PushDeliveryIdentifier, PTPushResult)
        /// The program has completed `Action.update`.
        case completed(PushDeliveryIdentifier)
        /// The program failed to answer or to complete.
        case notAnswered(PushDeliveryIdentifier, reason: String)
        /// The time of `nextDeadline` has come.
        case deadlineReached
        /// The daemon ends: everything that waits is dropped.
        case shutdown
    }

    /// What is to be done, in this order.
    public enum Action: Hashable, Sendable {
        /// Start the program; followed by `programCame` or `programNotStarted`.
        case startProgram
        /// Ask the program (`incomingPushResult`).
        case ask(PushDelivery)
        /// Tell the program of a service update and await its completion.
        case update(PushDelivery, isHighPriority: Bool, remainingHighPriorityBudget: Int)
        /// Carry out the program's answer. The caller that carries it out reports `settled`.
        case perform(PTPushResult, PushDelivery)
        /// This became of the push.
        case settled(Push, PushOutcome)
    }

    private struct Waiting: Hashable, Sendable {
        let push: Push
        let until: Instant
    }

    private struct Outstanding: Hashable, Sendable {
        let delivery: PushDelivery
        let until: Instant
    }

    /// The numbers in the rules.
    public let configuration: Configuration
    /// The token of the active channel; nil: there is none.
    public private(set) var token: PushToken?
    /// The program behind the active channel.
    public private(set) var program = ChannelProgram.none

    /// Whether the program can be started when it is not there.
    public private(set) var canStartProgram = false
    private var startingUntil: Instant?
    private var waiting: [Waiting] = []
    private var asked: Outstanding?
    private var updating: Outstanding?
    private var highPriorityDeliveries: [Instant] = []
    private var lastIdentifier: UInt64 = 0
    private var actions: [Action] = []

    /// No channel, no pushes.
    public init(configuration: Configuration = Configuration()) { self.configuration = configuration }

    /// Whether the program has been asked about a push and has not answered.
    public var isAwaitingAnswer: Bool { asked != nil }
    /// How many pushes wait.
    public var waitingCount: Int { waiting.count }

    /// When the machine wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? {
        var deadlines = waiting.map(\.until)
        if let asked { deadlines.append(asked.until) }
        if let updating { deadlines.append(updating.until) }
        if let startingUntil { deadlines.append(startingUntil) }
        return deadlines.min()
    }

    /// How many service updates of high priority may still come at `now`.
    public func remainingHighPriorityBudget(at now: Instant) -> Int {
        let used = highPriorityDeliveries.count { now - $0 < configuration.budgetPeriod }
        return max(0, configuration.highPriorityBudget - used)
    }

    /// Handles an event and returns the actions to carry out, in order.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .joined(let token, let program, let canStartProgram):
            self.token = token
            self.program = program
            self.canStartProgram = canStartProgram
        case .left: forget(.channelLeft)
        case .received(let push): received(push, at: now)
        case .programCame: programCame()
        case .programLeft: programLeft(at: now)
        case .programNotStarted(let reason): notStarted(reason)
        case .answered(let identifier, let result): answered(identifier, result)
        case .completed(let identifier): completed(identifier)
        case .notAnswered(let identifier, let reason): notAnswered(identifier, reason)
        case .deadlineReached: deadlineReached(at: now)
        case .shutdown: forget(.shutdown)
        }
        dropWaiting(.expired) { $0.until <= now }
        deliver(at: now)
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    /// The program is needed (a begin on its channel): it is started if it can be and is not running.
    mutating func wantProgram(at now: Instant) -> [Action] {
        startProgram(at: now)
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    // MARK: In

    private mutating func received(_ push: Push, at now: Instant) {
        guard program != .none, let token else { return drop(push, .noProgram) }
        guard push.token == nil || push.token == token else { return drop(push, .deadToken) }
        let until: Instant
        switch push.expiry {
        case .immediate: until = now + configuration.immediateLimit
        case .at(let expiry):
            guard expiry > now else { return drop(push, .expired) }
            until = expiry
        }
        if program != .present, startingUntil == nil {
            let starts = push.payload.kind == .speaker || isWithinBudget(push, at: now)
            if starts { startProgram(at: now) }
            // Nobody starts it, so there is no "now" that it could wait for.
            if startingUntil == nil, push.expiry == .immediate { return drop(push, .noProgram) }
        }
        guard waiting.count < configuration.waitingMax else { return drop(push, .tooMany) }
        waiting.append(Waiting(push: push, until: until))
    }

    private mutating func startProgram(at now: Instant) {
        guard program == .absent, canStartProgram, startingUntil == nil else { return }
        startingUntil = now + configuration.startLimit
        actions.append(.startProgram)
    }

    private func isWithinBudget(_ push: Push, at now: Instant) -> Bool {
        push.isHighPriority && remainingHighPriorityBudget(at: now) > 0
    }

    // MARK: The program

    private mutating func programCame() {
        guard program != .none else { return }
        program = .present
        startingUntil = nil
    }

    private mutating func programLeft(at now: Instant) {
        guard program == .present else { return }
        program = .absent
        for outstanding in [asked, updating].compactMap({ $0 }) {
            drop(outstanding.delivery.push, .notAnswered(reason: "the program ended"))
        }
        asked = nil
        updating = nil
        // Each start is paid for by a push that the last one took, so a program that ends at each of them is not started for ever.
        if waiting.contains(where: { $0.push.payload.kind == .speaker }) { startProgram(at: now) }
    }

    private mutating func notStarted(_ reason: String) {
        guard startingUntil != nil else { return }
        startingUntil = nil
        dropWaiting(.programNotStarted(reason: reason)) { $0.push.expiry == .immediate }
    }

    // MARK: Out

    private mutating func deliver(at now: Instant) {
        guard program == .present else { return }
        if asked == nil || seededFault("a-push-is-asked-about-meanwhile"), let push = takeFirst(.speaker) {
            let delivery = next(push)
            asked = Outstanding(delivery: delivery, until: now + configuration.answerLimit)
            actions.append(.ask(delivery))
        }
        if updating == nil, let push = takeFirst(.serviceUpdate) {
            let delivery = next(push)
            updating = Outstanding(delivery: delivery, until: now + configuration.serviceUpdateLimit)
            let isHigh = isWithinBudget(push, at: now)
            if isHigh {
                highPriorityDeliveries.removeAll { now - $0 >= configuration.budgetPeriod }
                highPriorityDeliveries.append(now)
            }
            let remaining = remainingHighPriorityBudget(at: now)
            actions.append(.update(delivery, isHighPriority: isHigh, remainingHighPriorityBudget: remaining))
        }
    }

    private mutating func takeFirst(_ kind: PushPayload.Kind) -> Push? {
        guard let index = waiting.firstIndex(where: { $0.push.payload.kind == kind }) else { return nil }
        return waiting.remove(at: index).push
    }

    private mutating func next(_ push: Push) -> PushDelivery {
        lastIdentifier += 1
        return PushDelivery(identifier: PushDeliveryIdentifier(rawValue: lastIdentifier), push: push)
    }

    private mutating func answered(_ identifier: PushDeliveryIdentifier, _ result: PTPushResult) {
        guard let delivery = asked?.delivery, delivery.identifier == identifier else { return }
        asked = nil
        actions.append(.perform(result, delivery))
    }

    private mutating func completed(_ identifier: PushDeliveryIdentifier) {
        guard let delivery = updating?.delivery, delivery.identifier == identifier else { return }
        updating = nil
        actions.append(.settled(delivery.push, .delivered))
    }

    private mutating func notAnswered(_ identifier: PushDeliveryIdentifier, _ reason: String) {
        if let delivery = asked?.delivery, delivery.identifier == identifier {
            asked = nil
            drop(delivery.push, .notAnswered(reason: reason))
        } else if let delivery = updating?.delivery, delivery.identifier == identifier {
            updating = nil
            drop(delivery.push, .notAnswered(reason: reason))
        }
    }

    // MARK: Time and end

    private mutating func deadlineReached(at now: Instant) {
        if let startingUntil, startingUntil <= now {
            notStarted("the program did not register within \(configuration.startLimit)")
        }
        if let asked, asked.until <= now {
            notAnswered(asked.delivery.identifier, "no answer within \(configuration.answerLimit)")
        }
        if let updating, updating.until <= now {
            notAnswered(updating.delivery.identifier, "not completed within \(configuration.serviceUpdateLimit)")
        }
    }

    private mutating func forget(_ reason: PushDropReason) {
        if seededFault("a-push-has-no-end") { (waiting, asked, updating) = ([], nil, nil) }
        for outstanding in [asked, updating].compactMap({ $0 }) { drop(outstanding.delivery.push, reason) }
        asked = nil
        updating = nil
        dropWaiting(reason) { _ in true }
        token = nil
        program = .none
        canStartProgram = false
        startingUntil = nil
    }

    private mutating func dropWaiting(_ reason: PushDropReason, where condition: (Waiting) -> Bool) {
        for waiting in waiting where condition(waiting) { drop(waiting.push, reason) }
        waiting.removeAll(where: condition)
    }

    private mutating func drop(_ push: Push, _ reason: PushDropReason) {
        actions.append(.settled(push, .dropped(reason)))
    }
}
