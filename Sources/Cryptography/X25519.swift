// Diffie-Hellman on Curve25519, by libsodium.
import CSodium

/// An ephemeral X25519 key pair (RFC 7748).
public struct X25519: Sendable {
    /// The size of keys and secrets, in bytes.
    public static let byteCount = Int(crypto_scalarmult_curve25519_BYTES)

    /// The public key.
    public let publicKey: [UInt8]
    private let privateKey: [UInt8]

    /// A new pair.
    public init() { self.init(privateKey: SecureRandom.bytes(Self.byteCount)) }

    /// The pair of a private key; for test vectors.
    init(privateKey: [UInt8]) {
        precondition(privateKey.count == Self.byteCount)
        self.privateKey = privateKey
        var publicKey = [UInt8](repeating: 0, count: Self.byteCount)
        // It has no errors with a base point.
        _ = crypto_scalarmult_curve25519_base(&publicKey, privateKey)
        self.publicKey = publicKey
    }

    /// The secret that this pair shares with the owner of `other`; nil when that is no key of 32 bytes, or the secret would be
    /// all zero (RFC 7748, section 6.1), so that the other end has not contributed to it.
    public func secret(with other: [UInt8]) -> [UInt8]? {
        guard other.count == Self.byteCount else { return nil }
        var secret = [UInt8](repeating: 0, count: Self.byteCount)
        guard crypto_scalarmult_curve25519(&secret, privateKey, other) == 0 else { return nil }
        return secret
    }
}
