// Where the relays of a cluster take links over TLS from each other.

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
