// The conversion between plain messages and protobuf: lengths, parsing, the fields that both directions share, and errors.
import FoundationEssentials
import SwiftProtobuf

extension ClientMessage {
    /// Reads one message (without its length), checking every field.
    public init(parsing bytes: [UInt8]) throws(RelayMessageError) {
        try self.init(Pttd_Relay_V1_ClientMessage.parse(bytes))
    }

    /// The message with its length in front, as it goes on the control stream.
    public func framed() -> [UInt8] { wire.framed() }

    /// The message without a length, for a transport that keeps messages apart.
    public func encoded() -> [UInt8] { wire.encoded() }
}

extension ServerMessage {
    /// Reads one message (without its length), checking every field.
    public init(parsing bytes: [UInt8]) throws(RelayMessageError) {
        try self.init(Pttd_Relay_V1_ServerMessage.parse(bytes))
    }

    /// The message with its length in front, as it goes on the control stream.
    public func framed() -> [UInt8] { wire.framed() }

    /// The message without a length, for a transport that keeps messages apart.
    public func encoded() -> [UInt8] { wire.encoded() }
}

extension SwiftProtobuf.Message {
    fileprivate static func parse(_ bytes: [UInt8]) throws(RelayMessageError) -> Self {
        guard bytes.count <= RelayProtocolLimits.messageByteCountMaximum else { throw .tooLong(bytes.count) }
        do {
            return try Self(serializedBytes: bytes)
        } catch {
            throw .malformed
        }
    }

    fileprivate func framed() -> [UInt8] {
        let body = encoded()
        return UInt32(body.count).bigEndianBytes + body
    }

    fileprivate func encoded() -> [UInt8] {
        do {
            let body: [UInt8] = try serializedBytes()
            // Every value that fills these messages is bounded, so this holds for whatever a caller can make.
            precondition(body.count <= RelayProtocolLimits.messageByteCountMaximum)
            return body
        } catch {
            preconditionFailure("proto3 messages of these types always serialize: \(error)")
        }
    }
}

/// A field that has the value it must have, or the error that says which field has not.
func valid<Value>(_ value: Value?, _ field: String, _ reason: String) throws(RelayMessageError) -> Value {
    guard let value else { throw .invalidField(field, reason: reason) }
    return value
}

/// The entries of a field that may not have too many.
func entries<Wire, Value>(
    _ wire: [Wire], atMost limit: Int, _ field: String, _ read: (Wire) throws(RelayMessageError) -> Value
) throws(RelayMessageError) -> [Value] {
    guard wire.count <= limit else {
        throw .invalidField(field, reason: "has \(wire.count) entries, more than \(limit)")
    }
    return try wire.map(read)
}

/// Bytes from the wire that are as many as they must be.
func bytes(_ bytes: Data, _ field: String, count: Int) throws(RelayMessageError) -> [UInt8] {
    try valid(bytes.count == count ? [UInt8](bytes) : nil, field, "has \(bytes.count) bytes instead of \(count)")
}

/// A channel's identifier from the wire.
func channelID(_ bytes: Data) throws(RelayMessageError) -> ChannelID {
    try valid(ChannelID(bytes: bytes), "channel_id", "has \(bytes.count) bytes instead of \(ChannelID.byteCount)")
}

/// An invitation's secret from the wire.
func invitationToken(_ bytes: Data) throws(RelayMessageError) -> InvitationToken {
    try valid(
        InvitationToken(bytes), "invitation_token", "has \(bytes.count) bytes, not \(InvitationToken.byteCounts)")
}

/// A request number from the wire.
func requestID(_ value: UInt32) throws(RelayMessageError) -> FloorRequestID {
    try valid(value == 0 ? nil : FloorRequestID(rawValue: value), "request_id", "is 0")
}

/// A priority from the wire.
func priority(_ value: UInt32, _ field: String = "priority") throws(RelayMessageError) -> UInt8 {
    try valid(UInt8(exactly: value), field, "is above 255")
}

/// A sequence number from the wire, where protobuf has 32 bits.
func sequence(_ value: UInt32, _ field: String = "last_sequence") throws(RelayMessageError) -> UInt16 {
    try valid(UInt16(exactly: value), field, "is above 65535")
}

/// A member's identifier from the wire.
func memberID(_ bytes: some Collection<UInt8>) throws(RelayMessageError) -> MemberID {
    try valid(MemberID(bytes: bytes), "member_id", "has \(bytes.count) bytes instead of \(MemberID.byteCount)")
}

/// A name from the wire.
func displayName(_ text: String, _ field: String) throws(RelayMessageError) -> DisplayName {
    try valid(
        DisplayName(text), field,
        "is not 1 to \(DisplayName.byteCountMaximum) bytes of text without control characters")
}

extension Duration {
    /// Whole milliseconds, as messages carry them; clamped to what 32 bits hold.
    var wireMilliseconds: UInt32 {
        let (seconds, attoseconds) = min(max(self, .zero), .milliseconds(UInt32.max)).components
        return UInt32(seconds * 1_000 + attoseconds / 1_000_000_000_000_000)
    }
}

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
