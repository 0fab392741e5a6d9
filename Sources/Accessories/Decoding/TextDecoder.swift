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
        }
        if let prefix = rule.batteryPrefix { words.append(Word(bytes: fold(prefix), states: nil)) }
        for word in words { if let byte = word.bytes.first { first[Int(byte)] = true } }
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

    mutating func reset() { pending = [] }

    mutating func decode(_ message: [UInt8]) -> Result {
        var result = Result()
        // Nothing is cut off, however much came at once: the release may be the last word of it.
        let bytes = (pending + message).map(foldByte)
        // A battery level is told as it is.
        let told = pending + message
        pending = []
        var index = 0
        while index < bytes.count {
            let rest = bytes[index...]
            if !first[Int(bytes[index])] {
                if ![0x00, 0x09, 0x0A, 0x0D, 0x20].contains(bytes[index]) { result.skipped += 1 }
                index += 1
            } else if let word = words.first(where: { rest.starts(with: $0.bytes) }) {
                let end = index + word.bytes.count
                if let states = word.states {
                    result.states += states
                    index = end
                } else if end < bytes.count {
                    if told[end] <= 100 { result.battery = Int(told[end]) } else { result.skipped += 1 }
                    index = end + 1
                } else {
                    pending = Array(told[index...])
                    return result
                }
            } else if words.contains(where: { $0.bytes.starts(with: rest) }) {
                pending = Array(told[index...])
                return result
            } else {
                result.skipped += 1
                index += 1
            }
        }
        return result
    }
}

private func fold(_ text: String) -> [UInt8] { text.utf8.map(foldByte) }

private func foldByte(_ byte: UInt8) -> UInt8 {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
}
