// Whether the relay has gone while nobody talks. Pure.
import MonotonicTime

/// Watches for silence on an idle link whose relay may be at another address by now: its keep-alives are answered, or it is asked for a
/// sign of life.
struct IdleWatch: Sendable {
    /// How long nothing may come: a keep-alive, and the time for its answer.
    static let silence: Duration = RelayClientStateMachine.keepAliveOfSeveral + .seconds(1)

    /// Whether the relay is to be asked, and when to look again.
    ///
    /// - Parameter heard: When something came last; nil: nothing has, since the connection was made.
    func look(heard: Instant?, at now: Instant) -> (asks: Bool, next: Instant) {
        guard let heard, now - heard < Self.silence else { return (heard != nil, now + Self.silence) }
        return (false, heard + Self.silence)
    }
}
