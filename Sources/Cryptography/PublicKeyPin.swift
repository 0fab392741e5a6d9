// The hash that identifies a peer's key.

/// The SHA-256 of a public key (SubjectPublicKeyInfo in DER, RFC 7469 section 2.4): who a peer is.
public struct PublicKeyPin: Hashable, Sendable, CustomStringConvertible {
    /// The number of bytes.
    public static let byteCount = 32
    /// The digest.
    public let bytes: [UInt8]

    /// The pin of a SubjectPublicKeyInfo.
    public init(subjectPublicKeyInfo: [UInt8]) {
        bytes = sha256(subjectPublicKeyInfo)
    }

    /// The pin of that digest, nil unless it has 32 bytes.
    public init?(_ digest: some Collection<UInt8>) {
        guard digest.count == Self.byteCount else { return nil }
        bytes = [UInt8](digest)
    }

    /// The pin in base64url, as in an invitation link; nil when it is not 32 bytes of it.
    public init?(_ text: some StringProtocol) {
        guard let digest = Base64URL.decode(text) else { return nil }
        self.init(digest)
    }

    /// 43 characters of base64url.
    public var description: String { Base64URL.encode(bytes) }
}
