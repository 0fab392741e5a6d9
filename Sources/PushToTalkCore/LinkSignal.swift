// When a person without a screen hears that the connection is lost, and that it is back. Pure.
import MonotonicTime
import Vocabulary

/// The tones of a channel's connection. A short interruption is not told, for a press may be made during it all the same; nor is the
/// time before a channel was reached first.
struct LinkSignal: Hashable {
    /// How long a connection is away before that is told.
    static let reportDelay = Duration.seconds(2)

    private enum State: Hashable {
        case unknown, up, told
        case away(tellsAt: Instant)
    }

    private var state = State.unknown

    /// When `due` is to be called; nil: it waits for events only.
    var deadline: Instant? { if case .away(let tellsAt) = state { tellsAt } else { nil } }

    /// The channel's service has this status. Returns the tone that says so.
    mutating func changed(to status: PTServiceStatus, at now: Instant) -> Tone? {
        switch (state, status) {
        case (.told, .ready):
            state = .up
            return .linkBack
        case (_, .ready): state = .up
        case (.up, _): state = .away(tellsAt: now + Self.reportDelay)
        default: break
        }
        return nil
    }

    /// The deadline may have come.
    mutating func due(at now: Instant) -> Tone? {
        guard case .away(let tellsAt) = state, now >= tellsAt else { return nil }
        state = .told
        return .linkLost
    }
}
