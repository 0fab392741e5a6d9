// Which messages of the table's stream count.
import NATS
import TestSupport
import Testing

@testable import RelayCluster

@Suite(.serialized, .timeLimit(.minutes(2))) struct ShareTableChainTests {
    private func table(_ name: String) -> ShareTable {
        var table = ShareTable()
        table.nodes = [ShareTable.Node(ClusterMember(node: name, identifier: name, incarnation: name, place: "h:1"))]
        return table
    }

    private func message(_ name: String, over: UInt64) -> ShareTableMessage {
        ShareTableMessage(over: over, table: table(name))
    }

    @Test func `of several that name the same message the first one counts`() {
        var chain = ShareTableChain()
        chain.take(message("a", over: 0), at: 1)
        chain.take(message("b", over: 0), at: 2)
        chain.take(message("c", over: 2), at: 3)
        #expect(chain.accepted == 1 && chain.table == table("a"))
        chain.take(nil, at: 4)
        chain.take(message("d", over: 1), at: 5)
        chain.take(message("e", over: 1), at: 6)
        #expect(chain.accepted == 5 && chain.table == table("d") && chain.seen == 6)
        chain.take(message("f", over: 5), at: 6)
        #expect(chain.accepted == 5, "it was looked at")
    }

    @Test func `whoever begins finds what counts, wherever the stream begins now`() {
        var random = SeededGenerator(seed: SeededGenerator.seed())
        var whole = ShareTableChain()
        var all: [(sequence: UInt64, message: ShareTableMessage?)] = []
        var earlier: UInt64 = 0
        for sequence in UInt64(1)...300 {
            // Some have read what counted before, and some messages are none.
            let isLate = Int.random(in: 0..<3, using: &random) == 0
            let next = isLate ? message("x\(sequence)", over: earlier) : message("n\(sequence)", over: whole.accepted)
            if whole.accepted != earlier, !isLate { earlier = whole.accepted }
            let written = Int.random(in: 0..<20, using: &random) == 0 ? nil : next
            all.append((sequence, written))
            whole.take(written, at: sequence)
        }
        for first in [0, 1, 50, 200, 280] {
            var late = ShareTableChain()
            let isFound = late.begin(Array(all.dropFirst(first)))
            #expect(isFound && late.accepted == whole.accepted && late.table == whole.table && late.seen == 300)
        }
        var none = ShareTableChain()
        let isFound = none.begin([(7, nil), (8, message("a", over: 2))])
        #expect(!isFound)
    }

    @Test func `of relays that write at the same time one succeeds each time, and all read the same`() async throws {
        let server = try NATSServer()
        let configuration = ClusterConfiguration(
            name: "test", node: "a", nats: server.options, place: "127.0.0.1:9", replicas: 1, logBytesMaximum: 8 << 20)
        let connections = try (0..<3).map { _ in try NATSConnection(server.options) }
        try connections[0].add(configuration.shares, wait: .seconds(5))
        let streams = connections.map { ShareTableStream($0, configuration.shares) }
        #expect(try streams[0].read().table == nil)
        var written = 0
        for round in 0..<120 {
            // All have read the same, and write.
            let revisions = try streams.map { try $0.read().revision }
            #expect(Set(revisions).count == 1)
            let results = try streams.indices.map { index in
                try streams[index].write(table("\(round) \(index)"), over: revisions[index])
            }
            // The second and third one have not seen the first one's.
            #expect(results.map { $0 != nil } == [true, false, false])
            written += 1
        }
        let late = ShareTableStream(try NATSConnection(server.options), configuration.shares)
        let last = try late.read()
        let first = try streams[0].read()
        #expect(last.table == table("\(written - 1) 0") && last.table == first.table && last.revision == first.revision)
    }
}
