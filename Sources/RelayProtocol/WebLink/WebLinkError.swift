// Why a link over TLS is given up.
import Cryptography

/// An error of the handshake, or of a sealed message, of a link over TLS.
public enum WebLinkError: Error, Hashable, Sendable, CustomStringConvertible {
    /// The bytes are no message of that kind.
    case malformed(String)
    /// The relay has another key than the link says.
    case wrongRelayKey
    /// A proof is not signed with the key that it shows.
    case wrongSignature
    /// A sealed message was changed, left out or repeated on the way.
    case notAuthentic
    /// Its key is not one on P-256, which this link needs.
    case unsuitableKey
    /// The connection's counter is used up.
    case exhausted
    /// The cryptographic library failed.
    case cryptography(CryptographyError)

    init(_ error: CryptographyError) { self = error == .notAuthentic ? .notAuthentic : .cryptography(error) }

    /// One line for a log.
    public var description: String {
        switch self {
        case .malformed(let what): what
        case .wrongRelayKey: "the relay's key is not the one in the link"
        case .wrongSignature: "the proof of a key has a wrong signature"
        case .notAuthentic: "a sealed message was changed on the way"
        case .unsuitableKey: "the key is not an ECDSA key on P-256, which links over TLS need"
        case .exhausted: "the connection has carried all messages that its keys allow"
        case .cryptography(let error): "\(error)"
        }
    }
}
