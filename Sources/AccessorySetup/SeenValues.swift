// The values of one length that a source told while a button was learned, and the rules that they suggest.
import Accessories

/// Values of one length, by what the person was doing.
struct SeenValues {
    let size: Int
    /// While nobody touched anything.
    var calm: [[UInt8]]
    /// While the button was to be held, for each round.
    var pressed: [[[UInt8]]]
    /// After the person was asked to let go, for each round.
    var released: [[[UInt8]]]
    /// While the other keys were pressed.
    var other: [[UInt8]]
    /// All of them, as they came.
    let inOrder: [[UInt8]]
    /// Bytes that may tell the kind of a message.
    private(set) var kinds: [Kind] = []

    init(
        _ source: LearningSource, size: Int, quiet: [LearningObservation], rounds: [LearningRound],
        others: [LearningObservation]
    ) {
        func values(_ observations: [LearningObservation]) -> [[UInt8]] {
            observations.compactMap { $0.source == source && $0.bytes?.count == size ? $0.bytes : nil }
        }
        self.size = size
        calm = values(quiet)
        pressed = rounds.map { values($0.pressed(source)) }
        released = rounds.map { values($0.released(source)) }
        other = values(others)
        inOrder = values((quiet + rounds.flatMap(\.observations) + others).sorted { $0.time < $1.time })
        guard !pressed.contains(where: \.isEmpty) else { return }
        let found = (0..<size).compactMap(kind)
        let sureFirst = found.count <= Self.framesMax ? found : found.filter(\.isSure) + found.filter { !$0.isSure }
        kinds = Array(sureFirst.prefix(Self.framesMax))
    }

    /// The rules that may explain the button, each once.
    var candidates: [RuleCandidate] {
        guard !pressed.contains(where: \.isEmpty) else { return [] }
        let framed = kinds.flatMap { kind -> [RuleCandidate] in
            let own = only(kind.frame)
            guard !own.pressed.contains(where: \.isEmpty) else { return [] }
            return own.candidates(kind.frame).map { candidate in
                var candidate = candidate
                if !kind.isSure { candidate.breadth += RuleCandidate.frameBreadth }
                return candidate
            }
        }
        var plain = candidates(nil)
        if kinds.contains(where: \.isSure) {
            for index in plain.indices { plain[index].breadth += RuleCandidate.mixedBreadth }
        }
        return plain + framed
    }

    /// Only the messages of one kind.
    private func only(_ frame: DecodeRule.Frame) -> SeenValues {
        func isOwn(_ bytes: [UInt8]) -> Bool { bytes[frame.byte] == frame.own }
        var result = self
        result.calm = calm.filter(isOwn)
        result.pressed = pressed.map { $0.filter(isOwn) }
        result.released = released.map { $0.filter(isOwn) }
        result.other = other.filter(isOwn)
        return result
    }

    // MARK: Places

    private func candidates(_ frame: DecodeRule.Frame?) -> [RuleCandidate] {
        (0..<size).flatMap { place -> [RuleCandidate] in
            guard place != frame?.byte else { return [] }
            // Of what changes while nobody touches anything no more than a bit can be a button's.
            guard Set(calm.map { $0[place] }).count <= 2 else { return bits(place, frame) }
            return codes(place, frame) + values(place, frame) + bits(place, frame) + nonzero(place, frame)
        }
    }

    /// In each round: the bytes that came while it was to be held, and the last one.
    private func rounds(_ place: Int) -> [(down: [UInt8], last: UInt8)] {
        zip(pressed, released).map { pressed, released in
            let last = released.last ?? pressed.last
            return (pressed.map { $0[place] }, last.map { $0[place] } ?? 0)
        }
    }

    private func values(_ place: Int, _ frame: DecodeRule.Frame?) -> [RuleCandidate] {
        let rounds = rounds(place)
        let own = Set(zip(pressed, released).flatMap { ($0 + $1).map { $0[place] } })
        let others = Set(other.map { $0[place] })
        func candidate(_ pressed: UInt8, _ released: UInt8?) -> RuleCandidate {
            let foreign = others.subtracting(own)
            let ignored = released.map { events(pressed, $0, others) } ?? []
            let isShared = released != nil && !foreign.isEmpty && ignored.isEmpty
            let control = DecodeRule.ValueControl(control: .ptt, pressed: pressed, released: released)
            return RuleCandidate(
                rule: .value(.init(byte: place, size: size, controls: [control], ignored: ignored, frame: frame)),
                breadth: isShared ? RuleCandidate.sharedBreadth : RuleCandidate.exactBreadth,
                isPlain: released == 0 || released == 0xFF)
        }
        if own.count == 1, let value = own.first { return [candidate(value, nil)] }
        guard own.count == 2 else { return [] }
        return own.sorted().compactMap { value in
            guard let other = own.first(where: { $0 != value }),
                rounds.allSatisfy({ $0.down.contains(value) && $0.last == other })
            else { return nil }
            return candidate(value, other)
        }
    }

    /// Two bytes, the first of which says which key it is, the second whether that is pressed.
    private func codes(_ place: Int, _ frame: DecodeRule.Frame?) -> [RuleCandidate] {
        let foreign = Set(other.map { $0[place] })
        guard place + 1 < size, place + 1 != frame?.byte, !foreign.isEmpty,
            foreign.count <= InputReading.alternativesMax
        else { return [] }
        let known = calm + zip(pressed, released).flatMap { $0 + $1 }
        guard let key = known.first?[place], known.allSatisfy({ $0[place] == key }), !foreign.contains(key)
        else {
            return []
        }
        return values(place + 1, frame).compactMap { candidate in
            guard case .value(var rule) = candidate.rule, let control = rule.controls.first else { return nil }
            // The other keys say pressed and released as it does; a level that sinks does not.
            let states = control.pressed + (control.released ?? [])
            guard other.allSatisfy({ states.contains($0[place + 1]) }) else { return nil }
            rule.byte = place
            rule.ignored = foreign.sorted()
            rule.controls = [
                .init(
                    control: control.control, pressed: [key] + control.pressed,
                    released: control.released.map { [key] + $0 })
            ]
            return RuleCandidate(rule: .value(rule), breadth: RuleCandidate.exactBreadth, isPlain: candidate.isPlain)
        }
    }

    /// The other keys' codes, where each key tells its own press and release, and they differ as the talk key's do: such a key
    /// says nothing about the talk key.
    private func events(_ pressed: UInt8, _ released: UInt8, _ others: Set<UInt8>) -> [UInt8] {
        guard !others.contains(pressed), !others.contains(released), others.count <= InputReading.alternativesMax,
            others.allSatisfy({ others.contains($0 ^ pressed ^ released) })
        else { return [] }
        return others.sorted()
    }

    private func bits(_ place: Int, _ frame: DecodeRule.Frame?) -> [RuleCandidate] {
        let rounds = rounds(place)
        let sequence = zip(pressed, released).flatMap { ($0 + $1).map { $0[place] } }
        guard !Self.isCounter(sequence) else { return [] }
        let known = calm.map { $0[place] } + sequence
        let all = known + other.map { $0[place] }
        let counted = ownKinds(place)
        let changing = known.reduce(0) { $0 | ($1 ^ known[0]) }
        return [false, true].flatMap { isActiveLow -> [RuleCandidate] in
            func read(_ byte: UInt8) -> UInt8 { isActiveLow ? ~byte : byte }
            let seen = all.reduce(0) { $0 | read($1) }
            return (0..<8).map { UInt8(1) << $0 }.filter { bit in
                changing & bit != 0 && !calm.contains { read($0[place]) & bit != 0 }
                    && rounds.allSatisfy { $0.down.contains { read($0) & bit != 0 } && read($0.last) & bit == 0 }
                    && !Self.counts(bit, in: counted) && !Self.isOneOfSeveral(bit, in: all, counted)
            }.map { bit in
                let noise = (changing & ~bit).nonzeroBitCount
                let released = rounds.map(\.last)
                return RuleCandidate(
                    rule: .bits(
                        .init(
                            byte: place, size: size, ignored: seen & ~bit, controls: [.init(control: .ptt, bit: bit)],
                            isActiveLow: isActiveLow, frame: frame)),
                    breadth: RuleCandidate.bitsBreadth + RuleCandidate.noiseBreadth * noise, noise: noise,
                    isPlain: released.allSatisfy { $0 == 0 } || released.allSatisfy { $0 == 0xFF })
            }
        }
    }

    /// Steps of one size: every other one of them looks like a button's bit, until one is lost. Two values that take turns are none.
    private static func isCounter(_ bytes: [UInt8]) -> Bool {
        let steps = Set(zip(bytes, bytes.dropFirst()).map { $1 &- $0 })
        return bytes.count >= 3 && steps.count == 1 && steps != [0] && Set(bytes).count > 2
    }

    /// What a byte was in the rounds: in all messages, and in those of each kind.
    private func ownKinds(_ place: Int) -> [[UInt8]] {
        let inRounds = zip(pressed, released).flatMap { $0 + $1 }
        return [inRounds.map { $0[place] }]
            + kinds.map { kind in
                inRounds.filter { $0[kind.frame.byte] == kind.frame.own }.map { $0[place] }
            }
    }

    /// Whether a bit is the lowest of a count, in all messages or in those of one kind.
    private static func counts(_ bit: UInt8, in kinds: [[UInt8]]) -> Bool { kinds.contains { counts(bit, in: $0) } }

    /// The next bit of a count changes with each end of its lowest one, and at no other time.
    private static func counts(_ bit: UInt8, in bytes: [UInt8]) -> Bool {
        let next = bit << 1
        guard next != 0 else { return false }
        func matches(_ end: UInt8) -> Bool {
            var carries = 0
            for (old, new) in zip(bytes, bytes.dropFirst()) {
                let isCarry = old & bit == end && new & bit != end
                guard ((old ^ new) & next != 0) == isCarry else { return false }
                carries += isCarry ? 1 : 0
            }
            return carries > 1
        }
        return matches(bit) || matches(0)
    }

    /// Whether another bit of the byte always says the same as this one, or the contrary: then they are a code, parts of which other
    /// keys may share.
    private static func isOneOfSeveral(_ bit: UInt8, in bytes: [UInt8], _ kinds: [[UInt8]]) -> Bool {
        (0..<8).map { UInt8(1) << $0 }.contains { other in
            guard other != bit, bytes.contains(where: { ($0 ^ bytes[0]) & other != 0 }) else { return false }
            func isSame(_ byte: UInt8) -> Bool { (byte & bit != 0) == (byte & other != 0) }
            return bytes.allSatisfy { isSame($0) == isSame(bytes[0]) } && !counts(other, in: kinds)
        }
    }

    private func nonzero(_ place: Int, _ frame: DecodeRule.Frame?) -> [RuleCandidate] {
        let rounds = rounds(place)
        let down = Set(rounds.flatMap(\.down)).subtracting([0])
        guard down.count > 1, calm.allSatisfy({ $0[place] == 0 }),
            rounds.allSatisfy({ $0.down.contains { $0 != 0 } && $0.last == 0 })
        else { return [] }
        return [
            RuleCandidate(
                rule: .nonzero(.init(byte: place, size: size, control: .ptt, frame: frame)),
                breadth: RuleCandidate.nonzeroBreadth, isPlain: true)
        ]
    }
}

// MARK: Kinds of message

extension SeenValues {
    /// Kinds of message of one length that are looked at; a byte with more values tells no kind.
    static let kindsMax = 8
    /// Bytes that are taken for ones that tell the kind: all of a value that fits into a packet of the usual size (ATT_MTU of 23).
    static let framesMax = 20
    /// A level sinks or rises by this much at once.
    private static let levelStep = 2

    /// A byte that may tell the kind of a message, so that only messages of the button's kind are read.
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
