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
