// The callbacks to the program behind a channel, as values.

import FoundationEssentials
import Vocabulary

/// One call of a method of Apple's `PTChannelManagerDelegate`.
///
/// They come one at a time, in the order that docs/push-to-talk.md gives.
public enum DelegateCallback: Hashable, Sendable {
    /// `channelManager(_:didJoinChannel:reason:)`
    case didJoinChannel(UUID, reason: PTChannelJoinReason)
    /// `channelManager(_:failedToJoinChannel:error:)`
    case failedToJoinChannel(UUID, PTChannelError)
    /// `channelManager(_:didLeaveChannel:reason:)`
    case didLeaveChannel(UUID, reason: PTChannelLeaveReason)
    /// `channelManager(_:failedToLeaveChannel:error:)`
    case failedToLeaveChannel(UUID, PTChannelError)
    /// `channelManager(_:channelUUID:didBeginTransmittingFrom:)`
    case didBeginTransmitting(UUID, source: PTChannelTransmitRequestSource)
    /// `channelManager(_:failedToBeginTransmittingInChannel:error:)`
    case failedToBeginTransmitting(UUID, PTChannelError)
    /// `channelManager(_:channelUUID:didEndTransmittingFrom:)`
    case didEndTransmitting(UUID, source: PTChannelTransmitRequestSource)
    /// `channelManager(_:failedToStopTransmittingInChannel:error:)`
    case failedToStopTransmitting(UUID, PTChannelError)
    /// `channelManager(_:didActivate:)`: from now on there is audio to record or to play.
    case didActivateAudioSession
    /// `channelManager(_:didDeactivate:)`
    case didDeactivateAudioSession
    /// `channelManager(_:receivedEphemeralPushToken:)`, right after the `didJoinChannel` of a channel with a program.
    case receivedEphemeralPushToken(PushToken)
    /// `incomingPushResult(channelManager:channelUUID:pushPayload:)`; answered by `PushStateMachine.Event.answered`.
    case incomingPush(UUID, PushDelivery)
    /// `incomingServiceUpdatePush(channelManager:channelUUID:pushPayload:isHighPriority:remainingHighPriorityBudget:)`;
    /// answered by `PushStateMachine.Event.completed`.
    case incomingServiceUpdatePush(
        UUID, PushDelivery, isHighPriority: Bool, remainingHighPriorityBudget: Int)
}

/// The documented order of callbacks, as an automaton: what may follow what.
///
/// The channel manager checks every callback against it before telling anyone (invariant I6).
public struct DelegateCallbackOrder: Hashable, Sendable {
    private var channelUUID: UUID?
    private var token: PushToken?
    private var transmitting = false
    private var sessionActive = false

    /// Before the first callback: no channel.
    public init() {}

    /// Records a callback, and returns whether it is allowed at this point.
    public mutating func accept(_ callback: DelegateCallback) -> Bool {
        switch callback {
        case .didJoinChannel(let uuid, _):
            guard channelUUID == nil, !transmitting, !sessionActive else { return false }
            channelUUID = uuid
        case .didLeaveChannel(let uuid, _):
            guard channelUUID == uuid, !transmitting, !sessionActive else { return false }
            channelUUID = nil
            token = nil
        case .didBeginTransmitting(let uuid, _):
            guard channelUUID == uuid, !transmitting else { return false }
            transmitting = true
        case .didEndTransmitting(let uuid, _):
            guard channelUUID == uuid, transmitting else { return false }
            transmitting = false
        case .didActivateAudioSession:
            guard channelUUID != nil, !sessionActive else { return false }
            sessionActive = true
        case .didDeactivateAudioSession:
            guard sessionActive else { return false }
            sessionActive = false
        case .receivedEphemeralPushToken(let token):
            guard channelUUID != nil, self.token == nil else { return false }
            self.token = token
        case .incomingPush(let uuid, _), .incomingServiceUpdatePush(let uuid, _, _, _):
            guard channelUUID == uuid, token != nil else { return false }
        case .failedToJoinChannel, .failedToLeaveChannel, .failedToBeginTransmitting, .failedToStopTransmitting:
            break
        }
        return true
    }

    /// Whether a transmission has begun and not ended.
    public var isTransmitting: Bool { transmitting }
    /// Whether the audio session was reported active, and not inactive since.
    public var isSessionActive: Bool { sessionActive }
}
