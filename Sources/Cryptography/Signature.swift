// Signatures with an identity's key, by GnuTLS.
import CGnuTLS
import Synchronization

/// An identity's private key on P-256, for signatures with ECDSA and SHA-256 (FIPS 186-5).
public final class SigningKey: Sendable {
    /// r and s of 32 bytes each (IEEE P1363), as WebCrypto makes them.
    public static let signatureByteCount = 64

    /// The public key (SubjectPublicKeyInfo in DER, RFC 5280 section 4.1).
    public let publicKey: [UInt8]
    /// Its pin.
    public let pin: PublicKeyPin
    private let key: Mutex<PrivateKey>

    /// The key of `identity`; nil when it is not on P-256.
    public init?(_ identity: Identity) {
        do throws(CryptographyError) {
            let key = try PrivateKey(pem: identity.privateKeyPEM)
            guard try key.isOnP256() else { return nil }
            publicKey = try Certificate(identity.certificateDER, GNUTLS_X509_FMT_DER).subjectPublicKeyInfo()
            self.key = Mutex(key)
        } catch {
            return nil
        }
        pin = PublicKeyPin(subjectPublicKeyInfo: publicKey)
    }

    /// The signature of `message`, r ‖ s.
    public func sign(_ message: [UInt8]) throws(CryptographyError) -> [UInt8] {
        let result = key.withLock { key in Result { () throws(CryptographyError) in try key.sign(message) } }
        return try result.get()
    }
}

/// Somebody's public key on P-256.
public final class VerifyingKey {
    private let handle: gnutls_pubkey_t

    /// Reads a SubjectPublicKeyInfo in DER; nil when it is none, or its key is not on P-256.
    public init?(subjectPublicKeyInfo: [UInt8]) {
        var handle: gnutls_pubkey_t?
        guard gnutls_pubkey_init(&handle) >= 0, let handle else { return nil }
        var curve = GNUTLS_ECC_CURVE_INVALID
        guard withDatum(subjectPublicKeyInfo, { gnutls_pubkey_import(handle, $0, GNUTLS_X509_FMT_DER) }) >= 0,
            gnutls_pubkey_export_ecc_raw2(handle, &curve, nil, nil, 0) >= 0, curve == GNUTLS_ECC_CURVE_SECP256R1
        else {
            gnutls_pubkey_deinit(handle)
            return nil
        }
        self.handle = handle
    }

    deinit { gnutls_pubkey_deinit(handle) }

    /// Whether `signature`, r ‖ s, is one of `message` by this key's owner.
    public func verifies(_ signature: [UInt8], of message: [UInt8]) -> Bool {
        guard signature.count == SigningKey.signatureByteCount else { return false }
        // Positive numbers: DER takes a first bit of 1 for a sign.
        let r = [0] + signature[..<32]
        let s = [0] + signature[32...]
        var encoded = gnutls_datum_t()
        let code = withDatum(r) { r in withDatum(s) { s in gnutls_encode_rs_value(&encoded, r, s) } }
        guard code >= 0 else { return false }
        let der = take(encoded)
        return withDatum(message) { message in
            withDatum(der) { der in
                gnutls_pubkey_verify_data2(handle, GNUTLS_SIGN_ECDSA_SHA256, 0, message, der)
            }
        } >= 0
    }
}

extension PrivateKey {
    func isOnP256() throws(CryptographyError) -> Bool {
        var curve: UInt32 = 0
        guard gnutls_x509_privkey_get_pk_algorithm2(handle, &curve) == GNUTLS_PK_ECDSA.rawValue else { return false }
        var named = GNUTLS_ECC_CURVE_INVALID
        guard gnutls_x509_privkey_export_ecc_raw(handle, &named, nil, nil, nil) >= 0 else { return false }
        return named == GNUTLS_ECC_CURVE_SECP256R1
    }

    /// ECDSA with SHA-256, r ‖ s.
    func sign(_ message: [UInt8]) throws(CryptographyError) -> [UInt8] {
        let key = try made { gnutls_privkey_init($0) }
        defer { gnutls_privkey_deinit(key) }
        try check(gnutls_privkey_import_x509(key, handle, 0))
        let der = try written { datum in
            withDatum(message) { gnutls_privkey_sign_data2(key, GNUTLS_SIGN_ECDSA_SHA256, 0, $0, datum) }
        }
        var (r, s) = (gnutls_datum_t(), gnutls_datum_t())
        try check(withDatum(der) { gnutls_decode_rs_value($0, &r, &s) })
        return Self.padded(take(r)) + Self.padded(take(s))
    }

    /// A number of DER, with or without zeros before it, in 32 bytes.
    private static func padded(_ number: [UInt8]) -> [UInt8] {
        let digits = number.drop { $0 == 0 }.suffix(32)
        return [UInt8](repeating: 0, count: 32 - digits.count) + digits
    }
}
