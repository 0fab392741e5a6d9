// An HTTP proxy: its address and credentials, as a URL names them, and which hosts are reached by it. Pure.

/// An HTTP proxy that opens connections by CONNECT (RFC 9110, section 9.3.6).
public struct HTTPProxy: Hashable, Sendable, CustomStringConvertible {
    /// A URL that names no proxy that can be used. The description says what to write instead.
    public enum Problem: Error, Hashable, Sendable, CustomStringConvertible {
        /// TLS to the proxy itself.
        case scheme(String)
        /// Not the URL of a proxy.
        case form

        /// What to write.
        public var description: String {
            switch self {
            case .scheme(let scheme): "a proxy with \"\(scheme)://\" is not supported: write \"http://HOST:PORT\""
            case .form: "not a proxy: write \"http://HOST:PORT\" or \"http://USER:PASSWORD@HOST:PORT\""
            }
        }
    }

    /// Its name or address, without brackets.
    public let host: String
    /// Its port.
    public let port: UInt16
    /// "user:password", where the URL has them.
    public let credentials: String?

    /// The longest URL that is read.
    public static let textMaximum = 1_024
    /// The port of a URL that names none.
    public static let defaultPort: UInt16 = 3_128

    /// A proxy without credentials.
    public init(host: String, port: UInt16) { (self.host, self.port, credentials) = (host, port, nil) }

    /// The proxy of a URL: "http://user:password@host:port". User and password may be percent-encoded; "http://" and the
    /// port may be absent.
    public init(_ text: String) throws(Problem) {
        guard text.utf8.count <= Self.textMaximum, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
            throw .form
        }
        var rest = text[...]
        if let range = rest.firstIndex(of: ":"), rest[range...].hasPrefix("://") {
            let scheme = rest[..<range].lowercased()
            guard scheme == "http" else { throw .scheme(scheme) }
            rest = rest[rest.index(range, offsetBy: 3)...]
        }
        if let slash = rest.firstIndex(of: "/") {
            guard rest[slash...] == "/" else { throw .form }
            rest = rest[..<slash]
        }
        if let at = rest.lastIndex(of: "@") {
            guard let decoded = Self.decoded(rest[..<at]), !decoded.isEmpty else { throw .form }
            credentials = decoded
            rest = rest[rest.index(after: at)...]
        } else {
            credentials = nil
        }
        guard let (host, port) = Self.place(rest) else { throw .form }
        (self.host, self.port) = (host, port ?? Self.defaultPort)
    }

    /// "host:port". Never the credentials.
    public var description: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }

    private static func place(_ text: Substring) -> (String, UInt16?)? {
        var host = text
        var port: Substring?
        if text.first == "[" {
            guard let end = text.firstIndex(of: "]") else { return nil }
            host = text[text.index(after: text.startIndex)..<end]
            let rest = text[text.index(after: end)...]
            guard rest.isEmpty || rest.first == ":", host.contains(":") else { return nil }
            if !rest.isEmpty { port = rest.dropFirst() }
        } else if let colon = text.firstIndex(of: ":") {
            host = text[..<colon]
            port = text[text.index(after: colon)...]
        }
        let allowed = host.utf8.allSatisfy { byte in
            switch UInt8(byte) {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
                UInt8(ascii: ":"):
                true
            default: false
            }
        }
        guard !host.isEmpty, host.utf8.count <= 253, allowed else { return nil }
        guard let port else { return (String(host), nil) }
        guard port.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }), let number = UInt16(port), number > 0 else {
            return nil
        }
        return (String(host), number)
    }

    private static func decoded(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            // A number may have a sign, and two digits have none.
            guard rest.count >= 2, let first = rest.first, first != UInt8(ascii: "+"), first != UInt8(ascii: "-"),
                let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}

/// The proxy for connections over TLS, and the hosts that are reached without it.
public struct ProxyPolicy: Hashable, Sendable {
    /// The proxy; nil: none.
    public let proxy: HTTPProxy?
    /// Hosts, domains and addresses that are reached directly, as in NO_PROXY.
    private let direct: [String]
    /// The longest NO_PROXY that is read, in entries.
    private static let directMaximum = 256

    /// No proxy.
    public static let none = ProxyPolicy(proxy: nil)

    /// That proxy for every host but those of `direct`.
    public init(proxy: HTTPProxy?, direct: [String] = []) {
        self.proxy = proxy
        self.direct = direct.prefix(Self.directMaximum).map { $0.lowercased() }
    }

    /// HTTPS_PROXY (or https_proxy) and NO_PROXY (or no_proxy).
    public init(environment: [String: String]) throws(HTTPProxy.Problem) {
        let named = ["HTTPS_PROXY", "https_proxy"].lazy.compactMap { environment[$0] }.first { !$0.isEmpty }
        let excepted = ["NO_PROXY", "no_proxy"].lazy.compactMap { environment[$0] }.first { !$0.isEmpty }
        let direct = (excepted ?? "").split(whereSeparator: { $0 == "," || $0 == " " }).map(String.init)
        guard let named else {
            self.init(proxy: nil)
            return
        }
        self.init(proxy: try HTTPProxy(named), direct: direct)
    }

    /// The proxy on the way to `host`; nil: none.
    public func proxy(for host: String) -> HTTPProxy? {
        let host = host.lowercased()
        let isDirect = direct.contains { entry in
            if entry == "*" { return true }
            // "example.org", ".example.org" and "*.example.org" all mean the domain and what is below it.
            var domain = entry[...]
            if domain.hasPrefix("*") { domain = domain.dropFirst() }
            if domain.hasPrefix(".") { domain = domain.dropFirst() }
            guard !domain.isEmpty else { return false }
            return host == domain || host.hasSuffix("." + domain)
        }
        return isDirect ? nil : proxy
    }
}
