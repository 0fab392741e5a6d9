// The table [cluster] of pttrelay.toml.
import NATS
import RelayCluster
import RelayProtocol
import Settings

/// The cluster that a relay is a node of.
struct ClusterSettings: Equatable {
    var configuration: ClusterConfiguration
    var timers = SharesStateMachine.Timers()

    /// What changes only with a restart, and is of this table: where others reach [web] is not.
    var untilRestart: ClusterSettings {
        var settings = self
        settings.configuration.web = nil
        return settings
    }

    /// The most servers that can be named.
    private static let serversMaximum = 16
    private static let megabyte = 1 << 20

    static func read(_ table: SettingsTable) -> ClusterSettings {
        let name = table.value("name", clusterName, default: "relay")
        // What a person has to say where the machine's name is none.
        let node = table.optional("node", clusterName) ?? nil ?? machineName
        if node == nil { _ = table.required("node", clusterName) }
        let servers = table.required("servers", .array(of: server, count: 1...serversMaximum))
        let place = table.required("place", RelaySettings.place)
        let nats = NATSOptions(
            servers: servers, name: "pttrelay \(node ?? "")",
            credentials: table.optional("credentials", .string(lengthMax: 4_096)),
            authorities: table.optional("ca", .string(lengthMax: 4_096)))
        var timers = SharesStateMachine.Timers()
        timers.lease = table.value("lease", .duration(in: .seconds(5) ... .seconds(120)), default: timers.lease)
        return ClusterSettings(
            configuration: ClusterConfiguration(
                name: name, node: node ?? "", nats: nats, place: place.map { "\($0)" } ?? "",
                replicas: table.value("replicas", .integer(in: 1...5), default: 3),
                logBytesMaximum: megabyte
                    * table.value("log-megabytes", .integer(in: 16...1_048_576), default: 1_024)), timers: timers)
    }

    /// The machine's name up to the first dot; nil: it is none of a node.
    private static var machineName: String? {
        let name = String((ListenAddress.machineName ?? "").prefix { $0 != "." })
        return ClusterConfiguration.isName(name) ? name : nil
    }

    private static var clusterName: SettingType<String> {
        SettingType<String>.string(lengthMax: 256).map(placeholder: "x") { text throws(SettingRefusal) in
            guard ClusterConfiguration.isName(text) else {
                throw SettingRefusal(
                    "\"\(text)\" cannot be a name here",
                    "write 1 to \(ClusterConfiguration.nameMaximum) letters, digits, '-' and '_'")
            }
            return text
        }
    }

    private static var server: SettingType<String> {
        SettingType<String>.string(lengthMax: 1_024).map(placeholder: "") { text throws(SettingRefusal) in
            guard text.hasPrefix("nats://") || text.hasPrefix("tls://") else {
                throw SettingRefusal(
                    "\"\(text)\" is not a server of NATS", "write one such as \"nats://nats1.example:4222\"")
            }
            return text
        }
    }
}
