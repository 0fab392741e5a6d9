// The written bytes that a peer has not read yet. Pure.
import MonotonicTime

/// Ends a connection whose peer never reads: it would keep its answers in this machine's memory.
struct UnreadAnswers {
    /// How long nothing at all may be taken while something waits.
    private let time: Duration
    /// How many bytes may wait besides those that the kernel keeps; nil: `time` is what counts.
    private let bytesMaximum: Int?
    /// Bytes that wait.
    private(set) var bytes = 0
    private var progressAt: Instant?

    init(time: Duration, bytesMaximum: Int?) { (self.time, self.bytesMaximum) = (time, bytesMaximum) }

    /// When the connection is to be ended unless something is taken before; nil: nothing waits.
    var deadline: Instant? { progressAt.map { $0 + time } }

    /// So many bytes are to be written.
    ///
    /// - Returns: Whether there is room for them; false ends the connection.
    mutating func add(_ count: Int, at now: Instant) -> Bool {
        bytes += count
        if progressAt == nil { progressAt = now }
        return bytesMaximum.map { bytes <= $0 } ?? true
    }

    /// So many have been taken by the kernel.
    mutating func taken(_ count: Int, at now: Instant) {
        bytes -= count
        progressAt = bytes > 0 ? now : nil
    }
}
