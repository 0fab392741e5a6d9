// Nodes with real records and a real nats-server: who serves, what the others have, and what they say when it cannot be.
import Cryptography
import Glibc
import Logging
import NATS
import RelayProtocol
import RelayStore
import Synchronization
import TestSupport
import Testing

@testable import RelayCluster

@Suite(.timeLimit(.minutes(3)), .serialized) struct ClusterNodeTests {
    private let server: NATSServer
    private let folder: TemporaryFolder
    private let relay: ClusterIdentity

    init() throws {
        server = try NATSServer()
        folder = try TemporaryFolder()
        relay = try ClusterIdentity(Identity(generating: "relay"))
    }

    private func name(_ text: String) throws -> DisplayName { try #require(DisplayName(text)) }
    private func store(_ node: String) throws -> RelayStore { try RelayStore.open(path: folder.file("\(node).sqlite")) }

    private func configuration(_ node: String, place: String = "127.0.0.1:9") -> ClusterConfiguration {
        ClusterConfiguration(
            name: "test", node: node, nats: server.options, place: place, replicas: 1, logBytesMaximum: 8 << 20)
    }

    private static var timers: ClusterStateMachine.Timers {
        var timers = ClusterStateMachine.Timers()
        (timers.poll, timers.renewal, timers.retry) = (.milliseconds(50), .milliseconds(200), .milliseconds(50))
        (timers.lease, timers.margin) = (.seconds(2), .milliseconds(500))
        return timers
    }

    /// What a node has said and done.
    private final class Record: LogHandler, Sendable {
        private let kept = Mutex<(lines: [String], ends: [ClusterStateMachine.End], serves: Bool)>(([], [], false))
        var lines: [String] { kept.withLock { $0.lines } }
        var ends: [ClusterStateMachine.End] { kept.withLock { $0.ends } }
        var serves: Bool { kept.withLock { $0.serves } }
        func end(_ end: ClusterStateMachine.End) { kept.withLock { $0.ends.append(end) } }
        func serve() { kept.withLock { $0.serves = true } }

        func log(event: LogEvent) { kept.withLock { $0.lines.append("\(event.message)") } }
        subscript(metadataKey _: String) -> Logger.Metadata.Value? {
            get { nil }
            set {}
        }
        var metadata: Logger.Metadata {
            get { [:] }
            set {}
        }
        var logLevel: Logger.Level {
            get { .debug }
            set {}
        }
    }

    /// A node under test.
    private struct Running {
        let node: ClusterNode
        let store: RelayStore
        let record = Record()

        init(_ configuration: ClusterConfiguration, _ store: RelayStore, _ relay: ClusterIdentity) throws {
            let record = record
            self.store = store
            node = try ClusterNode(
                configuration, store: store, relay: relay, version: "1", timers: ClusterNodeTests.timers,
                logger: Logger(label: "test") { _ in record }, onEnd: { record.end($0) })
            Task { [node] in
                await node.serve()
                record.serve()
            }
        }
    }

    private func eventually(_ seconds: Int = 10, _ condition: () throws -> Bool) async throws -> Bool {
        for _ in 0..<seconds * 50 {
            if try condition() { return true }
            try await Task.sleep(for: .milliseconds(20))
        }
        return false
    }

    /// A cluster of the records of a relay with one channel.
    private func makeCluster() throws -> (RelayStore, ChannelRecord) {
        let records = try store("a")
        let yard = try records.addChannel(try name("Yard"), now: 1)
        let administration = try ClusterAdministration(configuration("a"))
        // In several messages.
        #expect(try administration.importRecords(of: records, as: relay, messageMaximum: 200) > 1)
        #expect(throws: ClusterError.hasRecords("test")) { try administration.importRecords(of: records, as: relay) }
        return (records, yard)
    }

    @Test func `one serves, the others have what it writes, and the next one takes over where it was`() async throws {
        let (records, yard) = try makeCluster()
        let token = try #require(try records.standingToken(of: yard.id))
        let first = try Running(configuration("a"), records, relay)
        #expect(try await eventually { first.record.serves })
        let second = try Running(configuration("b"), try store("b"), relay)
        #expect(try await eventually { second.node.standing.holder == "a" })
        for number in 0..<200 {
            let member = try #require(MemberID(bytes: sha256([UInt8(number)]).prefix(MemberID.byteCount)))
            _ = try records.enrol(member, named: try name("D\(number)"), with: token, in: yard.id, now: 2)
        }
        #expect(try await eventually { try second.store.members()[yard.id]?.count == 200 })
        #expect(try second.store.logPlace() == records.logPlace())
        // The standby writes nothing.
        #expect(throws: RelayStoreError.self) { try second.store.addChannel(try name("Gate"), now: 3) }
        // The first one goes, and is told where to.
        #expect(await first.node.release() == "127.0.0.1:9")
        #expect(try await eventually { second.record.serves })
        #expect(throws: RelayStoreError.self) { try records.addChannel(try name("Late"), now: 3) }
        try second.store.addChannel(try name("Gate"), now: 3)
        #expect(try second.store.channels().count == 2 && records.channels().count == 1)
        let status = try ClusterAdministration(configuration("b")).status()
        #expect(status.lease?.node == "b" && status.lease?.epoch == 2 && status.nodes.map(\.node) == ["a", "b"])
        #expect(first.record.ends.isEmpty && second.record.ends.isEmpty)
    }

    @Test func `a holder without NATS ends before another one may serve, and a write meanwhile is refused`()
        async throws
    {
        let (records, _) = try makeCluster()
        let first = try Running(configuration("a"), records, relay)
        #expect(try await eventually { first.record.serves })
        server.send(SIGSTOP)
        #expect(throws: RelayStoreError.self) { try records.addChannel(try name("Gate"), now: 2) }
        #expect(try records.channels().count == 1)
        #expect(try await eventually { !first.record.ends.isEmpty })
        #expect(first.record.ends == [.leaseLost])
        server.send(SIGCONT)
        let second = try Running(configuration("b"), try store("b"), relay)
        #expect(try await eventually { second.record.serves })
    }

    @Test func `who is deposed can write nothing, and ends`() async throws {
        let (records, _) = try makeCluster()
        let first = try Running(configuration("a"), records, relay)
        #expect(try await eventually { first.record.serves })
        // As after a pause of which it does not know: another one has the lease, and has begun its epoch.
        let connection = try NATSConnection(server.options)
        let description = try #require(
            try ClusterAdministration.description(configuration("b"), connection, wait: .seconds(2)))
        let other = try store("b")
        let follower = ClusterFollower(
            connection: connection, stream: configuration("b").log, description: description, store: other, relay: relay
        )
        _ = try follower.take(epoch: 2)
        #expect(throws: RelayStoreError.self) { try records.addChannel(try name("Gate"), now: 2) }
        #expect(try await eventually { first.record.ends == [.deposed(by: nil)] })
        #expect(try records.channels().map(\.name.text) == ["Yard"])
    }

    @Test func `a relay that cannot be a node says why`() async throws {
        let records = try store("a")
        let early = try Running(configuration("a"), records, relay)
        let missing = "\(ClusterError.noRecords("test"))"
        #expect(try await eventually { early.record.lines.contains { $0.contains(missing) } })
        let (_, _) = try { () throws -> (RelayStore, ChannelRecord) in
            let full = try store("full")
            let yard = try full.addChannel(try name("Yard"), now: 1)
            _ = try ClusterAdministration(configuration("full")).importRecords(of: full, as: relay)
            return (full, yard)
        }()
        // Now there are some: it goes on by itself.
        #expect(try await eventually { early.record.serves })
        #expect(try records.channels().map(\.name.text) == ["Yard"])
        let stranger = try Running(configuration("s"), try store("s"), ClusterIdentity(Identity(generating: "other")))
        #expect(try await eventually { stranger.record.lines.contains { $0.contains("another relay's") } })
        let own = try store("o")
        try own.addChannel(try name("Mine"), now: 1)
        let other = try Running(configuration("o"), own, relay)
        #expect(try await eventually { other.record.lines.contains { $0.contains("it has channels of its own") } })
        // With the name of the one that serves.
        let same = try Running(configuration("a"), try store("same"), relay)
        #expect(try await eventually(20) { same.record.lines.contains { $0.contains("is called 'a'") } })
        #expect(!stranger.record.serves && !other.record.serves && !same.record.serves)
        // One that is silent gives its name away: its records may have been replaced.
        let connection = try NATSConnection(server.options)
        let settings = configuration("d")
        let gone = ClusterNodeReport(
            node: "d", identifier: "other", place: "h:1", serves: false, position: 1, at: 1, version: "1")
        _ = try connection.publish(
            gone.message, to: settings.nodeSubject("d"), of: settings.state.name, after: .none, wait: .seconds(2))
        let renewed = try Running(settings, try store("d"), relay)
        #expect(try await eventually { renewed.record.lines.contains { $0.contains("is called 'd'") } })
        #expect(try await eventually(30) { renewed.node.standing.holder == "a" })
    }

    @Test func `an import that was interrupted is begun anew`() throws {
        let records = try store("a")
        try records.addChannel(try name("Yard"), now: 1)
        let connection = try NATSConnection(server.options)
        let settings = configuration("a")
        try connection.add(settings.log, wait: .seconds(2))
        let record = ClusterRecord.beginning(
            .init(cluster: Array(repeating: 1, count: 16), pin: relay.pin, changes: try records.everything()))
        let messages = try #require(record.messages(epoch: 0, byteCountMaximum: 100))
        _ = try connection.publish(
            relay.seal(messages[0], at: 1), to: settings.log.subject, of: settings.log.name, after: .none,
            wait: .seconds(2))
        _ = try ClusterAdministration(settings).importRecords(of: records, as: relay)
        let description = try #require(try ClusterAdministration.description(settings, connection, wait: .seconds(2)))
        #expect(description.first == 2)
        let other = try store("b")
        let follower = ClusterFollower(
            connection: connection, stream: settings.log, description: description, store: other, relay: relay)
        #expect(try follower.follow().isEnd)
        #expect(try other.channels() == records.channels())
    }

    @Test func `a message that no node has written is refused, wherever it comes from`() throws {
        let (records, _) = try makeCluster()
        let connection = try NATSConnection(server.options)
        let settings = configuration("a")
        let description = try #require(try ClusterAdministration.description(settings, connection, wait: .seconds(2)))
        let last = try connection.state(of: settings.log.name, wait: .seconds(2)).last
        let stranger = try ClusterIdentity(Identity(generating: "stranger"))
        let message = try #require(ClusterRecord.epoch(9).messages(epoch: 9, byteCountMaximum: 1_024)?.first)
        // Another key's; a node's from another place; a node's that was changed.
        var changed = relay.seal(message, at: last + 1)
        changed[9] ^= 1
        for forged in [stranger.seal(message, at: last + 1), relay.seal(message, at: last), changed, message, []] {
            #expect(relay.open(forged, at: last + 1) == nil)
        }
        #expect(relay.open(relay.seal(message, at: last + 1), at: last + 1) == message)
        _ = try connection.publish(
            changed, to: settings.log.subject, of: settings.log.name, after: .last(last), wait: .seconds(2))
        let follower = ClusterFollower(
            connection: connection, stream: settings.log, description: description, store: records, relay: relay)
        #expect(throws: ClusterError.forged(position: last + 1)) { try follower.follow() }
        #expect(try records.logPlace()?.position == last)
    }
}
