// What pttd.toml says of channels nearby.
import BlueZ
import Settings

/// What pttd.toml says of channels nearby.
struct NearbySettings: Sendable, Equatable {
    /// Whether channels are announced and looked for by Bluetooth.
    var usesBluetooth = true
    /// The adapter that does it, by its name or its address in upper case; nil: the first one that is on.
    var adapter: String?
    /// The adapter that offers a network by Bluetooth, by its name or its address; nil: the one that announces.
    var networkAdapter: String?
    /// The bridge behind that network, when there is one of that name.
    var bridge = "pttd-pan"

    /// Whether it may be that adapter.
    func names(_ found: Adapter) -> Bool { Self.isNamed(adapter, found) }

    /// Whether it may offer a network to others.
    func offersNetwork(_ found: Adapter) -> Bool { Self.isNamed(networkAdapter ?? adapter, found) }

    /// Whether the network of another machine may be used by it.
    func mayUseNetwork(_ found: Adapter) -> Bool { Self.isNamed(networkAdapter, found) }

    private static func isNamed(_ name: String?, _ found: Adapter) -> Bool {
        guard let name else { return true }
        return name == found.identifier.name || name == found.address?.description
    }
}

extension Configuration {
    mutating func readNearby(_ root: SettingsTable) {
        guard let table = root.table("nearby") else { return }
        nearby.usesBluetooth = table.value("bluetooth", .boolean, default: true)
        nearby.adapter = table.optional("adapter", Self.adapter)
        nearby.networkAdapter = table.optional("network-adapter", Self.adapter)
        nearby.bridge = table.value("bridge", Self.interface, default: nearby.bridge)
    }

    /// A network interface's name, as the kernel takes it.
    private static var interface: SettingType<String> {
        .text(
            lengthMax: 15, placeholder: "", isNot: "the name of a network interface",
            "write one as \"ip link\" shows it, as in \"pttd-pan\""
        ) { text in
            text == "." || text == ".." || text.contains { $0 == "/" || $0.isWhitespace } ? nil : text
        }
    }

    /// An adapter's name, or its address.
    private static var adapter: SettingType<String> {
        .text(
            lengthMax: 32, placeholder: "", isNot: "a Bluetooth adapter",
            "write its name as in \"hci0\", or its address as \"bluetoothctl list\" shows it"
        ) { text in
            if let address = BluetoothAddress(text) { return address.description }
            return text.hasPrefix("hci") && UInt16(text.dropFirst(3)) != nil ? text : nil
        }
    }
}
