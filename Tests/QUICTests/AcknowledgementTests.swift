import MonotonicTime
import Reactor
import Synchronization
import TestSupport
import Testing

@testable import QUIC

@Suite struct AcknowledgementTests {
    private typealias Number = AcknowledgementPace.Number

    private func at(_ milliseconds: Int) -> Instant { .zero + .milliseconds(milliseconds) }

    /// The packets, from the second on, that are acknowledged at once.
    private func answered(every interval: Int, threshold: Int = 10, count: Int = 24) -> [Int] {
        var pace = AcknowledgementPace(threshold: threshold)
        return (0..<count).filter { index in
            let isPutOff = pace.putOff(Number(value: UInt32(index), byteCount: 1), at: at(index * interval)) != nil
            if !isPutOff { pace.acknowledged() }
            return !isPutOff
        }.filter { $0 > 0 }
    }

    @Test func `packets wait for the next one that comes in time`() {
        #expect(answered(every: 20) == Array(stride(from: 2, to: 24, by: 2)))
        #expect(answered(every: 10) == Array(stride(from: 3, to: 24, by: 3)))
        #expect(answered(every: 1) == [10, 20])
        #expect(answered(every: 1, threshold: 2) == Array(stride(from: 2, to: 24, by: 2)))
        // The next one would be too late: waiting for it would only cost a wake-up.
        #expect(answered(every: 23) == Array(1..<24))
        #expect(answered(every: 60) == Array(1..<24))
    }

    @Test func `the first packet and one after a gap do not wait`() {
        var pace = AcknowledgementPace(threshold: 10)
        #expect(pace.putOff(Number(value: 254, byteCount: 1), at: at(0)) == nil)
        #expect(pace.putOff(Number(value: 255, byteCount: 1), at: at(5)) == at(27))
        // The numbers' low bytes begin again, and may be more bytes than before.
        #expect(pace.putOff(Number(value: 0, byteCount: 1), at: at(10)) == at(27))
        #expect(pace.putOff(Number(value: 0x101, byteCount: 2), at: at(11)) == nil)
        #expect(pace.putOff(Number(value: 0x102, byteCount: 2), at: at(12)) == at(27))
        #expect(pace.putOff(Number(value: 0x104, byteCount: 2), at: at(13)) == nil)
        // The one that was late shows a gap too, and so does the one behind it.
        #expect(pace.putOff(Number(value: 0x103, byteCount: 2), at: at(14)) == nil)
        #expect(pace.putOff(Number(value: 0x105, byteCount: 2), at: at(15)) == nil)
        // Another packet in between is none.
        pace.note(Number(value: 0x106, byteCount: 2), at: at(16))
        #expect(pace.putOff(Number(value: 0x107, byteCount: 2), at: at(17)) != nil)
        pace.note(nil, at: at(18))
        #expect(pace.putOff(Number(value: 0x108, byteCount: 2), at: at(19)) == nil)
        pace.note(Number(value: .max, byteCount: 4), at: at(20))
        #expect(pace.putOff(Number(value: 0, byteCount: 4), at: at(21)) != nil)
    }

    @Test func `after a packet that did not come in time some do not wait`() {
        var pace = AcknowledgementPace(threshold: 10)
        _ = pace.putOff(Number(value: 0, byteCount: 4), at: at(0))
        #expect(pace.putOff(Number(value: 1, byteCount: 4), at: at(10)) == at(32))
        // Woken for something else.
        pace.woke(at: at(31))
        #expect(pace.putOff(Number(value: 2, byteCount: 4), at: at(15)) == at(32))
        pace.woke(at: at(32))
        pace.acknowledged()
        for number in 3..<(3 + AcknowledgementPace.packetsAfterMiss) {
            #expect(pace.putOff(Number(value: UInt32(number), byteCount: 4), at: at(33 + number)) == nil)
        }
        #expect(pace.putOff(Number(value: 19, byteCount: 4), at: at(52)) == at(74))
    }

    @Test(arguments: [1, 2, 3] as [UInt64]) func `nothing waits longer than it may`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var pace = AcknowledgementPace(threshold: 10)
        var (now, number) = (Instant.zero, UInt32(0))
        var first: Instant?
        var waiting = 0
        for _ in 0..<20_000 {
            now = now + .milliseconds(Int.random(in: 1...30, using: &generator))
            number &+= Int.random(in: 0..<20, using: &generator) == 0 ? 2 : 1
            if let since = first, now >= since + AcknowledgementPace.longest {
                pace.woke(at: since + AcknowledgementPace.longest)
                pace.acknowledged()
                (first, waiting) = (nil, 0)
            }
            if let due = pace.putOff(Number(value: number, byteCount: 4), at: now) {
                let since = first ?? now
                #expect(due == since + AcknowledgementPace.longest && due > now)
                first = since
                waiting += 1
                #expect(waiting < 10)
            } else {
                pace.acknowledged()
                (first, waiting) = (nil, 0)
            }
        }
    }

    private struct Ends {
        let server: Peer
        let client: Peer
        let path: Forwarder
        let connection: QUICConnection

        init() async throws {
            server = try await Peer.server { $0.acknowledgementThreshold = 10 }
            path = try await Forwarder(to: server.address)
            client = try await Peer.client()
            connection = try await client.connect(to: server, at: path.address)
            try await client.wait("ready") { $0.readyCount == 1 }
            // What belongs to the handshake is over.
            try await Task.sleep(for: .milliseconds(200))
            try await path.recordAnswers()
        }

        func stop() async throws {
            try await client.stop()
            try await server.stop()
            path.stop()
        }

        /// Sends one, and waits until it is there; whether its acknowledgement waits then.
        func send(_ number: Int) async throws -> Bool {
            let connection = connection
            let before = try await server.on { $0.datagrams.count }
            try await client.on { _ in _ = try connection.sendDatagram([UInt8](repeating: 7, count: 60 + number % 2)) }
            try await Task.sleep(for: .milliseconds(4))
            try await server.wait("it is there") { $0.datagrams.count > before }
            return try await server.on { peer in
                let accepted = peer.accepted[0]
                guard accepted.acknowledgementPace.isWaiting, let heard = accepted.lastHeard else { return false }
                #expect(
                    accepted.deadline.isScheduled && accepted.deadline.latest <= heard + AcknowledgementPace.longest)
                return true
            }
        }

        /// Sends one that the path loses.
        func lose(_ number: Int) async throws {
            let connection = connection
            let lost = Mutex(0)
            try await path.drop { direction, _ in
                guard direction == .toServer else { return false }
                lost.withLock { $0 += 1 }
                return true
            }
            try await client.on { _ in _ = try connection.sendDatagram([UInt8](repeating: 7, count: 60 + number % 2)) }
            for _ in 0..<5_000 where lost.withLock({ $0 == 0 }) { try await Task.sleep(for: .milliseconds(2)) }
            try await path.drop { _, _ in false }
        }
    }

    @Test func `a steady talker is acknowledged less often and nobody is woken for it`()
        async throws
    {
        let ends = try await Ends()
        let wakes = try await ends.server.on { $0.endpoint.alarmWakes }
        var waited = 0
        for number in 0..<100 where try await ends.send(number) { waited += 1 }
        try await ends.server.wait("all") { $0.datagrams.count == 100 }
        try await Task.sleep(for: .milliseconds(100))
        // On a busy machine some come too late; then the next are acknowledged at once.
        #expect(waited > 10, "\(waited)")
        let acknowledgements = try await ends.path.answers.count
        #expect(acknowledgements < 95, "\(acknowledgements)")
        let woken = try await ends.server.on { $0.endpoint.alarmWakes } - wakes
        #expect(woken <= 2 + 100 / AcknowledgementPace.packetsAfterMiss * 2, "\(woken)")
        #expect(try await !ends.server.on { $0.accepted[0].acknowledgementPace.isWaiting })
        try await ends.stop()
    }

    @Test func `a gap is acknowledged at once`() async throws {
        let ends = try await Ends()
        for number in 0..<8 { _ = try await ends.send(number) }
        for round in 0..<5 {
            try await ends.lose(round)
            let before = try await ends.path.answers.count
            let isWaiting = try await ends.send(round)
            #expect(!isWaiting)
            // It may be on its way.
            for _ in 0..<5_000 where try await ends.path.answers.count == before {
                try await Task.sleep(for: .milliseconds(2))
            }
            #expect(try await ends.path.answers.count > before)
            for number in 0..<6 { _ = try await ends.send(number) }
        }
        // The talker has heard of all that were lost.
        try await ends.client.wait("lost") { $0.lost.count == 5 }
        try await ends.stop()
    }
}
