// pttrelay cluster: makes a cluster of a relay's records, shows it, and takes a relay out of it.
import ArgumentParser
import Cryptography
import Glibc
import Logging
import RelayCluster
import RelayStore
import Terminal

/// What is done to a cluster.
struct ClusterCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cluster", abstract: "Several relays as one: make the cluster, or look at it.",
        discussion: """
            The relays of a cluster have the same key and the same records, which they keep in NATS. Each serves some of \
            the channels, and when one ends, the others take over its channels. [cluster] in the configuration says how \
            NATS is reached.
            """, subcommands: [Import.self, Status.self, Leave.self])

    /// The configuration's cluster.
    private static func settings(_ relay: RelayOptions) throws -> (RelaySettings, ClusterConfiguration) {
        let settings = try relay.settings()
        guard let cluster = settings.cluster?.configuration else {
            throw RelayStateError(description: "the configuration has no [cluster]")
        }
        return (settings, cluster)
    }

    /// Makes the cluster.
    struct Import: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "import", abstract: "Make the cluster of this relay's records.",
            discussion: """
                Run it once, on the relay that has the records, while that is stopped. The other relays get the records \
                when they start; they need a copy of identity.pem from the state directory of this one. The channels of \
                the configuration become recorded ones.
                """)

        @OptionGroup var relay: RelayOptions

        func run() throws {
            try StartFailure.reporting {
                let (settings, cluster) = try ClusterCommand.settings(relay)
                let state = try RelayState.existing(
                    relay.stateDirectory(settings), logger: Logger(label: "pttrelay") { _ in SwiftLogNoOpLogHandler() })
                let administration = try ClusterAdministration(cluster)
                let identity = try ClusterIdentity(state.identity)
                _ = try administration.hasRecords(of: state.store, as: identity)
                // Those of a cluster have had them since it was made.
                if try state.store.logPlace() == nil { try state.recordDeclaredChannels(settings) }
                let channels = try state.store.channels().count
                _ = try administration.importRecords(of: state.store, as: identity)
                Console.say("the cluster '\(cluster.name)' has the records of \(channels) channels")
                if !settings.channels.isEmpty {
                    Console.say("remove [[channel]] from the configurations: the channels are in the records now")
                }
                Console.say("start this relay now; copy identity.pem to the other ones, and start them")
            }
        }
    }

    /// Shows the cluster.
    struct Status: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "status", abstract: "Show the relays, what each serves, and how full the log is.")

        @OptionGroup var relay: RelayOptions

        func run() throws {
            try StartFailure.reporting {
                let (settings, cluster) = try ClusterCommand.settings(relay)
                let identity = try RelayState.identity(in: relay.stateDirectory(settings))
                let status = try ClusterAdministration(cluster).status(of: identity?.pin)
                for line in ClusterCommand.lines(status, of: cluster.name, now: Int64(time(nil))) { Console.say(line) }
            }
        }
    }

    /// What `status` prints.
    static func lines(_ status: ClusterAdministration.Status, of name: String, now: Int64) -> [String] {
        let writer = status.writer
        let writing =
            if let writer {
                "'\(writer.name)' at \(writer.place) writes the records (epoch \(status.shares?.writer?.epoch ?? 0))"
            } else {
                "no relay writes the records"
            }
        let percent = status.logBytes * 100 / max(1, status.logBytesMaximum)
        var lines = [
            "cluster '\(name)': \(writing)",
            "the log has \(status.messages) records on \(status.replicas == 1 ? "1 NATS server" : "\(status.replicas) NATS servers"), and is \(percent) % full",
        ]
        for node in status.nodes {
            lines.append(
                "\(node.node) at \(node.place): \(about(node, in: status, now: now)) (version \(node.version))")
        }
        return lines
    }

    /// What one relay does. Whether it is there is said by the table, not by the clocks of two machines.
    private static func about(_ node: ClusterNodeReport, in status: ClusterAdministration.Status, now: Int64) -> String
    {
        guard let table = status.shares, let entry = table.nodes.first(where: { $0.name == node.node }) else {
            return "is not there; by its clock it was \(max(0, now - node.at)) s ago"
        }
        let behind = status.position > node.position ? status.position - node.position : 0
        let records = behind == 0 ? "has all records" : "lacks \(behind) records"
        return "serves \(table.shares(of: entry.incarnation).count) of \(table.shares.count) shares of the channels, "
            + (entry.incarnation == status.writer?.incarnation ? "writes the records" : records)
    }

    /// Takes a relay out of its cluster.
    struct Leave: ParsableCommand {
        static let configuration = CommandConfiguration(
            commandName: "leave", abstract: "Make this relay one of its own, with the records that it has.",
            discussion: """
                Run it while the relay is stopped, and remove [cluster] from its configuration. The other relays of the \
                cluster are not affected. Members of both would not hear each other: use another name in the links of one.
                """)

        @OptionGroup var relay: RelayOptions

        func run() throws {
            try StartFailure.reporting {
                let directory = relay.stateDirectory(try relay.settings())
                let state = try RelayState.existing(
                    directory, logger: Logger(label: "pttrelay") { _ in SwiftLogNoOpLogHandler() })
                guard try state.store.logPlace() != nil else {
                    throw RelayStateError(description: "the relay in \(directory) is in no cluster")
                }
                try state.store.leaveCluster()
                Console.say("the relay in \(directory) is in no cluster any more")
            }
        }
    }
}
