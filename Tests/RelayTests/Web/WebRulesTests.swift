// The small rules of a link over TLS: the queue, acknowledgements, pings, and doubts about the path.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient

struct WebSendQueueTests {
    private static let start = Instant.zero + .seconds(1)

    @Test func `control messages overtake media, and each keeps its order`() {
        var queue = WebSendQueue()
        queue.add(media: [128, 1], number: 1, at: Self.start)
        queue.add(media: [128, 2], number: 2, at: Self.start)
        #expect(queue.add(sealed: [16, 1]) == true)
        #expect(queue.add(sealed: [16, 2]) == true)
        #expect(queue.next(at: Self.start) == .sealed([16, 1]))
        #expect(queue.next(at: Self.start) == .sealed([16, 2]))
        #expect(queue.next(at: Self.start) == .media([128, 1], number: 1))
        #expect(queue.next(at: Self.start) == .media([128, 2], number: 2))
        #expect(queue.next(at: Self.start) == nil && queue.isEmpty)
    }

    @Test func `media that have waited for half a second are dropped and counted`() {
        var queue = WebSendQueue()
        for number in 0..<50 {
            queue.add(media: [128], number: UInt64(number), at: Self.start + .milliseconds(20) * number)
        }
        #expect(queue.next(at: Self.start + .milliseconds(980)) == .media([128], number: 25))
        #expect(queue.dropped == 25)
        #expect(queue.next(at: Self.start + .seconds(60)) == nil)
        #expect(queue.dropped == 49 && queue.mediaBytes == 0)
    }

    @Test func `media beyond 64 KiB are dropped, the oldest first`() {
        var queue = WebSendQueue()
        for number in 0..<100 {
            queue.add(media: [UInt8](repeating: 128, count: 1_000), number: UInt64(number), at: Self.start)
        }
        #expect(queue.mediaBytes == 65_000 && queue.dropped == 35)
        #expect(queue.next(at: Self.start) == .media([UInt8](repeating: 128, count: 1_000), number: 35))
    }

    @Test func `control messages have a bound, at which the relay is taken not to read`() {
        var queue = WebSendQueue()
        let message = [UInt8](repeating: 16, count: 16_384)
        for _ in 0..<16 { #expect(queue.add(sealed: message) == true) }
        #expect(queue.add(sealed: [16]) == false)
        _ = queue.next(at: Self.start)
        #expect(queue.add(sealed: [16]) == true)
    }

    @Test func `whatever order things come in, the counts are right`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var queue = WebSendQueue()
        var now = Self.start
        var (added, sealed, sent, sentSealed, last) = (0, 0, 0, 0, UInt64(0))
        for _ in 0..<20_000 {
            now = now + .microseconds(Int64.random(in: 0...40_000, using: &random))
            switch Int.random(in: 0..<4, using: &random) {
            case 0:
                if queue.add(sealed: random.bytes(Int.random(in: 1...400, using: &random))) { sealed += 1 }
            case 1:
                added += 1
                queue.add(
                    media: random.bytes(Int.random(in: 30...1_160, using: &random)), number: UInt64(added), at: now)
            default:
                switch queue.next(at: now) {
                case nil: break
                case .sealed: sentSealed += 1
                case .media(_, let number):
                    #expect(number > last, "seed \(seed)")
                    (last, sent) = (number, sent + 1)
                }
            }
            #expect(queue.mediaBytes >= 0 && queue.mediaBytes <= WebLinkLimits.mediaQueueBytes, "seed \(seed)")
        }
        while let item = queue.next(at: now) { if case .sealed = item { sentSealed += 1 } else { sent += 1 } }
        #expect(sent + queue.dropped == added && sentSealed == sealed, "seed \(seed)")
    }
}

struct WebAcknowledgementsTests {
    @Test func `a count stands for the numbers that went out`() throws {
        var known = WebAcknowledgements()
        for number in [3, 4, 7, 9] as [UInt64] { known.sent(number) }
        #expect(try known.take(2) == 4)
        #expect(try known.take(2) == nil, "nothing new")
        #expect(try known.take(4) == 9)
        known.sent(10)
        #expect(try known.take(5) == 10)
    }

    @Test func `more than was sent, or less than before, is impossible`() throws {
        var known = WebAcknowledgements()
        known.sent(1)
        known.sent(2)
        #expect(throws: WebAcknowledgements.Impossible()) { try known.take(3) }
        _ = try known.take(2)
        #expect(throws: WebAcknowledgements.Impossible()) { try known.take(1) }
        #expect(throws: WebAcknowledgements.Impossible()) { try known.take(.max) }
    }

    @Test func `a relay that acknowledges nothing makes nothing grow`() throws {
        var known = WebAcknowledgements()
        for number in 1...10_000 { known.sent(UInt64(number)) }
        #expect(try known.take(9_000) == 9_000)
        #expect(try known.take(10_000) == 10_000)
    }
}

struct WebPulseTests {
    private static let start = Instant.zero + .seconds(1)

    @Test func `after 20 s in which nothing was sent the relay is asked, and after 10 s more it is gone`() {
        var pulse = WebPulse(keepAlive: .seconds(20), at: Self.start)
        pulse.sent(at: Self.start + .seconds(5))
        pulse.heard(at: Self.start + .seconds(15))
        #expect(pulse.due(at: Self.start + .seconds(24)) == nil)
        #expect(pulse.nextDeadline == Self.start + .seconds(25))
        #expect(pulse.due(at: Self.start + .seconds(25)) == .ping(1))
        #expect(pulse.nextDeadline == Self.start + .seconds(35))
        #expect(pulse.due(at: Self.start + .seconds(35)) == .gone)
    }

    @Test func `an answer gives the round trip, smoothed`() {
        var pulse = WebPulse(keepAlive: .seconds(20), at: Self.start)
        let first = pulse.ping(at: Self.start)
        pulse.heard(at: Self.start + .milliseconds(80))
        pulse.pong(first, at: Self.start + .milliseconds(80))
        #expect(pulse.roundTripTime == .milliseconds(80))
        let second = pulse.ping(at: Self.start + .seconds(1))
        pulse.pong(second, at: Self.start + .milliseconds(1_160))
        #expect(pulse.roundTripTime == .milliseconds(90))
        pulse.pong(second, at: Self.start + .seconds(9))
        pulse.pong(99, at: Self.start + .seconds(9))
        #expect(pulse.roundTripTime == .milliseconds(90), "an answer to nothing tells nothing")
        #expect(pulse.nextDeadline == Self.start + .seconds(21))
    }
}

struct PathDoubtTests {
    private static let start = Instant.zero + .seconds(1)

    @Test func `media that are not acknowledged for 1.5 s are doubtful, again and again`() {
        var doubt = PathDoubt()
        #expect(doubt.nextDeadline == nil)
        doubt.sent(at: Self.start)
        doubt.sent(at: Self.start + .seconds(1))
        #expect(doubt.isDue(at: Self.start + .milliseconds(1_499)) == false)
        #expect(doubt.isDue(at: Self.start + .milliseconds(1_500)) == true)
        #expect(doubt.isDue(at: Self.start + .milliseconds(1_501)) == false)
        #expect(doubt.nextDeadline == Self.start + .seconds(3))
        doubt.answered()
        #expect(doubt.nextDeadline == nil)
    }

    @Test func `a burst of another that brings nothing is doubtful, but not for ever`() {
        var doubt = PathDoubt()
        doubt.expects(at: Self.start)
        doubt.expects(at: Self.start + .seconds(1))
        #expect(doubt.nextDeadline == Self.start + .milliseconds(2_500))
        var asked = 0
        while let due = doubt.nextDeadline, asked < 100 {
            #expect(doubt.isDue(at: due) == true)
            asked += 1
        }
        #expect(asked == 6, "its talker may be silent on purpose")
        doubt.expects(at: Self.start + .seconds(60))
        doubt.expectsNothing()
        #expect(doubt.nextDeadline == nil)
    }
}
