// From the bytes or keys of one input to which controls are down. State in, state out: repeats change nothing.
// What tells of a held control and says neither pressed nor released ends it; what tells of something else does not.

/// What a value said.
package enum DecodedValue: Equatable {
    /// Controls that are down or up after it, in order; those not named are unchanged. A click is down, then up.
    case controls([ControlState])
    /// As `controls`, and of some of them the value says neither pressed nor released, or nothing of it is understood; why, for the log.
    case unclear([ControlState], String)
}

/// A control and whether it is down.
package struct ControlState: Equatable {
    package var control: Control
    package var isDown: Bool
    /// False: what tells of this control said neither pressed nor released. That ends what is held, and proves no release.
    package var isCertain = true
}

/// Decodes the values of one input. Only text and keys need memory between values.
package struct InputDecoder {
    private let rule: DecodeRule
    private var text: TextDecoder?
    /// Which keys of the rule are held, so that it is as bounded as the rule.
    private var heldKeys: Set<UInt16> = []
    /// The battery level that was told last since the connection, in percent.
    package private(set) var battery: Int?

    package init(_ rule: DecodeRule) {
        self.rule = rule
        if case .text(let text) = rule { self.text = TextDecoder(text) }
    }

    /// Forgets what was split between messages, which keys are held, and the battery level: a new connection begins anew.
    mutating func reset() {
        text?.reset()
        heldKeys = []
        battery = nil
    }

    /// A key of an input device went down or came up. Keys that the rule does not name are nothing. A control with several keys is down
    /// while any of them is.
    package mutating func decode(key code: UInt16, isDown: Bool) -> DecodedValue {
        guard case .keys(let rule) = rule else { return .unclear([], "a key, where bytes are expected") }
        guard let control = rule.controls.first(where: { $0.codes.contains(code) }) else { return .controls([]) }
        if isDown { heldKeys.insert(code) } else { heldKeys.remove(code) }
        let isHeld = control.codes.contains { heldKeys.contains($0) }
        return .controls([ControlState(control: control.control, isDown: isHeld)])
    }

    /// - Parameter isDown: Whether a control is down before this value.
    package mutating func decode(_ bytes: [UInt8], isDown: (Control) -> Bool) -> DecodedValue {
        if let place = rule.place {
            guard bytes.count == place.size, bytes.indices.contains(place.byte) else {
                return .unclear([], "\(bytes.count) bytes: \(hex(bytes))")
            }
            if let frame = place.frame, let other = other(bytes, frame, isDown) { return other }
        }
        switch rule {
        case .value(let rule): return Self.decode(bytes, rule, isDown)
        case .bits(let rule):
            let byte = rule.isActiveLow ? ~bytes[rule.byte] : bytes[rule.byte]
            let known = rule.controls.reduce(rule.ignored) { $0 | $1.bit }
            guard byte & ~known != 0 else {
                return .controls(rule.controls.map { ControlState(control: $0.control, isDown: byte & $0.bit != 0) })
            }
            let up = rule.controls.filter { byte & $0.bit == 0 }.map(\.control)
            return Self.unclear(up, isDown, "unknown bits in \(hex(bytes))")
        case .nonzero(let rule):
            return .controls([ControlState(control: rule.control, isDown: bytes[rule.byte] != 0)])
        case .text:
            guard let result = text?.decode(bytes) else { return .unclear([], "no text rule") }
            if let level = result.battery { battery = level }
            return Self.words(result, isDown, bytes)
        case .keys:
            return .unclear([], "\(bytes.count) bytes, where keys are expected: \(hex(bytes))")
        }
    }

    /// A message of another kind than the controls'; nil: it is theirs.
    private func other(
        _ bytes: [UInt8], _ frame: DecodeRule.Frame, _ isDown: (Control) -> Bool
    ) -> DecodedValue? {
        guard bytes.indices.contains(frame.byte) else { return nil }
        if bytes[frame.byte] == frame.own { return nil }
        if frame.others.contains(bytes[frame.byte]) { return .controls([]) }
        return Self.unclear(rule.controls, isDown, "unknown kind of message \(hex(bytes))")
    }

    /// A value that is not understood may end a press, for nothing must stick, but never begin one.
    private static func unclear(
        _ controls: [Control], _ isDown: (Control) -> Bool, _ reason: String
    ) -> DecodedValue {
        .unclear(
            controls.filter(isDown).map { ControlState(control: $0, isDown: false, isCertain: false) }, reason)
    }

    private static func words(
        _ result: TextDecoder.Result, _ isDown: (Control) -> Bool, _ bytes: [UInt8]
    ) -> DecodedValue {
        if result.states.contains(where: \.isCertain) {
            let isClear = result.states.allSatisfy(\.isCertain)
            return isClear ? .controls(result.states) : .unclear(result.states, "unknown words in \(hex(bytes))")
        }
        guard result.skipped > 0 || !result.states.isEmpty else { return .controls([]) }
        return unclear(result.states.map(\.control), isDown, "no known word in \(hex(bytes))")
    }

    /// A code says which control is down; all others of the input that tell releases are up.
    private static func decode(
        _ bytes: [UInt8], _ rule: DecodeRule.Values, _ isDown: (Control) -> Bool
    ) -> DecodedValue {
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
        guard !isKnown else { return .controls(states) }
        if rule.ignored.contains(bytes[rule.byte]) { return .controls([]) }
        let held = rule.controls.filter { $0.released != nil }.map(\.control)
        return unclear(held, isDown, "unknown value \(hex(bytes))")
    }
}

/// At most 16 bytes in hexadecimal, for the log.
func hex(_ bytes: [UInt8]) -> String {
    let shown = bytes.prefix(16).map { hexadecimal($0, digits: 2) }.joined(separator: " ")
    return bytes.count > 16 ? shown + " …" : shown
}
