// Which rule explains a button: each candidate is tried on everything that was seen, with the decoder that will read the button.
import Accessories
import MonotonicTime

/// What was seen, and what follows from it.
struct RuleInference {
    /// A press and release within this time are a click, however long the button was held.
    static let clickTime = Duration.milliseconds(600)
    /// An edge and its contrary within this time are a bouncing contact.
    static let bounceTime = Duration.milliseconds(60)
    /// What a source tells of one press comes within this time.
    static let lateTime = Duration.milliseconds(200)
    /// Rounds that a rule has to explain.
    static let roundsNeeded = 2
    /// The same where something else might explain them, too.
    static let roundsNeededInDoubt = 3
    /// The same where what looks like the release also comes by itself.
    static let roundsNeededInNoise = 4
    /// Clicks of this many rounds are believed though chatter looks like a hold.
    static let clickRoundsBesideChatter = 4
    /// How much less likely than one in two a coincidence has to be, as a power of two: four rounds with two values each.
    static let evidenceNeeded = 8
    /// What one round is worth at most: what changes slowly repeats itself.
    static let evidenceMaxPerRound = 4

    /// The release of a source that repeats itself is its own when so many repeats would have come while it was held.
    static let repeatsMissed = 6
    /// How often a rule is tried on a short message at most, for all sources together: every press on this machine waits meanwhile. No
    /// button's source suggests so many rules.
    static let trialsMax = 2_000_000
    /// What the other keys are worth at most as evidence.
    static let evidenceMaxOfOthers = 4

    /// What is known so far.
    enum Verdict: Equatable {
        case learned(LearnedRule)
        /// Ask again, for this reason; whether some rule explains all rounds, and only certainty is missing.
        case unclear(Reason, isLikely: Bool = false)
    }

    /// Why a person is asked again.
    enum Reason: Equatable {
        /// Not often enough yet.
        case again
        /// Nothing came.
        case silent
        /// The button came up before it was to.
        case early
        /// No release was seen.
        case noRelease
        /// More than one thing changes with the button.
        case ambiguous
        /// What looks like the release comes by itself, too.
        case noisyRelease
        /// Nothing changes in the same way each time.
        case inconsistent
        /// What explains the button also came while only the other keys were pressed.
        case otherKeys
    }

    /// What a round is by a rule.
    enum Outcome {
        /// `delay`: from the first that the source told in the round.
        case held(bounces: Bool, delay: Duration)
        case clicked
        case early
        /// Pressed, and never up again.
        case stuck
        case never
        /// It contradicts the rule.
        case wrong
    }

    private struct Explained {
        var rule: LearnedRule
        var candidate: RuleCandidate
        var rounds: Int
        /// It knows of a press only some time after the source has told something.
        var isLate: Bool
        var order: Int
        /// What it takes for the release comes by itself, too.
        var isNoisy: Bool
        /// Its source tells by itself, and so much in so many ways that some bit of it looks like a button's by chance.
        var isDoubtful = false
    }

    var quiet: [LearningObservation] = []
    var rounds: [LearningRound] = []
    /// What came while every other key was pressed: none of it is a press of the button.
    var others: [LearningObservation] = []

    /// What explains all rounds, or why to ask again.
    func verdict() -> Verdict {
        let rounds = rounds.filter { !$0.observations.isEmpty }
        guard !rounds.isEmpty else { return .unclear(.silent) }
        var holds: [Explained] = []
        var clicks: [Explained] = []
        var sawEarly = false
        var sawStuck = false
        var sawOthers = false
        let sources = sources(rounds)
        for (order, source) in sources.enumerated() {
            // A rule is about one source: what others told takes no time.
            let own = RuleInference(
                quiet: quiet.filter { $0.source == source }, rounds: rounds.map { $0.only(source) },
                others: others.filter { $0.source == source })
            for candidate in own.candidates(of: source, trialsMax: Self.trialsMax / sources.count) {
                let rule = candidate.rule
                guard let outcomes = own.outcomes(rule, source, own.rounds) else { continue }
                let isOthers = own.isPressedByOthers(rule, source)
                sawOthers = sawOthers || isOthers
                if isOthers { continue }
                let held = outcomes.count { if case .held = $0 { true } else { false } }
                let clicked = outcomes.count { if case .clicked = $0 { true } else { false } }
                let early = outcomes.count { if case .early = $0 { true } else { false } }
                if case .early? = outcomes.last, held + early == outcomes.count { sawEarly = true }
                if outcomes.allSatisfy({ if case .stuck = $0 { true } else { false } }) { sawStuck = true }
                // Who lets go too early may do so once or twice without spoiling the rest.
                if held > 0, held + early == outcomes.count, early <= 2 {
                    var hold = own.explained(candidate, source, outcomes, rounds: held, order: order)
                    hold.isDoubtful = own.isChance(candidate, source, zip(own.rounds, outcomes))
                    holds.append(hold)
                } else if clicked == outcomes.count {
                    clicks.append(own.explained(candidate, source, outcomes, rounds: clicked, order: order))
                }
            }
        }
        if let best = holds.min(by: Self.isBetter) {
            // What says nothing by itself, and something at each press, is the button sooner than that.
            let sure = clicks.filter { !chatters($0.rule.rule, $0.rule.source) }.min(by: Self.isBetter)
            if best.isDoubtful, let sure, sure.rounds >= Self.clickRoundsBesideChatter { return .learned(sure.rule) }
            return verdict(best, among: holds)
        }
        if sawEarly { return .unclear(.early) }
        if let best = clicks.min(by: Self.isBetter) {
            guard best.rounds < Self.roundsNeededInDoubt else { return .learned(best.rule) }
            return .unclear(.noRelease, isLikely: best.rounds >= Self.roundsNeeded)
        }
        if sawOthers { return .unclear(.otherKeys) }
        return .unclear(sawStuck ? .noRelease : rounds.count < Self.roundsNeeded ? .again : .inconsistent)
    }

    /// The rules to try on what one source told, which is all that is known here; not more than are tried in time.
    func candidates(of source: LearningSource, trialsMax: Int) -> ArraySlice<RuleCandidate> {
        let messages = (quiet + rounds.flatMap(\.observations) + others).reduce(0) { $0 + $1.shortMessages }
        return RuleCandidates(source: source, quiet: quiet, rounds: rounds, others: others).all
            .prefix(trialsMax / max(messages, 1))
    }

    private func verdict(_ best: Explained, among holds: [Explained]) -> Verdict {
        let hasRivals = holds.contains { $0.rule.source != best.rule.source }
        let isChattering = chatters(best.rule.rule, best.rule.source) && !tellsTwoThings(best.rule.source)
        let isBroad = best.candidate.noise > 0 || best.candidate.breadth >= RuleCandidate.nonzeroBreadth
        let needed =
            best.isNoisy
            ? Self.roundsNeededInNoise
            : hasRivals || isChattering || isBroad ? Self.roundsNeededInDoubt : Self.roundsNeeded
        guard best.rounds < needed || best.isDoubtful else { return .learned(best.rule) }
        guard best.rounds >= Self.roundsNeeded else { return .unclear(.again) }
        let reason: Reason = best.isNoisy ? .noisyRelease : hasRivals || best.isDoubtful ? .ambiguous : .again
        return .unclear(reason, isLikely: true)
    }

    /// Whether a source never told anything but one value for pressed and one for released.
    private func tellsTwoThings(_ source: LearningSource) -> Bool {
        let all = quiet + rounds.flatMap(\.observations)
        return Set(all.lazy.filter { $0.source == source }.map(\.content)).count <= 2
    }

    /// In the order in which they were first seen.
    private func sources(_ rounds: [LearningRound]) -> [LearningSource] {
        var seen: Set<LearningSource> = []
        return rounds.flatMap(\.observations).map(\.source).filter { seen.insert($0).inserted }
    }

    private static func isBetter(_ one: Explained, _ other: Explained) -> Bool {
        if one.isDoubtful != other.isDoubtful { return other.isDoubtful }
        // More rounds say more; then who tells the press at once; then the narrower rule; then where it is from.
        if one.rounds != other.rounds { return one.rounds > other.rounds }
        if one.isLate != other.isLate { return other.isLate }
        let (claim, otherClaim) = (one.candidate.breadth, other.candidate.breadth)
        if claim != otherClaim { return claim < otherClaim }
        // A checksum says all that the bytes before it say, and comes last.
        if let place = one.rule.rule.place?.byte, let otherPlace = other.rule.rule.place?.byte, place != otherPlace {
            return place < otherPlace
        }
        if one.candidate.isPlain != other.candidate.isPlain { return one.candidate.isPlain }
        let (rank, otherRank) = (one.rule.source.rank, other.rule.source.rank)
        return rank != otherRank ? rank < otherRank : one.order < other.order
    }

    private func explained(
        _ candidate: RuleCandidate, _ source: LearningSource, _ outcomes: [Outcome], rounds: Int, order: Int
    ) -> Explained {
        var result = Explained(
            rule: LearnedRule(source: source, rule: candidate.rule, isToggleOnly: true, bounces: false),
            candidate: candidate, rounds: rounds, isLate: false, order: order,
            isNoisy: isReleaseNoisy(candidate.rule, source))
        for case .held(let bounces, let delay) in outcomes {
            result.rule.isToggleOnly = false
            result.rule.bounces = result.rule.bounces || bounces
            result.isLate = result.isLate || delay > Self.lateTime
        }
        if !result.rule.isToggleOnly { result.rule.repeats = repeats(candidate.rule, source) }
        return result
    }

    /// Whether the button tells again that it is held; nil: it was not held for long enough, or other keys may make it tell.
    private func repeats(_ rule: DecodeRule, _ source: LearningSource) -> Bool? {
        if case .keys = rule { return nil }
        var decoder = InputDecoder(rule)
        var silence = Duration.zero
        for round in rounds {
            var pressed: Instant?
            for observation in round.observations where observation.source == source {
                for state in Self.states(&decoder, observation, isDown: pressed != nil) {
                    let held = pressed.map { observation.time - $0 }
                    if state.isDown, let held, held > Self.bounceTime { return true }
                    if !state.isDown, let held { silence = max(silence, held) }
                    pressed = state.isDown ? pressed ?? observation.time : nil
                }
            }
        }
        if case .bits(let rule) = rule, rule.ignored != 0 { return nil }
        return silence >= PressDoubt.silence ? false : nil
    }

    /// Whether the release may have come by itself: it came at least twice while nobody touched anything, and so rarely that it may
    /// have missed the time in which the button was held.
    private func isReleaseNoisy(_ rule: DecodeRule, _ source: LearningSource) -> Bool {
        var decoder = InputDecoder(rule)
        let releases = quiet.filter { observation in
            observation.source == source
                && Self.states(&decoder, observation, isDown: true).contains { !$0.isDown }
        }
        guard let first = releases.first, let last = releases.last, releases.count > 1 else { return false }
        let pause = (last.time - first.time) / (releases.count - 1)
        let held = rounds.reduce(Duration.zero) { held, round in
            held + (round.pressed(source).first.map { round.releaseAsked - $0.time } ?? .zero)
        }
        return held < pause * Self.repeatsMissed
    }

    /// Whether a rule takes something for a press that came while only the other keys were pressed.
    private func isPressedByOthers(_ rule: DecodeRule, _ source: LearningSource) -> Bool {
        var decoder = InputDecoder(rule)
        return others.contains { observation in
            observation.source == source
                && Self.states(&decoder, observation, isDown: false).contains(where: \.isDown)
        }
    }

    // MARK: Trying a rule

    /// What each round is by the rule; nil when what was seen contradicts it.
    private func outcomes(
        _ rule: DecodeRule, _ source: LearningSource, _ rounds: [LearningRound]
    ) -> [Outcome]? {
        var decoder = InputDecoder(rule)
        var isDown = false
        for observation in quiet where observation.source == source {
            // Nobody touched it.
            if Self.states(&decoder, observation, isDown: isDown).contains(where: \.isDown) { return nil }
        }
        var outcomes: [Outcome] = []
        for round in rounds {
            var edges: [(isDown: Bool, time: Instant)] = []
            isDown = false
            for observation in round.observations where observation.source == source {
                switch Self.feed(&decoder, observation, isDown: isDown) {
                case .controls(let states):
                    for state in states where state.isDown != isDown {
                        isDown = state.isDown
                        edges.append((isDown, observation.time))
                    }
                case .unclear:
                    // A rule that does not understand what the button says is no explanation of it.
                    if Self.shouldUnderstand(rule, observation) { return nil }
                }
            }
            let first = round.observations.first { rule.reads($0, of: source) && !isAside($0, from: rule) }
            let outcome = Self.outcome(
                edges, round, clicks: !rule.clicks.isEmpty, first: first?.time ?? round.pressAsked)
            if case .wrong = outcome { return nil }
            outcomes.append(outcome)
        }
        return outcomes
    }

    /// Whether it is text that says nothing about a press: the battery's, and what is also told without the button.
    private func isAside(_ observation: LearningObservation, from rule: DecodeRule) -> Bool {
        guard case .text = rule, let bytes = observation.bytes else { return false }
        return RuleCandidates.isBattery(bytes)
            || quiet.contains { $0.source == observation.source && $0.content == observation.content }
    }

    /// What a rule understands; nothing when some of it is not clear.
    private static func states(
        _ decoder: inout InputDecoder, _ observation: LearningObservation, isDown: Bool
    ) -> [ControlState] {
        if case .controls(let states) = feed(&decoder, observation, isDown: isDown) { states } else { [] }
    }

    private static func feed(
        _ decoder: inout InputDecoder, _ observation: LearningObservation, isDown: Bool
    ) -> DecodedValue {
        switch observation.content {
        case .bytes(let bytes): decoder.decode(bytes) { _ in isDown }
        case .key(let code, let isKeyDown): decoder.decode(key: code, isDown: isKeyDown)
        }
    }

    private static func shouldUnderstand(_ rule: DecodeRule, _ observation: LearningObservation) -> Bool {
        if case .nonzero = rule { return false }
        return observation.bytes.map { $0.count == rule.place?.size } ?? false
    }

    private static func outcome(
        _ raw: [(isDown: Bool, time: Instant)], _ round: LearningRound, clicks: Bool, first: Instant
    ) -> Outcome {
        let (edges, bounces) = clicks ? (raw, false) : withoutBounce(raw)
        guard let down = edges.first else { return .never }
        if clicks {
            // Several at once are one press that is told twice.
            guard let last = edges.last, last.time - down.time <= clickTime else { return .wrong }
            return .clicked
        }
        guard down.time < round.releaseAsked else { return edges.count == 2 ? .clicked : .wrong }
        guard edges.count > 1 else { return .stuck }
        guard edges.count == 2 else {
            return edges[edges.count - 1].time - down.time <= clickTime && edges.count % 2 == 0 ? .clicked : .wrong
        }
        let up = edges[1].time
        if up >= round.releaseAsked { return .held(bounces: bounces, delay: down.time - first) }
        return up - down.time <= clickTime ? .clicked : .early
    }

    private static func withoutBounce(
        _ edges: [(isDown: Bool, time: Instant)]
    ) -> (edges: [(isDown: Bool, time: Instant)], bounces: Bool) {
        var result: [(isDown: Bool, time: Instant)] = []
        var bounces = false
        for edge in edges {
            // Up and at once down again; a press and at once its release is a click.
            if edge.isDown, let last = result.last, edge.time - last.time <= bounceTime, result.count > 1 {
                result.removeLast()
                bounces = true
            } else {
                result.append(edge)
            }
        }
        return (result, bounces)
    }
}
