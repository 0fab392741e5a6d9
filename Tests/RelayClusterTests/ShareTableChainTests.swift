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
        chain.take(nil, at: 3)
        #expect(chain.accepted == 1 && chain.table == table("a"))
        chain.take(nil, at: 4)
        chain.take(message("d", over: 1), at: 5)
        chain.take(message("e", over: 1), at: 6)
        #expect(chain.accepted == 5 && chain.table == table("d") && chain.seen == 6)
        chain.take(message("f", over: 5), at: 6)
        #expect(chain.accepted == 5 && !chain.isForked, "it was looked at")
        // Nobody takes one that came too late for the last that counts, who has read the same.
        chain.take(message("g", over: 6), at: 7)
        #expect(chain.isForked)
    }

    /// A relay that reads the stream, and writes over what counts for it.
    private struct Relay {
        let name: String
        var chain = ShareTableChain()

        mutating func read(_ stream: [(sequence: UInt64, message: ShareTableMessage?)]) {
            for (sequence, message) in stream { chain.take(message, at: sequence) }
        }

        func next(_ table: ShareTable) -> ShareTableMessage {
            ShareTableMessage(over: chain.accepted, parent: chain.digest, table: table)
        }
    }

    @Test func `relays that have read different messages notice it, and agree when they begin anew`() {
        var random = SeededGenerator(seed: SeededGenerator.seed())
        var noticed = 0
        for _ in 0..<200 {
            var relays = ["a", "b", "c"].map { Relay(name: $0) }
            var stream: [(sequence: UInt64, message: ShareTableMessage?)] = []
            func write(_ writer: Int, _ number: Int) {
                let message = relays[writer].next(table("\(relays[writer].name) \(number)"))
                stream.append(((stream.last?.sequence ?? 0) + 1, message))
            }
            for number in 0..<40 {
                write(Int.random(in: 0..<3, using: &random), number)
                // Some read now and then, and find all that came meanwhile.
                for index in relays.indices where Int.random(in: 0..<2, using: &random) == 0 {
                    relays[index].read(stream)
                }
            }
            for index in relays.indices { relays[index].read(stream) }
            let agree = relays.allSatisfy { !$0.chain.isForked && $0.chain.accepted == relays[0].chain.accepted }
            #expect(agree)
            // One reads a message that the servers lose. Another one takes its place, or none does.
            write(0, 100)
            relays[0].read(stream)
            let lost = stream.removeLast()
            if Int.random(in: 0..<2, using: &random) == 0 { write(1, 101) } else { stream.append((lost.sequence, nil)) }
            relays[1].read(stream)
            relays[2].read(stream)
            for number in 102..<108 {
                for writer in relays.indices.shuffled(using: &random) where !relays[writer].chain.isForked {
                    write(writer, number)
                    for index in relays.indices { relays[index].read(stream) }
                }
            }
            // The one that disagrees with two others knows it, or they do.
            let forked = relays.filter(\.chain.isForked)
            if !forked.isEmpty { noticed += 1 }
            let goOn = relays.filter { !$0.chain.isForked }
            #expect(Set(goOn.map(\.chain.digest)).count <= 1, "\(goOn.map(\.chain.accepted))")
            // Who begins anew finds what the others go on with.
            var late = ShareTableChain()
            let isFound = late.begin(stream)
            let isCertain = isFound && !late.isForked
            #expect(isCertain)
            if let one = goOn.first {
                let isSame = late.accepted == one.chain.accepted && late.table == one.chain.table
                #expect(isSame)
            }
            // Whoever looks at all of it again, as after a long gap, finds out as well, or goes on with that.
            for var relay in relays {
                _ = relay.chain.begin(stream)
                let agrees = relay.chain.isForked || relay.chain.accepted == late.accepted
                #expect(agrees)
            }
        }
        #expect(noticed == 200, "\(noticed)")
    }

    @Test func `whoever begins finds those that wrote last, behind what the servers have lost`() {
        var writer = Relay(name: "a")
        var stream: [(sequence: UInt64, message: ShareTableMessage?)] = []
        for number in 0..<60 {
            stream.append((UInt64(number + 1), writer.next(table("a \(number)"))))
            writer.read(stream)
        }
        for gap in [10, 30, 58] as [UInt64] {
            var late = ShareTableChain()
            let isFound = late.begin(stream.filter { $0.sequence != gap })
            #expect(isFound && late.accepted == 60 && late.table == table("a 59"))
        }
        var whole = ShareTableChain()
        let isFound = whole.begin([])
        #expect(isFound && whole.accepted == 0 && whole.table == nil)
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

    @Test func `a relay waits for a message that is missing, and goes on without it when it is lost`() async throws {
        let server = try NATSServer()
        let configuration = ClusterConfiguration(
            name: "test", node: "a", nats: server.options, place: "127.0.0.1:9", replicas: 1, logBytesMaximum: 8 << 20)
        let connection = try NATSConnection(server.options)
        try connection.add(configuration.shares, wait: .seconds(5))
        let writer = ShareTableStream(connection, configuration.shares)
        for number in 0..<20 { _ = try writer.write(table("\(number)"), over: try writer.read().revision) }
        _ = try connection.request(
            Array(#"{"seq":10}"#.utf8), to: "$JS.API.STREAM.MSG.DELETE.\(configuration.shares.name)", wait: .seconds(5))
        let late = ShareTableStream(connection, configuration.shares, patience: .milliseconds(300))
        #expect(throws: ClusterError.incompleteShares) { try late.read() }
        try await Task.sleep(for: .milliseconds(350))
        #expect(try late.read().table == table("19"))
        // Both write over the same now, and neither takes the other for one that has read something else.
        for number in 20..<23 {
            #expect(try writer.write(table("w \(number)"), over: try writer.read().revision) != nil)
            #expect(try late.write(table("l \(number)"), over: try late.read().revision) != nil)
        }
        // One that has read something else ends both.
        let message = ShareTableMessage(over: 8, table: table("x"))
        let sequence = try connection.publish(
            message.message, to: configuration.shares.subject, of: configuration.shares.name, after: .any,
            wait: .seconds(5))
        _ = try connection.publish(
            ShareTableMessage(over: sequence, parent: message.digest, table: table("y")).message,
            to: configuration.shares.subject, of: configuration.shares.name, after: .any, wait: .seconds(5))
        #expect(throws: ClusterError.sharesForked) { try writer.read() }
        #expect(throws: ClusterError.sharesForked) { try late.read() }
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
