// The program's only clock. State machines take an `Instant` as an argument; only adapters read the clock.
import CLinux

/// A point on the machine's monotonic clock (`CLOCK_MONOTONIC`, clock_gettime(2)).
///
/// It is the clock of epoll, timerfd and ALSA's `SND_PCM_TSTAMP_TYPE_MONOTONIC`, it never jumps, and it
/// stands still while the machine sleeps. State machines get it passed in, so tests need no sleeping.
public struct Instant: InstantProtocol, Hashable, Sendable, BitwiseCopyable, CustomStringConvertible {
    /// Nanoseconds since the clock's origin (boot, on Linux).
    public var nanoseconds: Int64

    /// The point `nanoseconds` after the clock's origin.
    public init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    /// The clock's origin; a start for simulated time.
    public static let zero = Instant(nanoseconds: 0)

    /// The current time.
    public static var now: Instant {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Instant(nanoseconds: Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec))
    }

    /// This point moved by `duration`.
    public func advanced(by duration: Duration) -> Instant {
        Instant(nanoseconds: nanoseconds + duration.nanoseconds)
    }

    /// The time from this point to `other`; negative when `other` is earlier.
    public func duration(to other: Instant) -> Duration {
        Duration(attoseconds: Int128(other.nanoseconds - nanoseconds) * 1_000_000_000)
    }

    /// Whether `lhs` is earlier than `rhs`.
    public static func < (lhs: Instant, rhs: Instant) -> Bool {
        lhs.nanoseconds < rhs.nanoseconds
    }

    /// This point moved by `duration`.
    public static func + (lhs: Instant, rhs: Duration) -> Instant { lhs.advanced(by: rhs) }

    /// This point moved back by `duration`.
    public static func - (lhs: Instant, rhs: Duration) -> Instant { lhs.advanced(by: .zero - rhs) }

    /// The time from `rhs` to `lhs`.
    public static func - (lhs: Instant, rhs: Instant) -> Duration { rhs.duration(to: lhs) }

    /// Seconds since the clock's origin, for logs.
    public var description: String { "\(Double(nanoseconds) / 1e9) s" }
}

extension Duration {
    /// Whole nanoseconds, rounded toward zero and clamped to `Int64` (292 years).
    public var nanoseconds: Int64 {
        // Nearly all are below 9 s, and then it takes no division of 128 bits: rules do this dozens of times a packet.
        if let short = Int64(exactly: attoseconds) { return short / 1_000_000_000 }
        // The same for 2.6 hours: by 2 to the power of 9 first, and then by the rest of it.
        if let longer = UInt64(exactly: attoseconds >> 9) { return Int64(longer / 1_953_125) }
        let (seconds, attoseconds) = components
        let (whole, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        guard !overflow else { return seconds < 0 ? .min : .max }
        let (sum, overflowed) = whole.addingReportingOverflow(attoseconds / 1_000_000_000)
        return overflowed ? (seconds < 0 ? .min : .max) : sum
    }

    /// Milliseconds with fraction, for logs and figures.
    public var milliseconds: Double { Double(nanoseconds) / 1e6 }
}
