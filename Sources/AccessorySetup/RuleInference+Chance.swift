// Whether what looks like a button may be chance: a source that tells by itself has many bits, and one of them soon fits.
import Accessories
import MonotonicTime

extension RuleInference {
    /// Whether a rule of a source that tells by itself may hold by chance: each bit that changes is another rule that might have.
    func isChance(
        _ candidate: RuleCandidate, _ source: LearningSource, _ outcomes: some Sequence<(LearningRound, Outcome)>
    ) -> Bool {
        let isNoisy = chatters(candidate.rule, source) || candidate.noise > 0
        guard candidate.rule.place != nil, isNoisy else { return false }
        func isRead(_ observation: LearningObservation) -> Bool { candidate.rule.reads(observation, of: source) }
        // Every message of the other keys might have looked like a press, and did not.
        var evidence = min(others.count(where: isRead), Self.evidenceMaxOfOthers)
        for case (let round, .held) in outcomes {
            let pressed = round.pressed(source).count(where: isRead)
            let released = round.released(source).count(where: isRead)
            // Of all ways in which so many bits may fall, those with one edge in each part.
            let bits = pressed + released - Self.powerOfTwo(above: pressed * released)
            evidence += min(max(bits, 0), Self.evidenceMaxPerRound)
        }
        return evidence < Self.evidenceNeeded + Self.powerOfTwo(above: changingBits(candidate.rule, source))
    }

    /// Whether messages that a rule reads come while nobody touches anything.
    func chatters(_ rule: DecodeRule, _ source: LearningSource) -> Bool {
        quiet.contains { rule.reads($0, of: source) }
    }

    /// Bits that are not always the same in the messages that a rule reads.
    private func changingBits(_ rule: DecodeRule, _ source: LearningSource) -> Int {
        let values = (quiet + rounds.flatMap(\.observations)).filter { rule.reads($0, of: source) }.compactMap(\.bytes)
        guard let first = values.first else { return 0 }
        return first.indices.reduce(0) { count, place in
            count + values.reduce(0) { $0 | ($1[place] ^ first[place]) }.nonzeroBitCount
        }
    }

    /// The exponent of the smallest power of two that is not below a number.
    private static func powerOfTwo(above number: Int) -> Int {
        number <= 1 ? 0 : Int.bitWidth - (number - 1).leadingZeroBitCount
    }
}

extension DecodeRule {
    /// Whether it takes something for its own: a message of its length and kind; of words and keys, anything.
    func reads(_ observation: LearningObservation, of source: LearningSource) -> Bool {
        guard observation.source == source else { return false }
        guard let place, let bytes = observation.bytes else { return true }
        return bytes.count == place.size && place.frame.map { bytes[$0.byte] == $0.own } ?? true
    }
}
