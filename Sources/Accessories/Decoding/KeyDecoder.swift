// From the keys of an input device to its controls.

/// Knows which keys of a rule are held. A control with several keys is down while any of them is.
struct KeyDecoder {
    private let controls: [DecodeRule.KeyControl]
    /// Only keys of the rule are kept, so that it is as bounded as the rule.
    private var held: Set<UInt16> = []

    init(_ rule: DecodeRule.Keys) { controls = rule.controls }

    mutating func reset() { held = [] }

    mutating func decode(_ code: UInt16, isDown: Bool) -> DecodedValue {
        guard let control = controls.first(where: { $0.codes.contains(code) }) else { return .controls([]) }
        if isDown { held.insert(code) } else { held.remove(code) }
        let isHeld = control.codes.contains { held.contains($0) }
        return .controls([ControlState(control: control.control, isDown: isHeld)])
    }
}
