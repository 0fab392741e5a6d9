// Reading a profile file. Whatever contradicts itself is a mistake with a place, never a guess.
import BlueZ
import Settings

extension AccessoryProfile {
    /// The most inputs, start commands and sources of a profile.
    static let inputsMax = 8
    static let startCommandsMax = 8
    static let sourcesMax = 16
    /// The longest attribute in bytes (Bluetooth Core 5.4, Vol 3, Part F, 3.2.9).
    static let attributeMax = 512

    /// Reads a profile file.
    ///
    /// - Parameter file: The name to use in messages.
    /// - Throws: `SettingsError` with everything that is wrong in it.
    public init(bytes: [UInt8], file: String) throws(SettingsError) {
        self = try SettingsFile.read(bytes: bytes, file: file) { Self(settings: $0) }
    }

    private init(settings root: SettingsTable) {
        id = root.required("id", .profileID)
        title = root.required("title", .string(lengthMax: 128))
        confidence = root.required("confidence", .oneOf)
        sources = root.required("sources", .array(of: .string(lengthMax: 512), count: 1...Self.sourcesMax))
        isExperimental = root.value("experimental", .boolean, default: false)
        refusal = root.optional("refusal", .string(lengthMax: 512))
        isExplicitOnly = root.value("explicit", .boolean, default: false)
        transport = root.value("transport", .oneOf, default: .gatt)
        bonding = .never
        battery = root.value("battery", .oneOf, default: .none)
        names = []
        serviceIdentifies = false
        gestures = [:]
        inputs = []
        timing = GestureTiming()
        readBonding(root)
        readMatch(root)
        readTiming(root)
        readInputs(root)
        readOutputs(root)
        checkProvenance(root)
    }

    private mutating func readBonding(_ root: SettingsTable) {
        guard transport == .gatt || transport == .spp || transport == .handsFree else {
            return root.refuse(["bonding"], "is for Bluetooth profiles", "pair input devices with bluetoothctl")
        }
        bonding = root.required("bonding", .oneOf)
    }

    private mutating func readMatch(_ root: SettingsTable) {
        guard let match = root.table("match") else {
            if !isExplicitOnly {
                root.problem(nil, "[match] is missing", "say how the device is recognised, or add explicit = true")
            }
            return
        }
        names = match.value("names", .array(of: .namePattern, count: 1...32), default: [])
        let isLocal = transport == .input || transport == .serial
        if isLocal {
            match.refuse(
                ["services", "service_identifies"], "is for Bluetooth profiles", "use names, devices or udev")
            inputDevices = match.value("devices", .array(of: .inputDeviceID, count: 1...64), default: [])
            if let udev = match.table("udev") { udevProperties = udev.udevProperties() }
        } else {
            match.refuse(
                ["devices", "udev"], "is for transport \"input\" and \"serial\"", "use names and service_identifies")
            advertisedServices = match.value("services", .array(of: .gattUUID, count: 1...16), default: [])
            serviceIdentifies = match.value("service_identifies", .boolean, default: false)
        }
        if serviceIdentifies, transport == .spp || transport == .handsFree {
            match.problem(
                "service_identifies", "cannot be: every such device has the same service", "recognise it by its names")
        }
        let says = !names.isEmpty || serviceIdentifies || !inputDevices.isEmpty || !udevProperties.isEmpty
        if isExplicitOnly, says {
            match.problem(nil, "is never used: the profile is explicit", "remove [match], or explicit = true")
        } else if !isExplicitOnly, !says {
            let advice = isLocal ? "names, devices or [match.udev]" : "names = [\"…*\"], or service_identifies = true"
            match.problem(nil, "nothing would ever match", "add \(advice)")
        }
    }

    private mutating func readTiming(_ root: SettingsTable) {
        guard let table = root.table("timing") else { return }
        let window = SettingType<Duration>.duration(in: .zero ... .seconds(2))
        timing = GestureTiming(
            debounce: table.value("debounce", window, default: .zero),
            minimumHold: table.value("minimum_hold", window, default: .zero),
            hybridHold: table.value(
                "hybrid_hold", .duration(in: .milliseconds(100) ... .seconds(5)),
                default: GestureTiming.usualHybridHold))
        emergencyHold = table.value(
            "emergency_hold", .duration(in: .zero ... .seconds(10)), default: Self.usualEmergencyHold)
    }

    private mutating func readInputs(_ root: SettingsTable) {
        let tables = root.tables("input", countMax: Self.inputsMax)
        if tables.isEmpty, refusal == nil {
            root.problem(nil, "no [[input]]", "add one with decode and its [[input.control]] tables")
        }
        if tables.count > 1, transport != .gatt {
            tables[1].problem(
                nil, "a second input: \"\(transport.rawValue)\" has one", "describe all controls in the first")
        }
        var reading = InputReading(transport: transport)
        for (number, table) in tables.enumerated() {
            let input = reading.input(table, number: number)
            if inputs.contains(where: { $0.name == input.name }) {
                table.problem("name", "two inputs are called \"\(input.name)\"", "give each its own name")
            }
            let isTwice =
                transport == .gatt
                && inputs.contains { $0.characteristic == input.characteristic && $0.service == input.service }
            if isTwice {
                table.problem("characteristic", "is used by another input", "describe all its controls in one input")
            }
            inputs.append(input)
        }
        gestures = reading.gestures
        toggleOnly = reading.toggleOnly
        if !inputs.isEmpty, inputs.allSatisfy(\.isOptional) {
            root.problem("input", "every input is optional", "one has to be there: remove its 'optional'")
        }
        if serviceIdentifies, inputs.isEmpty, advertisedServices.isEmpty {
            root.problem("match", "service_identifies without a service", "add services = [\"…\"], or an [[input]]")
        }
        let readsBatteryText = inputs.contains {
            if case .text(let rule) = $0.rule { rule.batteryPrefix != nil } else { false }
        }
        if (battery == .text) != readsBatteryText {
            root.problem(
                root.contains("battery") ? "battery" : nil, "\"text\" and an input's battery_prefix go together",
                "use both, or neither")
        }
        if battery == .service, transport != .gatt {
            root.problem("battery", "\"service\" is a GATT service", "remove it")
        }
    }

    private mutating func readOutputs(_ root: SettingsTable) {
        if transport == .gatt {
            root.refuse(["start_bytes"], "is for streams", "use [[start]] with service, characteristic and value")
            startCommands = root.tables("start", countMax: Self.startCommandsMax).map { table in
                CharacteristicWrite(
                    service: table.required("service", .gattUUID),
                    characteristic: table.required("characteristic", .gattUUID),
                    value: table.required("value", .bytes))
            }
            light = root.table("light").map { Light(settings: $0) }
            idleLink = root.table("idle_link").map { IdleLink(settings: $0) }
        } else {
            root.refuse(["start", "light", "idle_link"], "is for transport \"gatt\"", "remove it")
            if transport == .spp {
                streamStart = root.value("start_bytes", .bytes, default: [])
            } else {
                root.refuse(["start_bytes"], "is for transport \"spp\"", "remove it")
            }
        }
        if inputs.isEmpty, refusal != nil {
            for key in ["start", "start_bytes", "light", "idle_link", "timing"] where root.contains(key) {
                root.problem(key, "nothing uses it: the profile has no input", "remove it")
            }
        }
    }

    private func checkProvenance(_ root: SettingsTable) {
        if refusal != nil, isExplicitOnly {
            root.problem(
                "refusal", "nobody would be told: an explicit profile is never recognised",
                "remove explicit = true, or the refusal")
        }
        if sources.count == 1, confidence == .code || confidence == .secondary, !isExperimental, refusal == nil {
            root.problem("sources", "has one author only", "add experimental = true, or another source")
        }
    }
}

extension AccessoryProfile.Light {
    fileprivate init(settings table: SettingsTable) {
        service = table.required("service", .gattUUID)
        characteristic = table.required("characteristic", .gattUUID)
        values = [:]
        for state in AccessoryFeedback.allCases { values[state] = table.optional(state.rawValue, .bytes) }
        if !AccessoryFeedback.allCases.contains(where: { table.contains($0.rawValue) }) {
            let states = AccessoryFeedback.allCases.map(\.rawValue).joined(separator: ", ")
            table.problem(nil, "says nothing to write", "add bytes for any of \(states)")
        }
    }
}

extension AccessoryProfile.IdleLink {
    fileprivate init(settings table: SettingsTable) {
        // The ranges of the controller (Bluetooth Core 5.4, Vol 4, Part E, 7.8.18).
        interval = table.required("interval", .duration(in: .microseconds(7_500) ... .seconds(4)))
        latency = table.value("latency", .integer(in: 0...499), default: 0)
        supervisionTimeout = table.required("supervision_timeout", .duration(in: .milliseconds(100) ... .seconds(32)))
        if supervisionTimeout <= interval * 2 * (1 + latency) {
            table.problem(
                "supervision_timeout", "is too short: the controller would refuse",
                "write more than 2 × interval × (1 + latency)")
        }
    }
}

extension SettingsTable {
    /// Reports keys that another kind of profile has.
    func refuse(_ keys: [String], _ message: String, _ advice: String) {
        for key in keys where contains(key) { problem(key, message, advice) }
    }

    /// The properties of `[match.udev]`.
    fileprivate func udevProperties() -> [String: String] {
        var properties: [String: String] = [:]
        for name in keys {
            let isName = name.unicodeScalars.allSatisfy {
                ("A"..."Z").contains($0) || ("0"..."9").contains($0) || $0 == "_"
            }
            if !isName || name.isEmpty {
                problem(name, "is no udev property", "write names as 'udevadm info' shows them: ID_USB_DRIVER")
            }
            properties[name] = required(name, .string(lengthMax: 256))
        }
        return properties
    }
}
