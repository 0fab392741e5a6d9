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
        let key: PrivateKey
        let certificate: Certificate
        do throws(CryptographyError) {
            certificate = try Certificate()
            try certificate.importPEM(pem)
        } catch {
            throw .noCertificate(error)
        }
        do throws(CryptographyError) {
            key = try PrivateKey()
            try key.importPEM(pem)
        } catch {
            throw .noPrivateKey(error)
        }
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

extension PublicKeyPin {
    /// The pin of the public key in a certificate (DER), as a peer presents it in TLS.
    public init(certificateDER: [UInt8]) throws(CryptographyError) {
        self = try Certificate(der: certificateDER).pin()
    }
}
