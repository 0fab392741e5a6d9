// Reading a call of org.pttd.Delegate1, on the program's side of the bus.
import DBus
import FoundationEssentials
import PushToTalkCore
import Vocabulary

extension DelegateCall {
    /// The call of `member` with `arguments` of the declared types.
    ///
    /// - Throws: `DBusErrorReply`: `UnknownMethod` for a method that is not declared, `InvalidArgs` for values that mean nothing.
    public init(member: String, arguments: [DBusValue]) throws(DBusErrorReply) {
        let reader = Reader(member: member, arguments: arguments)
        switch member {
        case "DidJoinChannel": self = .callback(.didJoinChannel(try reader.uuid(), reason: try reader.code()))
        case "DidLeaveChannel": self = .callback(.didLeaveChannel(try reader.uuid(), reason: try reader.code()))
        case "DidBeginTransmitting":
            self = .callback(.didBeginTransmitting(try reader.uuid(), source: try reader.code()))
        case "DidEndTransmitting": self = .callback(.didEndTransmitting(try reader.uuid(), source: try reader.code()))
        case "FailedToJoinChannel": self = .callback(.failedToJoinChannel(try reader.uuid(), try reader.error()))
        case "FailedToLeaveChannel": self = .callback(.failedToLeaveChannel(try reader.uuid(), try reader.error()))
        case "FailedToBeginTransmitting":
            self = .callback(.failedToBeginTransmitting(try reader.uuid(), try reader.error()))
        case "FailedToStopTransmitting":
            self = .callback(.failedToStopTransmitting(try reader.uuid(), try reader.error()))
        case "ReceivedEphemeralPushToken": self = .callback(.receivedEphemeralPushToken(try reader.token()))
        case "DidActivateAudioSession":
            let session = AudioSessionDescription(busValue: try reader.properties(0))
            self = .callback(.didActivateAudioSession, session: session)
        case "DidDeactivateAudioSession": self = .callback(.didDeactivateAudioSession)
        case "AudioSessionChanged": self = .audioSessionChanged(try reader.sessionChange())
        case "IncomingPush": self = .incomingPush(try reader.uuid(), payload: try reader.value(1))
        case "IncomingServiceUpdatePush":
            self = .incomingServiceUpdatePush(
                try reader.uuid(), payload: try reader.value(1), isHighPriority: try reader.value(2),
                remainingHighPriorityBudget: try reader.value(3))
        case "ChannelDescriptor": self = .channelDescriptor(try reader.uuid())
        default: throw .unknownMethod("no method \(member) in \(PTTBus.delegateInterface)")
        }
    }

    private struct Reader {
        let member: String
        let arguments: [DBusValue]

        func value<T: DBusConvertible>(_ index: Int) throws(DBusErrorReply) -> T {
            do throws(DBusError) {
                return try arguments.argument(index)
            } catch {
                throw .invalidArguments("argument \(index) of \(member): \(error)")
            }
        }

        func properties(_ index: Int) throws(DBusErrorReply) -> [String: DBusValue] { try value(index) }

        func uuid() throws(DBusErrorReply) -> UUID {
            let text: String = try value(0)
            guard let uuid = UUID(uuidString: text) else {
                throw .invalidArguments("'\(text.prefix(80))' is not a UUID, in \(member)")
            }
            return uuid
        }

        /// The second argument as one of Apple's raw values.
        func code<T: RawRepresentable>() throws(DBusErrorReply) -> T where T.RawValue == Int {
            let number: Int32 = try value(1)
            guard let code = T(rawValue: Int(number)) else {
                throw .invalidArguments("\(number) is not valid in \(member)")
            }
            return code
        }

        func error() throws(DBusErrorReply) -> PTChannelError {
            PTChannelError(try code(), explanation: try value(2))
        }

        func token() throws(DBusErrorReply) -> PushToken {
            let bytes: [UInt8] = try value(0)
            guard let token = PushToken(bytes) else {
                throw .invalidArguments("a token has \(PushToken.byteCounts) bytes, not \(bytes.count), in \(member)")
            }
            return token
        }

        func sessionChange() throws(DBusErrorReply) -> AudioSessionChange {
            let event: String = try value(0)
            let details = try properties(1)
            let reason = details["Reason"]?.stringValue ?? ""
            switch event {
            case "interruptionBegan": return .interruptionBegan(reason: reason)
            case "interruptionEnded": return .interruptionEnded(reason: reason)
            case "routeChanged": return .routeChanged(AudioSessionDescription(busValue: details))
            default: throw .invalidArguments("'\(event.prefix(80))' is not an event of an audio session")
            }
        }
    }
}
