// Why a control message could not be read.

/// What is wrong with a control message. It has no effect; docs/relay-protocol.md says which errors end the connection.
public enum RelayMessageError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bytes are not a protobuf message.
    case malformed
    /// The message is of a kind this version does not know, or empty. Ignore it.
    case unknownKind
    /// A field has a value that it may not have: its name in relay.proto, and what is wrong.
    case invalidField(String, reason: String)
    /// The message is longer than `RelayProtocolLimits.messageByteCountMaximum`.
    case tooLong(Int)

    /// Whether the sender breaks the protocol, so that the connection should be closed. A message of an unknown kind
    /// comes from a newer version and does not close it.
    public var isViolation: Bool { self != .unknownKind }

    /// One line for a log.
    public var description: String {
        switch self {
        case .malformed: "the message is not protobuf"
        case .unknownKind: "the message is of an unknown kind"
        case .invalidField(let name, let reason): "the field \(name) \(reason)"
        case .tooLong(let count):
            "the message has \(count) bytes, more than \(RelayProtocolLimits.messageByteCountMaximum)"
        }
    }
}
