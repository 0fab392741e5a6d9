// What an endpoint without TLS is started with: the operator's, and the API's. Every bound of them has its name here.

/// Where an endpoint of plain HTTP/1.1 listens, who may use it, and how much it takes on.
public struct PlainHTTPConfiguration: Sendable {
    /// The numeric address to listen on. There is no TLS: other than loopback only behind something that adds it.
    public var listenAddress: String
    /// The TCP port; 0 lets the kernel choose.
    public var listenPort: UInt16
    /// What opens everything that is not for everybody.
    public var token: OperatorToken
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
    /// Bytes of a request's body, where requests have one.
    public var bodyBytes = 16_384
    /// How much of a body that is longer, or not wanted, is read, so that the client gets to read why it is refused.
    public var unwantedBodyBytes = 65_536

    /// The port of the operator's endpoint when nothing else is said.
    public static let operatorPort: UInt16 = 9_464
    /// The port of the API when nothing else is said.
    public static let apiPort: UInt16 = 9_465

    /// An endpoint on `listenAddress`.
    public init(listenAddress: String = "127.0.0.1", listenPort: UInt16, token: OperatorToken) {
        self.listenAddress = listenAddress
        self.listenPort = listenPort
        self.token = token
    }
}
