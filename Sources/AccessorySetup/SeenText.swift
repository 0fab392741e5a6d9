// The text that a source told while a button was learned, and the words that it suggests.
import Accessories
import MonotonicTime

/// Text by what the person was doing, cut where it pauses and where lines end.
struct SeenText {
    /// Text of a window that is looked at, in characters.
    static let textMax = 240
    /// The longest word of a profile.
    static let wordMax = 64
    /// Words for pressed, and for released, that are tried.
    private static let wordsMax = 12
    /// What comes within this time of each other may be one line in parts.
    private static let pause = Duration.milliseconds(25)
    /// Letters, and characters of any kind, that values hardly spell by chance.
    private static let lettersMin = 3
    private static let charactersMin = 4

    /// What was told at once: its messages, one after the other.
    private struct Line {
        var parts: [[UInt8]]
        var bytes: [UInt8] { parts.flatMap { $0 } }
    }

    private let isStream: Bool
    private let battery: String?
    private let isText: Bool
    /// Whether messages come in one length only.
    private let isOfOneSize: Bool
    /// Whether it is text in parts of any length: no part of it is a value.
    var isCutAnywhere: Bool {
        isText && !isOfOneSize && pressed.allSatisfy { $0.contains { isWord($0.bytes) } }
    }
    private let calm: [Line]
    private let pressed: [[Line]]
    private let released: [[Line]]
    private let other: [Line]
    /// Lines without their numbers that came while nobody touched the button.
    private let foreign: Set<[UInt8]>

    init(
        _ source: LearningSource, quiet: [LearningObservation], rounds: [LearningRound], others: [LearningObservation]
    ) {
        isStream = source.isStream
        let own = (quiet + rounds.flatMap(\.observations)).filter { $0.source == source }.compactMap(\.bytes)
        battery = own.contains(where: RuleCandidates.isBattery) ? RuleCandidates.batteryPrefix : nil
        let messages = own.filter { !RuleCandidates.isBattery($0) }
        let bytes = messages.flatMap { $0 }
        // A zero before the end of a message is no end of a word, but a value.
        let isValue = !isStream && messages.contains { $0.drop { $0 != 0 }.contains { $0 != 0 } }
        let texts = bytes.count(where: Self.isText)
        isText = !bytes.isEmpty && !isValue && (isStream ? texts * 10 >= bytes.count * 9 : texts == bytes.count)
        isOfOneSize = !isStream && Set(messages.map(\.count)).count == 1
        func lines(_ observations: [LearningObservation]) -> [Line] {
            Self.lines(observations.filter { $0.source == source })
        }
        calm = lines(quiet)
        pressed = rounds.map { lines($0.pressed(source)) }
        released = rounds.map { lines($0.released(source)) }
        other = lines(others)
        foreign = Set((calm + other).map { Self.shape($0.bytes) })
    }

    /// The rules that may explain the button, each once.
    var candidates: [RuleCandidate] {
        guard isText else { return [] }
        let told = pressed.filter { !$0.isEmpty }
        let answered = released.filter { !$0.isEmpty }
        let ups = words(answered)
        let downs = words(told)
        var result: [RuleCandidate] = []
        for up in ups {
            // A contact that bounces says released as well when it is pressed.
            let bounced = words(told.map { $0.flatMap { Self.cut($0, by: up) } })
            for down in Set(downs + bounced).sorted(by: { $0.lexicographicallyPrecedes($1) }) {
                guard !Self.begins(down, up), !Self.begins(up, down), !Self.contains(down, up) else { continue }
                // What a press begins with is no release.
                guard isWord(down),
                    !told.contains(where: { $0.first { !isForeign($0) }?.bytes.starts(with: up) ?? false })
                else { continue }
                result.append(candidate(down, up))
            }
        }
        // Pressed and let go within the window in which it was to be held: clicks. All that a press tells is one word then.
        if answered.isEmpty { result += downs.filter { isWord($0) && isAll($0, pressed) }.map { candidate($0, nil) } }
        if told.isEmpty { result += ups.filter { isWord($0) && isAll($0, released) }.map { candidate($0, nil) } }
        return result.filter(explains)
    }

    /// Whether what every press tells, and is not told without it, has one of the rule's words.
    private func explains(_ candidate: RuleCandidate) -> Bool {
        guard case .text(let rule) = candidate.rule else { return false }
        let words = rule.controls.flatMap { $0.pressed + $0.released }.map { Array($0.utf8) }
        let windows = pressed.filter { !$0.isEmpty }.map { lines in Set(lines.map { Self.shape($0.bytes) }) }
        return (pressed.first ?? []).allSatisfy { line in
            let shape = Self.shape(line.bytes)
            return isForeign(line) || !windows.allSatisfy { $0.contains(shape) }
                || words.contains { Self.contains(line.bytes, $0) }
        }
    }

    /// Whether it is text, and no value whose bytes look like some.
    private func isWord(_ bytes: [UInt8]) -> Bool {
        isStream || bytes.count >= Self.charactersMin || bytes.count(where: Self.isLetter) >= Self.lettersMin
    }

    // MARK: Rules

    private func candidate(_ down: [UInt8], _ up: [UInt8]?) -> RuleCandidate {
        let control = DecodeRule.TextControl(
            control: .ptt, pressed: [String(decoding: down, as: UTF8.self)],
            released: up.map { [String(decoding: $0, as: UTF8.self)] } ?? [])
        let common = up.map { Self.common(Self.folded(down), Self.folded($0)) } ?? down
        let isChance = isOfOneSize && common.count(where: Self.isLetter) < Self.lettersMin
        var breadth = isChance ? RuleCandidate.chanceWordBreadth : RuleCandidate.wordBreadth
        if let up {
            // The button's word comes first; what follows may be something else that is told now and then.
            for (pressed, released) in zip(pressed, released) where !pressed.isEmpty && !released.isEmpty {
                let first = pressed.first { Self.contains($0.bytes, down) || !isForeign($0) }
                if first.map({ !$0.bytes.starts(with: down) }) ?? true { breadth += 2 }
                let answer = released.first { !Self.contains($0.bytes, down) && !isForeign($0) }
                if answer.map({ !$0.bytes.starts(with: up) }) ?? true { breadth += 2 }
            }
        }
        let ignored = up.map { unrelated(down, $0) }
        return RuleCandidate(
            rule: .text(.init(controls: [control], batteryPrefix: battery, ignored: ignored)), breadth: breadth)
    }

    /// What is told without the button, or while it is held, or behind its words, and is none of its words.
    private func unrelated(_ down: [UInt8], _ up: [UInt8]) -> [String] {
        let own = Self.common(Self.folded(down), Self.folded(up))
        // Keys that say what the talk key says tell of its state.
        let isShared = other.contains { Self.contains($0.bytes, up) || Self.contains($0.bytes, down) }
        var lines = calm.map(\.bytes) + (isShared ? [] : other.map(\.bytes))
        for (pressed, released) in zip(pressed, released) {
            lines += pressed.map(\.bytes)
            lines += released.map(\.bytes).filter { Self.contains($0, up) || Self.contains($0, down) }
        }
        var words: [[UInt8]] = []
        for line in lines where words.count < InputReading.alternativesMax {
            for piece in Self.cut(Line(parts: [line]), by: up).flatMap({ Self.cut($0, by: down) }) {
                for word in piece.bytes.split(whereSeparator: { Self.isDigit($0) || $0 < 0x20 || $0 >= 0x7F }) {
                    let folded = Self.folded(Self.withoutSpaces(Array(word)))
                    let isOwn = own.count > 1 && Self.contains(folded, own)
                    let isPart = [down, up].map(Self.folded).contains {
                        Self.contains($0, folded) && folded.contains(where: Self.isLetter) || $0.starts(with: folded)
                    }
                    guard !folded.isEmpty, !isOwn, !isPart, word.count <= Self.wordMax, !words.contains(folded) else {
                        continue
                    }
                    words.append(folded)
                }
            }
        }
        return words.prefix(InputReading.alternativesMax).map { String(decoding: $0, as: UTF8.self) }
    }

    /// Whether a line also came while nobody touched the button.
    private func isForeign(_ line: Line) -> Bool { foreign.contains(Self.shape(line.bytes)) }

    /// Whether nothing but this word is told, and what is told without the button.
    private func isAll(_ word: [UInt8], _ windows: [[Line]]) -> Bool {
        windows.joined().allSatisfy { line in
            isForeign(line) || Self.cut(line, by: word).allSatisfy { !$0.bytes.contains(where: Self.isLetter) }
        }
    }

    // MARK: Words

    /// What a line of each window begins with, and the whole lines before their numbers; the likeliest first.
    private func words(_ windows: [[Line]]) -> [[UInt8]] {
        guard let first = windows.first else { return [] }
        var result: [[UInt8]] = []
        func add(_ word: [UInt8]) {
            let word = Self.root(Self.withoutSpaces(word))
            guard !word.isEmpty, word.count <= Self.wordMax, word.contains(where: { !Self.isDigit($0) }),
                !result.contains(word), result.count < Self.wordsMax
            else { return }
            result.append(word)
        }
        var seen: Set<[UInt8]> = []
        for line in first where seen.insert(line.bytes).inserted && seen.count <= Self.wordsMax {
            // In each window the line that has most in common with it.
            var common = line.bytes
            for window in windows.dropFirst() {
                common = window.map { Self.common(common, $0.bytes) }.max { $0.count < $1.count } ?? []
            }
            let next = windows.flatMap { $0 }.filter { $0.bytes.starts(with: common) && $0.bytes.count > common.count }
                .map { $0.bytes[common.count] }
            // A number that goes on differently each time counts something: its first digits are no part of the word.
            let counts = Set(next).count > 1 && next.contains(where: Self.isDigit)
            add(counts ? Array(common.reversed().drop(while: Self.isDigit).reversed()) : common)
            // Where every window has a border between two messages a word may end.
            var start: [UInt8] = []
            for part in line.parts.dropLast() {
                start += part
                let isBorder = windows.allSatisfy { $0.contains { Self.starts($0).contains(start) } }
                if isBorder { add(start) }
            }
        }
        return result
    }

    /// What the line begins with up to each border of its messages.
    private static func starts(_ line: Line) -> [[UInt8]] {
        line.parts.indices.map { line.parts[...$0].flatMap { $0 } }
    }

    /// Lines: what comes without a pause, up to what ends a line.
    private static func lines(_ observations: [LearningObservation]) -> [Line] {
        var result: [Line] = []
        var last: Instant?
        var isOpen = false
        var size = 0
        for observation in observations {
            guard let bytes = observation.bytes, !RuleCandidates.isBattery(bytes), size < textMax else { continue }
            size += bytes.count
            if let last, observation.time - last > pause { isOpen = false }
            last = observation.time
            for piece in pieces(bytes) {
                let text = piece.filter { (0x20...0x7E).contains($0) }
                if !text.isEmpty {
                    if isOpen {
                        result[result.count - 1].parts.append(text)
                    } else {
                        result.append(Line(parts: [text]))
                    }
                    isOpen = true
                }
                if text.count < piece.count { isOpen = false }
            }
        }
        return result
    }

    /// A message cut behind each byte that is no text.
    private static func pieces(_ bytes: [UInt8]) -> [[UInt8]] {
        var result: [[UInt8]] = [[]]
        for byte in bytes {
            result[result.count - 1].append(byte)
            if !(0x20...0x7E).contains(byte) { result.append([]) }
        }
        return result.filter { !$0.isEmpty }
    }

    /// What is left of a line without a word.
    private static func cut(_ line: Line, by word: [UInt8]) -> [Line] {
        var result: [Line] = []
        var piece: [UInt8] = []
        var rest = line.bytes[...]
        while let byte = rest.first {
            if rest.starts(with: word) {
                rest = rest.dropFirst(word.count)
                if !piece.isEmpty { result.append(Line(parts: [piece])) }
                piece = []
            } else {
                piece.append(byte)
                rest = rest.dropFirst()
            }
        }
        return piece.isEmpty ? result : result + [Line(parts: [piece])]
    }

    /// A line without its numbers.
    private static func shape(_ bytes: [UInt8]) -> [UInt8] { folded(bytes.filter { !isDigit($0) }) }

    private static func common(_ one: [UInt8], _ other: [UInt8]) -> [UInt8] {
        Array(one.prefix(zip(one, other).prefix { $0 == $1 }.count))
    }

    private static func contains(_ text: [UInt8], _ word: [UInt8]) -> Bool {
        guard !word.isEmpty, word.count <= text.count else { return false }
        return (0...(text.count - word.count)).contains { text[$0...].starts(with: word) }
    }

    private static func begins(_ text: [UInt8], _ start: [UInt8]) -> Bool { folded(text).starts(with: folded(start)) }

    private static func withoutSpaces(_ word: [UInt8]) -> [UInt8] {
        let space = UInt8(ascii: " ")
        return Array(word.drop { $0 == space }.reversed().drop { $0 == space }.reversed())
    }

    /// A word that was sent again and again is one word.
    private static func root(_ word: [UInt8]) -> [UInt8] {
        for length in 1..<max(2, word.count) where word.count % length == 0 && length < word.count {
            let start = word.prefix(length)
            let repeats = stride(from: length, to: word.count, by: length)
            if repeats.allSatisfy({ word[$0...].starts(with: start) }) { return Array(start) }
        }
        return word
    }

    private static func isText(_ byte: UInt8) -> Bool {
        (0x20...0x7E).contains(byte) || [0x00, 0x09, 0x0A, 0x0D].contains(byte)
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(foldByte(byte))
    }

    private static func folded(_ bytes: [UInt8]) -> [UInt8] { bytes.map(foldByte) }
}
