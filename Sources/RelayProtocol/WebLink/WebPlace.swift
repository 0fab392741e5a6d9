// Where a relay takes links over TLS.

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
