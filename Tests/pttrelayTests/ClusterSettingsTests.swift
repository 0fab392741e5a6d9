// The table [cluster], and what is said of a cluster.
import NATS
import Settings
import Testing

@testable import RelayCluster
@testable import pttrelay

@Suite struct ClusterSettingsTests {
    private func read(_ lines: String) throws -> RelaySettings {
        try SettingsFile.read(bytes: Array(("[cluster]\n" + lines).utf8), file: "pttrelay.toml", RelaySettings.read)
    }

    private let least = "servers = [\"nats://h:4222\"]\nplace = \"10.0.0.1:4433\"\nnode = \"a\"\n"

    @Test func `what is not said has defaults that are safe`() throws {
        let cluster = try #require(try read(least).cluster?.configuration)
        #expect(cluster.name == "relay" && cluster.node == "a" && cluster.place == "10.0.0.1:4433")
        #expect(cluster.replicas == 3 && cluster.logBytesMaximum == 1 << 30)
        #expect(!cluster.nats.hasTLS && cluster.nats.credentials == nil && cluster.nats.name == "pttrelay a")
        #expect(RelaySettings().cluster == nil)
        #expect(try read(least).cluster?.timers == SharesStateMachine.Timers())
        #expect(try read(least + "lease = \"9s\"\n").cluster?.timers.lease == .seconds(9))
        let other = try #require(
            try read(
                "servers = [\"tls://h:4222\", \"nats://u:p@i\"]\nplace = \"[::1]:1\"\nnode = \"b-2_C\"\nname = \"x\"\n"
                    + "credentials = \"/c\"\nca = \"/ca\"\nreplicas = 1\nlog-megabytes = 16\n"
            ).cluster?.configuration)
        #expect(other.nats.hasTLS && other.nats.servers.count == 2 && other.nats.authorities == "/ca")
        #expect(other.logBytesMaximum == 16 << 20 && other.nats.credentials == "/c" && other.place == "[::1]:1")
    }

    @Test(arguments: [
        ("servers = []\nplace = \"h:1\"", "servers"), ("place = \"h:1\"", "servers"),
        ("servers = [\"h:4222\"]\nplace = \"h:1\"", "not a server of NATS"),
        ("servers = [\"nats://h\"]", "place"), ("servers = [\"nats://h\"]\nplace = \"h\"\nreplicas = 0", "replicas"),
        ("servers = [\"nats://h\"]\nplace = \"h:1\"\nnode = \"a.b\"", "cannot be a name"),
        ("servers = [\"nats://h\"]\nplace = \"h:1\"\nname = \"\"", "name"),
        ("servers = [\"nats://h\"]\nplace = \"h:1\"\nlease = \"1s\"", "lease"),
    ]) func `a mistake is named`(lines: String, words: String) throws {
        let error = #expect(throws: SettingsError.self) { try read(lines) }
        #expect(error.map { "\($0)".contains(words) } == true, "\(error as Any)")
    }

    @Test func `a check says what the relay is, and warns of what stands on one server`() throws {
        var lines = CheckCommand.summary(try read(least), state: "/s")
        #expect(
            lines.contains(
                "is the node 'a' of the cluster 'relay', at 10.0.0.1:4433, and serves a part of its channels"))
        #expect(!lines.contains { $0.hasPrefix("warning") })
        lines = CheckCommand.summary(try read(least + "replicas = 1\n"), state: "/s")
        #expect(lines.contains { $0.hasPrefix("warning: with 'replicas' below 3") })
        lines = CheckCommand.summary(try read(least + "[[channel]]\nname = \"Yard\"\n"), state: "/s")
        #expect(lines.contains { $0.hasPrefix("warning: the channels of a cluster are in its records only") })
        #expect(Reloader.needRestart(RelaySettings(), try read(least)) == ["[cluster]"])
    }

    @Test func `a change of [web] is not told as one of [cluster]`() throws {
        let web = "[web]\nlisten = \"0.0.0.0:443\"\n"
        let old = try read(least + web)
        let moved = try read(least + web.replacing("443", with: "8443"))
        // The others are told where, when the relay is started again.
        #expect(old.cluster?.configuration.web != moved.cluster?.configuration.web)
        #expect(Reloader.needRestart(old, moved) == ["[web]"])
        #expect(Reloader.needRestart(old, try read(least)) == ["[web]"])
        let elsewhere = try read(least.replacing("10.0.0.1", with: "10.0.0.2") + web)
        #expect(Reloader.needRestart(old, elsewhere) == ["[cluster]"])
    }

    @Test func `the status names who writes, who serves what, who lacks records and who is silent`() {
        func report(_ node: String, position: UInt64, at: Int64) -> ClusterNodeReport {
            ClusterNodeReport(
                node: node, identifier: node, place: "\(node):1", serves: node == "a", position: position, at: at,
                version: "1")
        }
        var status = ClusterAdministration.Status(
            nodes: [
                report("a", position: 9, at: 100), report("b", position: 9, at: 96),
                report("c", position: 7, at: 9_999),
                report("d", position: 9, at: 40),
            ], position: 9, messages: 7, logBytes: 30, logBytesMaximum: 100, replicas: 3)
        #expect(
            ClusterCommand.lines(status, of: "relay", now: 100).prefix(3) == [
                "cluster 'relay': no relay writes the records",
                "the log has 7 records on 3 NATS servers, and is 30 % full",
                "a at a:1: is not there; by its clock it was 0 s ago (version 1)",
            ])
        var table = ShareTable()
        table.nodes = [("a", "1"), ("b", "2"), ("c", "3")].map { name, incarnation in
            ShareTable.Node(ClusterMember(node: name, identifier: name, incarnation: incarnation, place: "\(name):1"))
        }
        for share in 0..<24 { table.shares[share].owner = "1" }
        table.shares[24].owner = "2"
        for index in table.nodes.indices { table.nodes[index].isReady = true }
        // It stays so, whoever writes the table next.
        for next in ["1", "2"] { table.assignWriter(preferring: next) }
        status.shares = table
        #expect(
            ClusterCommand.lines(status, of: "relay", now: 100).filter { !$0.hasPrefix("the log") } == [
                "cluster 'relay': 'a' at a:1 writes the records (epoch 1)",
                "a at a:1: serves 24 of 64 shares of the channels, writes the records (version 1)",
                "b at b:1: serves 1 of 64 shares of the channels, has all records (version 1)",
                "c at c:1: serves 0 of 64 shares of the channels, lacks 2 records (version 1)",
                "d at d:1: is not there; by its clock it was 60 s ago (version 1)",
            ])
    }
}
