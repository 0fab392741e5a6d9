// Reception reports: what they say of each talker, and when they are due. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// What was received of one talker since this end joined, for the reports (RFC 3550, section 6.4.1).
struct TalkerStatistics: Sendable {
    /// For how many talkers it is kept.
    static let talkersMaximum = 32

    private var received: UInt32 = 0
    private var lost: UInt32 = 0
    private var sequences = SequenceExtender()
    private var jitter = 0.0
    private var lastTransit: Double?

    mutating func note(_ header: RTPHeader, at now: Instant) {
        received &+= 1
        _ = sequences.extend(header.sequence)
        // Interarrival jitter of RFC 3550, section 6.4.1, in units of the 48 kHz clock.
        let transit = Double(now.nanoseconds) * 48e-6 - Double(header.timestamp)
        if let lastTransit, !header.marker {
            let difference = abs(transit - lastTransit)
            // A wrapped time stamp or a pause is no jitter.
            if difference < 48_000 { jitter += (difference - jitter) / 16 }
        }
        lastTransit = transit
    }

    mutating func close(lost: Int) {
        self.lost &+= UInt32(clamping: lost)
        lastTransit = nil
    }

    func report(_ ssrc: SSRC, lostNow: Int) -> ClientMessage.ReceptionReport {
        ClientMessage.ReceptionReport(
            ssrc: ssrc, received: received, lost: lost &+ UInt32(clamping: lostNow),
            highestSequence: UInt32(truncatingIfNeeded: sequences.highest ?? 0), jitter: UInt32(jitter))
    }
}

/// Often while packets are lost, for the talker adapts to it; seldom while all is well: each report is a packet and an acknowledgement,
/// times thousands of listeners.
struct ReportSchedule: Sendable, Equatable {
    /// Between reports while nothing is lost.
    static let interval: Duration = .seconds(4)
    /// Between reports while something is.
    static let lossInterval: Duration = .seconds(2)

    /// When the next one is due while nothing is lost, and when something is.
    private var (regular, early): (Instant, Instant)
    /// From the first report to the second.
    private var second: Duration?
    /// The losses in the last report.
    private var lost = 0
    private var wasLossy = false

    /// The first report is due `first` after a burst's first packet, 1 to 2 s. From the second one on, listeners whose `first` is spread
    /// evenly over that are spread over the whole interval.
    init(first: Duration, at now: Instant) {
        (regular, early) = (now + first, now + first)
        second = first * 3 - .seconds(2)
    }

    /// When the next report is due, `lost` packets of the burst having been lost so far. A loss may make it earlier.
    func next(lost: Int) -> Instant { lost != self.lost || wasLossy ? min(regular, early) : regular }

    /// A report with `lost` packets was made.
    mutating func reported(lost: Int, at now: Instant) {
        // A clean one follows the last loss soon, too: what the talker does against loss ends with it.
        wasLossy = lost != self.lost
        self.lost = lost
        early = now + Self.lossInterval
        regular = now + (second ?? Self.interval)
        second = nil
    }
}
