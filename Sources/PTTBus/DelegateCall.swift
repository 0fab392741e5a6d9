// The calls of org.pttd.Delegate1 as values, and how they travel: made by the daemon, read by the program.
import DBus
import FoundationEssentials
import PushToTalkCore
import Vocabulary

/// The audio session as it is reported to a program.
public struct AudioSessionDescription: Hashable, Sendable {
    /// The microphone's ALSA name.
    public var inputDevice: String
    /// The speaker's ALSA name.
    public var outputDevice: String
    /// Samples a second.
    public var sampleRateHertz: UInt32

    /// A session.
    public init(inputDevice: String = "", outputDevice: String = "", sampleRateHertz: UInt32 = 0) {
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
    /// A callback of the channel manager that is no push, with the audio session that `didActivateAudioSession` is
    /// about.
    case callback(DelegateCallback, session: AudioSessionDescription? = nil)
    /// The session's interruptions and route changes.
    case audioSessionChanged(AudioSessionChange)
    /// `incomingPushResult(channelManager:channelUUID:pushPayload:)`; the payload is a JSON object. Answered by `.pushResult`.
    case incomingPush(UUID, payload: String)
    /// `incomingServiceUpdatePush(…)`; answered when the program has done what the push is about.
    case incomingServiceUpdatePush(
        UUID, payload: String, isHighPriority: Bool, remainingHighPriorityBudget: Int32)
    /// `channelDescriptor(restoredChannelUUID:)`; answered by `.descriptor`.
    case channelDescriptor(UUID)

    /// The call for a callback. Of a push only the payload travels.
    ///
    /// - Parameter session: What a program would record from and play to.
    public init(_ callback: DelegateCallback, session: AudioSessionDescription?) {
        switch callback {
        case .incomingPush(let uuid, let delivery):
            self = .incomingPush(uuid, payload: delivery.push.payload.text)
        case .incomingServiceUpdatePush(let uuid, let delivery, let isHighPriority, let remaining):
            self = .incomingServiceUpdatePush(
                uuid, payload: delivery.push.payload.text, isHighPriority: isHighPriority,
                remainingHighPriorityBudget: Int32(clamping: remaining))
        case .didActivateAudioSession: self = .callback(callback, session: session)
        default: self = .callback(callback)
        }
    }

    /// The method's name.
    public var member: String { wire.member }

    /// The method's arguments.
    public var arguments: [DBusValue] { wire.arguments }

    fileprivate var wire: (member: String, arguments: [DBusValue]) {
        switch self {
        case .callback(let callback, let session): callback.wire(session)
        case .audioSessionChanged(.interruptionBegan(let reason)):
            ("AudioSessionChanged", [.string("interruptionBegan"), .properties(["Reason": .string(reason)])])
        case .audioSessionChanged(.interruptionEnded(let reason)):
            ("AudioSessionChanged", [.string("interruptionEnded"), .properties(["Reason": .string(reason)])])
        case .audioSessionChanged(.routeChanged(let session)):
            ("AudioSessionChanged", [.string("routeChanged"), session.busValue])
        case .incomingPush(let uuid, let payload): ("IncomingPush", [.uuid(uuid), .string(payload)])
        case .incomingServiceUpdatePush(let uuid, let payload, let isHighPriority, let budget):
            ("IncomingServiceUpdatePush", [.uuid(uuid), .string(payload), .boolean(isHighPriority), .int32(budget)])
        case .channelDescriptor(let uuid): ("ChannelDescriptor", [.uuid(uuid)])
        }
    }
}

extension DelegateCallback {
    fileprivate func wire(_ session: AudioSessionDescription?) -> (member: String, arguments: [DBusValue]) {
        switch self {
        case .didJoinChannel(let uuid, let reason): ("DidJoinChannel", [.uuid(uuid), .code(reason)])
        case .didLeaveChannel(let uuid, let reason): ("DidLeaveChannel", [.uuid(uuid), .code(reason)])
        case .didBeginTransmitting(let uuid, let source): ("DidBeginTransmitting", [.uuid(uuid), .code(source)])
        case .didEndTransmitting(let uuid, let source): ("DidEndTransmitting", [.uuid(uuid), .code(source)])
        case .failedToJoinChannel(let uuid, let error): ("FailedToJoinChannel", .failure(uuid, error))
        case .failedToLeaveChannel(let uuid, let error): ("FailedToLeaveChannel", .failure(uuid, error))
        case .failedToBeginTransmitting(let uuid, let error): ("FailedToBeginTransmitting", .failure(uuid, error))
        case .failedToStopTransmitting(let uuid, let error): ("FailedToStopTransmitting", .failure(uuid, error))
        case .receivedEphemeralPushToken(let token): ("ReceivedEphemeralPushToken", [.bytes(token.bytes)])
        case .didActivateAudioSession: ("DidActivateAudioSession", [(session ?? .init()).busValue])
        case .didDeactivateAudioSession: ("DidDeactivateAudioSession", [])
        case .incomingPush, .incomingServiceUpdatePush: DelegateCall(self, session: nil).wire
        }
    }
}

extension [DBusValue] {
    fileprivate static func failure(_ uuid: UUID, _ error: PTChannelError) -> [DBusValue] {
        [.uuid(uuid), .code(error.code), .string(error.explanation)]
    }
}

extension DBusValue {
    /// A UUID as `org.pttd` writes it: lower case.
    static func uuid(_ uuid: UUID) -> DBusValue { .string(uuid.uuidString.lowercased()) }

    /// One of Apple's raw values.
    fileprivate static func code<T: RawRepresentable<Int>>(_ code: T) -> DBusValue { .int32(Int32(code.rawValue)) }
}
