// AES-GCM with one key, used many times without allocating.
import CGnuTLS

/// Authenticated encryption with one key: AES-128-GCM or AES-256-GCM (NIST SP 800-38D), 12-byte nonces and 16-byte tags.
///
/// The context is set up once; `seal` and `open` work in the caller's buffers and allocate nothing. Not `Sendable`: one
/// thread at a time. A nonce must never be used twice with one key.
public final class AEAD {
    /// Which cipher.
    public enum Algorithm: Sendable, Hashable {
        /// AES-128-GCM.
        case aes128GCM
        /// AES-256-GCM.
        case aes256GCM

        /// The size of a key in bytes.
        public var keyByteCount: Int { gnutls_cipher_get_key_size(cipher) }

        fileprivate var cipher: gnutls_cipher_algorithm_t {
            switch self {
            case .aes128GCM: GNUTLS_CIPHER_AES_128_GCM
            case .aes256GCM: GNUTLS_CIPHER_AES_256_GCM
            }
        }
    }

    /// The size of a nonce in bytes.
    public static let nonceByteCount = 12
    /// The size of a tag in bytes.
    public static let tagByteCount = 16

    private let handle: gnutls_aead_cipher_hd_t

    /// A cipher with `key`. Throws when the key's size is not the algorithm's.
    public init(_ algorithm: Algorithm, key: [UInt8]) throws(CryptographyError) {
        guard key.count == algorithm.keyByteCount else {
            throw .wrongSize(what: "AEAD key", is: key.count, expected: algorithm.keyByteCount)
        }
        handle = try made { handle in withDatum(key) { gnutls_aead_cipher_init(handle, algorithm.cipher, $0) } }
    }

    deinit {
        gnutls_aead_cipher_deinit(handle)
    }

    /// Encrypts `plaintext` and writes ciphertext and tag to `output`; returns how many bytes: plaintext + 16.
    ///
    /// `output` may be the memory of `plaintext`. Throws `.wrongSize` when it is too small.
    @discardableResult
    public func seal(
        _ plaintext: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer, authenticating: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) throws(CryptographyError) -> Int {
        try Self.checkNonce(nonce)
        let needed = plaintext.count + Self.tagByteCount
        guard output.count >= needed else {
            throw .wrongSize(what: "AEAD output", is: output.count, expected: needed)
        }
        var count = output.count
        try check(
            gnutls_aead_cipher_encrypt(
                handle, nonce.baseAddress, nonce.count, authenticating.baseAddress, authenticating.count,
                Self.tagByteCount, plaintext.baseAddress, plaintext.count, output.baseAddress, &count))
        return count
    }

    /// Checks and decrypts `ciphertext` (with its tag at the end) into `output`; returns how many bytes: ciphertext - 16.
    ///
    /// Throws `.notAuthentic` when the tag does not fit; `output` then holds nothing of use.
    @discardableResult
    public func open(
        _ ciphertext: UnsafeRawBufferPointer, nonce: UnsafeRawBufferPointer, authenticating: UnsafeRawBufferPointer,
        into output: UnsafeMutableRawBufferPointer
    ) throws(CryptographyError) -> Int {
        try Self.checkNonce(nonce)
        guard ciphertext.count >= Self.tagByteCount else { throw .notAuthentic }
        let needed = ciphertext.count - Self.tagByteCount
        guard output.count >= needed else {
            throw .wrongSize(what: "AEAD output", is: output.count, expected: needed)
        }
        var count = output.count
        let code = gnutls_aead_cipher_decrypt(
            handle, nonce.baseAddress, nonce.count, authenticating.baseAddress, authenticating.count,
            Self.tagByteCount, ciphertext.baseAddress, ciphertext.count, output.baseAddress, &count)
        guard code != GNUTLS_E_DECRYPTION_FAILED else { throw .notAuthentic }
        try check(code)
        return needed
    }

    /// Encrypts into a new array. For set-up and tests; the packet path uses buffers.
    public func seal(
        _ plaintext: [UInt8], nonce: [UInt8], authenticating: [UInt8] = []
    ) throws(CryptographyError) -> [UInt8] {
        try inArrays(plaintext, nonce, authenticating, plaintext.count + Self.tagByteCount, seal)
    }

    /// Decrypts into a new array. For set-up and tests; the packet path uses buffers.
    public func open(
        _ ciphertext: [UInt8], nonce: [UInt8], authenticating: [UInt8] = []
    ) throws(CryptographyError) -> [UInt8] {
        try inArrays(ciphertext, nonce, authenticating, max(0, ciphertext.count - Self.tagByteCount), open)
    }

    private func inArrays(
        _ input: [UInt8], _ nonce: [UInt8], _ authenticated: [UInt8], _ count: Int,
        _ work: (
            UnsafeRawBufferPointer, UnsafeRawBufferPointer, UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer
        ) throws(CryptographyError) -> Int
    ) throws(CryptographyError) -> [UInt8] {
        var output = [UInt8](repeating: 0, count: count)
        var place = output.mutableSpan
        _ = try input.span.withUnsafeBytes { input throws(CryptographyError) in
            try nonce.span.withUnsafeBytes { nonce throws(CryptographyError) in
                try authenticated.span.withUnsafeBytes { authenticated throws(CryptographyError) in
                    try place.withUnsafeMutableBytes { output throws(CryptographyError) in
                        try work(input, nonce, authenticated, output)
                    }
                }
            }
        }
        return output
    }

    private static func checkNonce(_ nonce: UnsafeRawBufferPointer) throws(CryptographyError) {
        guard nonce.count == nonceByteCount else {
            throw .wrongSize(what: "AEAD nonce", is: nonce.count, expected: nonceByteCount)
        }
    }
}
