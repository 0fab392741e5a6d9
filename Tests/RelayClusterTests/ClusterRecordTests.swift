// Records as messages of the log, whole and in parts.
import Cryptography
import Testing

@testable import RelayCluster

@Suite struct ClusterRecordTests {
    private let pin = PublicKeyPin(subjectPublicKeyInfo: [1, 2, 3])

    private func read(_ messages: [[UInt8]]) -> [ClusterRecordReader.Outcome] {
        var reader = ClusterRecordReader()
        return messages.map { reader.take($0) }
    }

    @Test(arguments: [19, 64, 1_000, 1_000_000]) func `a record is what was written, in however many messages`(
        size: Int
    ) throws {
        let records: [ClusterRecord] = [
            .epoch(7), .changes([]), .changes(Array(repeating: 9, count: 500)),
            .beginning(
                .init(
                    cluster: Array(repeating: 4, count: 16), pin: pin,
                    changes: [[], [1], Array(repeating: 2, count: 300)])),
        ]
        for record in records {
            let messages = try #require(record.messages(epoch: 7, byteCountMaximum: size))
            #expect(messages.allSatisfy { $0.count <= size })
            let outcomes = read(messages)
            #expect(outcomes.dropLast().allSatisfy { $0 == .part })
            #expect(outcomes.last == .record(record, epoch: 7))
        }
    }

    @Test func `what a node leaves half written is skipped, and nothing else is`() throws {
        let long = ClusterRecord.changes(Array(0..<100))
        let parts = try #require(long.messages(epoch: 1, byteCountMaximum: 58))
        #expect(parts.count == 3)
        let next = try #require(ClusterRecord.epoch(2).messages(epoch: 2, byteCountMaximum: 58))
        #expect(read(Array(parts.prefix(2)) + next) == [.part, .part, .record(.epoch(2), epoch: 2)])
        // A part is missing, or of another record.
        #expect(read([parts[0], parts[2]]) == [.part, .unreadable])
        #expect(read([parts[1]]) == [.unreadable])
        var other = parts[1]
        other[9] = 2
        #expect(read([parts[0], other]) == [.part, .unreadable])
    }

    @Test func `what no version writes is unreadable`() throws {
        let message = try #require(ClusterRecord.epoch(1).messages(epoch: 1, byteCountMaximum: 100)?.first)
        #expect(read([[]]) == [.unreadable] && read([Array(message.dropLast())]) == [.unreadable])
        for (index, value) in [(0, UInt8(2)), (1, 0), (1, 9), (13, 1), (17, 0)] {
            var changed = message
            changed[index] = value
            #expect(read([changed]) == [.unreadable], "byte \(index)")
        }
        // A beginning that is cut off.
        let beginning = ClusterRecord.beginning(
            .init(cluster: Array(repeating: 4, count: 16), pin: pin, changes: [[1, 2]]))
        let whole = try #require(beginning.messages(epoch: 0, byteCountMaximum: 1_000)?.first)
        #expect(read([Array(whole.dropLast())]) == [.unreadable])
    }
}
