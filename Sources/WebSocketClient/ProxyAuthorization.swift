// The credentials of an HTTP proxy, as a request carries them. Pure.
import WebSockets

extension HTTPProxy {
    /// The value of `Proxy-Authorization` (RFC 7617); nil: no credentials.
    var authorization: String? { credentials.map { "Basic " + base64(Array($0.utf8)) } }
}

/// RFC 4648, section 4.
func base64(_ bytes: [UInt8]) -> String {
    let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
    var text: [UInt8] = []
    for start in stride(from: 0, to: bytes.count, by: 3) {
        let group = bytes[start..<min(start + 3, bytes.count)]
        let value = group.enumerated().reduce(UInt32(0)) { $0 | UInt32($1.element) << UInt32(16 - 8 * $1.offset) }
        for place in 0..<4 {
            text.append(place <= group.count ? digits[Int(value >> UInt32(18 - 6 * place)) & 63] : UInt8(ascii: "="))
        }
    }
    return String(decoding: text, as: UTF8.self)
}
