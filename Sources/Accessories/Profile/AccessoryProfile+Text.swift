// A profile as the text of its file, for profiles that a program has learned. Reading the text gives an equal profile.
import BlueZ
import Vocabulary

extension AccessoryProfile {
    /// The profile as TOML. What has its default is left out.
    public var text: String {
        var text = ProfileText()
        text.line("id", quoted(id))
        text.line("title", quoted(title))
        text.line("confidence", quoted(confidence.rawValue))
        text.line("sources", array(sources.map(quoted)))
        if isExperimental { text.line("experimental", "true") }
        if let refusal { text.line("refusal", quoted(refusal)) }
        if isExplicitOnly { text.line("explicit", "true") }
        if transport != .gatt { text.line("transport", quoted(transport.rawValue)) }
        if transport == .gatt || transport == .spp || transport == .handsFree {
            text.line("bonding", quoted(bonding.rawValue))
        }
        if battery != .none { text.line("battery", quoted(battery.rawValue)) }
        if !streamStart.isEmpty { text.line("start_bytes", bytes(streamStart)) }
        writeMatch(&text)
        writeTiming(&text)
        for (number, input) in inputs.enumerated() { write(input, number: number, &text) }
        writeOutputs(&text)
        return text.text
    }

    private func writeMatch(_ text: inout ProfileText) {
        guard !isExplicitOnly else { return }
        text.table("[match]")
        if !names.isEmpty { text.line("names", array(names.map { quoted($0.text) })) }
        if serviceIdentifies { text.line("service_identifies", "true") }
        if !advertisedServices.isEmpty {
            text.line("services", array(advertisedServices.map { quoted($0.rawValue) }))
        }
        if !inputDevices.isEmpty { text.line("devices", array(inputDevices.map { quoted($0.description) })) }
        guard !udevProperties.isEmpty else { return }
        text.table("[match.udev]")
        for (name, value) in udevProperties.sorted(by: { $0.key < $1.key }) { text.line(name, quoted(value)) }
    }

    private func writeTiming(_ text: inout ProfileText) {
        let usual = GestureTiming()
        guard timing != usual || emergencyHold != Self.usualEmergencyHold else { return }
        text.table("[timing]")
        if timing.debounce != usual.debounce { text.line("debounce", time(timing.debounce)) }
        if timing.minimumHold != usual.minimumHold { text.line("minimum_hold", time(timing.minimumHold)) }
        if timing.hybridHold != usual.hybridHold { text.line("hybrid_hold", time(timing.hybridHold)) }
        if emergencyHold != Self.usualEmergencyHold { text.line("emergency_hold", time(emergencyHold)) }
    }

    private func writeOutputs(_ text: inout ProfileText) {
        for command in startCommands {
            text.table("[[start]]")
            text.line("service", quoted(command.service.rawValue))
            text.line("characteristic", quoted(command.characteristic.rawValue))
            text.line("value", bytes(command.value))
        }
        if let light {
            text.table("[light]")
            text.line("service", quoted(light.service.rawValue))
            text.line("characteristic", quoted(light.characteristic.rawValue))
            for state in AccessoryFeedback.allCases {
                if let value = light.values[state] { text.line(state.rawValue, bytes(value)) }
            }
        }
        if let idleLink {
            text.table("[idle_link]")
            text.line("interval", time(idleLink.interval))
            text.line("latency", "\(idleLink.latency)")
            text.line("supervision_timeout", time(idleLink.supervisionTimeout))
        }
    }

    private func write(_ input: Input, number: Int, _ text: inout ProfileText) {
        text.table("[[input]]")
        if input.name != "\(number + 1)" { text.line("name", quoted(input.name)) }
        if let service = input.service { text.line("service", quoted(service.rawValue)) }
        if let characteristic = input.characteristic { text.line("characteristic", quoted(characteristic.rawValue)) }
        if input.isReadable { text.line("readable", "true") }
        if input.isOptional { text.line("optional", "true") }
        if let repeats = input.repeats { text.line("repeats", repeats ? "true" : "false") }
        func place() {
            guard let place = input.rule.place else { return }
            if place.byte != 0 { text.line("byte", "\(place.byte)") }
            if place.size != 1 { text.line("size", "\(place.size)") }
            guard let frame = place.frame else { return }
            if frame.byte != 0 { text.line("frame_byte", "\(frame.byte)") }
            text.line("frame", byte(frame.own))
            if !frame.others.isEmpty { text.line("other_frames", oneOrMore(frame.others.map(byte))) }
        }
        let clicks = input.rule.clicks
        func control(_ name: Control) {
            text.table("[[input.control]]")
            text.line("name", quoted(name.rawValue))
            let isToggleOnly = toggleOnly.contains(name)
            if isToggleOnly, !clicks.contains(name) { text.line("toggle_only", "true") }
            let usual = InputReading.usualGesture(name, isToggleOnly: isToggleOnly)
            if let gesture = gestures[name], gesture != usual { text.line("gesture", quoted(gesture.rawValue)) }
        }
        switch input.rule {
        case .value(let rule):
            text.line("decode", quoted("value"))
            place()
            if !rule.ignored.isEmpty { text.line("ignored_values", oneOrMore(rule.ignored.map(byte))) }
            for value in rule.controls {
                control(value.control)
                text.line("pressed", oneOrMore(value.pressed.map(byte)))
                if let released = value.released { text.line("released", oneOrMore(released.map(byte))) }
            }
        case .bits(let rule):
            text.line("decode", quoted("bits"))
            place()
            if rule.isActiveLow { text.line("active_low", "true") }
            if rule.ignored != 0 { text.line("ignored_bits", byte(rule.ignored)) }
            for bit in rule.controls {
                control(bit.control)
                text.line("bit", byte(bit.bit))
            }
        case .nonzero(let rule):
            text.line("decode", quoted("nonzero"))
            place()
            control(rule.control)
        case .text(let rule):
            text.line("decode", quoted("text"))
            if let prefix = rule.batteryPrefix { text.line("battery_prefix", quoted(prefix)) }
            if let ignored = rule.ignored { text.line("ignored_words", array(ignored.map(quoted))) }
            for words in rule.controls {
                control(words.control)
                text.line("pressed", oneOrMore(words.pressed.map(quoted)))
                if !words.released.isEmpty { text.line("released", oneOrMore(words.released.map(quoted))) }
            }
        case .keys(let rule):
            text.line("decode", quoted("keys"))
            for keys in rule.controls {
                control(keys.control)
                text.line("keys", array(keys.codes.map { quoted(keyText($0)) }))
            }
        }
    }
}

/// Lines of TOML; a table's header stands after an empty line.
private struct ProfileText {
    var text = ""

    mutating func line(_ key: String, _ value: String) { text += "\(key) = \(value)\n" }

    mutating func table(_ header: String) { text += "\n\(header)\n" }
}

private func array(_ elements: [String]) -> String { "[\(elements.joined(separator: ", "))]" }

private func oneOrMore(_ elements: [String]) -> String { elements.count == 1 ? elements[0] : array(elements) }

private func byte(_ value: UInt8) -> String { "0x\(hexadecimal(value, digits: 2))" }

private func bytes(_ values: [UInt8]) -> String { array(values.map(byte)) }

/// A basic string (toml.io/en/v1.0.0#string).
package func quoted(_ text: String) -> String {
    var result = "\""
    for scalar in text.unicodeScalars {
        switch scalar {
        case "\"", "\\": result += "\\\(scalar)"
        case "\u{00}"..."\u{1F}", "\u{7F}": result += "\\u\(hexadecimal(scalar.value, digits: 4))"
        default: result.unicodeScalars.append(scalar)
        }
    }
    return result + "\""
}

/// A time to the microsecond: "1.5s" is written "1500ms", 7.5 ms "7.5ms".
private func time(_ duration: Duration) -> String {
    let (seconds, attoseconds) = duration.components
    let microseconds = seconds * 1_000_000 + attoseconds / 1_000_000_000_000
    let (milliseconds, rest) = microseconds.quotientAndRemainder(dividingBy: 1_000)
    guard rest != 0 else {
        return milliseconds % 1_000 == 0 && milliseconds != 0 ? "\"\(milliseconds / 1_000)s\"" : "\"\(milliseconds)ms\""
    }
    let digits = String(rest)
    return "\"\(milliseconds).\(String(repeating: "0", count: 3 - digits.count) + digits)ms\""
}
