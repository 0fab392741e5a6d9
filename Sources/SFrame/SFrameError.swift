// Why a frame could not be sealed or opened, the limits, and the cipher suites of RFC 9605, section 4.5, that this module supports.
import Cryptography

/// An error of sealing or opening a frame. Opening errors say something about one packet and change nothing.
public enum SFrameError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bytes end before the header does, or before the tag.
    case truncated
    /// A number of the header is encoded in more bytes than it needs (RFC 9605, section 4.3: minimal).
    case notMinimal
    /// The frame's epoch is not one whose key is held: too old, or its key has not come yet.
    case unknownEpoch(UInt16)
    /// The frame was opened before, or is too far behind to tell.
    case replayed(counter: UInt64)
    /// The frame was changed, or sealed with another key.
    case notAuthentic
    /// The key id has sealed all the frames it may. Take a fresh one.
    case exhausted
    /// The metadata is longer than `SFrameLimits.metadataByteCountMaximum`.
    case metadataTooLong(Int)
    /// The output buffer is too small: how many bytes it has, and needs.
    case outputTooSmall(is: Int, needed: Int)
    /// A lower layer failed.
    case cryptography(CryptographyError)

    init(_ error: CryptographyError) {
        self = error == .notAuthentic ? .notAuthentic : .cryptography(error)
    }

    /// One line for a log.
    public var description: String {
        switch self {
        case .truncated: "the frame ends too early"
        case .notMinimal: "a number in the frame's header is longer than it needs to be"
        case .unknownEpoch(let epoch): "no key for epoch \(epoch)"
        case .replayed(let counter): "frame \(counter) was received before or is too old"
        case .notAuthentic: "the frame was changed on the way, or sealed with another key"
        case .exhausted: "the key id has sealed all the frames it may"
        case .metadataTooLong(let count): "\(count) bytes of metadata are too many"
        case .outputTooSmall(let actual, let needed): "an output of \(actual) bytes is too small for \(needed)"
        case .cryptography(let error): error.description
        }
    }
}

/// Sizes that hold for every frame.
public enum SFrameLimits {
    /// The longest header.
    public static let headerByteCountMaximum = 17
    /// The most bytes of metadata (an RTP header has 12).
    public static let metadataByteCountMaximum = 256
    /// The most frames one key id seals: far more than a burst has, far below where AES-GCM wears out.
    public static let framesPerKeyMaximum: UInt64 = 1 << 32
}

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
