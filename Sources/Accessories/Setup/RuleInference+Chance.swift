// Whether what looks like a button may be chance: a source that tells by itself has many bits, and one of them soon fits.
import MonotonicTime

extension RuleInference {
    /// Whether a rule of a source that tells by itself may hold by chance: each bit that changes is another rule that might have.
    func isChance(
        _ rule: DecodeRule, _ source: LearningSource, _ outcomes: some Sequence<(LearningRound, Outcome)>
    ) -> Bool {
        guard let size = rule.valueSize, chatters(source) else { return false }
        var evidence = 0
        for case (let round, .held) in outcomes {
            let pressed = round.pressed(source).count { $0.bytes?.count == size }
            let released = round.released(source).count { $0.bytes?.count == size }
            // Of all ways in which so many bits may fall, those with one edge in each part.
            let bits = pressed + released - Self.powerOfTwo(above: pressed * released)
            evidence += min(max(bits, 0), Self.evidenceMaxPerRound)
        }
        return evidence < Self.evidenceNeeded + Self.powerOfTwo(above: changingBits(source))
    }

    /// Bits of a source's values that are not always the same, over values of each size.
    private func changingBits(_ source: LearningSource) -> Int {
        var first: [Int: [UInt8]] = [:]
        var changing: [Int: [UInt8]] = [:]
        for observation in quiet + rounds.flatMap(\.observations) where observation.source == source {
            guard let bytes = observation.bytes, bytes.count <= RuleCandidates.sizeMax else { continue }
            guard let known = first[bytes.count] else {
                first[bytes.count] = bytes
                continue
            }
            let old = changing[bytes.count] ?? [UInt8](repeating: 0, count: bytes.count)
            changing[bytes.count] = bytes.indices.map { old[$0] | (bytes[$0] ^ known[$0]) }
        }
        return changing.values.joined().reduce(0) { $0 + $1.nonzeroBitCount }
    }

    /// The exponent of the smallest power of two that is not below a number.
    private static func powerOfTwo(above number: Int) -> Int {
        number <= 1 ? 0 : Int.bitWidth - (number - 1).leadingZeroBitCount
    }
}

extension DecodeRule {
    /// How long the values are that it reads bits or bytes of; nil for words and keys.
    fileprivate var valueSize: Int? {
        switch self {
        case .value(let rule): rule.size
        case .bits(let rule): rule.size
        case .nonzero(let rule): rule.size
        case .text, .keys: nil
        }
    }
}
