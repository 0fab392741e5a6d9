// Which byte of a value tells what kind of message it is, so that only messages of the button's kind are read.
import Accessories

extension SeenValues {
    /// Kinds of message of one length that are looked at; a byte with more values tells no kind.
    static let kindsMax = 8
    /// A level sinks or rises by this much at once.
    private static let levelStep = 2

    /// A byte that may tell the kind of a message.
    struct Kind {
        var frame: DecodeRule.Frame
        /// Whether nothing but another kind explains the messages that differ in it.
        var isSure: Bool
    }

    /// A byte that is the same in each press and release, and something else in other messages.
    func kind(_ place: Int) -> Kind? {
        let known = calm + zip(pressed, released).flatMap { $0 + $1 }
        let all = known + other
        let values = Set(all.map { $0[place] })
        guard (2...Self.kindsMax).contains(values.count) else { return nil }
        let shared = zip(pressed, released).reduce(values) { shared, round in
            shared.intersection(round.0.map { $0[place] }).intersection(round.1.map { $0[place] })
        }
        guard let own = shared.first, shared.count == 1, !Self.isLevel(inOrder.map({ $0[place] })) else { return nil }
        let foreign = Set(other.map { $0[place] })
        let frame = DecodeRule.Frame(byte: place, own: own, others: values.subtracting([own]).sorted())
        // The other keys' kinds, where each key tells of itself only.
        if known.allSatisfy({ $0[place] == own }), !foreign.contains(own) { return Kind(frame: frame, isSure: true) }
        let usual = template(inOrder.filter { $0[place] == own }, besides: place)
        let isSure = all.allSatisfy { $0[place] == own || differs($0, from: usual) }
        // What differs in this byte only may tell of the state as well: a byte that other keys change does.
        guard isSure || foreign.isSubset(of: known.map { $0[place] }) else { return nil }
        return Kind(frame: frame, isSure: isSure)
    }

    /// What the button's messages have at each place; nil where anything may stand: a count, a measured value, a checksum.
    private func template(_ messages: [[UInt8]], besides place: Int) -> [Set<UInt8>?] {
        let values = (0..<size).map { other in Set(messages.map { $0[other] }) }
        // What is new in most messages says nothing about their kind.
        let isStable = values.indices.map { other in
            values[other].count * 3 <= messages.count * 2
                && (values[other].count == 1 || !Self.isLevel(messages.map { $0[other] }))
        }
        let changes = values.indices.contains { $0 != place && $0 < size - 1 && values[$0].count > 1 }
        return values.indices.map { other in
            // A checksum differs with whatever differs.
            let isChecksum = other == size - 1 && changes && values[other].count > 1
            return other == place || !isStable[other] || isChecksum ? nil : values[other]
        }
    }

    private func differs(_ message: [UInt8], from template: [Set<UInt8>?]) -> Bool {
        zip(message, template).contains { byte, values in values.map { !$0.contains(byte) } ?? false }
    }

    /// Whether bytes sink or rise slowly, and never come back.
    private static func isLevel(_ values: [UInt8]) -> Bool {
        let steps = zip(values, values.dropFirst()).map { Int($1) - Int($0) }
        return steps.allSatisfy { (-levelStep...0).contains($0) } || steps.allSatisfy { (0...levelStep).contains($0) }
    }
}
