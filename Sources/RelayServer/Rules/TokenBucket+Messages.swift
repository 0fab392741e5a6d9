// How fast control messages may come.
import MonotonicTime

extension TokenBucket {
    /// The control messages that one connection may still send.
    init(limits: RelayLimits, at now: Instant) {
        self.init(depth: limits.messageBurst, perSecond: limits.messagesPerSecond, at: now)
    }
}
