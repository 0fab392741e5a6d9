// The accessories' part of pttd.toml, and of the file in which pttd keeps those that people added.
import BlueZ
import Settings
import Vocabulary

/// Which accessories to use, and the profiles to know them by.
public struct AccessorySettings: Sendable {
    /// Where an administrator's profiles are unless the settings say otherwise.
    public static let profilesDirectory = "/etc/pttd/profiles.d"
    /// Accessories in use at a time.
    package static let accessoriesMax = 64

    /// The accessories that are configured by name.
    public var accessories: [AccessoryConfiguration]
    /// Devices that BlueZ trusts, or is paired with, and that fit a profile are taken without being configured.
    public var takesKnownDevices: Bool
    /// A media player is registered with BlueZ, so that the play keys of headsets are an accessory, "media-player".
    public var registersMediaPlayer: Bool
    /// Bluetooth accessories have to be bonded, those that are taken without being configured too.
    public var isBondedOnly: Bool
    /// Controls may run commands: this is a user's own daemon.
    public var allowsCommands: Bool
    /// Shipped, administrator's and learned profiles.
    public var library: ProfileLibrary
    /// What is wrong with the administrator's profile files that were left out; to be logged.
    public var profileProblems: [SettingsProblem]
    /// Where the administrator's profiles are, when the settings name a folder; it may be missing.
    public var profilesDirectory: String?

    /// Settings as given, for programs that have no file.
    public init(
        accessories: [AccessoryConfiguration] = [], takesKnownDevices: Bool = true, registersMediaPlayer: Bool = false,
        isBondedOnly: Bool = false, allowsCommands: Bool = false,
        library: ProfileLibrary = ProfileLibrary.load(directory: nil).library
    ) {
        self.accessories = accessories
        self.takesKnownDevices = takesKnownDevices
        self.registersMediaPlayer = registersMediaPlayer
        self.isBondedOnly = isBondedOnly
        self.allowsCommands = allowsCommands
        self.library = library
        profileProblems = []
    }

    /// Reads the tables `[accessories]` and `[accessory.NAME]`, both of which may be absent.
    ///
    /// ```toml
    /// [accessories]
    /// automatic = true                       # take trusted devices that fit a profile (default)
    /// media-player = false                   # take the play keys of headsets (AVRCP); other players lose them
    /// bonded-only = false                    # use bonded Bluetooth accessories only
    /// profiles = "/etc/pttd/profiles.d"      # the administrator's profiles (default)
    ///
    /// [accessory.vest]
    /// address = "00:11:22:33:44:55"          # address, or name, or both; neither for one that a udev rule names
    /// name = "PTT-Z*"
    /// profile = "ptt-z"                      # default: recognised
    /// gesture = "toggle"                     # or "hold", "hybrid"; default: the profile's, usually hold
    /// bonded-only = true                     # default: as [accessories] says
    /// sound = "00:11:22:33:44:56"            # who has its microphone and speaker: "own" (default), "none", or an address
    ///
    /// [accessory.vest.bind]                  # default: what the profile's controls are for
    /// soft1 = "channel-up"
    /// soft2 = ["/usr/bin/notify-send", "Help"]   # in a user's own daemon only
    /// ```
    ///
    /// - Parameters:
    ///   - learnedProfiles: The directory of the profiles that people taught, which may be named as well. What is wrong with those is told
    ///     by who keeps them.
    ///   - allowsCommands: Whether controls may run commands: only in a user's own daemon.
    public init(settings root: SettingsTable, learnedProfiles: String? = nil, allowsCommands: Bool = false) {
        let table = root.table("accessories")
        takesKnownDevices = table?.value("automatic", .boolean, default: true) ?? true
        registersMediaPlayer = table?.value("media-player", .boolean, default: false) ?? false
        isBondedOnly = table?.value("bonded-only", .boolean, default: false) ?? false
        self.allowsCommands = allowsCommands
        let directory = table?.value("profiles", .string, default: Self.profilesDirectory) ?? Self.profilesDirectory
        profilesDirectory = table?.contains("profiles") == true ? directory : nil
        var (library, problems) = ProfileLibrary.load(directory: directory)
        profileProblems = problems
        if let learnedProfiles {
            problems += library.add(filesIn: learnedProfiles, keepsOwn: true).leftOut.flatMap(\.error.problems)
        }
        self.library = library
        accessories = []
        for (name, table) in root.namedTables("accessory", countMax: Self.accessoriesMax) {
            accessories.append(
                AccessoryConfiguration(
                    name: name, settings: table, library: library, leftOut: problems, isBondedOnly: isBondedOnly,
                    allowsCommands: allowsCommands))
        }
    }
}

extension AccessoryConfiguration {
    /// - Parameter leftOut: What is wrong with the profile files that `library` is without.
    fileprivate init(
        name: String, settings table: SettingsTable, library: ProfileLibrary, leftOut: [SettingsProblem],
        isBondedOnly: Bool, allowsCommands: Bool
    ) {
        self.init(
            id: AccessoryID(name), address: table.optional("address", .bluetoothAddress),
            name: table.optional("name", .namePattern), profileID: table.optional("profile", .string),
            gesture: table.optional("gesture", .oneOf([("hold", .hold), ("toggle", .toggle), ("hybrid", .hybrid)])),
            isBondedOnly: table.value("bonded-only", .boolean, default: isBondedOnly),
            sound: table.value("sound", .accessorySound, default: .own))
        let profile = profileID.flatMap { library[$0] }
        if let profileID, profile == nil {
            let ids = library.profiles.map(\.id)
            // A file is called as its profile.
            if let reason = leftOut.first(where: { $0.file.hasSuffix("/\(profileID).toml") }) {
                table.problem("profile", "\"\(profileID)\" cannot be used", "\(reason)")
            } else {
                table.problem(
                    "profile", "\"\(profileID)\" is not known",
                    "\(suggestion(for: profileID, among: ids))known: \(ids.joined(separator: ", ")); remove the key to have it "
                        + "recognised")
            }
        }
        let isLocal = profile.map { $0.transport == .input || $0.transport == .serial } ?? false
        if !table.contains("address"), !table.contains("name"), !isLocal, id != .mediaPlayer {
            table.problem(
                nil, "says neither address nor name",
                "add address = \"00:11:22:33:44:55\" (bluetoothctl devices), or name = \"PTT-Z*\"; for a wired one, "
                    + "whose udev rule says ENV{PTTD_ACCESSORY}=\"\(name)\", add the profile of an input device")
        }
        if let profile, let gesture, gesture != .toggle,
            let control = profile.controls.first(where: {
                profile.toggleOnly.contains($0) && profile.defaultAction(of: $0) == .transmit
            })
        {
            table.problem(
                "gesture", "\"\(gesture.rawValue)\" is not possible with profile \"\(profile.id)\"",
                "its \(control.rawValue) control tells no release: write \"toggle\", or remove the key")
        }
        if let bind = table.table("bind") {
            bindings = Self.bindings(bind, profile: profile, allowsCommands: allowsCommands)
        }
    }

    private static func bindings(
        _ table: SettingsTable, profile: AccessoryProfile?, allowsCommands: Bool
    ) -> [Control: ControlAction] {
        var bindings: [Control: ControlAction] = [:]
        for control in Control.allCases {
            guard let words = table.optional(control.rawValue, .oneOrMore(of: .string(lengthMax: 1024), countMax: 64))
            else { continue }
            if let profile, !profile.controls.contains(control) {
                let known = profile.controls.map(\.rawValue).joined(separator: ", ")
                table.problem(
                    control.rawValue, "is not a control of profile \"\(profile.id)\"",
                    known.isEmpty ? "it has none" : "its controls: \(known)")
                continue
            }
            guard let action = action(words) else {
                let known = ControlAction.ofOneWord.map(\.description)
                table.problem(
                    control.rawValue, "\"\(words[0])\" is not an action",
                    "\(suggestion(for: words[0], among: known))write "
                        + "\(known.map { "\"\($0)\"" }.joined(separator: ", ")), or a command as a "
                        + "list, its program with its path: [\"/usr/bin/notify-send\", \"Help\"]")
                continue
            }
            if case .command = action, !allowsCommands {
                table.problem(
                    control.rawValue, "runs a command, which only a user's own daemon does",
                    "bind it in that user's own pttd.toml (systemctl --user enable pttd), or to another action")
                continue
            }
            bindings[control] = action
        }
        return bindings
    }

    private static func action(_ words: [String]) -> ControlAction? {
        if words.count == 1, let action = ControlAction(words[0]) { return action }
        return words[0].hasPrefix("/") ? .command(words) : nil
    }
}

extension AccessoryID {
    /// The play keys of headsets, when the media player is registered.
    public static let mediaPlayer = AccessoryID(LocalDeviceID.mediaPlayer.text)
}

extension SettingType where Value == AccessorySound {
    fileprivate static var accessorySound: Self {
        SettingType<String>.string(lengthMax: 32).parsed(
            placeholder: .own, "is no device with sound",
            "write \"own\", \"none\", or a Bluetooth address such as \"00:11:22:33:44:55\""
        ) { text in
            switch text {
            case "own": .own
            case "none": AccessorySound.none
            default: BluetoothAddress(text).map { .device(address: $0.description) }
            }
        }
    }
}
