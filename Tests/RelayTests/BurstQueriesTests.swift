// Questions about kept bursts: each is answered once, within its time, whatever the relay does.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct BurstQueriesTests {
    private var queries = BurstQueries()
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let burst = BurstName(ssrc: SSRC(rawValue: 7), keyID: 9)
    private let question = BurstQueryID(number: 1)

    private func packet(_ sequence: UInt16) -> [UInt8] {
        [UInt8](unsafeUninitializedCapacity: 20) { buffer, count in
            RTPHeader(marker: false, sequence: sequence, timestamp: 0, ssrc: burst.ssrc)
                .write(to: UnsafeMutableRawBufferPointer(buffer))
            for index in RTPHeader.byteCount..<20 { buffer[index] = 0 }
            count = 20
        }
    }

    private mutating func ask(_ number: UInt32) -> [BurstQueries.Action] {
        let actions = queries.handle(.fetch(question, burst), at: now)
        return actions + queries.handle(.asked(question, BurstRequestID(rawValue: number)), at: now)
    }

    @Test mutating func `a burst is put together of its pieces`() {
        #expect(ask(1) == [.ask(question, burst, first: nil)])
        let first = BurstRequestID(rawValue: 1)
        #expect(queries.handle(.packets(first, [packet(65_534)], isWhole: false, isEnd: false), at: now).isEmpty)
        #expect(
            queries.handle(.packets(first, [packet(65_535)], isWhole: false, isEnd: true), at: now)
                == [.ask(question, burst, first: 0)])
        _ = queries.handle(.asked(question, BurstRequestID(rawValue: 2)), at: now)
        // What is left of the earlier answer counts for nothing.
        #expect(queries.handle(.packets(first, [packet(9)], isWhole: true, isEnd: true), at: now).isEmpty)
        let last = BurstRequestID(rawValue: 2)
        #expect(
            queries.handle(.packets(last, [packet(0)], isWhole: true, isEnd: true), at: now)
                == [.answer(question, .packets(burst, [65_534, 65_535, 0].map(packet)))])
        #expect(queries.nextDeadline == nil)
    }

    @Test mutating func `an answer that never says it is whole ends when it brings nothing more`() {
        _ = ask(1)
        let request = BurstRequestID(rawValue: 1)
        #expect(
            queries.handle(.packets(request, [], isWhole: false, isEnd: true), at: now)
                == [.answer(question, .packets(burst, []))])
    }

    @Test mutating func `who is put off asks again, and not for ever`() {
        _ = ask(1)
        var asks = 1
        var answer: BurstQueries.Action?
        for number in 1...20 as ClosedRange<UInt32> {
            let request = BurstRequestID(rawValue: number)
            let refused = queries.handle(
                .refused(.init(id: request, cause: .tooMuch, retryAfter: .seconds(1))), at: now)
            answer = refused.first
            guard answer == nil, let due = queries.nextDeadline else { break }
            #expect(due == now + .seconds(1))
            now = due
            #expect(queries.handle(.deadline, at: now) == [.ask(question, burst, first: nil)])
            asks += 1
            _ = queries.handle(.asked(question, BurstRequestID(rawValue: number + 1)), at: now)
        }
        #expect(answer == .answer(question, .failed(.tooMuch)))
        #expect(asks == BurstQueries.retriesMaximum + 1)
    }

    @Test mutating func `what a relay puts off for an hour is asked again after five seconds`() {
        _ = ask(1)
        let refusal = ServerMessage.BurstRefused(
            id: BurstRequestID(rawValue: 1), cause: .tooMuch, retryAfter: .seconds(3_600))
        #expect(queries.handle(.refused(refusal), at: now).isEmpty)
        #expect(queries.nextDeadline == now + BurstQueries.retryMaximum)
        now = now + BurstQueries.retryMaximum
        #expect(queries.handle(.deadline, at: now) == [.ask(question, burst, first: nil)])
    }

    @Test mutating func `a long burst comes whole from a relay that puts off each piece of it`() {
        _ = ask(1)
        let pieces = 2 * BurstQueries.retriesMaximum
        var number: UInt32 = 1
        for piece in 1...pieces {
            let refusal = ServerMessage.BurstRefused(
                id: BurstRequestID(rawValue: number), cause: .tooMuch, retryAfter: .seconds(1))
            #expect(queries.handle(.refused(refusal), at: now).isEmpty)
            now = now + .seconds(1)
            let first = piece > 1 ? UInt16(piece) : nil
            #expect(queries.handle(.deadline, at: now) == [.ask(question, burst, first: first)])
            _ = queries.handle(.asked(question, BurstRequestID(rawValue: number + 1)), at: now)
            let answer = queries.handle(
                .packets(
                    BurstRequestID(rawValue: number + 1), [packet(UInt16(piece))], isWhole: piece == pieces,
                    isEnd: true), at: now)
            number += 2
            if piece < pieces {
                #expect(answer == [.ask(question, burst, first: UInt16(piece + 1))])
                _ = queries.handle(.asked(question, BurstRequestID(rawValue: number)), at: now)
            } else {
                #expect(answer == [.answer(question, .packets(burst, (1...UInt16(pieces)).map(packet)))])
            }
        }
    }

    @Test mutating func `without an answer, and without a link, the question is answered nevertheless`() {
        _ = ask(1)
        #expect(queries.nextDeadline == now + BurstQueries.answerTime)
        now = now + BurstQueries.answerTime
        #expect(queries.handle(.deadline, at: now) == [.answer(question, .failed(.notAnswered))])
        _ = ask(2)
        #expect(queries.handle(.linkLost, at: now) == [.answer(question, .failed(.notAnswered))])
        #expect(queries.handle(.linkLost, at: now).isEmpty && queries.nextDeadline == nil)
    }

    @Test mutating func `no more questions are asked at a time than may be, and no more is kept of a burst`() {
        for number in 0..<UInt64(BurstQueries.queriesMaximum) {
            let asked = queries.handle(.list(BurstQueryID(number: number)), at: now)
            #expect(asked == [.ask(BurstQueryID(number: number), nil, first: nil)])
        }
        let more = BurstQueryID(number: 99)
        #expect(queries.handle(.list(more), at: now) == [.answer(more, .failed(.tooMuch))])
        queries = BurstQueries()
        _ = ask(1)
        let many = [[UInt8]](repeating: packet(1), count: BurstQueries.packetsMaximum + 1)
        let answered = queries.handle(
            .packets(BurstRequestID(rawValue: 1), many, isWhole: false, isEnd: false), at: now)
        guard case .answer(question, .packets(burst, let packets))? = answered.first else {
            Issue.record("\(answered.count) actions")
            return
        }
        #expect(packets.count == BurstQueries.packetsMaximum)
    }

    // MARK: Keys

    /// Frames sealed as a talker does.
    private func sealed(_ key: MediaKey, count: Int) throws -> [[UInt8]] {
        var session = try MediaSession(ssrc: burst.ssrc, downlinkKey: TrailerKey(), mediaKey: key, at: now)
        var random = SecureRandom()
        _ = try session.beginBurst(.first, using: &random)
        return (0..<count).compactMap { number -> [UInt8]? in
            let frame = UplinkStateMachine.MediaFrame(
                sequence: UInt16(number), timestamp: UInt32(number * 480), marker: number == 0,
                payload: [UInt8(number)])
            return session.seal(frame, .first)
        }
    }

    @Test func `a burst of an earlier key is opened by who had that, in as many epochs as are remembered`() throws {
        var ring = MediaKeyring()
        let old = MediaKey(epoch: 7)
        let packets = try sealed(old, count: 5)
        let name = try #require(
            packets.first?.withUnsafeBytes {
                MediaSession.Packet($0).map { BurstName(ssrc: burst.ssrc, keyID: $0.keyID) }
            })
        #expect(ring.open(packets, of: name, at: now).isEmpty && !ring.has(7))
        ring.add(old)
        ring.add(MediaKey(epoch: 8))
        #expect(ring.latest.map(\.epoch) == [7, 8])
        #expect(ring.open(packets + packets, of: name, at: now).map(\.payload) == (0..<5).map { [UInt8($0)] })
        // Another burst's name, and packets that somebody changed, open nothing.
        #expect(ring.open(packets, of: BurstName(ssrc: burst.ssrc, keyID: name.keyID ^ 1), at: now).isEmpty)
        #expect(ring.open(packets.map { Array($0.dropLast()) + [$0.last! ^ 1] }, of: name, at: now).isEmpty)
        for epoch in 9..<UInt16(8 + MediaKeyring.epochsMaximum) { ring.add(MediaKey(epoch: epoch)) }
        #expect(!ring.has(7) && ring.has(8))
        #expect(ring.open(packets, of: name, at: now).isEmpty)
    }
}
