// Which senders were warned about recently. Pure.
import MonotonicTime

/// Keeps a flood of messages from becoming a flood of warnings.
struct OncePerSender {
    /// How long after a warning about a sender the next one is suppressed.
    static let pause = Duration.seconds(60)
    /// Maximum number of senders to warn about within that time.
    static let senders = 64

    private var told: [String: Instant] = [:]

    /// Whether a warning about this sender may be written now.
    mutating func mayTell(of sender: String, at now: Instant) -> Bool {
        if let last = told[sender], now - last < Self.pause { return false }
        if told.count >= Self.senders { told = told.filter { now - $0.value < Self.pause } }
        guard told.count < Self.senders else { return false }
        told[sender] = now
        return true
    }
}
