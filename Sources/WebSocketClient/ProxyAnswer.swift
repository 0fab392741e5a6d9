// The answer of an HTTP proxy to CONNECT. Pure.

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
