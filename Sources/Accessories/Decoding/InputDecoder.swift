// From the bytes or keys of one input to which controls are down. State in, state out: repeats change nothing.

/// What a value said.
enum DecodedValue: Equatable {
    /// Controls that are down or up after it, in order; those not named are unchanged. A click is down, then up.
    case controls([ControlState])
    /// Nothing that is understood; why, for the log.
    case garbage(String)
}

/// A control and whether it is down.
struct ControlState: Equatable {
    var control: Control
    var isDown: Bool
}

/// Decodes the values of one input. Only text and keys need memory between values.
struct InputDecoder {
    private let rule: DecodeRule
    private var text: TextDecoder?
    private var keys: KeyDecoder?
    /// The battery level that the last value told, in percent.
    private(set) var battery: Int?

    init(_ rule: DecodeRule) {
        self.rule = rule
        switch rule {
        case .text(let text): self.text = TextDecoder(text)
        case .keys(let keys): self.keys = KeyDecoder(keys)
        case .value, .bits, .nonzero: break
        }
    }

    /// Forgets what was split between messages and which keys are held: a new connection begins anew.
    mutating func reset() {
        text?.reset()
        keys?.reset()
    }

    /// A key of an input device went down or came up. Keys that the rule does not name are nothing.
    mutating func decode(key code: UInt16, isDown: Bool) -> DecodedValue {
        keys?.decode(code, isDown: isDown) ?? .garbage("a key, where bytes are expected")
    }

    /// - Parameter isDown: Whether a control is down before this value.
    mutating func decode(_ bytes: [UInt8], isDown: (Control) -> Bool) -> DecodedValue {
        switch rule {
        case .value(let rule):
            guard bytes.count == rule.size, bytes.indices.contains(rule.byte) else { return Self.wrongSize(bytes) }
            return Self.decode(bytes, rule)
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
        case .keys:
            return .garbage("\(bytes.count) bytes, where keys are expected: \(hex(bytes))")
        }
    }

    /// A code says which control is down; all others of the input that tell releases are up.
    private static func decode(_ bytes: [UInt8], _ rule: DecodeRule.Values) -> DecodedValue {
        func says(_ code: [UInt8]) -> Bool { bytes[rule.byte...].starts(with: code) }
        var isKnown = false
        var states: [ControlState] = []
        for control in rule.controls {
            let isPressed = says(control.pressed)
            isKnown = isKnown || isPressed || control.released.map(says) ?? false
            if isPressed { states.append(ControlState(control: control.control, isDown: true)) }
            if control.released == nil ? isPressed : !isPressed {
                states.append(ControlState(control: control.control, isDown: false))
            }
        }
        return isKnown ? .controls(states) : .garbage("unknown value \(hex(bytes))")
    }

    private static func byte(_ index: Int, of bytes: [UInt8], size: Int) -> UInt8? {
        bytes.count == size && bytes.indices.contains(index) ? bytes[index] : nil
    }

    private static func wrongSize(_ bytes: [UInt8]) -> DecodedValue {
        .garbage("\(bytes.count) bytes: \(hex(bytes))")
    }
}

/// At most 16 bytes in hexadecimal, for the log.
func hex(_ bytes: [UInt8]) -> String {
    let shown = bytes.prefix(16).map { hexadecimal($0, digits: 2) }.joined(separator: " ")
    return bytes.count > 16 ? shown + " …" : shown
}
