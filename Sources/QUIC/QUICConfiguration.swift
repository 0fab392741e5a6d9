// What an endpoint is set up with: identity, limits, what a server and a client connection want.
import CGnuTLS
import CNgtcp2
import Cryptography

/// A certificate with its private key, to be shown to peers.
///
/// Peers recognise the key, not the certificate's names or dates: nothing else in it is looked at.
public struct QUICIdentity: Sendable {
    /// How the bytes are written.
    public enum Encoding: Sendable {
        /// Text with BEGIN and END lines (RFC 7468).
        case pem
        /// Binary (X.690): one certificate, and its key in PKCS #8, SEC 1 or PKCS #1.
        case der
    }

    let certificate: [UInt8]
    let privateKey: [UInt8]
    let encoding: Encoding

    /// The pair as it stands in files; checked when an endpoint is made with it.
    public init(certificate: [UInt8], privateKey: [UInt8], encoding: Encoding = .pem) {
        self.certificate = certificate
        self.privateKey = privateKey
        self.encoding = encoding
    }
}

/// Which peers are acceptable, by the SHA-256 of their certificate's SubjectPublicKeyInfo (as in RFC 7469).
public enum PeerVerification: Sendable {
    /// Only a peer with one of these 32-byte hashes.
    case pinned([[UInt8]])
    /// Whom the hook says yes to. It is called during the handshake, also of a resumed connection; it must not
    /// call the endpoint or the connection.
    case hook(@Sendable ([UInt8]) -> Bool)
    /// Any peer that shows a certificate and proves that it has its key.
    case anyKey

    func accepts(_ hash: [UInt8]) -> Bool {
        switch self {
        case .pinned(let hashes): hashes.contains(hash)
        case .hook(let hook): hook(hash)
        case .anyKey: true
        }
    }
}

/// The secrets of a server that outlive a restart, so that tickets, tokens and stateless resets stay valid.
public struct ServerKeys: Sendable, Equatable {
    /// The bytes of the key that seals session tickets.
    public static let ticketKeyLength = 64
    /// The bytes of the key that seals address tokens.
    public static let tokenKeyLength = 32
    /// The length of `bytes`.
    public static let length = ticketKeyLength + tokenKeyLength

    /// Seals session tickets (GnuTLS: 64 bytes).
    let ticketKey: [UInt8]
    /// Seals Retry and NEW_TOKEN tokens; stateless reset tokens derive from it too.
    let tokenKey: [UInt8]

    /// Fresh random secrets.
    public static func generate() -> ServerKeys { ServerKeys(valid: SecureRandom.bytes(length)) }

    /// The same secrets with a new ticket key. Tickets under the old key become invalid; address tokens and stateless
    /// resets stay valid.
    public func withFreshTicketKey() -> ServerKeys {
        ServerKeys(valid: SecureRandom.bytes(Self.ticketKeyLength) + tokenKey)
    }

    private init(valid bytes: [UInt8]) {
        ticketKey = Array(bytes.prefix(Self.ticketKeyLength))
        tokenKey = Array(bytes.suffix(Self.tokenKeyLength))
    }

    /// Secrets that `bytes` gave earlier, or nil when the length is wrong.
    public init?(bytes: [UInt8]) {
        guard bytes.count == Self.length else { return nil }
        self.init(valid: bytes)
    }

    /// The secrets, to be kept in a file that only the server reads.
    public var bytes: [UInt8] { ticketKey + tokenKey }
}

/// How a server handles new connections. Every client must show a certificate.
public struct QUICServerOptions: Sendable {
    /// Whether a new client must first prove its address by a Retry (RFC 9000, section 8.1.2), at one round trip.
    public enum AddressValidation: Sendable, Equatable {
        /// Never.
        case never
        /// Always.
        case always
        /// While more than this many handshakes are under way, or come from one address, or in a second.
        case whenHandshakesExceed(Int)
    }

    /// Secrets; keep them across restarts.
    public var keys: ServerKeys
    /// Which clients are welcome.
    public var verification: PeerVerification
    /// When a Retry is sent.
    public var addressValidation: AddressValidation
    /// Whether a returning client's early data (0-RTT) is taken. An attacker can replay it, so acting on it twice must
    /// be harmless (RFC 9001, section 9.2).
    public var acceptsEarlyData: Bool
    /// Maximum number of connections, handshakes included. Further ones are not answered.
    public var maximumConnections: Int
    /// Maximum number of pending handshakes. Further ones are not answered.
    public var maximumHandshakes: Int
    /// Connections at once from one IPv4 address or one /64 of IPv6; newcomers beyond are not answered. People behind one NAT
    /// share an address.
    public var maximumConnectionsPerAddress = 512
    /// New connections per second above which, with `.whenHandshakesExceed`, each client must prove its address.
    public var handshakesPerSecond = 256
    /// The number that the first two bytes of every connection id carry, so that packets can be steered to the
    /// worker that has the connection.
    public var worker: UInt16
    /// What this endpoint shares with others on the same port; nil: it is alone.
    public var group: QUICServerGroup?

    /// A server's options; all but the keys have defaults that suit a relay.
    public init(
        keys: ServerKeys, verification: PeerVerification = .anyKey,
        addressValidation: AddressValidation = .whenHandshakesExceed(256), acceptsEarlyData: Bool = true,
        maximumConnections: Int = 16_384, maximumHandshakes: Int = 2_048, worker: UInt16 = 0
    ) {
        self.keys = keys
        self.verification = verification
        self.addressValidation = addressValidation
        self.acceptsEarlyData = acceptsEarlyData
        self.maximumConnections = maximumConnections
        self.maximumHandshakes = maximumHandshakes
        self.worker = worker
    }
}

/// What an endpoint's connections have in common.
public struct QUICConfiguration: Sendable {
    /// The application protocol (ALPN); both sides must name the same. 1 to 255 bytes.
    public var applicationProtocol: String
    /// Shown to peers; a client may have none, a server must have one.
    public var identity: QUICIdentity?
    /// Set to accept connections.
    public var server: QUICServerOptions?
    /// Silence after which a connection is given up; the shorter one of both sides' counts.
    public var idleTimeout: Duration = .seconds(45)
    /// Time a handshake may take.
    public var handshakeTimeout: Duration = .seconds(10)
    /// Bytes of a stream that the peer may send ahead of what has been read.
    public var streamReceiveWindow = 65_536
    /// The same for all streams of a connection together.
    public var connectionReceiveWindow = 262_144
    /// Bytes of a stream that are kept until the peer has acknowledged them.
    public var streamSendBuffer = 65_536
    /// Streams that the peer may have open at once.
    public var maximumPeerStreams = 16
    /// So many packets of the peer are acknowledged at once; fewer after 25 ms. A packet that shows a gap is acknowledged
    /// at once whatever stands here.
    public var acknowledgementThreshold = 2
    /// Datagrams that wait for the congestion window; the oldest is dropped for a new one. Beyond the window, room for a
    /// gap of 2 s with a packet every 5 ms.
    public var datagramSendQueue = 512
    /// Bytes that may be on their way however much is lost: the congestion controller never goes below. 64 KiB are 3 s of
    /// voice with a packet every 10 ms, so that it is the packets themselves that find out when a dead path works again.
    public var congestionWindowFloor = 65_536
    /// The longest time between probe packets at first, while an acknowledgement is outstanding…
    public var probeIntervalFirst: Duration = .milliseconds(50)
    /// …for this time, so that a short loss of the radio link is repaired soon…
    public var probeTimeFirst: Duration = .seconds(1)
    /// …and the longest time between probes after that…
    public var probeInterval: Duration = .milliseconds(200)
    /// …for this time. Later probes follow only the transport's own back-off.
    public var probeTime: Duration = .seconds(10)
    /// Datagrams received within one turn of the loop and not yet handed over; further ones are dropped.
    public var datagramReceiveQueue = 256
    /// The largest datagram accepted from the peer, bytes; 0 takes none.
    public var maximumDatagram = 1_400
    /// Kernel buffers of the socket, bytes each way; the kernel may cap them.
    public var socketBuffer = 1 << 20

    /// The most that `maximumDatagram` can say: with the frame's own bytes, the largest value that RFC 9221 speaks of.
    public static let datagramMaximum = 65_535 - QUICConnection.datagramFrameOverhead

    /// A configuration with defaults that suit voice.
    public init(applicationProtocol: String, identity: QUICIdentity?, server: QUICServerOptions? = nil) {
        self.applicationProtocol = applicationProtocol
        self.identity = identity
        self.server = server
    }
}

/// What one outgoing connection wants.
public struct QUICClientOptions: Sendable {
    /// Which server is the right one.
    public var verification: PeerVerification
    /// Sends a packet after this much silence, so that neither NAT mappings nor the idle time-out end the connection.
    public var keepAlive: Duration?
    /// From an earlier connection to the same server, to send early data with the first packet.
    public var resumption: ResumptionState?
    /// The round trip to expect, from an earlier connection (RFC 9002, section 6.2.2): what gets lost before the first
    /// answer is repeated the sooner. Values outside 0.1…0.333 s count as those.
    public var expectedRoundTrip: Duration?
    /// The name sent to the server (SNI); not needed where keys are pinned.
    public var serverName: String?

    /// A client's wishes; see the properties.
    public init(
        verification: PeerVerification, keepAlive: Duration? = .seconds(20), resumption: ResumptionState? = nil,
        expectedRoundTrip: Duration? = nil, serverName: String? = nil
    ) {
        self.verification = verification
        self.keepAlive = keepAlive
        self.resumption = resumption
        self.expectedRoundTrip = expectedRoundTrip
        self.serverName = serverName
    }
}
