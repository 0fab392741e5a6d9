// What a profile says, in words for whoever writes or chooses one.
import MonotonicTime
import Vocabulary

extension AccessoryProfile {
    /// What it says, line by line: how the family is recognised, what it needs, and what each control does.
    public var summary: [String] {
        var lines = ["\(id): \(title)", "facts: \(confidence.summary)"]
        if isExperimental { lines.append("experimental: there is one author only behind the facts") }
        if let refusal { lines.append("refused unless it is named: \(refusal)") }
        lines.append("recognised: \(recognition)")
        lines.append("presses come as \(transport.summary)")
        if transport != .input, transport != .serial { lines.append("pairing: \(bonding.summary)") }
        switch battery {
        case .none: break
        case .service: lines.append("battery: from the battery service")
        case .text: lines.append("battery: told in its text")
        }
        if !startCommands.isEmpty || !streamStart.isEmpty { lines.append("start: it is written to before it speaks") }
        if let light {
            let states = AccessoryFeedback.allCases.filter { light.values[$0] != nil }.map(\.rawValue)
            lines.append("light: \(states.joined(separator: ", "))")
        }
        for (number, input) in inputs.enumerated() {
            if let characteristic = input.characteristic, let service = input.service {
                let optional = input.isOptional ? ", where the device has it" : ""
                lines.append("input \(input.name): characteristic \(characteristic) of service \(service)\(optional)")
            } else {
                lines.append("input \(number + 1): \(transport == .input ? "keys" : "words")")
            }
            for control in input.rule.controls { lines.append("    \(summary(of: control, in: input.rule))") }
        }
        return lines
    }

    private var recognition: String {
        if isExplicitOnly { return "never; only used where it is named" }
        var marks: [String] = []
        if !names.isEmpty { marks.append("name \(names.map(\.text).joined(separator: " or "))") }
        if serviceIdentifies { marks.append("its service, under any name") }
        if !inputDevices.isEmpty {
            marks.append("device \(inputDevices.map(\.description).joined(separator: " or "))")
        }
        let properties = udevProperties.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }
        guard !properties.isEmpty else { return marks.joined(separator: "; or ") }
        let condition = "udev property \(properties.joined(separator: " and "))"
        return marks.isEmpty ? condition : "\(marks.joined(separator: "; or ")); and \(condition)"
    }

    private func summary(of control: Control, in rule: DecodeRule) -> String {
        var parts: [String] = []
        switch defaultAction(of: control) {
        case .transmit: parts.append("transmit, \(talkGesture(of: control).rawValue)")
        case .emergency where toggleOnly.contains(control):
            parts.append("emergency, at once, and off by the next press")
        case .emergency: parts.append("emergency, once held for \(emergencyHold.nanoseconds / 1_000_000) ms")
        case .none: parts.append("nothing unless bound")
        case let action: parts.append(action.description)
        }
        if toggleOnly.contains(control) { parts.append("tells no release") }
        return "\(control.rawValue): \(parts.joined(separator: "; ")) (\(rule.summary(of: control)))"
    }
}

extension DecodeRule {
    /// What is sent when a control is pressed and released.
    fileprivate func summary(of control: Control) -> String {
        func edges(_ pressed: String, _ released: String?) -> String {
            released.map { "pressed \(pressed), released \($0)" } ?? "pressed \(pressed)"
        }
        func words(_ words: [String]) -> String { words.map { "\"\($0)\"" }.joined(separator: " or ") }
        switch self {
        case .value(let rule):
            guard let own = rule.controls.first(where: { $0.control == control }) else { return "" }
            return edges(hex(own.pressed), own.released.map(hex))
        case .bits(let rule):
            let bit = rule.controls.first { $0.control == control }?.bit ?? 0
            return "bit 0x\(hexadecimal(bit, digits: 2))\(rule.isActiveLow ? " is 0" : "")"
        case .nonzero: return "anything but zero"
        case .text(let rule):
            guard let own = rule.controls.first(where: { $0.control == control }) else { return "" }
            return edges(words(own.pressed), own.released.isEmpty ? nil : words(own.released))
        case .keys(let rule):
            return rule.controls.first { $0.control == control }?.codes.map(keyText).joined(separator: ", ") ?? ""
        }
    }
}

extension AccessoryProfile.Confidence {
    fileprivate var summary: String {
        switch self {
        case .vendor: "from the maker"
        case .capture: "captured from real devices"
        case .code: "from code that drives the device"
        case .secondary: "told by a third party"
        }
    }
}

extension AccessoryProfile.Transport {
    fileprivate var summary: String {
        switch self {
        case .gatt: "notifications of Bluetooth LE characteristics"
        case .spp: "words of a Bluetooth serial port"
        case .handsFree: "commands of the hands-free profile (needs BlueALSA)"
        case .input: "keys of an input device (needs a udev rule)"
        case .serial: "words of a serial port (needs a udev rule)"
        }
    }
}

extension AccessoryProfile.Bonding {
    fileprivate var summary: String {
        switch self {
        case .never: "never"
        case .asNeeded: "when the device asks for it"
        case .required: "required"
        }
    }
}
