// What the web endpoint is started with. Every bound of it has its name here.
import Cryptography
import RelayServer

/// The endpoint's address, its certificate, and how much it takes on.
public struct WebEndpointConfiguration: Sendable {
    /// The numeric address to listen on; `0.0.0.0` or `::` for every one.
    public var listenAddress: String
    /// The TCP port; 0 lets the kernel choose.
    public var listenPort: UInt16
    /// The certificate, with the intermediate ones after it, and its key, in PEM; nil: without TLS, behind a reverse proxy.
    public var certificate: (pem: String, privateKeyPEM: String)?
    /// Origins (RFC 6454) of pages, besides the relay's own, that may open a link.
    public var origins: Set<String> = []
    /// Numeric addresses of reverse proxies: what comes from there is not bounded as one client.
    public var proxies: Set<String> = []
    /// How much is taken on.
    public var limits = WebEndpointLimits()

    /// The port when nothing else is said.
    public static let defaultPort: UInt16 = 443

    /// An endpoint on `listenAddress`.
    public init(
        listenAddress: String, listenPort: UInt16 = defaultPort, certificate: (pem: String, privateKeyPEM: String)?
    ) {
        self.listenAddress = listenAddress
        self.listenPort = listenPort
        self.certificate = certificate
    }
}

/// How much the web endpoint takes on.
public struct WebEndpointLimits: Sendable, Hashable {
    /// Connections at one time. A newcomer beyond them takes the place of the oldest one that was not let into a channel.
    public var connections = 2_304
    /// The same of one address, or of one /64 network of IPv6.
    public var connectionsPerAddress = 512
    /// How long a member's connection has to be silent before a newcomer may take its place.
    public var silence: Duration = .seconds(45)
    /// From the connection to the upgrade, TLS included, and between two requests for the page.
    public var requestTime: Duration = .seconds(10)
    /// How long a client may take to read anything at all of what waits for it.
    public var unreadTime: Duration = .seconds(45)
    /// Bytes that may wait for a client that does not read, besides those that the kernel keeps.
    public var unreadBytes = 1_048_576
    /// Bytes after which a connection is not written to until they are with the kernel.
    public var writeBuffer = 8_192
    /// The most frames of one message.
    public var framesPerMessage = 64
    /// How long a closed connection may take to answer the Close frame.
    public var closingTime: Duration = .seconds(2)
    /// From the request for a link that is passed on until the other relay's WebSocket is open.
    public var passageTime: Duration = .seconds(8)
    /// The design's limits.
    public init() {}

    /// Limits for a relay that takes on so much.
    public init(_ limits: RelayLimits) {
        connections = limits.connections + max(8, limits.connections / 8)
        connectionsPerAddress = limits.connectionsPerAddress
    }
}

/// Why the endpoint does not run, in words that say what to do.
public enum WebEndpointError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The certificate or its key cannot be used.
    case certificate(String)
    /// The relay's key cannot sign on this link.
    case relayKey(String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .certificate(let reason):
            "the certificate for [web] cannot be used (\(reason)); give a PEM file with the certificate and its chain, "
                + "and one with its key, or remove both: then the relay makes its own, which browsers do not trust"
        case .relayKey(let reason): "[web] cannot be served: \(reason); remove [web] from the configuration"
        }
    }
}
