// Who has been warned of lately. Pure.
import MonotonicTime

/// Keeps a flood of messages from becoming a flood of warnings.
struct OncePerSender {
    /// How long a sender is not told of again.
    static let pause = Duration.seconds(60)
    /// Senders that are told of within that time; further ones are not.
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
