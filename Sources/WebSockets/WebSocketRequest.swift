// What a WebSocket connection is to be, and why there is none.

/// Where a WebSocket leads, how it is reached, and its bounds.
public struct WebSocketRequest: Sendable, Hashable {
    /// The server's name or address.
    public var host: String
    /// Its port.
    public var port: UInt16
    /// The path of the request.
    public var path: String
    /// The only subprotocol that is offered and accepted.
    public var subprotocol: String
    /// The proxy on the way.
    public var proxy: HTTPProxy?
    /// The longest message that is received.
    public var messageBytesMaximum: Int
    /// How long everything may take until the WebSocket is open.
    public var timeout: Duration = .seconds(10)

    /// A request.
    public init(
        host: String, port: UInt16, path: String, subprotocol: String, proxy: HTTPProxy? = nil, messageBytesMaximum: Int
    ) {
        (self.host, self.port, self.path, self.subprotocol) = (host, port, path, subprotocol)
        (self.proxy, self.messageBytesMaximum) = (proxy, messageBytesMaximum)
    }

    /// "host:port", with an IPv6 address in brackets.
    public var authority: String { host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)" }
}

/// Why a WebSocket did not open.
public enum WebSocketError: Error, Hashable, Sendable, CustomStringConvertible {
    /// How far it came.
    public enum Stage: Hashable, Sendable {
        /// The TCP connection.
        case connecting
        /// The proxy's answer.
        case proxy
        /// The TLS handshake.
        case tls
        /// The answer to the request.
        case upgrade
    }

    /// No TCP connection to the host.
    case unreachable(host: String, why: String)
    /// No TCP connection to the proxy.
    case proxyUnreachable(HTTPProxy, why: String)
    /// The proxy wants other credentials, or some.
    case proxyWantsCredentials(HTTPProxy)
    /// The proxy does not let the connection through.
    case proxyRefused(HTTPProxy, status: Int)
    /// What the proxy answers is not HTTP.
    case proxyIsNone(HTTPProxy)
    /// The TLS handshake failed.
    case tls(host: String, why: String)
    /// The server answers the request with another status.
    case refused(host: String, status: Int)
    /// A page came instead of the relay's answer.
    case page(host: String)
    /// What came is not HTTP, or not this WebSocket.
    case notWebSocket(host: String, why: String)
    /// Nobody answered in time.
    case timeout(host: String, Stage)
    /// The connection ended before it was open.
    case ended(host: String, Stage)
    /// This machine has no descriptor or memory left.
    case system(String)

    /// What happened, where, and what to do next.
    public var description: String {
        switch self {
        case .unreachable(let host, let why): "\(host) cannot be reached: \(why)"
        case .proxyUnreachable(let proxy, let why):
            "the proxy \(proxy) cannot be reached: \(why); check 'http-proxy' or HTTPS_PROXY"
        case .proxyWantsCredentials(let proxy):
            "the proxy \(proxy) asks for a user and a password: write http://USER:PASSWORD@\(proxy)"
        case .proxyRefused(let proxy, let status):
            "the proxy \(proxy) refuses the connection (\(status)); have the relay's host and port allowed there"
        case .proxyIsNone(let proxy): "\(proxy) is not an HTTP proxy; check 'http-proxy' or HTTPS_PROXY"
        case .tls(let host, let why): "no TLS with \(host): \(why)"
        case .refused(let host, 403):
            "\(host) refuses the connection (403): a proxy or firewall forbids it; have the relay's host allowed there"
        case .refused(let host, 404):
            "\(host) has no relay at this place (404); check 'listen' in [web] of the relay, or the web server before it"
        case .refused(let host, 407):
            "a proxy before \(host) asks for a user and a password (407); name it with 'http-proxy'"
        case .refused(_, 511):
            "the network wants a login before it lets anything through (511); open a web page in a browser"
        case .refused(let host, let status) where (500..<600).contains(status):
            "\(host) cannot reach the relay (\(status)); look at the web server before the relay"
        case .refused(let host, let status): "\(host) does not accept a WebSocket (\(status))"
        case .page(let host):
            "a web page answers in place of \(host): the network may want a login; open a web page in a browser"
        case .notWebSocket(let host, let why): "\(host) does not answer as a relay: \(why)"
        case .timeout(let host, .connecting): "no answer from \(host)"
        case .timeout(let host, .proxy): "the proxy does not answer the request for \(host)"
        case .timeout(let host, .tls): "\(host) does not complete the TLS handshake"
        case .timeout(let host, .upgrade): "\(host) does not answer the request"
        case .ended(let host, .proxy): "the proxy ended the connection to \(host)"
        case .ended(let host, .tls):
            "the connection to \(host) ended in the TLS handshake; something between may forbid it"
        case .ended(let host, _): "\(host) ended the connection before it answered"
        case .system(let why): "\(why)"
        }
    }
}

/// How a WebSocket ended.
public enum WebSocketEnd: Hashable, Sendable {
    /// It never opened.
    case failed(WebSocketError)
    /// The other end closed it with a code (RFC 6455, section 7.4); nil: without any.
    case closed(code: UInt16?, reason: String)
    /// The connection ended without a Close frame.
    case lost(String)
    /// The other end broke the protocol of WebSockets.
    case violation(String)
}
