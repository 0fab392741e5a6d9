// Which proxy a connection to a host takes, by the environment's usual variables. Pure.

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
