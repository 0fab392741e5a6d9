// GnuTLS's certificate and private key objects, freed when they are no longer needed.
import CGnuTLS

/// A private key of GnuTLS.
final class PrivateKey {
    let handle: gnutls_x509_privkey_t

    init() throws(CryptographyError) { handle = try made { gnutls_x509_privkey_init($0) } }

    /// Reads a key in PEM.
    convenience init(pem text: String) throws(CryptographyError) {
        try self.init()
        try check(withDatum(Array(text.utf8)) { gnutls_x509_privkey_import2(handle, $0, GNUTLS_X509_FMT_PEM, nil, 0) })
    }

    deinit {
        gnutls_x509_privkey_deinit(handle)
    }

    /// Makes a key on the curve P-256.
    func generate() throws(CryptographyError) {
        // GNUTLS_CURVE_TO_BITS, a macro that Swift does not see: the curve's number with the top bit set.
        let bits = UInt32(1) << 31 | UInt32(GNUTLS_ECC_CURVE_SECP256R1.rawValue)
        try check(gnutls_x509_privkey_generate(handle, GNUTLS_PK_ECDSA, bits, 0))
    }

    func publicKeyID() throws(CryptographyError) -> [UInt8] {
        try keyID { gnutls_x509_privkey_get_key_id(handle, GNUTLS_KEYID_USE_SHA256.rawValue, $0, $1) }
    }

    /// The key as PKCS #8, not encrypted.
    func export(_ format: gnutls_x509_crt_fmt_t) throws(CryptographyError) -> [UInt8] {
        try written {
            gnutls_x509_privkey_export2_pkcs8(handle, format, nil, UInt32(GNUTLS_PKCS_PLAIN.rawValue), $0)
        }
    }
}

/// A certificate of GnuTLS.
final class Certificate {
    private let handle: gnutls_x509_crt_t

    init() throws(CryptographyError) { handle = try made { gnutls_x509_crt_init($0) } }

    /// Reads a certificate.
    convenience init(_ bytes: [UInt8], _ format: gnutls_x509_crt_fmt_t) throws(CryptographyError) {
        try self.init()
        try check(withDatum(bytes) { gnutls_x509_crt_import(handle, $0, format) })
    }

    deinit {
        gnutls_x509_crt_deinit(handle)
    }

    /// Fills in the certificate of `key`, without an end of validity (RFC 5280, section 4.1.2.5), and signs it with it.
    /// `serverNames` are the host names and IP addresses (as network bytes) of a TLS server (RFC 5280, section 4.2.1.6).
    func selfSign(
        _ key: PrivateKey, commonName: String, serverNames: [Identity.ServerName] = [], activation: Int
    ) throws(CryptographyError) {
        var serial = SecureRandom.bytes(16)
        // Positive and of full length, as RFC 5280, section 4.1.2.2, wants it.
        serial[0] = serial[0] & 0x7F | 0x40
        try check(gnutls_x509_crt_set_version(handle, 3))
        try check(gnutls_x509_crt_set_serial(handle, serial, serial.count))
        try check(gnutls_x509_crt_set_activation_time(handle, activation))
        // GNUTLS_X509_NO_WELL_DEFINED_EXPIRATION, a macro that Swift does not see.
        try check(gnutls_x509_crt_set_expiration_time(handle, -1))
        let name = Array(Self.cut(commonName, byteCount: 64).utf8)
        // GNUTLS_OID_X520_COMMON_NAME.
        try check(gnutls_x509_crt_set_dn_by_oid(handle, "2.5.4.3", 0, name, UInt32(name.count)))
        try check(gnutls_x509_crt_set_key(handle, key.handle))
        try check(gnutls_x509_crt_set_basic_constraints(handle, 0, -1))
        try check(gnutls_x509_crt_set_key_usage(handle, UInt32(GNUTLS_KEY_DIGITAL_SIGNATURE)))
        for name in serverNames {
            let (kind, bytes) =
                switch name {
                case .host(let text): (GNUTLS_SAN_DNSNAME, Array(text.utf8))
                case .address(let bytes): (GNUTLS_SAN_IPADDRESS, bytes)
                }
            // GNUTLS_FSAN_APPEND.
            try check(gnutls_x509_crt_set_subject_alt_name(handle, kind, bytes, UInt32(bytes.count), 1))
        }
        try check(gnutls_x509_crt_sign2(handle, handle, key.handle, GNUTLS_DIG_SHA256, 0))
    }

    func publicKeyID() throws(CryptographyError) -> [UInt8] {
        try keyID { gnutls_x509_crt_get_key_id(handle, GNUTLS_KEYID_USE_SHA256.rawValue, $0, $1) }
    }

    func pin() throws(CryptographyError) -> PublicKeyPin {
        PublicKeyPin(subjectPublicKeyInfo: try subjectPublicKeyInfo())
    }

    /// The public key in DER (RFC 5280, section 4.1).
    func subjectPublicKeyInfo() throws(CryptographyError) -> [UInt8] {
        let key = try made { gnutls_pubkey_init($0) }
        defer { gnutls_pubkey_deinit(key) }
        try check(gnutls_pubkey_import_x509(key, handle, 0))
        return try written { gnutls_pubkey_export2(key, GNUTLS_X509_FMT_DER, $0) }
    }

    func export(_ format: gnutls_x509_crt_fmt_t) throws(CryptographyError) -> [UInt8] {
        try written { gnutls_x509_crt_export2(handle, format, $0) }
    }

    /// The beginning of `text` that fits into `byteCount` bytes; never empty, which X.509 does not allow.
    private static func cut(_ text: String, byteCount: Int) -> String {
        var result = ""
        for character in text {
            guard result.utf8.count + character.utf8.count <= byteCount else { break }
            result.append(character)
        }
        return result.isEmpty ? "pttd" : result
    }
}

/// The SHA-256 of a public key, as `read` has GnuTLS write it.
private func keyID(
    _ read: (UnsafeMutablePointer<UInt8>, UnsafeMutablePointer<Int>) -> Int32
) throws(CryptographyError) -> [UInt8] {
    var digest = [UInt8](repeating: 0, count: PublicKeyPin.byteCount)
    var count = digest.count
    try check(read(&digest, &count))
    return digest
}
