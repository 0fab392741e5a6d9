// Every rule that might explain a button, from what was seen of it; which one does is RuleInference's business.
import Accessories

/// A rule that might explain a button, and how much it claims.
struct RuleCandidate {
    var rule: DecodeRule
    /// Of rules that explain the same, the one that claims the least is taken.
    var breadth: Int
    /// Bits of the button's byte that change without the button.
    var noise = 0
    /// Released is all zeros or all ones, as a checksum hardly is.
    var isPlain = false

    /// Words are found wherever they stand in a message, which a value of fixed size is not.
    static let wordBreadth = -10
    /// Words that bytes may spell by chance: values of one size, without a word that begins as another does.
    static let chanceWordBreadth = 40
    static let exactBreadth = 0
    static let bitsBreadth = 10
    /// For each bit of the byte that changes without the button.
    static let noiseBreadth = 10
    /// More than a bit's: a byte that other keys change as well is better read bit by bit.
    static let sharedBreadth = 15
    static let frameBreadth = 30
    /// A rule that takes messages of several kinds for one.
    static let mixedBreadth = 50
    static let nonzeroBreadth = 100
}

/// The rules that one source's observations suggest.
struct RuleCandidates {
    /// Longer values are not looked into: a button's are short.
    static let sizeMax = 64
    /// The battery word that is known.
    static let batteryPrefix = "BATT"

    let source: LearningSource
    let quiet: [LearningObservation]
    let rounds: [LearningRound]
    /// What came while the other keys were pressed.
    let others: [LearningObservation]

    /// All of them, each once; the order does not matter.
    var all: [RuleCandidate] {
        if case .keys = source { return keys.map { RuleCandidate(rule: $0, breadth: RuleCandidate.exactBreadth) } }
        let text = SeenText(source, quiet: quiet, rounds: rounds, others: others)
        return source.isStream || text.isCutAnywhere ? text.candidates : text.candidates + values
    }

    private var values: [RuleCandidate] {
        let sizes = Set(rounds.flatMap(\.observations).filter { $0.source == source }.compactMap { $0.bytes?.count })
        return sizes.filter { (1...Self.sizeMax).contains($0) }.sorted().flatMap { size in
            SeenValues(source, size: size, quiet: quiet, rounds: rounds, others: others).candidates
        }
    }

    // MARK: Keys

    private var keys: [DecodeRule] {
        var codes: Set<UInt16> = []
        for observation in rounds.flatMap(\.observations) where observation.source == source {
            if case .key(let code, true) = observation.content { codes.insert(code) }
        }
        return codes.sorted().map { .keys(.init(controls: [.init(control: .ptt, codes: [$0])])) }
    }

    static func isBattery(_ bytes: [UInt8]) -> Bool {
        bytes.count == batteryPrefix.utf8.count + 1 && bytes.starts(with: batteryPrefix.utf8) && bytes[4] <= 100
    }
}
