// From the bytes of one characteristic to which controls are down. State in, state out: repeats change nothing.

/// What a value said.
enum DecodedValue: Equatable {
    /// Controls that are down or up after it, in order; those not named are unchanged.
    case controls([ControlState])
    /// Nothing that is understood; why, for the log.
    case garbage(String)
}

/// A control and whether it is down.
struct ControlState: Equatable {
    var control: Control
    var isDown: Bool
}

/// Decodes the values of one characteristic. Only text needs memory between values.
struct InputDecoder {
    private let rule: DecodeRule
    private var text: TextDecoder?
    /// The battery level that the last value told, in percent.
    private(set) var battery: Int?

    init(_ rule: DecodeRule) {
        self.rule = rule
        if case .text(let text) = rule { self.text = TextDecoder(text) }
    }

    /// Forgets what was split between messages: a new connection begins a new text.
    mutating func reset() { text?.reset() }

    /// - Parameter isDown: Whether a control is down before this value.
    mutating func decode(_ bytes: [UInt8], isDown: (Control) -> Bool) -> DecodedValue {
        switch rule {
        case .value(let rule):
            guard let byte = Self.byte(rule.byte, of: bytes, size: rule.size) else { return Self.wrongSize(bytes) }
            guard rule.controls.contains(where: { $0.pressed == byte || $0.released == byte }) else {
                return .garbage("unknown value \(hex(bytes))")
            }
            return .controls(rule.controls.map { ControlState(control: $0.control, isDown: $0.pressed == byte) })
        case .bits(let rule):
            guard let byte = Self.byte(rule.byte, of: bytes, size: rule.size) else { return Self.wrongSize(bytes) }
            let known = rule.controls.reduce(rule.ignored) { $0 | $1.bit }
            guard byte & ~known != 0 else {
                return .controls(rule.controls.map { ControlState(control: $0.control, isDown: byte & $0.bit != 0) })
            }
            // A value that is not understood may end a press, for nothing must stick, but never begin one.
            let released = rule.controls.filter { isDown($0.control) && byte & $0.bit == 0 }
            guard !released.isEmpty else { return .garbage("unknown bits in \(hex(bytes))") }
            return .controls(released.map { ControlState(control: $0.control, isDown: false) })
        case .nonzero(let rule):
            guard let byte = Self.byte(rule.byte, of: bytes, size: rule.size) else { return Self.wrongSize(bytes) }
            return .controls([ControlState(control: rule.control, isDown: byte != 0)])
        case .text:
            guard let result = text?.decode(bytes) else { return .garbage("no text rule") }
            if let level = result.battery { battery = level }
            guard result.states.isEmpty, result.skipped > 0 else { return .controls(result.states) }
            return .garbage("no known word in \(hex(bytes))")
        }
    }

    private static func byte(_ index: Int, of bytes: [UInt8], size: Int) -> UInt8? {
        bytes.count == size && bytes.indices.contains(index) ? bytes[index] : nil
    }

    private static func wrongSize(_ bytes: [UInt8]) -> DecodedValue {
        .garbage("\(bytes.count) bytes: \(hex(bytes))")
    }
}

/// Finds words in a stream that has no separators: glued, split, in either case, with rubbish in between.
struct TextDecoder {
    /// A message longer than this is not a button's; the rest of it is not looked at.
    static let messageMax = 512

    struct Result {
        var states: [ControlState] = []
        var battery: Int?
        /// Bytes that belong to no word. NUL and white space, which some put between words, are not counted.
        var skipped = 0
    }

    private struct Word {
        var bytes: [UInt8]
        /// Nil for the battery word, which one more byte follows.
        var state: ControlState?
    }

    private let words: [Word]
    /// The beginning of a word, waiting for its rest; shorter than the longest word.
    private var pending: [UInt8] = []

    init(_ rule: DecodeRule.Text) {
        var words: [Word] = []
        for control in rule.controls {
            words.append(
                Word(bytes: fold(control.pressed), state: ControlState(control: control.control, isDown: true)))
            words.append(
                Word(bytes: fold(control.released), state: ControlState(control: control.control, isDown: false)))
        }
        if let prefix = rule.batteryPrefix { words.append(Word(bytes: fold(prefix), state: nil)) }
        self.words = words
    }

    mutating func reset() { pending = [] }

    mutating func decode(_ message: [UInt8]) -> Result {
        var result = Result()
        let bytes = pending + message.prefix(Self.messageMax)
        result.skipped += max(0, message.count - Self.messageMax)
        pending = []
        var index = 0
        while index < bytes.count {
            let rest = bytes[index...]
            if let word = words.first(where: { rest.count >= $0.bytes.count && Self.begins(rest, with: $0.bytes) }) {
                let end = index + word.bytes.count
                if let state = word.state {
                    result.states.append(state)
                    index = end
                } else if end < bytes.count {
                    if bytes[end] <= 100 { result.battery = Int(bytes[end]) } else { result.skipped += 1 }
                    index = end + 1
                } else {
                    pending = Array(rest)
                    return result
                }
            } else if words.contains(where: { rest.count < $0.bytes.count && Self.begins($0.bytes[...], with: rest) }) {
                pending = Array(rest)
                return result
            } else {
                if ![0x00, 0x09, 0x0A, 0x0D, 0x20].contains(bytes[index]) { result.skipped += 1 }
                index += 1
            }
        }
        return result
    }

    private static func begins(_ bytes: ArraySlice<UInt8>, with start: some Collection<UInt8>) -> Bool {
        bytes.count >= start.count && zip(bytes, start).allSatisfy { foldByte($0) == foldByte($1) }
    }
}

private func fold(_ text: String) -> [UInt8] { text.utf8.map(foldByte) }

private func foldByte(_ byte: UInt8) -> UInt8 {
    (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) ? byte | 0x20 : byte
}

/// At most 16 bytes in hexadecimal, for the log.
func hex(_ bytes: [UInt8]) -> String {
    let digits = Array("0123456789abcdef")
    let shown = bytes.prefix(16).map { "\(digits[Int($0 >> 4)])\(digits[Int($0 & 15)])" }.joined(separator: " ")
    return bytes.count > 16 ? shown + " …" : shown
}
