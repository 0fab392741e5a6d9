// When packets that carry nothing but one datagram are acknowledged: at once, or together with the next ones. Pure.
import MonotonicTime

/// Decides whether the acknowledgement of a packet may wait for the packets behind it.
///
/// An acknowledgement costs about as much as the packet. It has until `max_ack_delay` (RFC 9000, section 13.2.1), and it may wait only
/// while the next packet is expected before that, so that it costs no wake-up of its own. What shows a gap is acknowledged at once.
struct AcknowledgementPace {
    /// A packet's number as it was sent: the low bytes of it.
    struct Number: Equatable {
        var value: UInt32
        var byteCount: Int

        fileprivate func isNext(after former: UInt32) -> Bool {
            let mask = UInt32.max >> UInt32(32 - 8 * byteCount)
            return value & mask == (former &+ 1) & mask
        }
    }

    /// How long the first of those that wait may wait: a little less than the 25 ms after which peers begin to ask.
    static let longest = Duration.milliseconds(22)
    /// After a packet that did not come when it was expected, so many are acknowledged at once.
    static let packetsAfterMiss = 16

    /// So many are acknowledged at once.
    private let threshold: Int
    private var newest: (number: UInt32, at: Instant)?
    private var waiting = 0
    private var due = Instant.zero
    private var atOnce = 0

    init(threshold: Int) { self.threshold = threshold }

    /// Another packet came, and is answered at once; nil: it has no such number.
    mutating func note(_ number: Number?, at now: Instant) { newest = number.map { ($0.value, now) } }

    /// A packet came with one datagram. Until when its acknowledgement may wait; nil: not at all.
    ///
    /// - Parameter isQuiet: Whether nothing else is to be sent.
    mutating func putOff(_ number: Number, ifQuiet isQuiet: Bool = true, at now: Instant) -> Instant? {
        defer { newest = (number.value, now) }
        guard isQuiet else { return nil }
        guard atOnce == 0 else {
            atOnce -= 1
            return nil
        }
        guard let newest, number.isNext(after: newest.number) else { return nil }
        let latest = waiting == 0 ? now + Self.longest : due
        guard waiting + 1 < threshold, now + (now - newest.at) <= latest else { return nil }
        waiting += 1
        due = latest
        return latest
    }

    /// Whether an acknowledgement waits.
    var isWaiting: Bool { waiting > 0 }

    /// All that came is acknowledged, or about to be.
    mutating func acknowledged() { waiting = 0 }

    /// The connection's deadline has come.
    mutating func woke(at now: Instant) {
        if isWaiting, now >= due { atOnce = Self.packetsAfterMiss }
    }
}
