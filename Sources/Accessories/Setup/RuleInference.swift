// Which rule explains a button: each candidate is tried on everything that was seen, with the decoder that will read the button.
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
    /// How much less likely than one in two a coincidence has to be, as a power of two: three rounds with two values each.
    static let evidenceNeeded = 6
    /// What one round is worth at most: what changes slowly repeats itself.
    static let evidenceMaxPerRound = 4

    /// What is known so far.
    enum Verdict: Equatable {
        case learned(LearnedRule)
        /// Ask again, for this reason.
        case unclear(Reason)
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
        var rounds: Int
        /// Narrower rules have smaller numbers.
        var breadth: Int
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

    /// What explains all rounds, or why to ask again.
    func verdict() -> Verdict {
        let rounds = rounds.filter { !$0.observations.isEmpty }
        guard !rounds.isEmpty else { return .unclear(.silent) }
        var holds: [Explained] = []
        var clicks: [Explained] = []
        var sawEarly = false
        var sawStuck = false
        for (order, source) in sources(rounds).enumerated() {
            let candidates = RuleCandidates(source: source, quiet: quiet, rounds: rounds)
            for rule in candidates.rules {
                guard let outcomes = outcomes(rule, source, rounds) else { continue }
                let held = outcomes.count { if case .held = $0 { true } else { false } }
                let clicked = outcomes.count { if case .clicked = $0 { true } else { false } }
                let early = outcomes.count { if case .early = $0 { true } else { false } }
                if case .early? = outcomes.last, held + early == outcomes.count { sawEarly = true }
                if outcomes.allSatisfy({ if case .stuck = $0 { true } else { false } }) { sawStuck = true }
                // Who lets go too early may do so once or twice without spoiling the rest.
                if held > 0, held + early == outcomes.count, early <= 2 {
                    var hold = explained(rule, source, outcomes, rounds: held, order: order)
                    hold.isDoubtful = isChance(rule, source, zip(rounds, outcomes))
                    holds.append(hold)
                } else if clicked == outcomes.count {
                    clicks.append(explained(rule, source, outcomes, rounds: clicked, order: order))
                }
            }
        }
        if let best = holds.min(by: Self.isBetter) {
            // What says nothing by itself, and something at each press, is the button sooner than that.
            let sure = clicks.filter { !chatters($0.rule.source) }.min(by: Self.isBetter)
            if best.isDoubtful, let sure, sure.rounds >= Self.clickRoundsBesideChatter { return .learned(sure.rule) }
            return verdict(best, among: holds)
        }
        if sawEarly { return .unclear(.early) }
        if let best = clicks.min(by: Self.isBetter) {
            return best.rounds >= Self.roundsNeededInDoubt ? .learned(best.rule) : .unclear(.noRelease)
        }
        return .unclear(sawStuck ? .noRelease : rounds.count < Self.roundsNeeded ? .again : .inconsistent)
    }

    private func verdict(_ best: Explained, among holds: [Explained]) -> Verdict {
        let hasRivals = holds.contains { $0.rule.source != best.rule.source }
        let isChattering = chatters(best.rule.source)
        let isBroad = best.breadth > 0
        let needed =
            best.isNoisy
            ? Self.roundsNeededInNoise
            : hasRivals || isChattering || isBroad ? Self.roundsNeededInDoubt : Self.roundsNeeded
        guard best.rounds < needed || best.isDoubtful else { return .learned(best.rule) }
        guard best.rounds >= Self.roundsNeeded else { return .unclear(.again) }
        return .unclear(best.isNoisy ? .noisyRelease : hasRivals || best.isDoubtful ? .ambiguous : .again)
    }

    /// Whether a source tells something while nobody touches anything.
    func chatters(_ source: LearningSource) -> Bool { quiet.contains { $0.source == source } }

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
        if one.breadth != other.breadth { return one.breadth < other.breadth }
        let (rank, otherRank) = (one.rule.source.rank, other.rule.source.rank)
        return rank != otherRank ? rank < otherRank : one.order < other.order
    }

    private func explained(
        _ rule: DecodeRule, _ source: LearningSource, _ outcomes: [Outcome], rounds: Int, order: Int
    ) -> Explained {
        var result = Explained(
            rule: LearnedRule(source: source, rule: rule, isToggleOnly: true, bounces: false), rounds: rounds,
            breadth: Self.breadth(rule), isLate: false, order: order, isNoisy: isReleaseNoisy(rule, source))
        for case .held(let bounces, let delay) in outcomes {
            result.rule.isToggleOnly = false
            result.rule.bounces = result.rule.bounces || bounces
            result.isLate = result.isLate || delay > Self.lateTime
        }
        return result
    }

    private static func breadth(_ rule: DecodeRule) -> Int {
        switch rule {
        // Words are found wherever they stand in a message, which a value of fixed size is not.
        case .text: -1
        case .value, .keys: 0
        case .bits(let rule): 1 + rule.ignored.nonzeroBitCount
        case .nonzero: 10
        }
    }

    /// Whether the release's value came at least twice while nobody touched anything: it then may have come by itself.
    private func isReleaseNoisy(_ rule: DecodeRule, _ source: LearningSource) -> Bool {
        var decoder = InputDecoder(rule)
        return quiet.lazy.filter { $0.source == source }.count { observation in
            guard case .controls(let states) = Self.feed(&decoder, observation, isDown: true) else { return false }
            return states.contains { !$0.isDown }
        } >= 2
    }

    // MARK: Trying a rule

    /// What each round is by the rule; nil when what was seen contradicts it.
    private func outcomes(
        _ rule: DecodeRule, _ source: LearningSource, _ rounds: [LearningRound]
    ) -> [Outcome]? {
        var decoder = InputDecoder(rule)
        var isDown = false
        for observation in quiet where observation.source == source {
            guard case .controls(let states) = Self.feed(&decoder, observation, isDown: isDown) else { continue }
            // Nobody touched it.
            if states.contains(where: \.isDown) { return nil }
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
                case .garbage:
                    // A rule that does not understand what the button says is no explanation of it.
                    if Self.shouldUnderstand(rule, observation) { return nil }
                }
            }
            let first = round.observations.first { $0.source == source }?.time ?? round.pressAsked
            let outcome = Self.outcome(edges, round, clicks: !rule.clicks.isEmpty, first: first)
            if case .wrong = outcome { return nil }
            outcomes.append(outcome)
        }
        return outcomes
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
        guard let bytes = observation.bytes else { return false }
        switch rule {
        case .value(let rule): return bytes.count == rule.size
        case .bits(let rule): return bytes.count == rule.size
        case .nonzero, .text, .keys: return false
        }
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
