// The short MAC on every packet that a relay sends: AES-128-GMAC.
import CGnuTLS
import CLinux

/// AES-128-GMAC (NIST SP 800-38D) with one key: authentication without encryption, in a few hundred nanoseconds.
///
/// Made once per connection; computing allocates nothing, and what it needs lies in its owner: a relay goes through thousands of
/// them for every packet. A nonce must never be used twice with one key. Not `Sendable`.
public struct GMAC: ~Copyable {
    /// The size of a key in bytes.
    public static let keyByteCount = 16
    /// The size of a nonce in bytes.
    public static let nonceByteCount = AEAD.nonceByteCount
    /// The size of a whole tag in bytes; a protocol may cut it.
    public static let tagByteCount = AEAD.tagByteCount

    private let handle: gnutls_aead_cipher_hd_t

    /// A MAC with `key`, 16 bytes.
    public init(key: [UInt8]) throws(CryptographyError) {
        guard key.count == Self.keyByteCount else {
            throw .wrongSize(what: "GMAC key", is: key.count, expected: Self.keyByteCount)
        }
        var handle: gnutls_aead_cipher_hd_t?
        try check(withDatum(key) { gnutls_aead_cipher_init(&handle, GNUTLS_CIPHER_AES_128_GCM, $0) })
        guard let handle else { throw CryptographyError(GNUTLS_E_INTERNAL_ERROR) }
        self.handle = handle
    }

    deinit {
        gnutls_aead_cipher_deinit(handle)
    }

    /// Has the processor fetch what `tag` needs first. Worth it some calls ahead, where there are more of them than the caches hold.
    public func prefetch() { ptt_prefetch(UnsafeRawPointer(handle)) }

    /// The tag of `message` under `nonce`, as 16 bytes in the order of memory; the nonce's 12 bytes likewise.
    ///
    /// Numbers instead of buffers: they need no closures, whose contexts an unoptimised build puts on the heap.
    public func tag(
        of message: UnsafeRawBufferPointer, nonce: (UInt64, UInt32)
    ) throws(CryptographyError) -> (UInt64, UInt64) {
        var nonce = nonce
        var tag: (UInt64, UInt64) = (0, 0)
        var count = Self.tagByteCount
        try check(
            gnutls_aead_cipher_encrypt(
                handle, &nonce, Self.nonceByteCount, message.baseAddress, message.count, Self.tagByteCount, nil, 0,
                &tag,
                &count))
        return tag
    }
}
