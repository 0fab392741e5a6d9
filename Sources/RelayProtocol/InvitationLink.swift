// The invitation link to a channel (the relay's address and key, the channel, and the secret), and its syntax (RFC 3986).
import Cryptography
import Glibc

/// An invitation: `ptt://HOST:PORT/NAME?channel=UUID&token=TOKEN&pin=PIN`, with `#key=KEY` on an end-to-end
/// channel: what stands after # is for the members only, and never sent to a relay.
///
/// NAME is the channel's name, percent-encoded; TOKEN, PIN and KEY are base64url. Whoever has the link may enter.
public struct InvitationLink: Hashable, Sendable, CustomStringConvertible {
    /// The longest link that is read.
    public static let byteCountMaximum = 2048
    /// The epoch of a media key that links carry.
    public static let mediaKeyEpoch: UInt16 = 0
    /// The scheme.
    public static let scheme = "ptt"

    /// The relay's host: a name, an IPv4 address, or an IPv6 address without brackets, maybe with a zone (`fe80::1%eth0`).
    public var host: String
    /// The relay's UDP port.
    public var port: UInt16
    /// What the channel is called.
    public var channelName: DisplayName
    /// The channel.
    public var channel: ChannelID
    /// The secret that opens it.
    public var token: InvitationToken
    /// The relay's public key.
    public var pin: PublicKeyPin
    /// The media key, epoch 0, of an end-to-end channel; nil when the relay gives the key.
    public var mediaKey: MediaKey?
    /// Where the relay takes links over TLS; nil: the link does not say.
    public var web: WebPlace?

    /// A link with all its values. Throws when `host` is not a host or `port` is 0.
    public init(
        host: String, port: UInt16, channelName: DisplayName, channel: ChannelID, token: InvitationToken,
        pin: PublicKeyPin, mediaKey: MediaKey? = nil, web: WebPlace? = nil
    ) throws(InvitationLinkError) {
        guard Self.isHost(host) else { throw .badHost(host) }
        guard port > 0 else { throw .badPort("0") }
        self.host = host
        self.port = port
        self.channelName = channelName
        self.channel = channel
        self.token = token
        self.pin = pin
        self.mediaKey = mediaKey
        self.web = web
    }

    /// Reads a link. Spaces around it, as they come with copying, do not matter, nor the case of the scheme, the channel's UUID
    /// and the parameters' names. Parameters it does not know are ignored.
    ///
    /// Throws an error that says which part is missing or wrong.
    public init(_ text: some StringProtocol) throws(InvitationLinkError) {
        guard text.utf8.count <= Self.byteCountMaximum else { throw .tooLong }
        let parts = try LinkParts(String(text))
        host = parts.host
        port = parts.port
        guard let name = PercentEncoding.decode(parts.path).flatMap({ DisplayName($0) }) else { throw .badName }
        channelName = name
        // Earlier links had the key among the other parameters. Behind # other things may stand than parameters.
        let keys = parts.fragment.split(separator: "&").filter { $0.lowercased().hasPrefix("key=") }
        let parameters = try Self.parameters(([parts.query] + keys.map { String($0) }).joined(separator: "&"))
        channel = try Self.value("channel", in: parameters, "is not a UUID") { ChannelID($0) }
        token = try Self.value("token", in: parameters, "is not 16 to 64 bytes of base64url") {
            Base64URL.decode($0).flatMap { InvitationToken($0) }
        }
        pin = try Self.value("pin", in: parameters, "is not 32 bytes of base64url") { PublicKeyPin($0) }
        if parameters["web"] != nil {
            web = try Self.value("web", in: parameters, "is neither PORT nor HOST:PORT") { WebPlace($0) }
        }
        guard parameters["key"] != nil else { return }
        mediaKey = try Self.value("key", in: parameters, "is not 16 to 64 bytes of base64url") {
            Base64URL.decode($0).flatMap { MediaKey(epoch: 0, baseKey: $0) }
        }
    }

    /// Where the relay is.
    public var place: RelayPlace {
        get { RelayPlace(host: host, at: port) }
        set { (host, port) = (newValue.host, newValue.port) }
    }

    /// The link. It holds secrets: show it to those who are invited, and keep it out of logs.
    public var text: String {
        var link = "\(Self.scheme)://\(place)/\(PercentEncoding.encode(channelName.text))"
        link += "?channel=\(channel)&token=\(Base64URL.encode(token.bytes))&pin=\(pin)"
        if let web { link += "&web=\(PercentEncoding.encode(web.text))" }
        if let mediaKey { link += "#key=\(Base64URL.encode(mediaKey.baseKey))" }
        return link
    }

    /// The address of the page by which a browser is a member: the link without its scheme behind `#`, which browsers send to nobody. Nil
    /// when the relay serves no page. It holds the same secrets.
    public var pageAddress: String? {
        guard let place = web?.place(besides: host) else { return nil }
        let authority = place.port == 443 ? String(place.description.dropLast(4)) : place.description
        let rest = text.dropFirst(Self.scheme.count + 3).replacing("#key=", with: "&key=")
        return "https://\(authority)/#\(rest)"
    }

    /// Channel and relay, without the secrets: for logs.
    public var description: String { "\(channelName) at \(host) port \(port)" }

    /// The parameters of a query, each at most once.
    private static func parameters(_ query: String) throws(InvitationLinkError) -> [String: String] {
        var parameters: [String: String] = [:]
        for pair in query.split(separator: "&") {
            let halves = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            let name = halves[0].lowercased()
            guard halves.count == 2, let value = PercentEncoding.decode(halves[1]) else {
                throw .badParameter(name, reason: "has no readable value")
            }
            guard parameters.updateValue(value, forKey: name) == nil else {
                throw .badParameter(name, reason: "is there twice")
            }
        }
        return parameters
    }

    private static func value<Value>(
        _ name: String, in parameters: [String: String], _ reason: String, _ read: (String) -> Value?
    ) throws(InvitationLinkError) -> Value {
        guard let text = parameters[name] else { throw .missingParameter(name) }
        guard let value = read(text) else { throw .badParameter(name, reason: reason) }
        return value
    }

    /// Whether `host` is an IP address or could be a name.
    public static func isHost(_ host: String) -> Bool {
        guard host.contains(":") else {
            return !host.isEmpty && host.utf8.count <= 253 && host.utf8.allSatisfy(PercentEncoding.isUnreserved)
        }
        let halves = host.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
        var address = in6_addr()
        // To inet_pton(3) text ends at its first NUL.
        guard !halves[0].utf8.contains(0), inet_pton(AF_INET6, String(halves[0]), &address) == 1 else { return false }
        guard halves.count == 2 else { return true }
        return !halves[1].isEmpty && halves[1].utf8.allSatisfy(PercentEncoding.isUnreserved)
    }
}

/// Why an invitation link is invalid, in words for the user.
public enum InvitationLinkError: Error, Hashable, Sendable, CustomStringConvertible {
    /// It does not begin with `ptt://`.
    case notAnInvitation
    /// It has more than `InvitationLink.byteCountMaximum` bytes.
    case tooLong
    /// The host is missing, or is neither a name nor an address.
    case badHost(String)
    /// The port is missing or not 1 to 65535.
    case badPort(String)
    /// The channel's name is missing or no name.
    case badName
    /// A parameter is missing: the link was cut.
    case missingParameter(String)
    /// A parameter's value is wrong.
    case badParameter(String, reason: String)

    /// A sentence for people.
    public var description: String {
        let again = "copy the whole link that pttrelay printed, in quotes"
        switch self {
        case .notAnInvitation: return "this is not an invitation link: it must begin with ptt://; \(again)"
        case .tooLong: return "the invitation link is longer than \(InvitationLink.byteCountMaximum) bytes; \(again)"
        case .badHost(let host): return "the invitation link has no usable host (\"\(host)\"); \(again)"
        case .badPort(let port):
            return "the invitation link needs a port from 1 to 65535 after the host (\"\(port)\"); \(again)"
        case .badName: return "the invitation link has no usable channel name after the port; \(again)"
        case .missingParameter(let name): return "the invitation link has no \(name)=; it seems to be cut off; \(again)"
        case .badParameter(let name, let reason): return "in the invitation link, \(name)= \(reason); \(again)"
        }
    }
}

/// A link taken apart at its punctuation.
struct LinkParts {
    var host: String
    var port: UInt16
    /// Still percent-encoded.
    var path: Substring
    /// Still percent-encoded.
    var query: String
    /// Still percent-encoded.
    var fragment: String

    init(_ text: String) throws(InvitationLinkError) {
        let isSpace: (Character) -> Bool = { $0.isWhitespace }
        var rest = text[...].drop(while: isSpace)
        while rest.last.map(isSpace) == true { rest.removeLast() }
        let prefix = InvitationLink.scheme + "://"
        guard rest.prefix(prefix.count).lowercased() == prefix else { throw .notAnInvitation }
        rest = rest.dropFirst(prefix.count)
        let authority = rest.prefix { !"/?#".contains($0) }
        rest = rest.dropFirst(authority.count)
        fragment = String(rest.drop { $0 != "#" }.dropFirst())
        rest = rest.prefix { $0 != "#" }
        path = rest.prefix { $0 != "?" }.drop { $0 == "/" }
        query = String(rest.drop { $0 != "?" }.dropFirst())
        let place = try RelayPlace(authority: authority)
        (host, port) = (place.host, place.port)
    }
}

extension RelayPlace {
    /// Reads what stands between `//` and the next `/` of a link.
    init(authority: Substring) throws(InvitationLinkError) {
        let host: String
        let portText: Substring
        if authority.first == "[" {
            let inner = authority.dropFirst().prefix { $0 != "]" }
            host = PercentEncoding.decode(inner) ?? ""
            portText = authority.dropFirst(inner.count + 2)
            guard host.contains(":") else { throw .badHost(String(authority)) }
        } else {
            host = String(authority.prefix { $0 != ":" })
            portText = authority.dropFirst(host.count)
        }
        guard InvitationLink.isHost(host) else { throw .badHost(String(authority)) }
        let digits = portText.dropFirst()
        guard portText.first == ":", digits.utf8.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains),
            let port = UInt16(digits), port > 0
        else { throw .badPort(String(digits)) }
        self.init(host: host, at: port)
    }
}

/// Percent-encoding of UTF-8 (RFC 3986, section 2).
public enum PercentEncoding {
    /// Whether a byte stands for itself everywhere in a link.
    static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }

    /// `text` with everything but unreserved characters as %XX.
    static func encode(_ text: String) -> String {
        var encoded = ""
        for byte in text.utf8 {
            if isUnreserved(byte) {
                encoded.unicodeScalars.append(Unicode.Scalar(byte))
            } else {
                encoded += "%" + Hexadecimal.encode([byte]).uppercased()
            }
        }
        return encoded
    }

    /// The text that `encoded` stands for; nil when a % is not followed by two digits, or it is not UTF-8.
    public static func decode(_ encoded: some StringProtocol) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(encoded.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            // Two digits, and nothing of what numbers may also have: "%+5".
            let digits = String(decoding: rest.prefix(2), as: UTF8.self)
            guard let value = Hexadecimal.decode(digits)?.first else { return nil }
            bytes.append(value)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
