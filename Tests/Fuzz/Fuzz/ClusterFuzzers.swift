// What nodes of a cluster read in JetStream: messages of the log, and what they say of themselves.
import Cryptography

@testable import RelayCluster

private let beginning = ClusterRecord.beginning(
    .init(
        cluster: Array(repeating: 4, count: ClusterRecord.Beginning.clusterByteCount),
        pin: PublicKeyPin(subjectPublicKeyInfo: [1]), changes: [[], [1, 2, 3]]))

/// Messages as pieces of an input.
private func pieces(_ records: [ClusterRecord]) -> [UInt8] {
    records.flatMap { $0.messages(epoch: 3, byteCountMaximum: 60) ?? [] }.flatMap { piece($0) }
}

let clusterFuzzers: [Fuzzer] = [
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
            let lease = ClusterLease(
                epoch: 1, node: "a", identifier: "00", incarnation: "01", place: "h:1", state: .serving,
                milliseconds: 20_000)
            let description = ClusterDescription(cluster: "00", pin: "AA", first: 1)
            let report = ClusterNodeReport(
                node: "a", identifier: "00", place: "h:1", serves: true, position: 1, at: 1, version: "1")
            return [lease.message, description.message, report.message]
        }
    ) { bytes in
        if let lease = ClusterLease(message: bytes) {
            expect(ClusterLease(message: lease.message) == lease, "a lease is what was read")
        }
        if let description = ClusterDescription(message: bytes) {
            expect(ClusterDescription(message: description.message) == description, "a description is what was read")
        }
        if let report = ClusterNodeReport(message: bytes) {
            expect(ClusterNodeReport(message: report.message) == report, "a report is what was read")
        }
    },
]
