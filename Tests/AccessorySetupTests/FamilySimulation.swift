// A made-up button that is learned by a person who does what the session asks, and then used by one who presses any keys.
import MonotonicTime
import TestSupport
import Vocabulary

@testable import Accessories
@testable import AccessorySetup

/// What became of one family.
struct FamilyResult: Sendable {
    var kind: String
    var family: String
    var rule: LearnedRule?
    var failure: String?
    var learningTime = Duration.zero
    var rounds = 0
    var prompts: [String] = []
    /// The microphone was open although the talk key was up: for how long at most.
    var openWithoutTalk = Duration.zero
    /// Began while the talk key was up.
    var openedByOthers = 0
    /// Presses of the talk key alone, and those that opened the microphone.
    var alone = 0
    var aloneHeard = 0
    /// Presses of the talk key while another one was held, and those that opened the microphone.
    var together = 0
    var togetherHeard = 0
    /// Ended while the talk key was held: by another key, or by anything else.
    var endedByOthers = 0
    var endedByNothing = 0

    /// It was learned that the button does not tell again while it is held, which it does.
    var missesRepeats = false

    var isSafe: Bool { !missesRepeats && openedByOthers == 0 && openWithoutTalk <= FamilySimulation.lateMax }
    var works: Bool { rule != nil && alone > 0 && aloneHeard == alone }
}

struct FamilySimulation {
    /// After this time what the device told of a key has been acted on.
    static let lateMax = Duration.milliseconds(250)
    private static let eventsMax = 60_000

    private enum MonitorEvent {
        case told(LearningSource, LearningObservation.Content)
        case key(Int, isDown: Bool)
        case again(Int)
        case batteryReport
        case chatter(Int, UInt64)
    }

    private let family: ButtonFamily
    private var device: FamilyDevice
    private var random: SeededGenerator
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var agenda: [(time: Instant, happening: MonitorEvent)] = []
    /// Counts the edges, so that repeats of an old state stop.
    private var edges = 0
    private var keyTimes: [Int: Instant] = [:]
    /// The device tells one thing after the other: until then it is telling something.
    private var busy = Instant.zero

    /// In so many steps that ask for the other keys the person presses the talk key.
    private var mistakes: Int

    static func run(seed: UInt64) -> FamilyResult {
        var random = SeededGenerator(seed: seed)
        return run(ButtonFamily.random(&random), random)
    }

    static func run(_ family: ButtonFamily, _ random: SeededGenerator, mistakes: Int = 0) -> FamilyResult {
        var simulation = FamilySimulation(family, random, mistakes)
        var result = simulation.learn()
        if let rule = result.rule {
            result.missesRepeats = rule.repeats == false && family.heldRepeat != nil
            simulation.use(rule, &result)
        }
        return result
    }

    private init(_ family: ButtonFamily, _ random: SeededGenerator, _ mistakes: Int) {
        self.family = family
        self.mistakes = mistakes
        self.random = random
        device = FamilyDevice(family, seed: self.random.next())
        for index in family.chatter.indices {
            plan(.chatter(index, 0), in: .milliseconds(Int.random(in: 0...900, using: &self.random)))
        }
        if let pause = family.batteryReport {
            plan(.batteryReport, in: pause * Double.random(in: 0...1, using: &self.random))
        }
        if let pause = family.idleRepeat { plan(.again(0), in: pause) }
    }

    private mutating func plan(_ happening: MonitorEvent, in delay: Duration) {
        let time = now + delay
        let index = agenda.firstIndex { $0.time > time } ?? agenda.endIndex
        agenda.insert((time, happening), at: index)
    }

    /// Goes on to the next that the device tells, or to `end`.
    private mutating func next(until end: Instant) -> LearningObservation? {
        while let first = agenda.first, first.time <= end {
            agenda.removeFirst()
            now = first.time
            switch first.happening {
            case .key where now < busy, .again where now < busy, .batteryReport where now < busy:
                plan(first.happening, in: busy - now)
                continue
            default: break
            }
            switch first.happening {
            case .told(let source, let content):
                return LearningObservation(source: source, content: content, time: now)
            case .key(let key, let isDown):
                guard device.held.contains(key) != isDown else { continue }
                edges += 1
                keyTimes[key] = now
                tell(device.change(key, isDown: isDown))
                let pause = device.held.isEmpty ? family.idleRepeat : family.heldRepeat
                if let pause { plan(.again(edges), in: pause) }
            case .again(let number):
                guard number == edges else { continue }
                tell(device.again())
                let pause = device.held.isEmpty ? family.idleRepeat : family.heldRepeat
                if let pause { plan(.again(edges), in: pause) }
            case .batteryReport:
                tell(device.batteryReport())
                if let pause = family.batteryReport {
                    plan(.batteryReport, in: pause * Double.random(in: 0.8...1.2, using: &random))
                }
            case .chatter(let index, let number):
                let chatter = family.chatter[index]
                plan(.told(chatter.source, .bytes(chatter.value(number))), in: .zero)
                plan(.chatter(index, number &+ 1), in: chatter.pause * Double.random(in: 0.8...1.2, using: &random))
            }
        }
        now = end
        return nil
    }

    private mutating func tell(_ messages: [FamilyDevice.Message]) {
        for message in messages { plan(.told(message.source, message.content), in: message.delay) }
        busy = now + .milliseconds(30)
    }

    private mutating func milliseconds(_ range: ClosedRange<Int>) -> Duration {
        .milliseconds(Int.random(in: range, using: &random))
    }

    // MARK: Learning

    private mutating func learn() -> FamilyResult {
        var result = FamilyResult(kind: family.code.name, family: "\(family)")
        let start = now
        var machine = LearningStateMachine(at: now)
        var actions = machine.handle(.listening, at: now)
        for _ in 0..<Self.eventsMax {
            for action in actions {
                switch action {
                case .progress(let progress):
                    result.rounds = progress.round
                    result.prompts.append(progress.prompt)
                    follow(progress.step)
                case .learned(let rule):
                    result.rule = rule
                    result.learningTime = now - start
                    return result
                case .failed(let why):
                    result.failure = why
                    result.learningTime = now - start
                    return result
                }
            }
            guard let deadline = machine.nextDeadline else { break }
            if let observation = next(until: deadline) {
                actions = machine.handle(.observed(observation), at: now)
            } else {
                actions = machine.handle(.deadline, at: now)
            }
        }
        result.failure = "the session does not end"
        return result
    }

    private mutating func follow(_ step: LearningStep) {
        switch step {
        case .press: plan(.key(0, isDown: true), in: milliseconds(300...1_200))
        case .release: plan(.key(0, isDown: false), in: milliseconds(200...900))
        case .others:
            var delay = milliseconds(500...1_800)
            for key in (mistakes > 0 ? 0 : 1)..<max(1, family.code.count) {
                plan(.key(key, isDown: true), in: delay)
                delay += milliseconds(120...500)
                plan(.key(key, isDown: false), in: delay)
                delay += milliseconds(250...900)
            }
            mistakes -= 1
        case .connecting, .quiet, .done, .failed: break
        }
    }

    // MARK: Using

    private mutating func use(_ rule: LearnedRule, _ result: inout FamilyResult) {
        let learned = AccessoryProfile(rule, id: "made", title: "Made", device: nil, local: nil, date: "2026-11-21")
        // As it is after a restart.
        guard let profile = try? AccessoryProfile(bytes: Array(learned.text.utf8), file: "made") else {
            result.rule = nil
            result.failure = "its profile cannot be read: \(learned.text)"
            return
        }
        for key in 0..<family.code.count { plan(.key(key, isDown: false), in: .milliseconds(10)) }
        let settled = now + .seconds(1)
        while next(until: settled) != nil {}
        var user = FamilyUser(profile, isToggle: rule.isToggleOnly)
        for press in planPresses() { plan(.key(press.key, isDown: press.isDown), in: press.delay) }
        // Once by itself: the others have come up by then.
        plan(.key(0, isDown: true), in: .seconds(49))
        plan(.key(0, isDown: false), in: .seconds(50))
        let end = now + .seconds(52)
        while now < end {
            let tick = min(end, now + .milliseconds(100), user.nextDeadline ?? end)
            let observation = next(until: max(tick, now))
            let keys = FamilyUser.Keys(held: device.held, times: keyTimes)
            if let observation, observation.source == rule.source { user.hear(observation, keys, at: now) }
            user.look(keys, at: now)
        }
        user.finish(&result)
    }

    /// Presses of all keys in half a minute, each key on its own, so that they overlap anyhow.
    private mutating func planPresses() -> [(key: Int, isDown: Bool, delay: Duration)] {
        (0..<family.code.count).flatMap { key -> [(Int, Bool, Duration)] in
            var presses: [(Int, Bool, Duration)] = []
            var delay = milliseconds(100...3_000)
            while delay < .seconds(45) {
                presses.append((key, true, delay))
                delay += milliseconds(400...3_500)
                presses.append((key, false, delay))
                delay += milliseconds(400...4_000)
            }
            return presses
        }
    }
}

/// Somebody who talks with the learned button, and watches the microphone.
private struct FamilyUser {
    struct Keys {
        var held: [Int]
        /// When each key went down or came up last.
        var times: [Int: Instant]

        var isTalkHeld: Bool { held.contains(0) }
        var talkTime: Instant { times[0] ?? .zero }
        var othersTime: Instant { times.filter { $0.key != 0 }.values.max() ?? .zero }
    }

    private var controls: ControlsStateMachine
    private let isToggle: Bool
    private var isOpen = false
    private var judged: Instant?
    private var result: (open: Duration, opened: Int, alone: Int, aloneHeard: Int, together: Int, togetherHeard: Int) =
        (.zero, 0, 0, 0, 0, 0)
    private var ended: (byOthers: Int, byNothing: Int) = (0, 0)

    init(_ profile: AccessoryProfile, isToggle: Bool) {
        controls = ControlsStateMachine(profile)
        self.isToggle = isToggle
    }

    var nextDeadline: Instant? { controls.nextDeadline }

    mutating func hear(_ observation: LearningObservation, _ keys: Keys, at now: Instant) {
        switch observation.content {
        case .bytes(let bytes): act(controls.handle(.value(input: 0, bytes: bytes), at: now), keys, at: now)
        case .key(let code, let isDown): act(controls.handle(.key(code: code, isDown: isDown), at: now), keys, at: now)
        }
    }

    /// Looks whether the microphone is as the talk key says.
    mutating func look(_ keys: Keys, at now: Instant) {
        act(controls.handle(.deadline, at: now), keys, at: now)
        let since = now - keys.talkTime
        if isToggle { return }
        if isOpen, !keys.isTalkHeld { result.open = max(result.open, since) }
        guard keys.isTalkHeld, judged != keys.talkTime, since >= .milliseconds(150) else { return }
        judged = keys.talkTime
        // Another key that moved meanwhile leaves it open what is right.
        guard keys.othersTime <= keys.talkTime - .milliseconds(50) else { return }
        if keys.held.count == 1 {
            result.alone += 1
            result.aloneHeard += isOpen ? 1 : 0
        } else if keys.othersTime < keys.talkTime {
            result.together += 1
            result.togetherHeard += isOpen ? 1 : 0
        }
    }

    private mutating func act(_ actions: [ControlsStateMachine.Action], _ keys: Keys, at now: Instant) {
        for action in actions {
            switch action {
            case .begin(.ptt), .end(.ptt):
                let begins = action == .begin(.ptt)
                let isByTalk = now - keys.talkTime <= .milliseconds(100)
                isOpen = begins
                if isToggle {
                    // Each press of the talk key changes it, and nothing else does.
                    result.alone += 1
                    result.aloneHeard += isByTalk && keys.isTalkHeld ? 1 : 0
                    result.opened += isByTalk && keys.isTalkHeld ? 0 : 1
                } else if begins {
                    result.opened += keys.isTalkHeld || isByTalk ? 0 : 1
                } else if keys.isTalkHeld, !isByTalk {
                    if now - keys.othersTime <= .milliseconds(100) { ended.byOthers += 1 } else { ended.byNothing += 1 }
                }
            default: break
            }
        }
    }

    func finish(_ family: inout FamilyResult) {
        family.openWithoutTalk = result.open
        family.openedByOthers = result.opened
        (family.alone, family.aloneHeard) = (result.alone, result.aloneHeard)
        (family.together, family.togetherHeard) = (result.together, result.togetherHeard)
        (family.endedByOthers, family.endedByNothing) = (ended.byOthers, ended.byNothing)
    }
}
