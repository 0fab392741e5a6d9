// A cluster under test: real records, and a nats-server of its own.
import Cryptography
import NATS
import RelayProtocol
import RelayStore
import Synchronization
import TestSupport
import Testing

@testable import RelayCluster

struct ClusterRig {
    let server: NATSServer
    let folder: TemporaryFolder
    let relay: ClusterIdentity

    init() throws {
        server = try NATSServer()
        folder = try TemporaryFolder()
        relay = try ClusterIdentity(Identity(generating: "relay"))
    }

    func name(_ text: String) throws -> DisplayName { try #require(DisplayName(text)) }
    func store(_ node: String) throws -> RelayStore { try RelayStore.open(path: folder.file("\(node).sqlite")) }

    func configuration(_ node: String, place: String = "127.0.0.1:9") -> ClusterConfiguration {
        ClusterConfiguration(
            name: "test", node: node, nats: server.options, place: place, replicas: 1, logBytesMaximum: 8 << 20)
    }

    static var timers: SharesStateMachine.Timers {
        var timers = SharesStateMachine.Timers()
        (timers.poll, timers.renewal, timers.retry) = (.milliseconds(50), .milliseconds(200), .milliseconds(50))
        (timers.lease, timers.margin) = (.seconds(4), .milliseconds(500))
        return timers
    }

    /// What a node has said and done.
    final class Record: Sendable {
        let log = KeptLog()
        private let kept = Mutex<(ends: [ClusterNode.End], serves: Bool)>(([], false))
        var lines: [String] { log.lines }
        var ends: [ClusterNode.End] { kept.withLock { $0.ends } }
        /// Whether it has all records, and so takes a part in the table of shares.
        var serves: Bool { kept.withLock { $0.serves } }
        func end(_ end: ClusterNode.End) { kept.withLock { $0.ends.append(end) } }
        func serve() { kept.withLock { $0.serves = true } }
    }

    /// A node under test.
    struct Running {
        let node: ClusterNode
        let store: RelayStore
        let record = Record()

        fileprivate init(
            _ configuration: ClusterConfiguration, _ store: RelayStore, _ relay: ClusterIdentity,
            _ logLimits: ClusterLogLimits
        ) throws {
            let record = record
            self.store = store
            node = try ClusterNode(
                configuration, store: store, relay: relay, version: "1", timers: ClusterRig.timers,
                logLimits: logLimits, logger: record.log.logger, onEnd: { record.end($0) })
            Task { [node] in
                let shares = await node.serve()
                record.serve()
                Task { await shares.start() }
                // Nobody talks on a channel.
                for await case .pause(let numbers) in shares.orders {
                    await shares.paused(Dictionary(uniqueKeysWithValues: numbers.map { ($0, []) }))
                }
            }
        }
    }

    /// Starts a node.
    func run(
        _ configuration: ClusterConfiguration, _ store: RelayStore, as other: ClusterIdentity? = nil,
        logLimits: ClusterLogLimits = .init()
    ) throws -> Running { try Running(configuration, store, other ?? relay, logLimits) }

    func eventually(_ seconds: Int = 10, _ condition: () throws -> Bool) async throws -> Bool {
        for _ in 0..<seconds * 50 {
            if try condition() { return true }
            try await Task.sleep(for: .milliseconds(20))
        }
        return false
    }

    /// A cluster of the records of a relay with one channel.
    func makeCluster() throws -> (RelayStore, ChannelRecord) {
        let records = try store("a")
        let yard = try records.addChannel(try name("Yard"), now: 1)
        let administration = try ClusterAdministration(configuration("a"))
        // In several messages.
        #expect(try administration.importRecords(of: records, as: relay, messageMaximum: 200) > 1)
        // Once more, as after an answer that was lost.
        #expect(try administration.importRecords(of: records, as: relay) == 0)
        let others = try store("others")
        #expect(throws: ClusterError.hasRecords("test")) { try administration.importRecords(of: others, as: relay) }
        return (records, yard)
    }
}
