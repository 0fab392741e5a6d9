// The short MAC on every packet that a relay sends: AES-128-GMAC.

/// AES-128-GMAC (NIST SP 800-38D) with one key: authentication without encryption, in a few hundred nanoseconds.
///
/// Made once per connection; computing allocates nothing. A nonce must never be used twice with one key. Not `Sendable`.
public final class GMAC {
    /// The size of a key in bytes.
    public static let keyByteCount = 16
    /// The size of a nonce in bytes.
    public static let nonceByteCount = AEAD.nonceByteCount
    /// The size of a whole tag in bytes; a protocol may cut it.
    public static let tagByteCount = AEAD.tagByteCount

    private let aead: AEAD

    /// A MAC with `key`, 16 bytes.
    public init(key: [UInt8]) throws(CryptographyError) {
        aead = try AEAD(.aes128GCM, key: key)
    }

    /// Writes the 16-byte tag of `message` under `nonce` to `tag`.
    public func authenticate(
        _ message: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer, tag: UnsafeMutableRawBufferPointer
    ) throws(CryptographyError) {
        try aead.seal(UnsafeRawBufferPointer(start: nil, count: 0), nonce: nonce, authenticating: message, into: tag)
    }
}
