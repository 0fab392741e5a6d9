// From a stream of words without separators to controls.

/// Finds words in a stream that has no separators: glued, split, in either case, with rubbish in between.
struct TextDecoder {
    struct Result {
        /// In the order of the words; a click is down, then up.
        var states: [ControlState] = []
        var battery: Int?
        /// Bytes that belong to no word. NUL and white space, which some put between words, are not counted.
        var skipped = 0
    }

    private struct Word {
        var bytes: [UInt8]
        /// Nil for the battery word, which one more byte follows.
        var states: [ControlState]?
    }

    /// What a control's words have in common: what follows it is the control's, though it is none of its words.
    private struct Field {
        var control: Control
        var start: [UInt8]
        /// What follows in the words; where the start ends with a letter or digit, another kind of byte begins another word.
        var kinds: Set<Kind>?
    }

    private enum Kind {
        case letter, digit, other

        init(_ byte: UInt8) {
            switch byte {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): self = .digit
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): self = .letter
            default: self = .other
            }
        }
    }

    /// A shorter start is in too many words to say whose they are.
    private static let startMin = 2

    private var fields: [Field] = []
    /// Words that tell of something else; nil: any text may.
    private var ignored: [[UInt8]]?
    /// The controls that text ends which is none of the words.
    private var endable: [ControlState] = []
    /// The last word of the last message, when it ends with a digit: more of them make it another number.
    private var open: [ControlState] = []
    private var words: [Word] = []
    /// The bytes that a word begins with.
    private var first = [Bool](repeating: false, count: 256)
    /// The beginning of a word, waiting for its rest; shorter than the longest word.
    private var pending: [UInt8] = []
    /// How much is kept for the next message.
    var pendingCount: Int { pending.count }

    init(_ rule: DecodeRule.Text) {
        for control in rule.controls {
            let down = ControlState(control: control.control, isDown: true)
            let up = ControlState(control: control.control, isDown: false)
            for word in control.pressed { add(word, control.released.isEmpty ? [down, up] : [down]) }
            for word in control.released { add(word, [up]) }
            guard !control.released.isEmpty else { continue }
            addField(control)
            if rule.ignored != nil {
                endable.append(ControlState(control: control.control, isDown: false, isCertain: false))
            }
        }
        // The longest first: one may begin another.
        ignored = rule.ignored?.map(fold).filter { !$0.isEmpty }.sorted { $0.count > $1.count }
        if let prefix = rule.batteryPrefix { words.append(Word(bytes: fold(prefix), states: nil)) }
        for word in words.map(\.bytes) + (ignored ?? []) { if let byte = word.first { first[Int(byte)] = true } }
    }

    /// Controls may share a word for released: it then releases all of them.
    private mutating func add(_ text: String, _ states: [ControlState]) {
        let bytes = fold(text)
        if let index = words.firstIndex(where: { $0.bytes == bytes }) {
            words[index].states? += states
        } else {
            words.append(Word(bytes: bytes, states: states))
        }
    }

    private mutating func addField(_ control: DecodeRule.TextControl) {
        let words = (control.pressed + control.released).map(fold)
        let shortest = words.map(\.count).min() ?? 0
        let count = (0..<shortest).first { index in Set(words.map { $0[index] }).count > 1 } ?? shortest
        guard count < shortest, let first = words.first else { return }
        // A number is a whole: what begins with other digits is the control's as well.
        let end = first[..<count].lastIndex { Kind($0) != .digit }.map { $0 + 1 } ?? 0
        guard end >= Self.startMin else { return }
        let kinds = Kind(first[end - 1]) == .other ? nil : Set(words.map { Kind($0[end]) })
        fields.append(Field(control: control.control, start: Array(first[..<end]), kinds: kinds))
    }

    mutating func reset() { (pending, open) = ([], []) }

    mutating func decode(_ message: [UInt8]) -> Result {
        var result = Result()
        // Nothing is cut off, however much came at once: the release may be the last word of it.
        let bytes = (pending + message).map(foldByte)
        // A battery level is told as it is.
        let told = pending + message
        pending = []
        if let byte = bytes.first, Kind(byte) == .digit { result.states += open }
        if !message.isEmpty { open = [] }
        var index = 0
        while index < bytes.count {
            let rest = bytes[index...]
            if !first[Int(bytes[index])] {
                skip(bytes[index], &result)
                index += 1
            } else if let word = words.first(where: { rest.starts(with: $0.bytes) }) {
                let end = index + word.bytes.count
                if let states = word.states {
                    // Another number is another word.
                    let isNumber = Kind(bytes[end - 1]) == .digit
                    let isLonger = isNumber && end < bytes.count && Kind(bytes[end]) == .digit
                    let doubts = states.map { ControlState(control: $0.control, isDown: false, isCertain: false) }
                    result.states += isLonger ? doubts : states
                    if isLonger { result.skipped += word.bytes.count }
                    if isNumber, end == bytes.count { open = doubts }
                    index = end
                } else if end < bytes.count {
                    if told[end] <= 100 { result.battery = Int(told[end]) } else { result.skipped += 1 }
                    index = end + 1
                } else {
                    pending = Array(told[index...])
                    return result
                }
            } else if words.contains(where: { $0.bytes.starts(with: rest) })
                || ignored?.contains(where: { $0.count > rest.count && $0.starts(with: rest) }) == true
            {
                pending = Array(told[index...])
                return result
            } else if let word = ignored?.first(where: rest.starts) {
                index += word.count
            } else {
                for field in fields where rest.starts(with: field.start) {
                    guard field.kinds?.contains(Kind(rest[index + field.start.count])) ?? true else { continue }
                    result.states.append(ControlState(control: field.control, isDown: false, isCertain: false))
                }
                skip(bytes[index], &result)
                index += 1
            }
        }
        return result
    }

    /// A byte that belongs to no word: numbers go with words of any kind, and white space with none.
    private func skip(_ byte: UInt8, _ result: inout Result) {
        guard ![0x00, 0x09, 0x0A, 0x0D, 0x20].contains(byte) else { return }
        result.skipped += 1
        if Kind(byte) != .digit { result.states += endable }
    }
}

private func fold(_ text: String) -> [UInt8] { text.utf8.map(foldByte) }

/// An ASCII letter as a small one; any other byte as it is.
package func foldByte(_ byte: UInt8) -> UInt8 {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
}
