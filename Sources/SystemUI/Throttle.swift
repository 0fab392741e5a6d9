// A rate limit on the changes that are sent to a program that shows them.
import MonotonicTime

/// A rate limit on changes of a value. The first change is sent at once. Of further changes within `interval` only the
/// last one is sent, at the end of the interval, if it differs from the sent value.
struct Throttle<Value: Equatable> {
    let interval: Duration
    private var told: Value
    private var wanted: Value
    private var notBefore: Instant?

    /// A throttle over a receiver that already has `value`.
    init(_ value: Value, interval: Duration) {
        told = value
        wanted = value
        self.interval = interval
    }

    /// When `set` must be called again; nil while nothing waits.
    var nextDeadline: Instant? { wanted == told ? nil : notBefore }

    /// Sets a new value. Returns it if it is to be sent now.
    mutating func set(_ value: Value, at now: Instant) -> Value? {
        wanted = value
        guard wanted != told else { return nil }
        if let notBefore, now < notBefore { return nil }
        told = wanted
        notBefore = now + interval
        return told
    }
}
