// What is inside the sealed messages of a link over TLS.

/// The content of a sealed message (docs/relay-protocol.md, section 21.3).
public enum WebSealedMessage: Sendable, Hashable {
    /// A `ClientMessage` or `ServerMessage` in protobuf, without the length of the control stream.
    case control([UInt8])
    /// How many media packets the relay has read on this connection.
    case acknowledgement(UInt32)
    /// A question whether the other end is there.
    case ping(UInt64)
    /// The answer to it.
    case pong(UInt64)
    /// A part of what would be a stream of the relay over QUIC, and whether it is the last.
    case answer(number: UInt32, isEnd: Bool, bytes: [UInt8])
    /// A media packet of the client: whoever ends TLS cannot put other bytes in its place, and have the talker believe that it is heard.
    case media([UInt8])

    /// The plaintext of the message.
    public var bytes: [UInt8] {
        switch self {
        case .control(let message): [1] + message
        case .acknowledgement(let count): [2] + count.bigEndianBytes
        case .ping(let number): [3] + number.bigEndianBytes
        case .pong(let number): [4] + number.bigEndianBytes
        case .answer(let number, let isEnd, let bytes): [5] + number.bigEndianBytes + [isEnd ? 1 : 0] + bytes
        case .media(let packet): [6] + packet
        }
    }

    /// Reads a plaintext; nil when its kind is unknown.
    ///
    /// - Throws: `WebLinkError.malformed` when it is empty, or none of its kind.
    public init?(_ bytes: [UInt8]) throws(WebLinkError) {
        guard let kind = bytes.first else { throw .malformed("an empty sealed message") }
        let body = bytes.dropFirst()
        switch kind {
        case 1:
            guard (1...RelayProtocolLimits.messageByteCountMaximum).contains(body.count) else {
                throw .malformed("a control message of \(body.count) bytes")
            }
            self = .control(Array(body))
        case 2:
            guard body.count == 4 else { throw .malformed("an acknowledgement of \(body.count) bytes") }
            self = .acknowledgement(Self.number(body))
        case 3, 4:
            guard body.count == 8 else { throw .malformed("a ping or pong of \(body.count) bytes") }
            let number: UInt64 = Self.number(body)
            self = kind == 3 ? .ping(number) : .pong(number)
        case 5:
            guard body.count >= 5, body.count - 5 <= WebLinkLimits.answerPartBytes else {
                throw .malformed("a part of an answer of \(body.count) bytes")
            }
            let flags = body[body.startIndex + 4]
            self = .answer(number: Self.number(body.prefix(4)), isEnd: flags & 1 != 0, bytes: Array(body.dropFirst(5)))
        case 6: self = .media(Array(body))
        default: return nil
        }
    }

    private static func number<Number: FixedWidthInteger>(_ bytes: ArraySlice<UInt8>) -> Number {
        bytes.reduce(0) { $0 << 8 | Number($1) }
    }
}
