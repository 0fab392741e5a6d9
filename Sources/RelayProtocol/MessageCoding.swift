// The conversion between plain messages and protobuf: lengths, parsing, and the fields that both directions share.
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

/// A request number from the wire.
func requestID(_ value: UInt32) throws(RelayMessageError) -> FloorRequestID {
    try valid(value == 0 ? nil : FloorRequestID(rawValue: value), "request_id", "is 0")
}

/// A priority from the wire.
func priority(_ value: UInt32, _ field: String = "priority") throws(RelayMessageError) -> UInt8 {
    try valid(UInt8(exactly: value), field, "is above 255")
}

/// A sequence number from the wire, where protobuf has 32 bits.
func sequence(_ value: UInt32) throws(RelayMessageError) -> UInt16 {
    try valid(UInt16(exactly: value), "last_sequence", "is above 65535")
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
        let (seconds, attoseconds) = components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        let (product, overflow) = seconds.multipliedReportingOverflow(by: 1000)
        return overflow ? .max : UInt32(clamping: product &+ attoseconds / 1_000_000_000_000_000)
    }
}
