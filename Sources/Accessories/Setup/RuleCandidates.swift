// Every rule that might explain a button, from what was seen of it; which one does is RuleInference's business.

/// The rules that one source's observations suggest.
struct RuleCandidates {
    /// Longer values are not looked into: a button's are short.
    static let sizeMax = 64
    /// Different bytes in one place that are looked at; a place with more of them counts something.
    static let bytesMax = 6
    /// Text of a window that is looked at, in characters.
    static let textMax = 160
    /// The longest word of a profile.
    static let wordMax = 64
    /// The battery word that is known.
    static let batteryPrefix = "BATT"

    let source: LearningSource
    let quiet: [LearningObservation]
    let rounds: [LearningRound]

    /// All of them, each once; the order does not matter.
    var rules: [DecodeRule] {
        if case .keys = source { return keys }
        let text = texts
        return source.isStream ? text : text + values
    }

    // MARK: Keys

    private var keys: [DecodeRule] {
        var codes: Set<UInt16> = []
        for observation in rounds.flatMap(\.observations) where observation.source == source {
            if case .key(let code, true) = observation.content { codes.insert(code) }
        }
        return codes.sorted().map { .keys(.init(controls: [.init(control: .ptt, codes: [$0])])) }
    }

    // MARK: Values

    private var values: [DecodeRule] {
        let sizes = Set(rounds.flatMap(\.observations).filter { $0.source == source }.compactMap { $0.bytes?.count })
        return sizes.filter { (1...Self.sizeMax).contains($0) }.sorted().flatMap { values(size: $0) }
    }

    private func values(size: Int) -> [DecodeRule] {
        let calm = quiet.filter { $0.source == source }.compactMap(\.bytes).filter { $0.count == size }
        let pressed = rounds.map { $0.pressed(source).compactMap(\.bytes).filter { $0.count == size } }
        let released = rounds.map { $0.released(source).compactMap(\.bytes).filter { $0.count == size } }
        return (0..<size).flatMap { place -> [DecodeRule] in
            // What changes while nobody touches anything is no button.
            guard Set(calm.map { $0[place] }).count <= 2 else { return [] }
            let down = Set(pressed.flatMap { $0.map { $0[place] } })
            let up = Set((released + pressed).compactMap { $0.last?[place] })
            let all = down.union(released.flatMap { $0.map { $0[place] } }).union(calm.map { $0[place] })
            let sequence = zip(pressed, released).flatMap { ($0 + $1).map { $0[place] } }
            var rules = Self.isCounter(sequence) ? [] : bits(place, size, all)
            rules.append(.nonzero(.init(byte: place, size: size, control: .ptt)))
            guard down.count <= Self.bytesMax, up.count <= Self.bytesMax else { return rules }
            for value in down.union(up).sorted() {
                let clicks = DecodeRule.ValueControl(control: .ptt, pressed: value, released: nil)
                rules.append(.value(.init(byte: place, size: size, controls: [clicks])))
                for other in up.sorted() where other != value {
                    let both = DecodeRule.ValueControl(control: .ptt, pressed: value, released: other)
                    rules.append(.value(.init(byte: place, size: size, controls: [both])))
                }
            }
            return rules
        }
    }

    /// Steps of one size: every other one of them looks like a button's bit, until one is lost.
    private static func isCounter(_ bytes: [UInt8]) -> Bool {
        let steps = Set(zip(bytes, bytes.dropFirst()).map { $1 &- $0 })
        return bytes.count >= 3 && steps.count == 1 && steps != [0]
    }

    private func bits(_ place: Int, _ size: Int, _ all: Set<UInt8>) -> [DecodeRule] {
        let seen = all.reduce(0) { $0 | $1 }
        return (0..<8).map { UInt8(1) << $0 }.filter { bit in
            seen & bit != 0 && all.contains { $0 & bit == 0 }
        }.map { bit in
            .bits(.init(byte: place, size: size, ignored: seen & ~bit, controls: [.init(control: .ptt, bit: bit)]))
        }
    }

    // MARK: Text

    private var texts: [DecodeRule] {
        let calm = quiet.filter { $0.source == source }
        let all = calm + rounds.flatMap(\.observations).filter { $0.source == source }
        let messages = all.compactMap(\.bytes).filter { !Self.isBattery($0) }
        let bytes = messages.flatMap { $0 }
        guard !bytes.isEmpty, bytes.count(where: Self.isText) * 10 >= bytes.count * 9 else { return [] }
        let battery = all.contains { $0.bytes.map(Self.isBattery) ?? false } ? Self.batteryPrefix : nil
        let pressed = rounds.map { Self.text($0.pressed(source)) }.filter { !$0.isEmpty }
        let released = rounds.map { Self.text($0.released(source)) }.filter { !$0.isEmpty }
        var rules: [DecodeRule] = []
        func add(_ press: String?, _ release: String?) {
            guard let press else { return }
            if let release, Self.begins(press, release) || Self.begins(release, press) { return }
            rules.append(
                .text(
                    .init(
                        controls: [.init(control: .ptt, pressed: [press], released: release.map { [$0] } ?? [])],
                        batteryPrefix: battery)))
        }
        if let press = Self.word(pressed) {
            // It may have been repeated until the button was let go.
            add(press, Self.word(released.map { Self.without(press, in: $0) }.filter { !$0.isEmpty }))
        }
        // Pressed and let go within the window in which it was to be held: clicks.
        add(Self.word(pressed), nil)
        add(Self.word(released), nil)
        return rules
    }

    static func isBattery(_ bytes: [UInt8]) -> Bool {
        bytes.count == batteryPrefix.utf8.count + 1 && bytes.starts(with: batteryPrefix.utf8) && bytes[4] <= 100
    }

    private static func isText(_ byte: UInt8) -> Bool {
        (0x20...0x7E).contains(byte) || [0x00, 0x09, 0x0A, 0x0D].contains(byte)
    }

    /// Words with nothing between them; what cannot be part of a word is a line feed.
    private static func text(_ observations: [LearningObservation]) -> [UInt8] {
        let bytes = observations.compactMap(\.bytes).filter { !isBattery($0) }.flatMap { $0 }
        return bytes.prefix(textMax).map { (0x21...0x7E).contains($0) ? $0 : UInt8(ascii: "\n") }
    }

    /// The longest word that all texts have; nil when they have none.
    private static func word(_ texts: [[UInt8]]) -> String? {
        guard let first = texts.min(by: { $0.count < $1.count }) else { return nil }
        for length in stride(from: first.count, through: 1, by: -1) {
            for start in 0...(first.count - length) {
                let candidate = first[start..<(start + length)]
                guard !candidate.contains(UInt8(ascii: "\n")) else { continue }
                guard texts.allSatisfy({ contains($0, candidate) }) else { continue }
                let word = root(trimmed(Array(candidate), in: texts))
                guard !word.isEmpty, word.count <= wordMax else { return nil }
                return String(decoding: word, as: UTF8.self)
            }
        }
        return nil
    }

    private static func without(_ word: String, in text: [UInt8]) -> [UInt8] {
        let word = Array(word.utf8)
        var result: [UInt8] = []
        var rest = text[...]
        while let byte = rest.first {
            if rest.starts(with: word) {
                rest = rest.dropFirst(word.count)
                if !result.isEmpty { result.append(UInt8(ascii: "\n")) }
            } else {
                result.append(byte)
                rest = rest.dropFirst()
            }
        }
        return result
    }

    private static func contains(_ text: [UInt8], _ word: ArraySlice<UInt8>) -> Bool {
        !starts(of: word, in: text).isEmpty
    }

    private static func starts(of word: ArraySlice<UInt8>, in text: [UInt8]) -> [Int] {
        guard word.count <= text.count else { return [] }
        return (0...(text.count - word.count)).filter { text[$0...].starts(with: word) }
    }

    /// A number that goes on differently each time counts something: its first digits are no part of the word.
    private static func trimmed(_ word: [UInt8], in texts: [[UInt8]]) -> [UInt8] {
        func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
        let next = texts.compactMap { text -> UInt8? in
            guard let start = starts(of: word[...], in: text).first, start + word.count < text.count else { return nil }
            return text[start + word.count]
        }
        guard Set(next).count > 1, next.allSatisfy(isDigit) else { return word }
        return Array(word.reversed().drop(while: isDigit).reversed())
    }

    /// A word that was sent again and again is one word.
    private static func root(_ word: [UInt8]) -> [UInt8] {
        for length in 1...max(1, word.count) where length < word.count && word.count % length == 0 {
            let start = word.prefix(length)
            let repeats = stride(from: length, to: word.count, by: length)
            if repeats.allSatisfy({ word[$0...].starts(with: start) }) { return Array(start) }
        }
        return word
    }

    /// Letters match in either case.
    private static func begins(_ text: String, _ start: String) -> Bool {
        text.lowercased().utf8.starts(with: start.lowercased().utf8)
    }
}
