// How long to wait before the next attempt to reach a bus that went away.

/// Delays that double from 50 ms to 10 s.
struct ReconnectBackoff: Sendable {
    static let first = Duration.milliseconds(50)
    static let longest = Duration.seconds(10)

    private var next = Self.first

    /// The delay before the coming attempt.
    mutating func delay() -> Duration {
        defer { next = min(next * 2, Self.longest) }
        return next
    }

    /// The bus is back.
    mutating func reset() { next = Self.first }
}
