// How many presses and log lines a second are taken.
import MonotonicTime

/// Lets so many things a second through.
struct RateLimiter: Sendable {
    let perSecondMax: Int
    private var began = Instant.zero
    private var count = 0

    init(perSecondMax: Int) { self.perSecondMax = perSecondMax }

    /// Whether something may go through, and how many things did not in the second before.
    ///
    /// - Parameter things: The one that is asked for, and those that will come because of it.
    mutating func admit(at time: Instant, counting things: Int = 1) -> (isAdmitted: Bool, missed: Int) {
        var missed = 0
        if time - began >= .seconds(1) {
            missed = max(0, count - perSecondMax)
            (began, count) = (time, 0)
        }
        count += things
        return (count <= perSecondMax, missed)
    }
}
