// The path that a link takes to its relay, and what the user allows of it.
import WebSockets

/// The connection that a link uses, for the user to read.
public enum RelayPath: Hashable, Sendable, CustomStringConvertible {
    /// QUIC over UDP.
    case quic
    /// TLS over TCP, through that proxy ("HOST:PORT") if there is one, and why not QUIC.
    case tls(proxy: String?, RelayPathReason)

    /// "QUIC", "TLS", "TLS through proxy HOST:PORT".
    public var description: String {
        switch self {
        case .quic: "QUIC"
        case .tls(nil, _): "TLS"
        case .tls(let proxy?, _): "TLS through proxy \(proxy)"
        }
    }
}

/// Why a link uses TLS.
public enum RelayPathReason: String, Hashable, Sendable, CustomStringConvertible {
    /// Nothing was heard over UDP.
    case noAnswerOverUDP = "the relay does not answer over UDP"
    /// The configuration says so.
    case configured = "configured"

    /// The same as the raw value.
    public var description: String { rawValue }
}

/// How a link may reach its relay.
public struct RelayNetwork: Hashable, Sendable {
    /// Which connections may be used.
    public enum Transport: String, Hashable, Sendable, CaseIterable {
        /// QUIC, and TLS where UDP is blocked.
        case automatic = "auto"
        /// QUIC only.
        case quic
        /// TLS only, where the relay accepts it.
        case tls
    }

    /// Which connections may be used.
    public var transport: Transport
    /// The proxy for connections over TLS.
    public var proxy: ProxyPolicy

    /// What is used unless the user says otherwise.
    public static let automatic = RelayNetwork()

    /// How a link may reach its relay.
    public init(transport: Transport = .automatic, proxy: ProxyPolicy = .none) {
        (self.transport, self.proxy) = (transport, proxy)
    }
}
