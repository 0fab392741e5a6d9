// Measures how long a running device has moved nothing. Pure; both directions.
import MonotonicTime

/// The waiting time since the device last moved samples.
///
/// Only time in which it was watched counts. After a halt of the machine or the program of more than `limit`, the
/// device may be fine.
struct StallClock {
    /// A device has stalled when it moves nothing for this time.
    static let limit = Duration.seconds(2)
    /// One wait for a device lasts 100 ms; of a longer one no more than twice that is counted.
    static let waitMax = Duration.milliseconds(200)

    private var still = Duration.zero
    private var lookedAt = Instant.zero

    /// The device was set running, or moved samples.
    mutating func moved(at now: Instant) {
        still = .zero
        lookedAt = now
    }

    /// It was waited for, and moved nothing. Returns whether it has stalled.
    mutating func movedNothing(at now: Instant) -> Bool {
        still += max(.zero, min(now - lookedAt, Self.waitMax))
        lookedAt = now
        return still > Self.limit
    }
}
