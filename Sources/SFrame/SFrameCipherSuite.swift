// The cipher suites of RFC 9605, section 4.5, that this module supports.
import Cryptography

/// A cipher suite; the raw value is its number in the IANA registry "SFrame Cipher Suites".
public enum SFrameCipherSuite: UInt16, Sendable, Hashable, CaseIterable {
    /// AES-128-GCM with HKDF-SHA-256 and a 16-byte tag.
    case aes128GCMSHA256 = 0x0004
    /// AES-256-GCM with HKDF-SHA-512 and a 16-byte tag.
    case aes256GCMSHA512 = 0x0005

    /// The size of the tag in bytes (Nt).
    public var tagByteCount: Int { AEAD.tagByteCount }

    var algorithm: AEAD.Algorithm {
        switch self {
        case .aes128GCMSHA256: .aes128GCM
        case .aes256GCMSHA512: .aes256GCM
        }
    }

    var hash: HashFunction {
        switch self {
        case .aes128GCMSHA256: .sha256
        case .aes256GCMSHA512: .sha512
        }
    }
}
