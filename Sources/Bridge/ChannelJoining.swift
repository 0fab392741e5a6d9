// How a channel is joined with the channel service.
import PushToTalkCore

/// How a channel is joined with the channel service.
public struct ChannelJoining: Hashable, Sendable {
    /// How it is shown.
    public var descriptor: PTChannelDescriptor
    /// Why it is joined.
    public var reason: PTChannelJoinReason
    /// Who may talk when.
    public var mode: PTTransmissionMode
    /// Whose the media are, and the program behind it.
    public var options: ChannelManagerStateMachine.JoinOptions

    /// A joining, by default as Apple's.
    public init(
        descriptor: PTChannelDescriptor, reason: PTChannelJoinReason = .developerRequest,
        mode: PTTransmissionMode = .halfDuplex, options: ChannelManagerStateMachine.JoinOptions = .init()
    ) {
        self.descriptor = descriptor
        self.reason = reason
        self.mode = mode
        self.options = options
    }
}
