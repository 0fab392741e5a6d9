// The small rules of a link over TLS: acknowledgements, pings, and doubts about the path.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient

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
        #expect(doubt.takeQuestion(at: Self.start + .milliseconds(1_499)) == nil)
        #expect(doubt.takeQuestion(at: Self.start + .milliseconds(1_500)) == .zero)
        #expect(doubt.takeQuestion(at: Self.start + .milliseconds(1_501)) == nil)
        #expect(doubt.isUnanswered(since: Self.start) && !doubt.isUnanswered(since: Self.start - .milliseconds(1)))
        #expect(doubt.nextDeadline == Self.start + .seconds(3))
        doubt.answered()
        #expect(doubt.nextDeadline == nil && !doubt.isUnanswered(since: Self.start + .seconds(60)))
    }

    @Test func `a burst of another that brings nothing is doubtful, but not for ever`() {
        var doubt = PathDoubt()
        doubt.expects(at: Self.start)
        doubt.expects(at: Self.start + .seconds(1))
        #expect(doubt.nextDeadline == Self.start + .milliseconds(1_300))
        #expect(doubt.takeQuestion(at: Self.start + .milliseconds(1_299)) == nil)
        let patience = doubt.takeQuestion(at: Self.start + .milliseconds(1_300))
        #expect(patience == .milliseconds(1_200), "there is time for the answer")
        #expect(doubt.nextDeadline == Self.start + .milliseconds(2_500))
        var asked = 0
        while let due = doubt.nextDeadline, asked < 100 {
            #expect(doubt.takeQuestion(at: due) == .zero)
            asked += 1
        }
        #expect(asked == 6, "its talker may be silent on purpose")
        doubt.expects(at: Self.start + .seconds(50))
        #expect(doubt.nextDeadline == Self.start + .milliseconds(50_300), "after each silence anew")
        doubt.expects(at: Self.start + .seconds(60))
        doubt.expectsNothing()
        #expect(doubt.nextDeadline == nil)
    }
}
