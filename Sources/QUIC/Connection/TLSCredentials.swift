import CGnuTLS
// GnuTLS objects that all connections of an endpoint share: certificate, key, cipher suites, and the look at a key.
import CLinux
import CNgtcp2
import Glibc

/// An endpoint's certificate and key in GnuTLS's form. Also set up, without a certificate, for clients that have none.
final class TLSCredentials {
    let handle: gnutls_certificate_credentials_t

    /// TLS 1.3 only; the three cipher suites that RFC 9001 asks for.
    static let priorities: Result<Priorities, QUICError> = {
        var handle: gnutls_priority_t?
        let text =
            "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+AES-128-GCM:+AES-256-GCM:+CHACHA20-POLY1305"
            + ":-GROUP-ALL:+GROUP-X25519:+GROUP-SECP256R1:+GROUP-SECP384R1:%DISABLE_TLS13_COMPAT_MODE"
        let status = gnutls_priority_init(&handle, text, nil)
        guard status == 0, let handle else { return .failure(.gnutls("gnutls_priority_init", status)) }
        return .success(Priorities(handle: handle))
    }()

    /// Never changed after it was made, so it may be shared by threads (GnuTLS manual, "Thread safety").
    struct Priorities: @unchecked Sendable {
        let handle: gnutls_priority_t
    }

    init(identity: QUICIdentity?) throws(QUICError) {
        var handle: gnutls_certificate_credentials_t?
        let status = gnutls_certificate_allocate_credentials(&handle)
        guard status == 0, let handle else {
            throw QUICError.gnutls("gnutls_certificate_allocate_credentials", status)
        }
        self.handle = handle
        if let identity {
            let status = Self.withDatum(identity.certificate) { certificate in
                Self.withDatum(identity.privateKey) { key in
                    gnutls_certificate_set_x509_key_mem(
                        handle, certificate, key,
                        identity.encoding == .pem ? GNUTLS_X509_FMT_PEM : GNUTLS_X509_FMT_DER)
                }
            }
            guard status >= 0 else {
                throw QUICError.unusableIdentity(reason: String(cString: gnutls_strerror(status)))
            }
        }
        gnutls_certificate_set_verify_function(handle) { session in
            guard let session, let connection = QUICConnection.of(session) else { return -1 }
            return connection.verifyPeer() ? 0 : -1
        }
    }

    deinit { gnutls_certificate_free_credentials(handle) }

    static func publicKeyHash(
        certificate: UnsafePointer<gnutls_datum_t>, encoding: gnutls_x509_crt_fmt_t
    ) -> [UInt8]? {
        var key: gnutls_pubkey_t?
        guard gnutls_pubkey_init(&key) == 0, let key else { return nil }
        defer { gnutls_pubkey_deinit(key) }
        guard gnutls_pubkey_import_x509_raw(key, certificate, encoding, 0) == 0 else { return nil }
        var info = gnutls_datum_t()
        guard gnutls_pubkey_export2(key, GNUTLS_X509_FMT_DER, &info) == 0 else { return nil }
        defer { ptt_gnutls_free(info.data) }
        var hash = [UInt8](repeating: 0, count: 32)
        guard gnutls_hash_fast(GNUTLS_DIG_SHA256, info.data, Int(info.size), &hash) == 0 else { return nil }
        return hash
    }

    /// The bytes as GnuTLS takes them; it does not write there.
    static func withDatum<T>(_ bytes: [UInt8], _ body: (UnsafePointer<gnutls_datum_t>) -> T) -> T {
        bytes.withUnsafeBufferPointer { buffer in
            var datum = gnutls_datum_t(
                data: UnsafeMutablePointer(mutating: buffer.baseAddress), size: UInt32(buffer.count))
            return body(&datum)
        }
    }
}

extension QUICIdentity {
    /// The SHA-256 of the certificate's SubjectPublicKeyInfo: what peers pin. Nil when there is no readable
    /// certificate.
    public var keySHA256: [UInt8]? {
        TLSCredentials.withDatum(certificate) {
            TLSCredentials.publicKeyHash(
                certificate: $0, encoding: encoding == .pem ? GNUTLS_X509_FMT_PEM : GNUTLS_X509_FMT_DER)
        }
    }
}

extension QUICError {
    static func gnutls(_ call: String, _ status: Int32) -> QUICError {
        .library(call: call, reason: String(cString: gnutls_strerror(status)))
    }
}
