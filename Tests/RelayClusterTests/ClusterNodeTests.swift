// Nodes with real records and a real nats-server: who writes the records, what the others have, and what they say when it cannot be.
import Cryptography
import FoundationEssentials
import Glibc
import NATS
import RelayProtocol
import RelayStore
import TestSupport
import Testing

@testable import RelayCluster

@Suite(.timeLimit(.minutes(3)), .serialized) struct ClusterNodeTests {
    private let rig: ClusterRig

    init() throws { rig = try ClusterRig() }

    @Test func `one writes, the others have what it writes, and the next one takes over where it was`() async throws {
        let (records, yard) = try rig.makeCluster()
        let token = try #require(try records.standingToken(of: yard.id))
        let first = try rig.run(rig.configuration("a"), records)
        #expect(try await rig.eventually { first.node.writes })
        let second = try rig.run(rig.configuration("b"), try rig.store("b"))
        #expect(try await rig.eventually { second.record.serves })
        for number in 0..<200 {
            let member = try #require(MemberID(bytes: sha256([UInt8(number)]).prefix(MemberID.byteCount)))
            _ = try records.enrol(member, named: try rig.name("D\(number)"), with: token, in: yard.id, now: 2)
        }
        #expect(try await rig.eventually { try second.store.members()[yard.id]?.count == 200 })
        #expect(try second.store.logPlace() == records.logPlace())
        // The other one writes nothing.
        #expect(throws: RelayStoreError.self) { try second.store.addChannel(try rig.name("Gate"), now: 3) }
        // The first one goes, and is told where to.
        #expect(await first.node.release() == "127.0.0.1:9")
        #expect(try await rig.eventually { second.node.writes })
        #expect(throws: RelayStoreError.self) { try records.addChannel(try rig.name("Late"), now: 3) }
        try second.store.addChannel(try rig.name("Gate"), now: 3)
        #expect(try second.store.channels().count == 2 && records.channels().count == 1)
        let status = try ClusterAdministration(rig.configuration("b")).status(of: rig.relay.pin)
        #expect(
            status.writer?.name == "b" && status.shares?.writer?.epoch == 2 && status.nodes.map(\.node) == ["a", "b"])
        #expect(first.record.ends.isEmpty && second.record.ends.isEmpty)
    }

    @Test func `a relay without NATS ends before another one may serve, and a write meanwhile is refused`()
        async throws
    {
        let (records, _) = try rig.makeCluster()
        let first = try rig.run(rig.configuration("a"), records)
        #expect(try await rig.eventually { first.node.writes })
        rig.server.send(SIGSTOP)
        #expect(throws: RelayStoreError.self) { try records.addChannel(try rig.name("Gate"), now: 2) }
        #expect(try records.channels().count == 1)
        #expect(try await rig.eventually { !first.record.ends.isEmpty })
        #expect(first.record.ends == [.shares(.leaseLost)])
        rig.server.send(SIGCONT)
        let second = try rig.run(rig.configuration("b"), try rig.store("b"))
        #expect(try await rig.eventually(20) { second.node.writes })
    }

    @Test func `who is deposed can write nothing, and ends`() async throws {
        let (records, _) = try rig.makeCluster()
        let first = try rig.run(rig.configuration("a"), records)
        #expect(try await rig.eventually { first.node.writes })
        // As after a pause of which it does not know: another one writes, and has begun its epoch.
        let connection = try NATSConnection(rig.server.options)
        let description = try #require(
            try ClusterAdministration.description(
                rig.configuration("b"), connection, of: rig.relay.pin, wait: .seconds(2)))
        let other = try rig.store("b")
        let follower = ClusterFollower(
            connection: connection, configuration: rig.configuration("b"), description: description, store: other,
            relay: rig.relay)
        _ = try follower.take(epoch: 2)
        #expect(throws: RelayStoreError.self) { try records.addChannel(try rig.name("Gate"), now: 2) }
        #expect(try await rig.eventually { first.record.ends == [.fenced] })
        #expect(try records.channels().map(\.name.text) == ["Yard"])
    }

    @Test func `a relay that cannot be a node says why`() async throws {
        let records = try rig.store("a")
        let early = try rig.run(rig.configuration("a"), records)
        let missing = "\(ClusterError.noRecords("test"))"
        #expect(try await rig.eventually { early.record.lines.contains { $0.contains(missing) } })
        let (_, _) = try { () throws -> (RelayStore, ChannelRecord) in
            let full = try rig.store("full")
            let yard = try full.addChannel(try rig.name("Yard"), now: 1)
            _ = try ClusterAdministration(rig.configuration("full")).importRecords(of: full, as: rig.relay)
            return (full, yard)
        }()
        // Now there are some: it goes on by itself.
        #expect(try await rig.eventually { early.node.writes })
        #expect(try records.channels().map(\.name.text) == ["Yard"])
        let own = try rig.store("o")
        try own.addChannel(try rig.name("Mine"), now: 1)
        let other = try rig.run(rig.configuration("o"), own)
        #expect(try await rig.eventually { other.record.lines.contains { $0.contains("it has channels of its own") } })
        // With the name of one that is there.
        let same = try rig.run(rig.configuration("a"), try rig.store("same"))
        #expect(try await rig.eventually(20) { same.record.lines.contains { $0.contains("is called 'a'") } })
        #expect(!other.record.serves && !same.record.serves)
        // One that is silent gives its name away: its records may have been replaced.
        let connection = try NATSConnection(rig.server.options)
        let settings = rig.configuration("d")
        let gone = ClusterNodeReport(
            node: "d", identifier: "other", place: "h:1", serves: false, position: 1, at: 1, version: "1")
        _ = try connection.publish(
            gone.message, to: settings.nodeSubject("d"), of: settings.state.name, after: .none, wait: .seconds(2))
        let renewed = try rig.run(settings, try rig.store("d"))
        #expect(try await rig.eventually { renewed.record.lines.contains { $0.contains("is called 'd'") } })
        #expect(try await rig.eventually(30) { renewed.record.serves })
    }

    @Test func `a relay with another key is told whose the cluster is, and leaves nothing in it`() async throws {
        let (records, _) = try rig.makeCluster()
        let first = try rig.run(rig.configuration("a"), records)
        #expect(try await rig.eventually { first.node.writes })
        let (key, why) = (try ClusterIdentity(Identity(generating: "relay")), ClusterError.otherRelay("test"))
        // Also where its node is called as one of the cluster's, which would be true as well.
        for node in ["s", "a"] {
            let stranger = try rig.run(rig.configuration(node), try rig.store("stranger-\(node)"), as: key)
            #expect(
                try await rig.eventually { stranger.record.lines.contains { $0.contains("\(why)") } },
                "\(stranger.record.lines)")
            #expect(!stranger.record.serves && !stranger.record.lines.contains { $0.contains("is called") })
        }
        let own = try rig.store("own")
        try own.addChannel(try rig.name("Mine"), now: 1)
        let administration = try ClusterAdministration(rig.configuration("s"))
        #expect(throws: why) { try administration.hasRecords(of: own, as: key) }
        #expect(throws: why) { try administration.importRecords(of: own, as: key) }
        #expect(try own.logPlace() == nil)
        #expect(throws: why) { try administration.status(of: key.pin) }
        for pin in [rig.relay.pin, nil] {
            #expect(try administration.status(of: pin).nodes.map(\.node) == ["a"])
        }
    }

    @Test func `an import that was interrupted is begun anew`() throws {
        let records = try rig.store("a")
        try records.addChannel(try rig.name("Yard"), now: 1)
        let connection = try NATSConnection(rig.server.options)
        let settings = rig.configuration("a")
        try connection.add(settings.log, wait: .seconds(2))
        let record = ClusterRecord.beginning(
            .init(cluster: Array(repeating: 1, count: 16), pin: rig.relay.pin, changes: try records.everything()))
        let messages = try #require(record.messages(epoch: 0, byteCountMaximum: 100))
        _ = try connection.publish(
            rig.relay.seal(messages[0], at: 1, of: String(repeating: "01", count: 16)), to: settings.log.subject,
            of: settings.log.name, after: .none,
            wait: .seconds(2))
        _ = try ClusterAdministration(settings).importRecords(of: records, as: rig.relay)
        let description = try #require(
            try ClusterAdministration.description(settings, connection, of: rig.relay.pin, wait: .seconds(2)))
        #expect(description.first == 2)
        let other = try rig.store("b")
        let follower = ClusterFollower(
            connection: connection, configuration: settings, description: description, store: other, relay: rig.relay)
        #expect(try follower.follow().isEnd)
        #expect(try other.channels() == records.channels())
    }

    @Test func `a message that no node has written is refused, wherever it comes from`() throws {
        let (records, _) = try rig.makeCluster()
        let connection = try NATSConnection(rig.server.options)
        let settings = rig.configuration("a")
        let description = try #require(
            try ClusterAdministration.description(settings, connection, of: rig.relay.pin, wait: .seconds(2)))
        let last = try connection.state(of: settings.log.name, wait: .seconds(2)).last
        let stranger = try ClusterIdentity(Identity(generating: "stranger"))
        let message = try #require(ClusterRecord.epoch(9).messages(epoch: 9, byteCountMaximum: 1_024)?.first)
        let cluster = description.cluster
        // Another key's; a node's from another place, or from another cluster; a node's that was changed.
        var changed = rig.relay.seal(message, at: last + 1, of: cluster)
        changed[9] ^= 1
        for forged in [
            stranger.seal(message, at: last + 1, of: cluster), rig.relay.seal(message, at: last, of: cluster),
            rig.relay.seal(message, at: last + 1, of: String(cluster.reversed())), changed, message, [],
        ] {
            #expect(rig.relay.open(forged, at: last + 1, of: cluster) == nil)
        }
        #expect(
            rig.relay.open(rig.relay.seal(message, at: last + 1, of: cluster), at: last + 1, of: cluster) == message)
        _ = try connection.publish(
            changed, to: settings.log.subject, of: settings.log.name, after: .ofStream(last), wait: .seconds(2))
        let follower = ClusterFollower(
            connection: connection, configuration: settings, description: description, store: records, relay: rig.relay)
        #expect(throws: ClusterError.forged(position: last + 1)) { try follower.follow() }
        #expect(try records.logPlace()?.position == last)
    }

    @Test func `NATS servers that lose their disk are noticed, and the relay with the records makes a new cluster`()
        async throws
    {
        let (records, _) = try rig.makeCluster()
        let first = try rig.run(rig.configuration("a"), records)
        #expect(try await rig.eventually { first.node.writes })
        for number in 0..<20 { try records.setLastStart(host: "h\(number).example", port: 1) }
        let second = try rig.run(rig.configuration("b"), try rig.store("b"))
        #expect(try await rig.eventually { try second.store.logPlace() == records.logPlace() })
        rig.server.stop()
        try FileManager.default.removeItem(atPath: "\(rig.server.folder.path)/jetstream")
        try rig.server.start()
        #expect(try await rig.eventually { first.record.ends == [.shares(.leaseLost)] })
        #expect(throws: RelayStoreError.self) { try records.addChannel(try rig.name("Gate"), now: 2) }
        let again = try rig.run(rig.configuration("a"), records)
        let missing = "\(ClusterError.noRecords("test"))"
        #expect(try await rig.eventually { again.record.lines.contains { $0.contains(missing) } })
        // With the records of the file, whose place was in the cluster that is gone. Its log becomes longer than that one's.
        _ = try ClusterAdministration(rig.configuration("a")).importRecords(of: records, as: rig.relay)
        #expect(try await rig.eventually { again.node.writes }, "\(again.record.lines) \(again.record.ends)")
        for number in 0..<40 { try records.setLastStart(host: "g\(number).example", port: 1) }
        // One of the former cluster takes nothing of this one's for its own, nor a part in it.
        #expect(try await rig.eventually { !second.record.ends.isEmpty })
        let place = try second.store.logPlace()
        let other = "\(ClusterError.hasRecords("test"))"
        let third = try rig.run(rig.configuration("c"), try rig.store("c"))
        #expect(try await rig.eventually { try third.store.logPlace() == records.logPlace() })
        #expect(try second.store.logPlace() == place && again.record.ends.isEmpty)
        let renewed = try rig.run(rig.configuration("d"), second.store)
        #expect(try await rig.eventually { renewed.record.lines.contains { $0.contains(other) } })
        #expect(await again.node.release() == "127.0.0.1:9")
        #expect(try await rig.eventually { third.node.writes })
        #expect(!renewed.record.serves)
    }
}
