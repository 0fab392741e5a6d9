// The ways to and from GnuTLS, and its errors.
import CGnuTLS
import Glibc

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

/// An object of GnuTLS that `create` makes.
func made<Handle>(_ create: (UnsafeMutablePointer<Handle?>) -> Int32) throws(CryptographyError) -> Handle {
    var handle: Handle?
    try check(create(&handle))
    guard let handle else { throw CryptographyError(GNUTLS_E_INTERNAL_ERROR) }
    return handle
}

/// Calls `body` with the bytes as a GnuTLS datum that is valid during the call. GnuTLS reads it only.
func withDatum<Result>(_ bytes: [UInt8], _ body: (UnsafePointer<gnutls_datum_t>) -> Result) -> Result {
    bytes.withUnsafeBufferPointer { buffer in
        var datum = gnutls_datum_t(
            data: UnsafeMutablePointer(mutating: buffer.baseAddress), size: UInt32(buffer.count))
        return body(&datum)
    }
}

/// The bytes of a datum that `write` has GnuTLS allocate.
func written(_ write: (UnsafeMutablePointer<gnutls_datum_t>) -> Int32) throws(CryptographyError) -> [UInt8] {
    var datum = gnutls_datum_t()
    try check(write(&datum))
    return take(datum)
}

/// The bytes of a datum that GnuTLS allocated, which is freed: by free(3), which `gnutls_free` is unless a program
/// changes it, and that global variable is out of Swift's reach.
func take(_ datum: gnutls_datum_t) -> [UInt8] {
    defer { free(datum.data) }
    return [UInt8](UnsafeBufferPointer(start: datum.data, count: Int(datum.size)))
}
