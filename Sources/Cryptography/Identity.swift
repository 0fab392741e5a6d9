// Who this machine is: a key pair and the certificate that carries its public half.
import CGnuTLS

/// A key pair (ECDSA, P-256) with a self-signed certificate.
///
/// Peers know it by its `pin`; nothing else in the certificate matters, so it is valid from 2020 to the end of time:
/// small boards have no clock.
public struct Identity: Sendable {
    /// The certificate in DER.
    public let certificateDER: [UInt8]
    /// The private key in DER (PKCS #8, unencrypted). Secret.
    public let privateKeyDER: [UInt8]
    /// The certificate in PEM.
    public let certificatePEM: String
    /// The private key in PEM (PKCS #8, unencrypted). Secret.
    public let privateKeyPEM: String
    /// The SHA-256 of the public key, by which peers know this identity.
    public let pin: PublicKeyPin

    /// Seconds since 1970 of 2020-01-01.
    private static let activation = 1_577_836_800

    /// What a client of a TLS server may call it by.
    public enum ServerName: Hashable, Sendable {
        /// A host name, ASCII.
        case host(String)
        /// An IP address, 4 or 16 bytes in network order.
        case address([UInt8])
    }

    /// A new identity whose certificate is in the name of `commonName` (cut at 64 bytes, the limit of X.509), and good for
    /// a TLS server of the names `serverNames`.
    public init(generating commonName: String, serverNames: [ServerName] = []) throws(CryptographyError) {
        let key = try PrivateKey()
        try key.generate()
        let certificate = try Certificate()
        try certificate.selfSign(
            key, commonName: commonName, serverNames: serverNames, activation: Self.activation)
        try self.init(key: key, certificate: certificate)
    }

    /// The identity in a PEM text that has one certificate and its private key.
    public init(pem: String) throws(IdentityError) {
        let certificate = try attempt(IdentityError.noCertificate) { () throws(CryptographyError) in
            try Certificate(Array(pem.utf8), GNUTLS_X509_FMT_PEM)
        }
        let key = try attempt(IdentityError.noPrivateKey) { () throws(CryptographyError) in try PrivateKey(pem: pem) }
        let belongs: Bool
        do throws(CryptographyError) {
            belongs = try key.publicKeyID() == certificate.publicKeyID()
            try self.init(key: key, certificate: certificate)
        } catch {
            throw .cryptography(error)
        }
        guard belongs else { throw .keyDoesNotMatch }
    }

    /// Certificate and private key as one PEM text, as `init(pem:)` reads it. Secret.
    public var pem: String { certificatePEM + privateKeyPEM }

    private init(key: PrivateKey, certificate: Certificate) throws(CryptographyError) {
        certificateDER = try certificate.export(GNUTLS_X509_FMT_DER)
        certificatePEM = String(decoding: try certificate.export(GNUTLS_X509_FMT_PEM), as: UTF8.self)
        privateKeyDER = try key.export(GNUTLS_X509_FMT_DER)
        privateKeyPEM = String(decoding: try key.export(GNUTLS_X509_FMT_PEM), as: UTF8.self)
        pin = try certificate.pin()
    }
}

/// The SHA-256 of a public key (SubjectPublicKeyInfo in DER, RFC 7469 section 2.4): who a peer is.
public struct PublicKeyPin: Hashable, Sendable, CustomStringConvertible {
    /// The number of bytes.
    public static let byteCount = 32
    /// The digest.
    public let bytes: [UInt8]

    /// The pin of a SubjectPublicKeyInfo.
    public init(subjectPublicKeyInfo: [UInt8]) {
        bytes = sha256(subjectPublicKeyInfo)
    }

    /// The pin of the public key in a certificate (DER), as a peer presents it in TLS.
    public init(certificateDER: [UInt8]) throws(CryptographyError) {
        self = try Certificate(certificateDER, GNUTLS_X509_FMT_DER).pin()
    }

    /// The pin of that digest, nil unless it has 32 bytes.
    public init?(_ digest: some Collection<UInt8>) {
        guard digest.count == Self.byteCount else { return nil }
        bytes = [UInt8](digest)
    }

    /// The pin in base64url, as in an invitation link; nil when it is not 32 bytes of it.
    public init?(_ text: some StringProtocol) {
        guard let digest = Base64URL.decode(text) else { return nil }
        self.init(digest)
    }

    /// 43 characters of base64url.
    public var description: String { Base64URL.encode(bytes) }
}
