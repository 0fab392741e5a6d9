// A service as its DNS records (RFC 6763), for names that need no probing.
import DBus

/// The single records of an announcement. Only for single records does Avahi accept that a name is known to be unique.
///
/// The name of an instance contains `tag`, which identifies the channel and its host. Nobody else has a reason to use
/// it, so the second for probing the network for other owners is not needed. Another user of the name would cause a
/// collision, as with any name.
struct AvahiRecords {
    private static let shared: UInt32 = 0
    /// AVAHI_PUBLISH_UNIQUE and AVAHI_PUBLISH_NO_PROBE.
    private static let knownUnique: UInt32 = 1 | 2
    private static let classInternet: UInt16 = 1
    /// What RFC 6762 (section 10) recommends for records that name a host, and for others.
    private static let (hostLifetime, lifetime): (UInt32, UInt32) = (120, 4_500)

    private let offer: AvahiOffer
    private let host: [String]

    /// nil when the host's name is not one that Avahi gives.
    init?(_ offer: AvahiOffer, host: String) {
        let labels = host.split(separator: ".", omittingEmptySubsequences: true).map(String.init)
        guard labels.count >= 2, labels.allSatisfy({ (1...63).contains($0.utf8.count) && !$0.contains("\\") }),
            host.utf8.count <= 253
        else { return nil }
        self.offer = offer
        self.host = labels
    }

    /// The arguments of AddRecord, for each record.
    var arguments: [[DBusValue]] {
        let domain = host.dropFirst().joined(separator: ".")
        let type = Avahi.serviceType.split(separator: ".").map(String.init) + host.dropFirst()
        let typeName = "\(Avahi.serviceType).\(domain)"
        let instance = "\(Self.escaped(offer.instance)).\(typeName)"
        let port = [UInt8(offer.port >> 8), UInt8(truncatingIfNeeded: offer.port)]
        return [
            record("_services._dns-sd._udp.\(domain)", .pointer, Self.shared, Self.lifetime, Self.wire(type)),
            record(typeName, .pointer, Self.shared, Self.lifetime, Self.wire([offer.instance] + type)),
            record(instance, .service, Self.knownUnique, Self.hostLifetime, [0, 0, 0, 0] + port + Self.wire(host)),
            record(
                instance, .text, Self.knownUnique, Self.lifetime,
                offer.txt.flatMap { [UInt8(truncatingIfNeeded: $0.count)] + $0 }),
        ]
    }

    private enum Kind: UInt16 { case pointer = 12, text = 16, service = 33 }

    private func record(_ name: String, _ kind: Kind, _ flags: UInt32, _ lifetime: UInt32, _ data: [UInt8])
        -> [DBusValue]
    {
        [
            .int32(Avahi.any), .int32(Avahi.any), .uint32(flags), .string(name), .uint16(Self.classInternet),
            .uint16(kind.rawValue), .uint32(lifetime), .bytes(data),
        ]
    }

    /// A name in wire format.
    private static func wire(_ labels: [String]) -> [UInt8] {
        labels.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) } + [0]
    }

    /// A label in text format: possible punctuation is written as three decimal digits.
    static func escaped(_ label: String) -> String {
        var text = ""
        for byte in label.utf8 {
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
                text.unicodeScalars.append(Unicode.Scalar(byte))
            default: text += "\\\(byte / 100)\(byte / 10 % 10)\(byte % 10)"
            }
        }
        return text
    }
}
