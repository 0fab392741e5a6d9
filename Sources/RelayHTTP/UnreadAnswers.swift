// The written bytes that a peer has not read yet. Pure.
import MonotonicTime

/// Ends a connection whose peer never reads: it would keep its answers in this machine's memory.
struct UnreadAnswers {
    /// How much, and for how long.
    struct Limits {
        /// How long nothing at all may be taken while something waits.
        var time: Duration
        /// How many bytes may wait besides those that the kernel keeps; nil: `time` is what counts.
        var bytes: Int?
    }

    private let limits: Limits
    /// Bytes that wait.
    private(set) var bytes = 0
    private var progressAt: Instant?

    init(_ limits: Limits) { self.limits = limits }

    /// When the connection is to be ended unless something is taken before; nil: nothing waits.
    var deadline: Instant? { progressAt.map { $0 + limits.time } }

    /// So many bytes are to be written.
    ///
    /// - Returns: Whether there is room for them; false ends the connection.
    mutating func add(_ count: Int, at now: Instant) -> Bool {
        bytes += count
        if progressAt == nil { progressAt = now }
        return limits.bytes.map { bytes <= $0 } ?? true
    }

    /// So many have been taken by the kernel.
    mutating func taken(_ count: Int, at now: Instant) {
        bytes -= count
        progressAt = bytes > 0 ? now : nil
    }
}
