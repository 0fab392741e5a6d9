// How long to wait before the next attempt at something that failed.

/// Delays that double.
public struct Backoff: Sendable {
    private let first: Duration
    private let longest: Duration
    private var next: Duration

    /// The delays from `first` to `longest`.
    public init(first: Duration, longest: Duration) {
        (self.first, self.longest, next) = (first, longest, first)
    }

    /// The delay before the coming attempt.
    public mutating func delay() -> Duration {
        defer { next = min(next * 2, longest) }
        return next
    }

    /// An attempt has succeeded.
    public mutating func reset() { next = first }
}
