// Hashes, HMAC and HKDF.
import CGnuTLS

/// The hash functions in use.
public enum HashFunction: Sendable, Hashable {
    /// SHA-256 (FIPS 180-4).
    case sha256
    /// SHA-512 (FIPS 180-4).
    case sha512

    /// The size of a digest in bytes.
    public var byteCount: Int {
        switch self {
        case .sha256: 32
        case .sha512: 64
        }
    }

    private var digest: gnutls_digest_algorithm_t {
        switch self {
        case .sha256: GNUTLS_DIG_SHA256
        case .sha512: GNUTLS_DIG_SHA512
        }
    }

    /// GnuTLS has one number for a hash and for the MAC made of it.
    private var mac: gnutls_mac_algorithm_t { .init(rawValue: digest.rawValue) }

    /// The digest of `bytes`.
    public func hash(_ bytes: [UInt8]) -> [UInt8] {
        var digest = [UInt8](repeating: 0, count: byteCount)
        let code = gnutls_hash_fast(self.digest, bytes, bytes.count, &digest)
        precondition(code >= 0, "GnuTLS has no \(self)")
        return digest
    }

    /// HMAC (RFC 2104) of `bytes` under `key`.
    public func authenticationCode(for bytes: [UInt8], key: [UInt8]) -> [UInt8] {
        var code = [UInt8](repeating: 0, count: byteCount)
        let status = gnutls_hmac_fast(mac, key, key.count, bytes, bytes.count, &code)
        precondition(status >= 0, "GnuTLS has no HMAC with \(self)")
        return code
    }

    /// HKDF-Extract (RFC 5869, section 2.2): the pseudorandom key made of `keyMaterial`; an empty salt is allowed.
    public func extract(keyMaterial: [UInt8], salt: [UInt8] = []) throws(CryptographyError) -> [UInt8] {
        var key = [UInt8](repeating: 0, count: byteCount)
        try check(
            withDatum(keyMaterial) { material in
                withDatum(salt) { salt in gnutls_hkdf_extract(mac, material, salt, &key) }
            })
        return key
    }

    /// HKDF-Expand (RFC 5869, section 2.3): `byteCount` bytes for the purpose `info`, at most 255 digests' worth.
    public func expand(pseudorandomKey: [UInt8], info: [UInt8], byteCount: Int) throws(CryptographyError) -> [UInt8] {
        guard (1...255 * self.byteCount).contains(byteCount) else {
            throw .wrongSize(what: "HKDF output", is: byteCount, expected: 255 * self.byteCount)
        }
        var output = [UInt8](repeating: 0, count: byteCount)
        try check(
            withDatum(pseudorandomKey) { key in
                withDatum(info) { info in gnutls_hkdf_expand(mac, key, info, &output, byteCount) }
            })
        return output
    }
}

/// SHA-256 of `bytes`.
public func sha256(_ bytes: [UInt8]) -> [UInt8] { HashFunction.sha256.hash(bytes) }

/// HMAC-SHA-256 of `bytes` under `key`.
public func hmacSHA256(_ bytes: [UInt8], key: [UInt8]) -> [UInt8] {
    HashFunction.sha256.authenticationCode(for: bytes, key: key)
}
