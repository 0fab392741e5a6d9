// What a program wants done about a push.

/// The answer to a push: the system does what it says.
public enum PTPushResult: Hashable, Sendable {
    /// The channel is over for this device: leave it.
    case leaveChannel
    /// This participant is speaking: receive.
    case activeRemoteParticipant(PTParticipant)
}
