// Learning a button: what the person is asked, when, and what is made of the answers.
import Accessories
import MonotonicTime
import Vocabulary

/// The rules of one learning session.
struct LearningStateMachine: Sendable {
    /// The device is connected by then.
    static let connectTime = Duration.seconds(45)
    /// For so long nobody touches anything: what comes then is no button.
    static let quietTime = Duration.seconds(3)
    /// A press is waited for so long.
    static let pressTime = Duration.seconds(10)
    /// How long a button is held in each round: not always the same, so that what comes at certain times is no release. The first time it
    /// is held for longer than any repetition takes (`PressDoubt.silence`).
    static let holdTimes: [Duration] = [
        .milliseconds(3_100), .milliseconds(2_000), .milliseconds(2_600), .milliseconds(1_800), .milliseconds(2_300),
    ]
    /// A release is waited for so long.
    static let releaseTime = Duration.seconds(4)
    /// What belongs to a release has come by then.
    static let settleTime = Duration.milliseconds(800)
    /// Nobody lets go faster than that who is asked to; what comes before may be something else.
    static let reactionTime = Duration.milliseconds(1_200)
    /// The person is asked to press this often at most.
    static let roundsMax = 5
    /// Who has no other key waits so long; who has one presses it by then.
    static let otherKeyTime = Duration.seconds(5)
    /// After the last message of another key no more are expected.
    static let otherPause = Duration.milliseconds(2_500)
    /// The other keys are listened to for so long at most.
    static let othersTime = Duration.seconds(30)
    /// How often the person is asked for the other keys: once more when the talk key was among them.
    static let othersMax = 2
    /// Observations of one source in one step; a source with more of them chatters, and is left out.
    static let observationsMax = 512
    /// Sources that are looked at.
    static let sourcesMax = 64

    enum Event: Sendable {
        /// Everything that can be heard of the device is heard from now on.
        case listening
        case observed(LearningObservation)
        /// The device is gone; it may come back.
        case lost
        /// The person has pressed every other key, or there is none.
        case proceed
        case deadline
    }

    enum Action: Equatable, Sendable {
        case progress(LearningReport)
        case learned(LearnedRule)
        /// Why not, and what to do.
        case failed(String)
    }

    private enum Phase: Equatable, Sendable {
        case connecting(until: Instant)
        case quiet(until: Instant)
        /// `hold` is set once the button is down: then it is held until that time.
        case press(asked: Instant, until: Instant, hold: Instant?)
        /// `settled` is set once the button is up.
        case release(pressAsked: Instant, asked: Instant, until: Instant, settled: Instant?)
        /// `until` moves on with each message of a key, up to `limit`.
        case others(until: Instant, limit: Instant)
        case over
    }

    private var phase: Phase
    /// Where the session is, for the person. What came of it is for `AccessorySetup` to add.
    var report = LearningReport()
    private var inference = RuleInference()
    /// What was seen in this step.
    private var current: [LearningObservation] = []
    private var counts: [LearningSource: Int] = [:]
    private var chattering: Set<LearningSource> = []
    /// How often the person has pressed the other keys, or said that there are none.
    private var othersAsked = 0

    /// A session that waits for `listening`.
    init(at now: Instant) {
        phase = .connecting(until: now + Self.connectTime)
        report.prompt = "Connecting: press the button once if it sleeps."
    }

    var isOver: Bool { phase == .over }

    var nextDeadline: Instant? {
        switch phase {
        case .connecting(let until), .quiet(let until), .others(let until, _): until
        case .press(_, let until, let hold): hold ?? until
        case .release(_, _, let until, let settled): min(until, settled ?? until)
        case .over: nil
        }
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .listening:
            guard case .connecting = phase else { return [] }
            begin()
            phase = .quiet(until: now + Self.quietTime)
            return show(.quiet, "Touch nothing for a moment.")
        case .lost:
            guard phase != .over else { return [] }
            if case .connecting = phase { return [] }
            begin()
            phase = .connecting(until: now + Self.connectTime)
            return show(.connecting, "The connection was lost: press the button once, so that it comes back.")
        case .observed(let observation):
            observed(observation, at: now)
            return []
        case .proceed:
            guard case .others = phase else { return [] }
            return elapsed(at: now)
        case .deadline:
            guard let due = nextDeadline, due <= now else { return [] }
            return elapsed(at: now)
        }
    }

    // MARK: Seeing

    private mutating func begin() {
        current = []
        counts = [:]
    }

    private mutating func observed(_ observation: LearningObservation, at now: Instant) {
        switch phase {
        case .connecting, .over: return
        case .quiet, .press, .release, .others: break
        }
        guard !chattering.contains(observation.source),
            counts[observation.source] != nil || counts.count < Self.sourcesMax
        else { return }
        counts[observation.source, default: 0] += 1
        guard counts[observation.source, default: 0] <= Self.observationsMax else {
            leaveOut(observation.source)
            return
        }
        current.append(observation)
        switch phase {
        case .press(let asked, let until, nil) where isPress(observation):
            let hold = Self.holdTimes[min(report.round, Self.holdTimes.count) - 1]
            phase = .press(asked: asked, until: until, hold: now + hold)
        case .release(let pressAsked, let asked, let until, nil) where isRelease(observation):
            let settled = max(now + Self.settleTime, asked + Self.reactionTime)
            phase = .release(pressAsked: pressAsked, asked: asked, until: until, settled: settled)
        case .others(let until, let limit) where isOfKey(observation):
            phase = .others(until: min(limit, max(until, now + Self.otherPause)), limit: limit)
        default: break
        }
    }

    /// What chatters without end is no button, and nothing that was seen of it counts.
    private mutating func leaveOut(_ source: LearningSource) {
        chattering.insert(source)
        current.removeAll { $0.source == source }
        inference.quiet.removeAll { $0.source == source }
        inference.others.removeAll { $0.source == source }
        for index in inference.rounds.indices {
            inference.rounds[index].observations.removeAll { $0.source == source }
        }
    }

    /// Whether something came that does not come by itself.
    private func isPress(_ observation: LearningObservation) -> Bool {
        switch observation.content {
        case .key(_, let isDown): return isDown
        case .bytes(let bytes):
            guard !RuleCandidates.isBattery(bytes) else { return false }
            let known = known(observation.source)
            // Who tells nothing by itself tells of the button.
            guard !known.isEmpty else { return true }
            let alike = Self.nearest(bytes, known)
            guard let first = alike.first, !alike.contains(bytes) else { return false }
            return Self.calmPlaces(alike, size: bytes.count).contains { bytes[$0] != first[$0] }
        }
    }

    /// Whether a key may have told it: it goes up as well as down.
    private func isOfKey(_ observation: LearningObservation) -> Bool {
        if case .key = observation.content { true } else { isPress(observation) }
    }

    /// Whether what told of the press tells something else now.
    private func isRelease(_ observation: LearningObservation) -> Bool {
        guard case .bytes(let bytes) = observation.content else { return true }
        guard !RuleCandidates.isBattery(bytes) else { return false }
        let before = current.dropLast().last { $0.source == observation.source && $0.bytes?.count == bytes.count }
        let known = known(observation.source)
        guard let before = before?.bytes else { return known.isEmpty }
        let alike = Self.nearest(bytes, known)
        guard !alike.isEmpty || known.isEmpty else { return false }
        return Self.calmPlaces(alike, size: bytes.count).contains { bytes[$0] != before[$0] }
    }

    /// What a source told while nobody touched anything.
    private func known(_ source: LearningSource) -> [[UInt8]] {
        inference.quiet.lazy.filter { $0.source == source }.compactMap(\.bytes).filter { !RuleCandidates.isBattery($0) }
    }

    /// Those of the same length that have the most in common with a message: others may be of another kind.
    private static func nearest(_ bytes: [UInt8], _ known: [[UInt8]]) -> [[UInt8]] {
        let alike = known.filter { $0.count == bytes.count }
        func common(_ other: [UInt8]) -> Int { zip(bytes, other).count { $0 == $1 } }
        let most = alike.map(common).max() ?? 0
        return alike.filter { common($0) + 1 >= most }
    }

    /// The places whose bytes did not change while nobody touched anything.
    private static func calmPlaces(_ values: some Sequence<[UInt8]>, size: Int) -> [Int] {
        let values = Array(values)
        return (0..<size).filter { place in values.allSatisfy { $0[place] == values[0][place] } }
    }

    // MARK: Asking

    private mutating func elapsed(at now: Instant) -> [Action] {
        switch phase {
        case .over: return []
        case .connecting:
            return fail("the device does not answer: press its button, bring it near, and try again")
        case .quiet:
            inference.quiet += current
            return askToPress("Press the button, and keep it pressed.", at: now)
        case .press(let asked, _, _):
            phase = .release(pressAsked: asked, asked: now, until: now + Self.releaseTime, settled: nil)
            return show(.release, "Let go.")
        case .release(let pressAsked, let asked, _, _):
            inference.rounds.append(
                LearningRound(pressAsked: pressAsked, releaseAsked: asked, observations: current))
            return conclude(at: now)
        case .others:
            inference.others = current
            othersAsked += 1
            return conclude(at: now)
        }
    }

    private mutating func askForOthers(_ prompt: String, at now: Instant) -> [Action] {
        begin()
        inference.others = []
        phase = .others(until: now + Self.otherKeyTime, limit: now + Self.othersTime)
        return show(.others, prompt)
    }

    private mutating func askToPress(_ prompt: String, at now: Instant) -> [Action] {
        begin()
        report.round += 1
        phase = .press(asked: now, until: now + Self.pressTime, hold: nil)
        return show(.press, prompt)
    }

    private mutating func conclude(at now: Instant) -> [Action] {
        switch inference.verdict() {
        // What nobody has told apart from the other keys is not learned yet.
        case .learned where othersAsked == 0, .unclear(_, isLikely: true) where othersAsked == 0:
            return askForOthers(
                "Now press every other key once, one after the other, but not this one. If there is none, wait.",
                at: now)
        case .learned(let rule):
            phase = .over
            return [.learned(rule)]
        case .unclear(.otherKeys, _) where othersAsked < Self.othersMax:
            return askForOthers(
                "That looked like the talk button. Press every other key once, but not the talk button. If there is none, wait.",
                at: now)
        case .unclear(.otherKeys, _):
            return fail(Self.failure(.otherKeys))
        case .unclear(let reason, _):
            let silentRounds = inference.rounds.reversed().prefix { $0.observations.isEmpty }.count
            guard report.round < Self.roundsMax, silentRounds < 2 else { return fail(Self.failure(reason)) }
            return askToPress(Self.question(reason), at: now)
        }
    }

    private static func question(_ reason: RuleInference.Reason) -> String {
        switch reason {
        case .again: "Once more: press the button, and keep it pressed."
        case .silent: "Nothing came. Press the button, and keep it pressed."
        case .early: "It came up too early. Press the button, and keep it pressed until you are asked to let go."
        case .noRelease:
            "No release was seen. Press the button again, and keep it pressed until you are asked to let go."
        case .ambiguous: "More than one thing changed. Press the button again, and keep it pressed."
        case .noisyRelease:
            "It is not certain yet what tells the release. Press the button again, and keep it pressed."
        case .inconsistent, .otherKeys:
            "That was not as before. Press the same button again, touch no other, and keep it pressed."
        }
    }

    private static func failure(_ reason: RuleInference.Reason) -> String {
        switch reason {
        case .silent:
            "nothing came from the button: is this its address, is it on, and does no other program or telephone use it? An input "
                + "device or a serial port needs a udev rule (docs/installers-input.md)"
        case .early:
            "the button came up each time before you were asked to let go: hold it longer, or it tells its release by itself and "
                + "cannot be held"
        case .noRelease: "no release was ever seen, and no two presses looked alike: this button cannot be used"
        case .otherKeys:
            "another key tells the same as this one, so that it would open the microphone as well: this button cannot be used unless "
                + "a profile that is written by hand tells them apart (docs/profiles.md)"
        case .noisyRelease, .ambiguous, .again, .inconsistent:
            "nothing changed with the button in the same way each time: try again, press only that button, and keep others away; if "
                + "it stays so, a profile has to be written by hand (docs/profiles.md)"
        }
    }

    private mutating func show(_ step: LearningStep, _ prompt: String) -> [Action] {
        report.step = step
        report.prompt = prompt
        return [.progress(report)]
    }

    private mutating func fail(_ why: String) -> [Action] {
        phase = .over
        return [.failed(why)]
    }
}
