// What the nodes of a cluster share: the relay's key, and by it the proof that a record is one of theirs.
import Cryptography

/// The relay that a cluster is.
///
/// Each message of the log carries a code under a key that is derived from the relay's private key, which only nodes have. So whoever can
/// write to NATS can stop a cluster, but make nobody a member; and a message that is damaged, or of another cluster of this relay, is noticed
/// before SQLite reads it.
public struct ClusterIdentity: Sendable {
    /// The fingerprint of the relay's key.
    public let pin: PublicKeyPin
    private let key: [UInt8]
    private let callKey: [UInt8]

    /// Bytes of a code: HMAC-SHA-256, cut as RFC 2104 (section 5) allows.
    static let codeByteCount = 16

    /// The relay with that identity.
    ///
    /// - Throws: `CryptographyError`.
    public init(_ identity: Identity) throws(CryptographyError) {
        pin = identity.pin
        let hash = HashFunction.sha256
        let secret = try hash.extract(keyMaterial: identity.privateKeyDER)
        key = try hash.expand(
            pseudorandomKey: secret, info: Array("pttrelay cluster log".utf8), byteCount: 32)
        callKey = try hash.expand(
            pseudorandomKey: secret, info: Array("pttrelay cluster calls".utf8), byteCount: 32)
    }

    /// The code of what nodes send each other, under a key of its own: none of it is valid in the log.
    func callCode(_ message: [UInt8]) -> [UInt8] {
        Array(hmacSHA256(message, key: callKey).prefix(Self.codeByteCount))
    }

    private func code(_ message: [UInt8], at sequence: UInt64, of cluster: String) -> ArraySlice<UInt8> {
        hmacSHA256(Array(cluster.utf8) + sequence.bigEndianBytes + message, key: key).prefix(Self.codeByteCount)
    }

    /// The message with its code, for that place in the log of that cluster: it is valid at no other one.
    func seal(_ message: [UInt8], at sequence: UInt64, of cluster: String) -> [UInt8] {
        message + code(message, at: sequence, of: cluster)
    }

    /// The message without its code; nil: no node has written it there.
    func open(_ sealed: [UInt8], at sequence: UInt64, of cluster: String) -> [UInt8]? {
        guard sealed.count >= Self.codeByteCount else { return nil }
        let message = Array(sealed.dropLast(Self.codeByteCount))
        guard
            constantTimeEqual(Array(code(message, at: sequence, of: cluster)), Array(sealed.suffix(Self.codeByteCount)))
        else {
            return nil
        }
        return message
    }
}
