// What a WebSocket connection is to be.

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
