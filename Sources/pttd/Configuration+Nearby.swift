// What pttd.toml says of channels nearby.
import BlueZ
import Settings

/// What pttd.toml says of channels nearby.
struct NearbySettings: Sendable, Equatable {
    /// Whether channels are announced and looked for by Bluetooth.
    var usesBluetooth = true
    /// The adapter that does it, by its name or its address in upper case; nil: the first one that is on.
    var adapter: String?

    /// Whether it may be that adapter.
    func names(_ found: Adapter) -> Bool {
        guard let adapter else { return true }
        return adapter == found.identifier.name || adapter == found.address?.description
    }
}

extension Configuration {
    mutating func readNearby(_ root: SettingsTable) {
        guard let table = root.table("nearby") else { return }
        nearby.usesBluetooth = table.value("bluetooth", .boolean, default: true)
        nearby.adapter = table.optional("adapter", Self.adapter)
    }

    /// An adapter's name, or its address.
    private static var adapter: SettingType<String> {
        SettingType<String>.string(lengthMax: 32).map(placeholder: "") { text throws(SettingRefusal) in
            if let address = BluetoothAddress(text) { return address.description }
            guard text.hasPrefix("hci"), UInt16(text.dropFirst(3)) != nil else {
                throw SettingRefusal(
                    "\"\(text)\" is no Bluetooth adapter",
                    "write its name as in \"hci0\", or its address as \"bluetoothctl list\" shows it")
            }
            return text
        }
    }
}
