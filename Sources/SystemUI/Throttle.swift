// How often something that changes is told to a program that shows it.
import MonotonicTime

/// A value for a program that must not be flooded: the first change goes out at once, those that follow within `interval` together at its
/// end, and only the last of them, if it still differs from what was told.
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

    /// When `due` must be called; nil while nothing waits.
    var nextDeadline: Instant? { wanted == told ? nil : notBefore }

    /// Takes a new value; returns it when it is to be told now.
    mutating func set(_ value: Value, at now: Instant) -> Value? {
        wanted = value
        return due(at: now)
    }

    /// What is to be told now.
    mutating func due(at now: Instant) -> Value? {
        guard wanted != told else { return nil }
        if let notBefore, now < notBefore { return nil }
        told = wanted
        notBefore = now + interval
        return told
    }
}
