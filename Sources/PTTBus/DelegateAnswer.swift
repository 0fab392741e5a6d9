// What a program answers to a call of org.pttd.Delegate1, and how it travels.
import DBus
import PushToTalkCore

/// The answer to a `DelegateCall`.
public enum DelegateAnswer: Hashable, Sendable {
    /// It has been taken note of.
    case done
    /// To `incomingPush`: do this about the push.
    case pushResult(PTPushResult)
    /// To `channelDescriptor`: show the channel so.
    case descriptor(PTChannelDescriptor)

    /// The values that the method returns.
    public var values: [DBusValue] {
        switch self {
        case .done: []
        case .pushResult(.leaveChannel): [.properties(["Action": .string("leaveChannel")])]
        case .pushResult(.activeRemoteParticipant(let participant)):
            [
                .properties(
                    ["Action": .string("activeRemoteParticipant"), "Name": .string(participant.name)]
                        .merging(Self.options(participant.image)) { first, _ in first })
            ]
        case .descriptor(let descriptor): [.string(descriptor.name), .properties(Self.options(descriptor.image))]
        }
    }

    static func options(_ image: PTImage?) -> [String: DBusValue] {
        image.map { ["Image": $0.busValue] } ?? [:]
    }

    /// The answer that `values` are to `call`.
    ///
    /// - Throws: `DBusErrorReply` (`InvalidArgs`) that says what is wrong about them.
    public init(_ values: [DBusValue], to call: DelegateCall) throws(DBusErrorReply) {
        switch call {
        case .incomingPush: self = .pushResult(try Self.pushResult(values.first?.propertiesValue ?? [:]))
        case .channelDescriptor:
            guard values.count == 2, case .string(let name) = values[0], let options = values[1].propertiesValue else {
                throw .invalidArguments("the answer to ChannelDescriptor is not of type 'sa{sv}'")
            }
            self = .descriptor(
                PTChannelDescriptor(name: try Self.name(name), image: try Self.image(options)))
        default: self = .done
        }
    }

    private static func pushResult(_ result: [String: DBusValue]) throws(DBusErrorReply) -> PTPushResult {
        switch result["Action"]?.stringValue {
        case "leaveChannel": return .leaveChannel
        case "activeRemoteParticipant":
            guard case .string(let name)? = result["Name"] else {
                throw .invalidArguments("the answer to IncomingPush has no 'Name' s")
            }
            return .activeRemoteParticipant(PTParticipant(name: try Self.name(name), image: try image(result)))
        default:
            throw .invalidArguments(
                "the answer to IncomingPush must have 'Action' s: \"leaveChannel\" or \"activeRemoteParticipant\"")
        }
    }

    private static func image(_ options: [String: DBusValue]) throws(DBusErrorReply) -> PTImage? {
        guard let value = options["Image"] else { return nil }
        return try PTImage(busValue: value)
    }

    private static func name(_ name: String) throws(DBusErrorReply) -> String {
        guard name.utf8.count <= PTTBusLimits.nameBytes else {
            throw .invalidArguments(
                "a name of \(name.utf8.count) bytes; at most \(PTTBusLimits.nameBytes) are accepted")
        }
        return name
    }
}
