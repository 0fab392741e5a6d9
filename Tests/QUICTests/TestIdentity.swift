import CGnuTLS
// Key pairs with self-signed certificates, made with GnuTLS.
import CLinux
import CNgtcp2
import QUIC
import Testing

/// A fresh P-256 key with a certificate that was over before this test began: dates must not matter.
func makeIdentity() throws -> QUICIdentity {
    var key: gnutls_x509_privkey_t?
    try #require(gnutls_x509_privkey_init(&key) == 0)
    defer { gnutls_x509_privkey_deinit(key) }
    let curve = UInt32(1 << 31) | GNUTLS_ECC_CURVE_SECP256R1.rawValue
    try #require(gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, curve, 0) == 0)
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
    try #require(gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0) == 0)
    var text = gnutls_datum_t()
    try #require(gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &text) == 0)
    let certificateBytes = Array(UnsafeBufferPointer(start: text.data, count: Int(text.size)))
    ptt_gnutls_free(text.data)
    try #require(gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &text) == 0)
    let keyBytes = Array(UnsafeBufferPointer(start: text.data, count: Int(text.size)))
    ptt_gnutls_free(text.data)
    return QUICIdentity(certificate: certificateBytes, privateKey: keyBytes)
}
