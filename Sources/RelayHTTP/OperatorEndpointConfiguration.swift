// What the operator's endpoint is started with. Every bound of it has its name here.

/// Where the operator's endpoint listens, and who may look.
public struct OperatorEndpointConfiguration: Sendable {
    /// The numeric address to listen on. There is no TLS: other than loopback only behind something that adds it.
    public var listenAddress: String
    /// The TCP port; 0 lets the kernel choose.
    public var listenPort: UInt16
    /// What opens everything but `/healthz` and the empty page.
    public var token: OperatorToken
    /// The program's version.
    public var version: String
    /// Connections at one time. A newcomer beyond them takes the place of the oldest that has taken no answer yet; after these, of the
    /// one that has been silent longest.
    public var connections = 64
    /// Connections at one time from one address, or from one /64 network of IPv6.
    public var connectionsPerAddress = 32
    /// How long a connection may be silent between two requests.
    public var idleTime: Duration = .seconds(60)
    /// How long a request may take, from its first byte (the first one: from the connection) to the last byte of its answer.
    public var requestTime: Duration = .seconds(10)
    /// Bytes of a request's head.
    public var headBytes = 8_192
    /// How much of a body, which no request here has, is read, so that the client gets to read why.
    public var unwantedBodyBytes = 65_536

    var limits: PlainHTTPLimits {
        PlainHTTPLimits(
            connections: connections, connectionsPerAddress: connectionsPerAddress, idleTime: idleTime,
            requestTime: requestTime, headBytes: headBytes, bodyBytes: 0, unwantedBodyBytes: unwantedBodyBytes)
    }

    /// The port when nothing else is said.
    public static let defaultPort: UInt16 = 9_464

    /// An endpoint on `listenAddress`.
    public init(
        listenAddress: String = "127.0.0.1", listenPort: UInt16 = defaultPort, token: OperatorToken, version: String
    ) {
        self.listenAddress = listenAddress
        self.listenPort = listenPort
        self.token = token
        self.version = version
    }
}
