// The accessories' part of pttd.toml.
import Settings

/// Which accessories to use, and the profiles to know them by.
public struct AccessorySettings: Sendable {
    /// Where an administrator's profiles are unless the settings say otherwise.
    public static let profilesDirectory = "/etc/pttd/profiles.d"

    /// The accessories that are configured by name.
    public var accessories: [AccessoryConfiguration]
    /// Devices that BlueZ trusts, or is paired with, and that fit a profile are taken without being configured.
    public var takesKnownDevices: Bool
    /// Shipped and administrator's profiles.
    public var library: ProfileLibrary
    /// What is wrong with profile files that were left out; to be logged.
    public var profileProblems: [SettingsProblem]

    /// Settings as given, for programs that have no file.
    public init(
        accessories: [AccessoryConfiguration] = [], takesKnownDevices: Bool = true,
        library: ProfileLibrary = ProfileLibrary.load(directory: nil).library
    ) {
        self.accessories = accessories
        self.takesKnownDevices = takesKnownDevices
        self.library = library
        profileProblems = []
    }

    /// Reads the tables `[accessories]` and `[accessory.NAME]`, both of which may be absent.
    ///
    /// ```toml
    /// [accessories]
    /// automatic = true                       # take trusted devices that fit a profile (default)
    /// profiles = "/etc/pttd/profiles.d"      # the administrator's profiles (default)
    ///
    /// [accessory.vest]
    /// address = "00:11:22:33:44:55"          # address, or name, or both
    /// name = "PTT-Z*"
    /// profile = "ptt-z"                      # default: recognised
    /// gesture = "toggle"                     # default: the profile's, usually hold
    /// ```
    public init(settings root: SettingsTable) {
        let table = root.table("accessories")
        takesKnownDevices = table?.value("automatic", .boolean, default: true) ?? true
        let directory = table?.value("profiles", .string, default: Self.profilesDirectory) ?? Self.profilesDirectory
        let (library, problems) = ProfileLibrary.load(directory: directory)
        self.library = library
        profileProblems = problems
        accessories = root.namedTables("accessory", countMax: AccessoriesStateMachine.accessoriesMax).map {
            AccessoryConfiguration(name: $0.name, settings: $0.table, library: library)
        }
    }
}

extension AccessoryConfiguration {
    fileprivate init(name: String, settings table: SettingsTable, library: ProfileLibrary) {
        self.init(
            id: AccessoryID(name), address: table.optional("address", .bluetoothAddress),
            name: table.optional("name", .namePattern), profileID: table.optional("profile", .string),
            gesture: table.optional("gesture", .oneOf([("hold", .hold), ("toggle", .toggle)])))
        if !table.contains("address"), !table.contains("name") {
            table.problem(
                nil, "says neither address nor name",
                "add address = \"00:11:22:33:44:55\" (bluetoothctl devices), or name = \"PTT-Z*\"")
        }
        if let profileID, library[profileID] == nil {
            let ids = library.profiles.map(\.id)
            let near = nearestName(to: profileID, among: ids).map { "did you mean \"\($0)\"? " } ?? ""
            table.problem(
                "profile", "\"\(profileID)\" is not known",
                "\(near)known: \(ids.joined(separator: ", ")); remove the key to have it recognised")
        }
    }
}

extension SettingType where Value == String {
    /// A Bluetooth device address, in capitals.
    static var bluetoothAddress: Self {
        SettingType<String>.string(lengthMax: 32).map(placeholder: "00:00:00:00:00:00") {
            text throws(SettingRefusal) in
            let parts = text.split(separator: ":", omittingEmptySubsequences: false)
            guard parts.count == 6, parts.allSatisfy({ $0.utf8.count == 2 && $0.allSatisfy(\.isHexDigit) }) else {
                throw SettingRefusal("\"\(text)\" is not a Bluetooth address", "write \"00:11:22:33:44:55\"")
            }
            return text.uppercased()
        }
    }
}
