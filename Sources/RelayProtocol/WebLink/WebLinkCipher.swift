// Seals and opens the messages of a link over TLS.
import Cryptography

/// The keys of one connection, once both ends are known to each other.
///
/// Not `Sendable`: one thread at a time. TCP keeps the order of the messages, so each direction counts for itself.
public final class WebLinkCipher {
    /// The first byte of a sealed message.
    public static let kind: UInt8 = 16

    private var sending: Direction
    private var receiving: Direction

    init(sending: Direction, receiving: Direction) {
        (self.sending, self.receiving) = (sending, receiving)
    }

    /// A whole WebSocket message with `message` sealed in it. Messages go out in the order of the calls.
    public func seal(_ message: WebSealedMessage) throws(WebLinkError) -> [UInt8] {
        [Self.kind] + (try sending.seal(message.bytes))
    }

    /// Opens a whole WebSocket message that begins with `kind`. The calls are in the order of arrival.
    ///
    /// - Returns: nil when what is in it is of an unknown kind.
    /// - Throws: `WebLinkError`; the connection is of no use any more.
    public func open(_ message: [UInt8]) throws(WebLinkError) -> WebSealedMessage? {
        guard message.first == Self.kind else { throw .malformed("a message that is not sealed") }
        return try WebSealedMessage(receiving.open(Array(message.dropFirst())))
    }

    /// One direction: its key, and the counter that is the rest of the nonce.
    struct Direction {
        private let cipher: AEAD
        private let initial: [UInt8]
        private var count: UInt32 = 0
        private var isExhausted = false

        init(key: [UInt8], initial: [UInt8]) throws(WebLinkError) {
            do throws(CryptographyError) {
                cipher = try AEAD(.aes128GCM, key: key)
            } catch {
                throw WebLinkError(error)
            }
            self.initial = initial
        }

        mutating func seal(_ plaintext: [UInt8]) throws(WebLinkError) -> [UInt8] {
            let nonce = try nextNonce()
            do throws(CryptographyError) {
                return try cipher.seal(plaintext, nonce: nonce)
            } catch {
                throw WebLinkError(error)
            }
        }

        mutating func open(_ ciphertext: [UInt8]) throws(WebLinkError) -> [UInt8] {
            let nonce = try nextNonce()
            do throws(CryptographyError) {
                return try cipher.open(ciphertext, nonce: nonce)
            } catch {
                throw WebLinkError(error)
            }
        }

        /// The initial value XOR the counter, which never repeats.
        private mutating func nextNonce() throws(WebLinkError) -> [UInt8] {
            guard !isExhausted else { throw .exhausted }
            var nonce = initial
            for (place, byte) in count.bigEndianBytes.enumerated() { nonce[nonce.count - 4 + place] ^= byte }
            if count == .max { isExhausted = true } else { count += 1 }
            return nonce
        }
    }
}

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

/// An error of the handshake, or of a sealed message, of a link over TLS.
public enum WebLinkError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bytes are no message of that kind.
    case malformed(String)
    /// The relay has another key than the link says.
    case wrongRelayKey
    /// A proof is not signed with the key that it shows.
    case wrongSignature
    /// A sealed message was changed, left out or repeated on the way.
    case notAuthentic
    /// Its key is not one on P-256, which this link needs.
    case unsuitableKey
    /// The connection's counter is used up.
    case exhausted
    /// The cryptographic library failed.
    case cryptography(CryptographyError)

    init(_ error: CryptographyError) { self = error == .notAuthentic ? .notAuthentic : .cryptography(error) }

    /// One line for a log.
    public var description: String {
        switch self {
        case .malformed(let what): what
        case .wrongRelayKey: "the relay's key is not the one in the link"
        case .wrongSignature: "the proof of a key has a wrong signature"
        case .notAuthentic: "a sealed message was changed on the way"
        case .unsuitableKey: "the key is not an ECDSA key on P-256, which links over TLS need"
        case .exhausted: "the connection has carried all messages that its keys allow"
        case .cryptography(let error): "\(error)"
        }
    }
}
