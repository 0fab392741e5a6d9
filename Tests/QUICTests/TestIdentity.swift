import CGnuTLS
// Key pairs with self-signed certificates, made with GnuTLS.
import CLinux
import CNgtcp2
import QUIC
import Testing

/// A kind of key, as GnuTLS makes it.
struct KeyKind: Sendable, CustomTestStringConvertible {
    let testDescription: String
    let algorithm: gnutls_pk_algorithm_t
    /// Of the key; of a curve, its number with the highest bit set.
    let bits: UInt32
    var digest = GNUTLS_DIG_SHA256

    private static func curve(_ curve: gnutls_ecc_curve_t) -> UInt32 { UInt32(1 << 31) | curve.rawValue }

    static let p256 = KeyKind(
        testDescription: "ECDSA P-256", algorithm: GNUTLS_PK_ECDSA, bits: curve(GNUTLS_ECC_CURVE_SECP256R1))
    static let all = [
        p256,
        KeyKind(testDescription: "ECDSA P-384", algorithm: GNUTLS_PK_ECDSA, bits: curve(GNUTLS_ECC_CURVE_SECP384R1)),
        KeyKind(testDescription: "ECDSA P-521", algorithm: GNUTLS_PK_ECDSA, bits: curve(GNUTLS_ECC_CURVE_SECP521R1)),
        KeyKind(
            testDescription: "Ed448", algorithm: GNUTLS_PK_EDDSA_ED448, bits: curve(GNUTLS_ECC_CURVE_ED448),
            digest: GNUTLS_DIG_SHAKE_256),
        KeyKind(
            testDescription: "Ed25519", algorithm: GNUTLS_PK_EDDSA_ED25519, bits: curve(GNUTLS_ECC_CURVE_ED25519),
            digest: GNUTLS_DIG_SHA512),
        KeyKind(testDescription: "RSA 2048", algorithm: GNUTLS_PK_RSA, bits: 2_048),
    ]
}

/// A fresh key, P-256 unless another kind is wanted, with a certificate that was over before this test began: dates must not matter.
func makeIdentity(_ kind: KeyKind = .p256) throws -> QUICIdentity {
    var key: gnutls_x509_privkey_t?
    try #require(gnutls_x509_privkey_init(&key) == 0)
    defer { gnutls_x509_privkey_deinit(key) }
    try #require(gnutls_x509_privkey_generate(key, kind.algorithm, kind.bits, 0) == 0)
    var certificate: gnutls_x509_crt_t?
    try #require(gnutls_x509_crt_init(&certificate) == 0)
    defer { gnutls_x509_crt_deinit(certificate) }
    try #require(gnutls_x509_crt_set_version(certificate, 3) == 0)
    var serial: UInt8 = 1
    try #require(gnutls_x509_crt_set_serial(certificate, &serial, 1) == 0)
    try #require(gnutls_x509_crt_set_activation_time(certificate, 1_000_000_000) == 0)
    try #require(gnutls_x509_crt_set_expiration_time(certificate, 1_000_000_001) == 0)
    try #require(gnutls_x509_crt_set_dn(certificate, "CN=test", nil) == 0)
    try #require(gnutls_x509_crt_set_key(certificate, key) == 0)
    try #require(gnutls_x509_crt_sign2(certificate, certificate, key, kind.digest, 0) == 0)
    var text = gnutls_datum_t()
    try #require(gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &text) == 0)
    let certificateBytes = Array(UnsafeBufferPointer(start: text.data, count: Int(text.size)))
    ptt_gnutls_free(text.data)
    try #require(
        gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, nil, GNUTLS_PKCS_PLAIN.rawValue, &text) == 0)
    let keyBytes = Array(UnsafeBufferPointer(start: text.data, count: Int(text.size)))
    ptt_gnutls_free(text.data)
    return QUICIdentity(certificate: certificateBytes, privateKey: keyBytes)
}
