// What nodes of a cluster read in JetStream: messages of the log, what they say of themselves, and who serves what.
import Cryptography
import MonotonicTime

@testable import RelayCluster

private let beginning = ClusterRecord.beginning(
    .init(
        cluster: Array(repeating: 4, count: ClusterRecord.Beginning.clusterByteCount),
        pin: PublicKeyPin(subjectPublicKeyInfo: [1]), changes: [[], [1, 2, 3]]))

/// Messages as pieces of an input.
private func pieces(_ records: [ClusterRecord]) -> [UInt8] {
    records.flatMap { $0.messages(epoch: 3, byteCountMaximum: 60) ?? [] }.flatMap { piece($0) }
}

/// A table in which two relays serve, and one has a channel of the other still.
private var sharedTable: ShareTable {
    var table = ShareTable()
    for (name, incarnation) in [("a", "1"), ("b", "2")] {
        var node = ShareTable.Node(
            ClusterMember(node: name, identifier: name, incarnation: incarnation, place: "h:\(incarnation)"))
        node.isReady = true
        table.nodes.append(node)
    }
    table.assignWriter(preferring: "2")
    for share in table.shares.indices { table.shares[share].owner = share % 2 == 0 ? "1" : "2" }
    (table.shares[0].earlier, table.shares[0].held) = ("2", ["00112233-4455-6677-8899-aabbccddeeff"])
    return table
}

let clusterFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "cluster-shares", maximum: 16_384,
        seeds: { [sharedTable, ShareTable()].map { ShareTableMessage(over: 1, table: $0).message } }
    ) { bytes in
        guard let message = ShareTableMessage(message: bytes) else { return }
        expect(ShareTableMessage(message: message.message) == message, "a table is what was read")
        let table = message.table
        // Whatever it says, a relay that reads it goes on.
        let own = ClusterMember(node: "a", identifier: "a", incarnation: "1", place: "h:1")
        var machine = SharesStateMachine(own)
        var now = Instant.zero
        var revision: UInt64 = 1
        var pending: [SharesStateMachine.Event] = [.follows(true), .start, .read(table, revision: 1)]
        for step in 0..<60 {
            let event = pending.isEmpty ? .deadline : pending.removeFirst()
            for action in machine.handle(event, at: now) {
                switch action {
                case .read: pending.append(.read(step % 3 == 0 ? table : nil, revision: revision))
                case .write:
                    revision += 1
                    pending.append(.written(revision: revision))
                case .pause(let shares): pending.append(.paused([shares.first ?? 0: ["x"]]))
                default: break
                }
            }
            if step == 20 { pending.append(.portClosed(incarnation: "2")) }
            if step == 30 { pending.append(.release) }
            now = now + .milliseconds(400)
        }
    },
    Fuzzer(
        name: "cluster-log", maximum: 2_048,
        seeds: { [pieces([beginning, .epoch(3), .changes(Array(0..<100))]), pieces([.changes([])])] }
    ) { bytes in
        var input = Input(bytes)
        var reader = ClusterRecordReader()
        while !input.isEmpty {
            guard case .record(let record, let epoch) = reader.take(input.piece()) else { continue }
            expect(reader.isBetweenRecords, "a record that is whole has no more parts")
            for size in [40, 1_000] {
                guard let messages = record.messages(epoch: epoch, byteCountMaximum: size) else { continue }
                var again = ClusterRecordReader()
                let last = messages.map { again.take($0) }.last
                expect(last == .record(record, epoch: epoch), "a record is what was read")
            }
        }
    },
    Fuzzer(
        name: "cluster-state", maximum: 1_024,
        seeds: {
            let description = ClusterDescription(cluster: "00", pin: "AA", first: 1, allServe: true)
            let report = ClusterNodeReport(
                node: "a", identifier: "00", place: "h:1", serves: true, position: 1, at: 1, version: "1")
            return [description.message, report.message]
        }
    ) { bytes in
        if let description = ClusterDescription(message: bytes) {
            expect(ClusterDescription(message: description.message) == description, "a description is what was read")
        }
        if let report = ClusterNodeReport(message: bytes) {
            expect(ClusterNodeReport(message: report.message) == report, "a report is what was read")
        }
    },
]
