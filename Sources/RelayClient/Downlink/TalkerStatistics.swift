// Statistics of each talker for the reception reports. Pure.
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
