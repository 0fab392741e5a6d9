// What an app is told, and what it answers: the protocols of Apple's PushToTalk.

/// Told by a channel manager what happens to its channel.
///
/// Methods are called one at a time, in the order of docs/push-to-talk.md, on `PTChannelManager.delegateQueue`. Do not block: the next one waits
/// for the return of this one.
///
/// Apple's protocol asks for `NSObjectProtocol`; here any class will do.
public protocol PTChannelManagerDelegate: AnyObject {
    /// The channel became active, because the app asked for it or because it was active before a restart.
    func channelManager(
        _ channelManager: PTChannelManager, didJoinChannel channelUUID: UUID, reason: PTChannelJoinReason)

    /// The channel is not active any more.
    func channelManager(
        _ channelManager: PTChannelManager, didLeaveChannel channelUUID: UUID, reason: PTChannelLeaveReason)

    /// A transmission begins. Record only after `channelManager(_:didActivate:)`.
    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didBeginTransmittingFrom source: PTChannelTransmitRequestSource)

    /// The transmission is over.
    func channelManager(
        _ channelManager: PTChannelManager, channelUUID: UUID,
        didEndTransmittingFrom source: PTChannelTransmitRequestSource)

    /// The token by which a server wakes this app for the channel that was joined last; of any length, and dead once the channel is left.
    func channelManager(_ channelManager: PTChannelManager, receivedEphemeralPushToken pushToken: Data)

    /// A push came. Answer at once; what takes time is done after the return.
    ///
    /// - Parameters:
    ///   - channelManager: The app's channel manager.
    ///   - channelUUID: The channel it is for.
    ///   - pushPayload: The push's JSON object.
    func incomingPushResult(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any]
    ) -> PTPushResult

    /// The audio session is active: recording, when a transmission has begun, and playback may start. Not called again when a transmission
    /// begins in full duplex while a participant is heard.
    func channelManager(_ channelManager: PTChannelManager, didActivate audioSession: PTAudioSession)

    /// The audio session is over: stop recording and playback.
    func channelManager(_ channelManager: PTChannelManager, didDeactivate audioSession: PTAudioSession)

    /// The channel could not be joined; `error` is a `PTChannelError`. Optional.
    func channelManager(
        _ channelManager: PTChannelManager, failedToJoinChannel channelUUID: UUID, error: any Error)

    /// The channel could not be left; `error` is a `PTChannelError`. Optional.
    func channelManager(
        _ channelManager: PTChannelManager, failedToLeaveChannel channelUUID: UUID, error: any Error)

    /// A transmission could not begin; `error` is a `PTChannelError`. Optional.
    func channelManager(
        _ channelManager: PTChannelManager, failedToBeginTransmittingInChannel channelUUID: UUID, error: any Error)

    /// The transmission could not be ended; `error` is a `PTChannelError`. Optional.
    func channelManager(
        _ channelManager: PTChannelManager, failedToStopTransmittingInChannel channelUUID: UUID, error: any Error)

    /// A push without a speaker, for bringing data of the service up to date. Optional, in this form or the asynchronous one; other
    /// methods may be called before `completion` is.
    ///
    /// - Parameters:
    ///   - channelManager: The app's channel manager.
    ///   - channelUUID: The channel it is for.
    ///   - pushPayload: The push's JSON object.
    ///   - isHighPriority: Whether it is one of those that the budget counts.
    ///   - remainingHighPriorityBudget: How many more high-priority ones this hour allows.
    ///   - completion: To be called when the work is done, within 30 seconds.
    func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int, completion: @escaping @Sendable () -> Void)

    /// The asynchronous form of `incomingServiceUpdatePush(channelManager:channelUUID:pushPayload:isHighPriority:remainingHighPriorityBudget:completion:)`:
    /// the work is done when it returns. An app that has both gets this one.
    nonisolated(nonsending) func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int) async
}

/// Provides the descriptor of a channel whose name the system has lost.
public protocol PTChannelRestorationDelegate: AnyObject {
    /// The name and image of a channel that is being restored. Asked only when pttd's own record of them cannot be used; answer at once.
    func channelDescriptor(restoredChannelUUID channelUUID: UUID) -> PTChannelDescriptor
}

/// The methods that an app may leave out.
extension PTChannelManagerDelegate {
    /// Nothing happens.
    public func channelManager(
        _ channelManager: PTChannelManager, failedToJoinChannel channelUUID: UUID, error: any Error
    ) {}

    /// Nothing happens.
    public func channelManager(
        _ channelManager: PTChannelManager, failedToLeaveChannel channelUUID: UUID, error: any Error
    ) {}

    /// Nothing happens.
    public func channelManager(
        _ channelManager: PTChannelManager, failedToBeginTransmittingInChannel channelUUID: UUID, error: any Error
    ) {}

    /// Nothing happens.
    public func channelManager(
        _ channelManager: PTChannelManager, failedToStopTransmittingInChannel channelUUID: UUID, error: any Error
    ) {}

    /// Done at once.
    public func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int, completion: @escaping @Sendable () -> Void
    ) { completion() }

    /// Does what the form with a completion handler does.
    public nonisolated(nonsending) func incomingServiceUpdatePush(
        channelManager: PTChannelManager, channelUUID: UUID, pushPayload: [String: Any], isHighPriority: Bool,
        remainingHighPriorityBudget: Int
    ) async {
        // Not a checked continuation: an app that never completes is its own trouble, and one that does so twice must not crash it.
        let done = AsyncStream<Never>.makeStream()
        incomingServiceUpdatePush(
            channelManager: channelManager, channelUUID: channelUUID, pushPayload: pushPayload,
            isHighPriority: isHighPriority, remainingHighPriorityBudget: remainingHighPriorityBudget
        ) { done.continuation.finish() }
        for await _ in done.stream {}
    }
}
