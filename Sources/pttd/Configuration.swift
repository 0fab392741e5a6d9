// pttd.toml: its settings and their defaults.
import Accessories
import AccessorySetup
import Audio
import Bridge
import ChannelService
import Files
import FoundationEssentials
import Glibc
import Headsets
import Recordings
import RelayClient
import RelayProtocol
import Settings
import SpokenPrompts
import WebSockets

/// The daemon's configuration. Everything has a default: without a file, `pttd` hosts a relay of its own.
struct Configuration {
    /// Which bus `org.pttd` is served on.
    enum Bus: Equatable {
        /// The system bus for root and system users, the session bus for everybody else.
        case automatic
        case system
        case session
        case address(String)
    }

    /// What others on the channel see.
    var displayName: String
    var bus = Bus.automatic
    var blueZBus = Bus.system
    /// Where the machine's key is kept, if the command line or the file says; see `stateDirectory`.
    var state: String?
    /// The configured channels; none: an embedded relay on loopback, with the channel "Local".
    var channels: [ConfiguredChannel] = []
    /// How relays may be reached, but for the environment's proxy.
    var network = RelayNetwork.automatic
    /// What the file says of proxies; nil: nothing.
    var configuredProxy: ProxyPolicy?
    /// The sound devices, and the rules of the channel.
    var sound = ChannelServiceConfiguration(microphone: .alsa("default"), speaker: .alsa("default"))
    /// The microphone, or the speaker, of a worn accessory is used in place of the configured one.
    var followsMicrophone = true
    var followsSpeaker = true
    var bluetoothLink = HeadsetsStateMachine.LinkUse.onPress
    /// What is spoken; nil: nothing.
    var prompts: PromptSettings?
    /// What the administrator allows.
    var policy = JoinPolicy()
    /// Where bursts are kept as files; nil: they are not.
    var recordings: RecordingSettings?
    /// Whether the desktop shows push to talk; nil: on the session bus, which is a user's.
    var desktop: Bool?
    /// How channels nearby are announced and found.
    var nearby = NearbySettings()
    /// The accessories, and the profiles to know them by.
    var accessories = AccessorySettings()

    /// The defaults.
    ///
    /// - Parameter state: The state directory that the command line names.
    init(state: String? = nil) {
        self.state = state
        displayName = Self.hostName()
    }

    /// Whether the daemon is a user's own, whose buttons may run programs: they run as this user.
    var isUsersOwn: Bool { getuid() >= 1_000 && (bus == .automatic || bus == .session) }

    /// Where the configuration is looked for when no file is named.
    static var defaultPaths: [String] { SettingsPlaces.paths(of: "pttd", name: "pttd.toml") }

    /// Where state is kept.
    var stateDirectory: String { state ?? Self.defaultStateDirectory }

    /// Where state is kept if nobody says: systemd's state directory, root's, or the user's.
    private static var defaultStateDirectory: String {
        if let directory = environment("STATE_DIRECTORY") { return directory }
        if getuid() == 0 { return "/var/lib/pttd" }
        let home = environment("HOME") ?? "/tmp"
        return usersStateDirectory(
            stateHome: environment("XDG_STATE_HOME") ?? home + "/.local/state",
            configurationHome: environment("XDG_CONFIG_HOME") ?? home + "/.config")
    }

    /// Where a user's own daemon keeps its state.
    ///
    /// In earlier versions systemd chose the place, and before systemd 254 that is beside the configuration. A key that is there is
    /// still used, with all else: a new key would be another device to every relay.
    static func usersStateDirectory(stateHome: String, configurationHome: String) -> String {
        let earlier = configurationHome + "/pttd"
        return AtomicFile.exists(earlier + "/identity.pem") ? earlier : stateHome + "/pttd"
    }

    static func environment(_ name: String) -> String? {
        guard let value = getenv(name).map({ String(cString: $0) }), !value.isEmpty else { return nil }
        return value
    }

    static func hostName() -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        guard gethostname(&buffer, buffer.count - 1) == 0 else { return "pttd" }
        let name = String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        return name.isEmpty ? "pttd" : name
    }
}

extension Configuration {
    /// The configuration in the file at `path`; every mistake in it is reported at once.
    ///
    /// - Parameter state: The state directory that the command line names.
    static func read(path: String, state: String? = nil) throws(SettingsError) -> Configuration {
        try SettingsFile.read(path: path) { read($0, state: state) }
    }

    static func read(_ root: SettingsTable, state: String? = nil) -> Configuration {
        var result = Configuration(state: state)
        if let daemon = root.table("daemon") {
            result.displayName = daemon.value("name", displayName, default: result.displayName)
            result.bus = daemon.value("bus", bus, default: result.bus)
            result.blueZBus = daemon.value("bluez-bus", bus, default: result.blueZBus)
            let configured = daemon.optional("state", .string)
            result.state = state ?? configured
        }
        result.readChannels(root)
        if let audio = root.table("audio") { result.readAudio(audio) }
        result.readRecordings(root)
        if let policy = root.table("policy") {
            result.policy.allowsJoining = policy.value("join", .boolean, default: true)
            result.policy.applications = policy.value("applications", .array(of: applicationPattern), default: [])
            result.policy.hours = policy.value("hours", .array(of: hours), default: []).compactMap { $0 }
        }
        result.readNearby(root)
        result.readNetwork(root)
        if let ui = root.table("ui") { result.desktop = ui.optional("desktop", .boolean) }
        result.accessories = AccessorySettings(
            settings: root, learnedProfiles: AccessoryStore(directory: result.stateDirectory).profilesDirectory,
            allowsCommands: result.isUsersOwn)
        return result
    }

    private static var bus: SettingType<Bus> {
        .text(
            lengthMax: 1_024, placeholder: .automatic, isNot: "a bus address",
            "write \"auto\", \"system\", \"session\", or an address such as \"unix:path=/run/bus\""
        ) { text in
            switch text {
            case "auto": .automatic
            case "system": .system
            case "session": .session
            default: text.contains(":") && text.contains("=") ? .address(text) : nil
            }
        }
    }

    static var displayName: SettingType<String> {
        SettingType<String>.string(lengthMax: 256).map(placeholder: "") { text throws(SettingRefusal) in
            guard DisplayName(text) != nil else {
                throw SettingRefusal(
                    "is too long or has control characters",
                    "write at most \(DisplayName.byteCountMaximum) bytes of plain text")
            }
            return text
        }
    }

    private static var applicationPattern: SettingType<String> {
        .text(
            lengthMax: 255, placeholder: "", isNot: "the name of a program",
            "write a bus name such as \"com.example.Talk\", or the beginning of some, as in \"com.example.*\""
        ) { text in
            let name = text.hasSuffix("*") ? text.dropLast() : text[...]
            return name.utf8.allSatisfy { (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "*") } ? text : nil
        }
    }

    private static var hours: SettingType<JoinPolicy.Hours?> {
        .text(
            lengthMax: 16, placeholder: nil, isNot: "a range of hours",
            "write the first minute and the one after the last, as in \"08:00-18:00\""
        ) { JoinPolicy.Hours($0).map(Optional.some) }
    }
}

extension SettingType {
    /// A text that `read` takes; another one is refused as not being `what`.
    static func text(
        lengthMax: Int, placeholder: Value, isNot what: String, _ advice: String, _ read: @escaping (String) -> Value?
    ) -> Self {
        SettingType<String>.string(lengthMax: lengthMax).map(placeholder: placeholder) { text throws(SettingRefusal) in
            guard let value = read(text) else { throw SettingRefusal("\"\(text)\" is not \(what)", advice) }
            return value
        }
    }
}
