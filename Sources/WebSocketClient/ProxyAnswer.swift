// What an HTTP proxy is asked with, and its answer to CONNECT. Pure.
import WebSockets

/// What a proxy answered, as far as it has come.
struct ProxyAnswer {
    /// The longest answer that is read.
    static let byteCountMaximum = 16_384

    /// Why there is no connection through the proxy.
    enum Failure: Error, Hashable {
        case notHTTP
        case tooLong
        case refused(status: Int)
    }

    private var bytes: [UInt8] = []

    /// Takes what came next.
    ///
    /// - Returns: What followed the answer, once the connection is through; nil: more has to come.
    mutating func take(_ more: some Sequence<UInt8>) throws(Failure) -> [UInt8]? {
        bytes += more
        guard let end = Self.endOfHead(bytes) else {
            guard bytes.count <= Self.byteCountMaximum else { throw .tooLong }
            return nil
        }
        guard end <= Self.byteCountMaximum else { throw .tooLong }
        guard let status = Self.status(bytes) else { throw .notHTTP }
        guard (200..<300).contains(status) else { throw .refused(status: status) }
        return Array(bytes[end...])
    }

    /// Where the empty line ends.
    private static func endOfHead(_ bytes: [UInt8]) -> Int? {
        let newline = UInt8(ascii: "\n")
        var lineStart = 0
        for index in bytes.indices where bytes[index] == newline {
            let line = bytes[lineStart..<index]
            if lineStart > 0, line.isEmpty || Array(line) == [UInt8(ascii: "\r")] { return index + 1 }
            lineStart = index + 1
        }
        return nil
    }

    /// "HTTP/1.1 200 …".
    private static func status(_ bytes: [UInt8]) -> Int? {
        let line = bytes.prefix { $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        let words = line.split(separator: UInt8(ascii: " "), maxSplits: 2)
        guard words.count >= 2, words[0].starts(with: Array("HTTP/1.".utf8)), words[1].count == 3 else { return nil }
        return Int(String(decoding: words[1], as: UTF8.self)).flatMap { (100..<600).contains($0) ? $0 : nil }
    }
}

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
