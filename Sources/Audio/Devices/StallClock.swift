// How long a running device has moved nothing. Pure; both directions.
import MonotonicTime

/// The time that a device was waited for in vain since it moved samples last.
///
/// Only time in which it was really watched counts: a machine, or this program, that was halted for longer than `limit` tells nothing
/// of the device, which may be well.
struct StallClock {
    /// A device that moves nothing for so long has stalled.
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
