// The short MAC on every packet that a relay sends: SipHash-2-4 with 128 bits.
import CSodium

/// SipHash-2-4 with a key and a tag of 128 bits each (Aumasson, Bernstein: SipHash: a fast short-input PRF, 2012): authentication
/// without encryption, and without instructions that a small processor may not have.
///
/// A key is all that there is: no tables, no nonce, nothing to be set up. A relay goes through thousands of keys for every packet,
/// whose tables would have to come from memory each time.
public struct SipHash: Sendable {
    /// The size of a key in bytes.
    public static let keyByteCount = Int(crypto_shorthash_siphashx24_KEYBYTES)
    /// The size of a whole tag in bytes; a protocol may cut it.
    public static let tagByteCount = Int(crypto_shorthash_siphashx24_BYTES)

    private let key: (UInt64, UInt64)

    /// A MAC with `key`, 16 bytes.
    public init(key: [UInt8]) throws(CryptographyError) {
        guard key.count == Self.keyByteCount else {
            throw .wrongSize(what: "SipHash key", is: key.count, expected: Self.keyByteCount)
        }
        self.key = key.withUnsafeBytes {
            ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
    }

    /// The tag of `message`, as 16 bytes in the order of memory.
    ///
    /// Numbers instead of a buffer: they need no closure, whose context an unoptimised build puts on the heap.
    public func tag(of message: UnsafeRawBufferPointer) -> (UInt64, UInt64) {
        var key = key
        var tag: (UInt64, UInt64) = (0, 0)
        ptt_siphash128(&tag, message.baseAddress, message.count, &key)
        return tag
    }
}
