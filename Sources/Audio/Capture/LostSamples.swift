// Detects by the clock that a running microphone has lost samples without reporting it. Pure.
import MonotonicTime

/// Watches how far a burst's samples have come against the time that has passed.
///
/// PipeWire leaves out a client that has not answered in time, for a whole step of its graph, and reports nothing. Counted on, all
/// that is said afterwards would look as if it had been said that much earlier, and every packet up to the end of the burst would
/// come late to its listeners, who would take that for the network and wait longer from then on.
///
/// Two views have to agree: when the newest sample was read, and when it was at the microphone by the device's own word. Each can be
/// wrong for a while: a device that changes to longer steps is read later, and a server's word is partly guessed. Both are late at
/// times, and never early, so the least of a window counts. A drift of the two clocks is followed.
struct LostSamples {
    /// The time that is looked at before anything is said of it.
    static let window = Duration.milliseconds(60)
    /// Reads within a window at least.
    static let readsMin = 3
    /// Clocks come apart by no more than this, in parts of the time: twice what cards keep.
    private static let drift = 0.001

    /// How late the samples are, in nanoseconds since their burst's first would have been read, or said.
    private struct Lateness {
        var read: Int64
        var said: Int64

        func least(_ other: Lateness) -> Lateness {
            Lateness(read: min(read, other.read), said: min(said, other.said))
        }
    }

    /// What is usual; nil before the first window.
    private var usual: Lateness?
    private var usualAt = Instant.zero
    private var least = Lateness(read: .max, said: .max)
    private var reads = 0
    private var beganAt = Instant.zero

    /// Forgets everything: the device was restarted, or its loss is known.
    mutating func begin() { self = LostSamples() }

    /// Samples up to `position` (48 kHz) were read at `now`; the one that follows them is at the microphone at `next`.
    ///
    /// - Returns: The loss since the last report; mostly zero. The caller adds it to the position, so it is reported
    ///   only once.
    mutating func read(upTo position: Int64, next: Instant, at now: Instant) -> Duration {
        let passed = CaptureStateMachine.duration(position).nanoseconds
        if reads == 0 { beganAt = now }
        reads += 1
        least = least.least(Lateness(read: now.nanoseconds &- passed, said: next.nanoseconds &- passed))
        guard reads >= Self.readsMin, now - beganAt >= Self.window else { return .zero }
        defer {
            usualAt = now
            least = Lateness(read: .max, said: .max)
            reads = 0
        }
        guard let before = usual else {
            usual = least
            return .zero
        }
        let drifted = Int64(Double((now - usualAt).nanoseconds) * Self.drift)
        usual = least.least(Lateness(read: before.read &+ drifted, said: before.said &+ drifted))
        return .nanoseconds(max(0, min(least.read &- before.read, least.said &- before.said)))
    }
}
