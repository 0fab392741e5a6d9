// pttrelay.toml: its settings and their defaults.
import Glibc
import Logs
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import Settings

/// The configuration of a relay. Everything has a default.
struct RelaySettings {
    /// Where to listen; nil: not said.
    var listen: ListenAddress?
    /// The name in invitations; nil: not said.
    var host: String?
    /// The state directory; nil: not said.
    var state: String?
    /// The channels' names.
    var channels: [String] = []
    /// Their floors' rules, by name.
    var floorRules: [String: FloorRules] = [:]
    /// What is kept of their bursts, by name.
    var retentions: [String: BurstRetention] = [:]
    var limits = Self.standardLimits
    var timers = FloorControlStateMachine.Timers()
    /// The endpoint for pushes; nil: there is none.
    var push: PushSettings?
    /// The endpoint for links over TLS and the page; nil: there is none.
    var web: WebSettings?
    /// The API; nil: there is none.
    var api: APISettings?
    /// The cluster that it is a node of; nil: it is alone.
    var cluster: ClusterSettings?
    /// Where the operator's page and metrics are; nil: nowhere.
    var operatorListen: ListenAddress?
    var ending = ShutdownSettings()
    var logFormat = LogFormat.text
    /// Threads that have a share of the connections each.
    var workers = Self.standardWorkers
    /// Threads that help to send to hundreds.
    var helpers = Self.standardHelpers

    /// The most connections that can be asked for.
    static let connectionsMaximum = 32_768
    /// A relay's limits on this machine.
    static let standardLimits: RelayLimits = {
        var limits = RelayLimits()
        limits.connections = StartNeeds.standardConnections(memory: MachineMemory.limit)
        return limits
    }()
    private static let processors = sysconf(Int32(_SC_NPROCESSORS_ONLN))
    /// As many as suit this machine.
    static let standardWorkers = RelayServerConfiguration.workers(forProcessors: processors)
    /// The recommended number of helper threads for this machine.
    static let standardHelpers = RelayServerConfiguration.helpers(forProcessors: processors)

    /// The file that is read when none is named, if it is there.
    static func defaultPath() -> String? { SettingsPlaces.first(of: ["/etc/pttrelay/pttrelay.toml"]) }

    /// Where state is kept when nothing else is said.
    static var defaultStateDirectory: String {
        let variable = SettingsPlaces.variable
        if let directory = variable("STATE_DIRECTORY") { return directory }
        if getuid() == 0 { return "/var/lib/pttrelay" }
        let base = variable("XDG_STATE_HOME") ?? (variable("HOME") ?? "/tmp") + "/.local/state"
        return base + "/pttrelay"
    }

    /// The settings in the file at `path`; every mistake in it is reported at once.
    static func read(path: String) throws(SettingsError) -> RelaySettings {
        try SettingsFile.read(path: path, read)
    }

    static func read(_ root: SettingsTable) -> RelaySettings {
        var result = RelaySettings()
        if let relay = root.table("relay") {
            result.listen = relay.optional("listen", listenAddress) ?? nil
            result.host = relay.optional("host", host) ?? nil
            result.state = relay.optional("state", .string)
            result.timers = FloorSettings.timers(relay)
            result.ending.drainTime = relay.value(
                "drain-time", .duration(in: .zero ... .seconds(60)), default: result.ending.drainTime)
            result.ending.successor = relay.optional("successor", place) ?? nil
            result.logFormat = relay.value("log-format", .oneOf, default: result.logFormat)
            result.workers = relay.value(
                "workers", .integer(in: 1...RelayServerConfiguration.workersMaximum), default: standardWorkers)
            result.helpers = relay.value(
                "helpers", .integer(in: 0...RelayServerConfiguration.helpersMaximum),
                default: standardHelpers)
        }
        if let limits = root.table("limits") {
            result.limits.connections = limits.value(
                "connections", .integer(in: 1...connectionsMaximum), default: result.limits.connections)
            result.limits.connectionsPerAddress = limits.value(
                "connections-per-address", .integer(in: 1...connectionsMaximum),
                default: result.limits.connectionsPerAddress)
            result.limits.channels = limits.value(
                "channels", .integer(in: 1...channelsMaximum), default: result.limits.channels)
            result.limits.membersPerChannel = limits.value(
                "members-per-channel", .integer(in: 2...10_000), default: result.limits.membersPerChannel)
            result.limits.keptBytes =
                megabyte
                * limits.value(
                    "keep-megabytes", .integer(in: 4...65_536), default: result.limits.keptBytes / megabyte)
        }
        for table in root.tables("channel", countMax: result.limits.channels) {
            let name = table.required("name", channelName)
            if !name.isEmpty, result.floorRules[name] != nil {
                table.problem(
                    "name", "is \"\(name)\", which an earlier channel has already", "give each channel one name")
            }
            result.floorRules[name] = FloorSettings.rules(table)
            result.retentions[name] = FloorSettings.retention(table)
            result.channels.append(name)
        }
        result.push = root.table("push").map(PushSettings.read)
        result.web = root.table("web").map(WebSettings.read)
        result.api = root.table("api").map(APISettings.read)
        result.cluster = root.table("cluster").map(ClusterSettings.read)
        if let place = result.cluster.flatMap({ RelayPlace($0.configuration.place) }) {
            result.cluster?.configuration.web = result.web?.address(at: place.host)?.description
        }
        result.operatorListen = root.table("operator").map {
            ($0.optional("listen", listenAddress) ?? nil) ?? standardOperatorListen
        }
        return result
    }

    private static let megabyte = 1_024 * 1_024
    /// Channels that a relay can be told to serve; its memory is what bounds them.
    static let channelsMaximum = 1_000_000

    /// Only for this machine: there is no TLS.
    static let standardOperatorListen = ListenAddress(
        address: "127.0.0.1", port: PlainHTTPConfiguration.operatorPort)

    static var listenAddress: SettingType<ListenAddress?> {
        SettingType<String>.string(lengthMax: 256).read(
            orSay: "is not an address with a port", "write \(ListenAddress.expected)", ListenAddress.init(argument:))
    }

    /// As links can have it; `RelayOptions.validate` says the same of `--host`.
    private static var host: SettingType<String?> {
        SettingType<String>.string(lengthMax: 512).read(
            orSay: "is neither a name nor an address",
            "write one as links have it, such as \"relay.example\" or \"2001:db8::1\", without a port"
        ) { InvitationLink.isHost($0) ? $0 : nil }
    }

    static var place: SettingType<RelayPlace?> {
        SettingType<String>.string(lengthMax: 512).read(
            orSay: "is not a name or address with a port",
            "write one as in a link, such as \"relay2.example:4433\" or \"[2001:db8::1]:4433\""
        ) { RelayPlace($0) }
    }

    private static var channelName: SettingType<String> {
        SettingType<String>.string(lengthMax: DisplayName.byteCountMaximum)
            .map(placeholder: "") { text throws(SettingRefusal) in
                guard DisplayName(text) != nil else {
                    throw SettingRefusal("has control characters", "write plain text")
                }
                return text
            }
    }
}

/// The configuration's settings for the shutdown.
struct ShutdownSettings: Sendable, Equatable {
    /// How long it drains.
    var drainTime: Duration = .seconds(10)
    /// The address where the members continue; nil: they reconnect here.
    var successor: RelayPlace?
}
