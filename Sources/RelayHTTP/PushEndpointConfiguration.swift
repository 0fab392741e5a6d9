// What the HTTP endpoint is started with. Every bound of it has its name here.
import Cryptography

/// The endpoint's address, its own certificate and its clients.
public struct PushEndpointConfiguration: Sendable {
    /// The numeric address to listen on; `0.0.0.0` or `::` for every one.
    public var listenAddress: String
    /// The TCP port; 0 lets the kernel choose.
    public var listenPort: UInt16
    /// The server's certificate in PEM, with the intermediate ones after it.
    public var certificatePEM: String
    /// The key of the first certificate in PEM.
    public var privateKeyPEM: String
    /// Who may push what.
    public var clients: [PushClient]
    /// How much is taken on.
    public var limits = PushEndpointLimits()

    /// The port when nothing else is said: APNs' second one, since 443 is often taken.
    public static let defaultPort: UInt16 = 2_197

    /// An endpoint on `listenAddress`.
    public init(
        listenAddress: String, listenPort: UInt16 = defaultPort, certificatePEM: String, privateKeyPEM: String,
        clients: [PushClient]
    ) {
        self.listenAddress = listenAddress
        self.listenPort = listenPort
        self.certificatePEM = certificatePEM
        self.privateKeyPEM = privateKeyPEM
        self.clients = clients
    }
}

/// How much an endpoint takes on.
public struct PushEndpointLimits: Sendable, Hashable {
    /// Connections at one time. A newcomer beyond them takes the place of the oldest that has not shown the certificate of a client;
    /// after these, of the one that has been silent longest. Each has at most 100 requests at one time.
    public var connections = 256
    /// Connections at one time from one address, or from one /64 network of IPv6.
    public var connectionsPerAddress = 64
    /// How long a client's connection has to be silent before a newcomer may take its place.
    public var silence: Duration = .seconds(10)
    /// How long a connection may take for the TLS handshake.
    public var handshakeTime: Duration = .seconds(10)
    /// How long a connection without the certificate of a client stays after its handshake.
    public var strangerTime: Duration = .seconds(10)
    /// How long a request may take from its head to the last byte of its answer, and a client to read anything at all of what waits for it.
    public var requestTime: Duration = .seconds(10)
    /// Bytes of answers that may wait for a client that does not read, besides those that the kernel keeps; with more it is cut off.
    public var unreadBytes = 262_144
    /// How long requests under way may take when the endpoint goes down; the relay's members hear of it after that.
    public var closingTime: Duration = .seconds(2)
    /// How long TLS waits for the client's goodbye to its own.
    public var goodbyeTime: Duration = .seconds(1)
    /// How long a connection may be without requests.
    public var idleTime: Duration = .seconds(600)
    /// How much of a body that is not wanted is read, so that the client gets to read why.
    public var unwantedBodyBytes = 65_536
    /// The design's limits.
    public init() {}
}

/// Why the endpoint does not run, in words that say what to do.
public enum PushEndpointError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The certificate or its key cannot be used.
    case certificate(String)

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .certificate(let reason):
            "the certificate for pushes cannot be used (\(reason)); give a PEM file with the certificate and its chain, "
                + "and one with its key, or remove both from [push]: then the relay makes its own"
        }
    }
}
