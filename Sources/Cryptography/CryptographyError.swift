// Errors of GnuTLS, and invalid input.
import CGnuTLS

/// An error of a cryptographic operation.
public enum CryptographyError: Error, Hashable, Sendable, CustomStringConvertible {
    /// A key, nonce or buffer has the wrong size: what, how many bytes it has, and how many it must have.
    case wrongSize(what: String, is: Int, expected: Int)
    /// The ciphertext or MAC is not authentic: it was changed, or made with another key.
    case notAuthentic
    /// GnuTLS refused, with its code and its own words.
    case library(code: Int32, text: String)

    init(_ code: Int32) {
        self = .library(code: code, text: String(cString: gnutls_strerror(code)))
    }

    /// One line for a log.
    public var description: String {
        switch self {
        case .wrongSize(let what, let actual, let expected):
            "\(what) has \(actual) bytes, expected \(expected)"
        case .notAuthentic: "not authentic: changed on the way, or made with another key"
        case .library(let code, let text): "GnuTLS: \(text) (\(code))"
        }
    }
}

/// Throws unless `code` is a success of GnuTLS.
@inline(__always)
func check(_ code: Int32) throws(CryptographyError) {
    guard code >= 0 else { throw CryptographyError(code) }
}
