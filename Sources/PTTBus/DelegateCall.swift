// The calls of org.pttd.Delegate1 as values, and how they travel: made by the daemon, read by the program.
import DBus
import FoundationEssentials
import PushToTalkCore

/// The audio session as it is reported to a program.
public struct AudioSessionDescription: Hashable, Sendable {
    /// The microphone's ALSA name.
    public var inputDevice: String
    /// The speaker's ALSA name.
    public var outputDevice: String
    /// Samples a second.
    public var sampleRateHertz: UInt32

    /// A session.
    public init(inputDevice: String, outputDevice: String, sampleRateHertz: UInt32) {
        self.inputDevice = inputDevice
        self.outputDevice = outputDevice
        self.sampleRateHertz = sampleRateHertz
    }

    /// As `a{sv}`.
    var busValue: DBusValue {
        .properties([
            "InputDevice": .string(inputDevice), "OutputDevice": .string(outputDevice),
            "SampleRate": .uint32(sampleRateHertz),
        ])
    }

    /// From `a{sv}`; what is missing is empty, or 0.
    init(busValue: [String: DBusValue]) {
        inputDevice = busValue["InputDevice"]?.stringValue ?? ""
        outputDevice = busValue["OutputDevice"]?.stringValue ?? ""
        sampleRateHertz = busValue["SampleRate"]?.get() ?? 0
    }
}

/// Something about the audio session is different.
public enum AudioSessionChange: Hashable, Sendable {
    /// Something else has the audio from now on, for this reason.
    case interruptionBegan(reason: String)
    /// The audio may be used again.
    case interruptionEnded(reason: String)
    /// Another microphone, speaker or rate.
    case routeChanged(AudioSessionDescription)
}

/// One call of a method of `org.pttd.Delegate1`.
public enum DelegateCall: Hashable, Sendable {
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
    /// `channelManager(_:receivedEphemeralPushToken:)`
    case receivedEphemeralPushToken([UInt8])
    /// `channelManager(_:didActivate:)`
    case didActivateAudioSession(AudioSessionDescription)
    /// `channelManager(_:didDeactivate:)`
    case didDeactivateAudioSession
    /// The session's interruptions and route changes.
    case audioSessionChanged(AudioSessionChange)
    /// `incomingPushResult(channelManager:channelUUID:pushPayload:)`; the payload is a JSON object. Answered by `.pushResult`.
    case incomingPush(UUID, payload: String)
    /// `incomingServiceUpdatePush(…)`; answered when the program has done what the push is about.
    case incomingServiceUpdatePush(
        UUID, payload: String, isHighPriority: Bool, remainingHighPriorityBudget: Int32)
    /// `channelDescriptor(restoredChannelUUID:)`; answered by `.descriptor`.
    case channelDescriptor(UUID)

    /// The method's name.
    public var member: String {
        switch self {
        case .didJoinChannel: "DidJoinChannel"
        case .failedToJoinChannel: "FailedToJoinChannel"
        case .didLeaveChannel: "DidLeaveChannel"
        case .failedToLeaveChannel: "FailedToLeaveChannel"
        case .didBeginTransmitting: "DidBeginTransmitting"
        case .failedToBeginTransmitting: "FailedToBeginTransmitting"
        case .didEndTransmitting: "DidEndTransmitting"
        case .failedToStopTransmitting: "FailedToStopTransmitting"
        case .receivedEphemeralPushToken: "ReceivedEphemeralPushToken"
        case .didActivateAudioSession: "DidActivateAudioSession"
        case .didDeactivateAudioSession: "DidDeactivateAudioSession"
        case .audioSessionChanged: "AudioSessionChanged"
        case .incomingPush: "IncomingPush"
        case .incomingServiceUpdatePush: "IncomingServiceUpdatePush"
        case .channelDescriptor: "ChannelDescriptor"
        }
    }

    /// The method's arguments.
    public var arguments: [DBusValue] {
        switch self {
        case .didJoinChannel(let uuid, let reason): [.uuid(uuid), .int32(Int32(reason.rawValue))]
        case .didLeaveChannel(let uuid, let reason): [.uuid(uuid), .int32(Int32(reason.rawValue))]
        case .didBeginTransmitting(let uuid, let source), .didEndTransmitting(let uuid, let source):
            [.uuid(uuid), .int32(Int32(source.rawValue))]
        case .failedToJoinChannel(let uuid, let error), .failedToLeaveChannel(let uuid, let error),
            .failedToBeginTransmitting(let uuid, let error), .failedToStopTransmitting(let uuid, let error):
            [.uuid(uuid), .int32(Int32(error.code.rawValue)), .string(error.explanation)]
        case .receivedEphemeralPushToken(let token): [.bytes(token)]
        case .didActivateAudioSession(let session): [session.busValue]
        case .didDeactivateAudioSession: []
        case .audioSessionChanged(.interruptionBegan(let reason)):
            [.string("interruptionBegan"), .properties(["Reason": .string(reason)])]
        case .audioSessionChanged(.interruptionEnded(let reason)):
            [.string("interruptionEnded"), .properties(["Reason": .string(reason)])]
        case .audioSessionChanged(.routeChanged(let session)): [.string("routeChanged"), session.busValue]
        case .incomingPush(let uuid, let payload): [.uuid(uuid), .string(payload)]
        case .incomingServiceUpdatePush(let uuid, let payload, let isHighPriority, let budget):
            [.uuid(uuid), .string(payload), .boolean(isHighPriority), .int32(budget)]
        case .channelDescriptor(let uuid): [.uuid(uuid)]
        }
    }
}

extension DBusValue {
    /// A UUID as `org.pttd` writes it: lower case.
    static func uuid(_ uuid: UUID) -> DBusValue { .string(uuid.uuidString.lowercased()) }
}
