// The numbers of a link over TLS, where relays take one, and what the request for one says (docs/relay-protocol.md, section 21).

/// Bounds and names that both ends of a link over TLS share.
public enum WebLinkLimits {
    /// The path of the WebSocket at the relay.
    public static let path = "/pttd/1"
    /// The WebSocket's subprotocol.
    public static let subprotocol = "pttd.1"
    /// The longest WebSocket message, in bytes.
    public static let messageBytes = 16_640
    /// The longest part of an answer that is sent in one message, in bytes.
    public static let answerPartBytes = 16_384
    /// How long media may wait in an end's own queue before they are dropped.
    public static let mediaWait: Duration = .milliseconds(500)
    /// The most that waits there, in bytes.
    public static let mediaQueueBytes = 64 * 1_024
    /// What the kernel may hold unsent (TCP_NOTSENT_LOWAT), in bytes: a quarter of a second of speech. The queue that drops old speech
    /// begins behind it.
    public static let kernelBacklogBytes = 4 * 1_024
    /// A connection on which nothing has come for this time is closed by the relay.
    public static let idleTimeout: Duration = .seconds(45)
    /// From the upgrade to the client's proof.
    public static let proofTimeout: Duration = .seconds(10)
    /// Media packets that the relay acknowledges at once…
    public static let acknowledgementThreshold = 10
    /// …and how long after the first one it acknowledges fewer.
    public static let acknowledgementDelay: Duration = .milliseconds(25)
    /// The code of the WebSocket's Close frame is this plus that of the relay protocol (RFC 6455, section 7.4.2: 4000 to
    /// 4999 are for private use).
    public static let closeCodeBase: UInt16 = 4_000
}

/// The web endpoint of a relay, as other relays of its cluster reach it: `wss://HOST:PORT`, or `ws://HOST:PORT` without TLS.
public struct WebLinkAddress: Sendable, Hashable, CustomStringConvertible {
    /// Its host and TCP port.
    public let place: RelayPlace
    /// Whether it has TLS.
    public let hasTLS: Bool

    /// An endpoint there.
    public init(_ place: RelayPlace, hasTLS: Bool) {
        self.place = place
        self.hasTLS = hasTLS
    }

    /// Reads an address; nil for anything else.
    public init?(_ text: String) {
        for (scheme, hasTLS) in [(Self.tls, true), (Self.plain, false)] where text.hasPrefix(scheme) {
            guard let place = RelayPlace(String(text.dropFirst(scheme.count))) else { return nil }
            self.init(place, hasTLS: hasTLS)
            return
        }
        return nil
    }

    /// The address as a URL.
    public var description: String { (hasTLS ? Self.tls : Self.plain) + place.description }

    private static let tls = "wss://"
    private static let plain = "ws://"
}

/// The path of the request, with what it says of the channel.
///
/// A link that may lead to any relay of a cluster names the share of its channel: the relay passes it on to the one that serves it.
public struct WebLinkTarget: Sendable, Hashable {
    /// The number of the channel's share (`ChannelID.share`); nil: the link is for the relay that takes it.
    public var share: Int?
    /// Whether another relay has passed the link on. Nobody does so again.
    public var isPassedOn = false

    /// A link to any relay, for a channel of that share.
    public init(share: Int?) { self.share = share }

    /// What the target of a request says; nil: it is no link.
    public init?(target: String) {
        let parts = target.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.first.map(String.init) == WebLinkLimits.path else { return nil }
        for item in parts.dropFirst().first?.split(separator: "&") ?? [] {
            if item == Self.passedOn {
                isPassedOn = true
            } else if item.hasPrefix(Self.shareName), let number = Int(item.dropFirst(Self.shareName.count)),
                (0..<ChannelID.shareCount).contains(number)
            {
                share = number
            }
        }
    }

    /// The target of the request.
    public var text: String {
        guard let share else { return WebLinkLimits.path }
        return "\(WebLinkLimits.path)?\(Self.shareName)\(share)" + (isPassedOn ? "&\(Self.passedOn)" : "")
    }

    private static let shareName = "share="
    private static let passedOn = "passed-on"
}

/// The parameter `web` of an invitation, and of `Welcome`: PORT at the relay's own host, or HOST:PORT
/// (docs/relay-protocol.md, section 21).
public struct WebPlace: Sendable, Hashable, CustomStringConvertible {
    /// A name or an address; nil: the host of the link.
    public let host: String?
    /// The TCP port, 1 to 65535.
    public let port: UInt16

    /// The longest text that is read, in bytes.
    public static let byteCountMaximum = 300

    /// The port at the relay's own host; nil when it is 0.
    public init?(port: UInt16) {
        guard port > 0 else { return nil }
        (host, self.port) = (nil, port)
    }

    /// Reads PORT or HOST:PORT, with an IPv6 address in brackets; nil for anything else.
    public init?(_ text: String) {
        guard text.utf8.count <= Self.byteCountMaximum else { return nil }
        if let place = RelayPlace(text) {
            (host, port) = (place.host, place.port)
            return
        }
        let isNumber = text.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains)
        guard isNumber, let port = UInt16(text), port > 0 else { return nil }
        (host, self.port) = (nil, port)
    }

    /// PORT or HOST:PORT.
    public var text: String { host.map { RelayPlace(host: $0, at: port).description } ?? String(port) }

    /// The same as `text`.
    public var description: String { text }

    /// The place itself, for a relay whose link names `relayHost`.
    public func place(besides relayHost: String) -> RelayPlace { RelayPlace(host: host ?? relayHost, at: port) }
}
