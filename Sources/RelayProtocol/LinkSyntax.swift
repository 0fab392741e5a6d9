// The syntax of links (RFC 3986), as far as invitations use it.

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
enum PercentEncoding {
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
                let digits = String(byte, radix: 16, uppercase: true)
                encoded += "%" + (digits.count == 1 ? "0" : "") + digits
            }
        }
        return encoded
    }

    /// The text that `encoded` stands for; nil when a % is not followed by two digits, or it is not UTF-8.
    static func decode(_ encoded: some StringProtocol) -> String? {
        var bytes: [UInt8] = []
        var rest = Array(encoded.utf8)[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.popFirst().flatMap(digit), let low = rest.popFirst().flatMap(digit) else {
                return nil
            }
            bytes.append(high << 4 | low)
        }
        return String(validating: bytes, as: UTF8.self)
    }

    private static func digit(_ character: UInt8) -> UInt8? {
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): character - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): character - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
