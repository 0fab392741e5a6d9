// What is said to a person who looks at no screen, and when: never in the way of a press, of speech or of a tone. Pure.
import MonotonicTime

/// Decides which prompt is said, and when.
///
/// A prompt is said while nothing else sounds or records, and is cut off as soon as something does. One is said at a time.
public struct SpokenPromptsStateMachine: Sendable {
    /// The most prompts that wait; the oldest is dropped for a newer one.
    public static let waitingMax = 4
    /// It has to be quiet for so long before something is said: a pause between two sentences is none.
    public static let pause = Duration.milliseconds(300)
    /// How long saying one prompt may take, from the start of its program to the end of its sound.
    public static let sayingMax = Duration.seconds(20)
    /// How much later than expected a sound may end: a device opens, or is waited for, meanwhile.
    public static let soundDelayMax = Duration.seconds(3)

    /// What happens.
    public enum Event: Hashable, Sendable {
        /// There is something to say.
        case wanted(SpokenPrompt)
        /// Whether somebody talks, transmits or calls, a tone sounds, or a program has the sound devices.
        case busy(Bool)
        /// The prompt of this number has begun to sound, for so long.
        case sounds(UInt32, for: Duration)
        /// The prompt of this number was said, or cannot be.
        case ended(UInt32)
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    /// What is to be done, in this order.
    public enum Action: Hashable, Sendable {
        /// Say this; `Event.ended` with its number follows.
        case say(SpokenPrompt, number: UInt32)
        /// Stop saying what is being said, at once. Its end need not be told.
        case stop
    }

    private struct Waiting: Hashable, Sendable {
        let prompt: SpokenPrompt
        let until: Instant
    }

    private var waiting: [Waiting] = []
    private var saying: (number: UInt32, what: Waiting, limit: Instant)?
    private var isBusy: Bool
    /// Since when nothing sounds.
    private var quietSince: Instant
    private var lastNumber: UInt32 = 0

    /// Nothing is to be said yet.
    ///
    /// - Parameter isBusy: As `Event.busy`.
    public init(isBusy: Bool = false, at now: Instant) {
        self.isBusy = isBusy
        quietSince = now
    }

    /// When it wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? {
        if let saying { return saying.limit }
        guard !waiting.isEmpty else { return nil }
        // Those that wait in vain need no wake-up: they are looked at when it is quiet.
        return isBusy ? nil : quietSince + Self.pause
    }

    /// Handles an event and returns the actions to carry out, in order.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .wanted(let prompt): want(prompt, at: now, &actions)
        case .busy(let isBusy):
            guard isBusy != self.isBusy else { break }
            self.isBusy = isBusy
            if isBusy { cutOff(at: now, &actions) } else { quietSince = now }
        case .sounds(let number, let length):
            guard saying?.number == number else { break }
            saying?.limit = now + length + Self.soundDelayMax
        case .ended(let number):
            guard saying?.number == number else { break }
            saying = nil
            quietSince = now
        case .deadlineReached:
            guard let limit = saying?.limit, now >= limit else { break }
            saying = nil
            quietSince = now
            actions.append(.stop)
        }
        waiting.removeAll { now > $0.until }
        sayNext(at: now, &actions)
        return actions
    }

    private mutating func want(_ prompt: SpokenPrompt, at now: Instant, _ actions: inout [Action]) {
        waiting.removeAll { $0.prompt.kind == prompt.kind }
        if saying?.what.prompt.kind == prompt.kind {
            guard saying?.what.prompt != prompt else { return }
            saying = nil
            quietSince = now
            actions.append(.stop)
        }
        if waiting.count == Self.waitingMax { waiting.removeFirst() }
        waiting.append(Waiting(prompt: prompt, until: now + prompt.waitLimit))
    }

    private mutating func cutOff(at now: Instant, _ actions: inout [Action]) {
        guard let cut = saying?.what else { return }
        saying = nil
        actions.append(.stop)
        if cut.prompt.isRepeated, waiting.count < Self.waitingMax { waiting.insert(cut, at: 0) }
    }

    private mutating func sayNext(at now: Instant, _ actions: inout [Action]) {
        guard !isBusy, saying == nil, !waiting.isEmpty, now >= quietSince + Self.pause else { return }
        let next = waiting.removeFirst()
        lastNumber &+= 1
        saying = (lastNumber, next, now + Self.sayingMax)
        actions.append(.say(next.prompt, number: lastNumber))
    }
}

/// Something that is said.
public enum SpokenPrompt: Hashable, Sendable {
    /// Another channel is the active one: its name.
    case channel(String)
    /// The connection to the channel is lost, and not just for a moment.
    case connectionLost
    /// The connection to the channel is back.
    case connectedAgain
    /// The battery of the accessory of this name is low.
    case batteryLow(String)
    /// Who has just talked.
    case talked(String)

    /// A newer prompt of a kind takes the place of an older one.
    enum Kind: Hashable {
        case channel, connection, talker
        case battery(String)
    }

    var kind: Kind {
        switch self {
        case .channel: .channel
        case .connectionLost, .connectedAgain: .connection
        case .batteryLow(let name): .battery(name)
        case .talked: .talker
        }
    }

    /// How long it may wait until it is said; later it would be no news.
    var waitLimit: Duration {
        switch self {
        case .channel, .connectionLost, .connectedAgain: .seconds(5)
        case .batteryLow: .seconds(60)
        case .talked: .seconds(2)
        }
    }

    /// Whether it is said again from its beginning when it was cut off, while its time is not over. Of the others the person has heard
    /// enough, or does something else.
    var isRepeated: Bool { if case .batteryLow = self { true } else { false } }
}
