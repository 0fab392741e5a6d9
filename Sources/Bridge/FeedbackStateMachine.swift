// What the lights of accessories show. Pure.
import Accessories
import ChannelService
import MonotonicTime

/// From what the channel does, and what was refused, to what lights show.
public struct FeedbackStateMachine: Sendable {
    /// How long a refusal is shown.
    public static let refusalTime = Duration.milliseconds(1_500)

    private var state = AccessoryFeedback.idle
    private var refusedUntil: Instant?

    /// Nobody speaks.
    public init() {}

    /// When `feedback(at:)` may be different without an event; nil: it is not.
    public var nextDeadline: Instant? { refusedUntil }

    /// The channel does this.
    public mutating func update(_ snapshot: ChannelServiceSnapshot) {
        // An open microphone is what must not be overlooked; the tail is part of it.
        state =
            if snapshot.transmission != nil || snapshot.isCapturing {
                .transmitting
            } else if snapshot.activeRemoteParticipant != nil {
                .receiving
            } else {
                .idle
            }
    }

    /// Something that was asked for by a control was refused, or cut.
    public mutating func refused(at now: Instant) { refusedUntil = now + Self.refusalTime }

    /// What is shown now: a refusal for a moment, but never over an open microphone.
    public mutating func feedback(at now: Instant) -> AccessoryFeedback {
        if let until = refusedUntil, until <= now || state == .transmitting { refusedUntil = nil }
        return refusedUntil == nil ? state : .refused
    }
}
