// Avahi's D-Bus API (avahi-daemon 0.8), as far as it is used: what its signals and errors mean.
import DBus
import Glibc
import RelayProtocol

/// The names of Avahi's D-Bus API.
enum Avahi {
    static let name = "org.freedesktop.Avahi"
    static let serverPath: DBusObjectPath = "/"
    static let serverInterface = "org.freedesktop.Avahi.Server"
    static let serviceType = "_pttd._udp"
    /// AVAHI_IF_UNSPEC and AVAHI_PROTO_UNSPEC: every interface, both protocols.
    static let any: Int32 = -1
    /// The longest label of DNS, and so the longest name of an instance, in bytes.
    static let instanceBytesMaximum = 63
    /// The longest name of DNS in text, in bytes.
    static let domainBytesMaximum = 1_014
    /// How many strings of a TXT record are looked at: more cannot be in `NearbyAnnouncement.readByteCountMaximum` bytes.
    static let stringsMaximum = NearbyAnnouncement.readByteCountMaximum

    /// Objects that Avahi makes for its clients.
    enum Object: String, Hashable, Sendable {
        case group = "EntryGroup"
        case browser = "ServiceBrowser"
        case resolver = "ServiceResolver"

        var interface: String { "org.freedesktop.Avahi.\(rawValue)" }
    }

    /// The states of an entry group.
    enum GroupState: Int32, Hashable, Sendable { case uncommitted, registering, established, collision, failure }
    /// The states of the server.
    enum ServerState: Int32, Hashable, Sendable { case invalid, registering, running, collision, failure }

    static func isCollision(_ error: DBusError) -> Bool {
        error.remoteName == "org.freedesktop.Avahi.CollisionError"
    }
}

/// One instance of the service, on one interface and by one protocol.
struct AvahiService: Hashable, Sendable {
    var interface: Int32
    /// 0: IPv4, 1: IPv6.
    var networkProtocol: Int32
    var name: String
    var domain: String
}

/// A place of a host, and how good it is.
struct NearbyPlace: Hashable, Sendable {
    enum Kind: CaseIterable, Sendable { case ipv4, ipv6, linkLocal }
    var place: RelayPlace
    var kind: Kind

    /// The relay address for an announced numeric address; nil if it is not the address of a single machine on a
    /// network.
    ///
    /// - Parameter zone: The name of the interface, for a link-local address.
    init?(address: String, port: UInt16, zone: @autoclosure () -> String?) {
        guard address.utf8.count < Int(INET6_ADDRSTRLEN), !address.utf8.contains(0) else { return nil }
        var four = in_addr()
        var six = in6_addr()
        var host: String
        if inet_pton(AF_INET, address, &four) == 1 {
            let first = UInt32(bigEndian: four.s_addr) >> 24
            guard first != 0, first != 127, first < 224 else { return nil }
            kind = .ipv4
            host = LocalAddresses.text(withUnsafeBytes(of: four) { [UInt8]($0) }) ?? ""
        } else if inet_pton(AF_INET6, address, &six) == 1 {
            let bytes = withUnsafeBytes(of: six) { [UInt8]($0) }
            // Neither unspecified, loopback, IPv4 in disguise (::/32 holds all of them) nor multicast.
            guard bytes.prefix(4) != [0, 0, 0, 0], bytes[0] != 0xFF else { return nil }
            host = LocalAddresses.text(bytes) ?? ""
            kind = bytes[0] == 0xFE && bytes[1] & 0xC0 == 0x80 ? .linkLocal : .ipv6
            if kind == .linkLocal {
                guard let zone = zone() else { return nil }
                host += "%\(zone)"
            }
        } else {
            return nil
        }
        guard let place = RelayPlace(host: host, port: port) else { return nil }
        self.place = place
    }
}

/// A signal of one of Avahi's objects.
enum AvahiSignal: Hashable, Sendable {
    case group(Avahi.GroupState, reason: String)
    case appeared(AvahiService)
    case disappeared(AvahiService)
    /// The browser has reported everything that it knew when it was created.
    case toldAll
    case found(AvahiService, NearbyPlace, txt: [[UInt8]])
    /// A service whose announcement has no usable address.
    case foundNowhere(AvahiService)
    case failed(String)

    /// The signal of that interface and name; nil when it has other arguments than Avahi sends, or is not of interest.
    ///
    /// - Parameter zone: The name of the interface of that index.
    init?(interface: String, member: String, arguments: [DBusValue], zone: (Int32) -> String?) {
        switch (interface, member) {
        case (Avahi.Object.group.interface, "StateChanged"):
            guard arguments.count == 2, case .int32(let number) = arguments[0], case .string(let reason) = arguments[1],
                let state = Avahi.GroupState(rawValue: number)
            else { return nil }
            self = .group(state, reason: Self.bounded(reason))
        case (Avahi.Object.browser.interface, "ItemNew"):
            guard arguments.count == 6, let service = Self.service(arguments) else { return nil }
            self = .appeared(service)
        case (Avahi.Object.browser.interface, "ItemRemove"):
            guard arguments.count == 6, let service = Self.service(arguments) else { return nil }
            self = .disappeared(service)
        case (Avahi.Object.browser.interface, "AllForNow"):
            guard arguments.isEmpty else { return nil }
            self = .toldAll
        case (Avahi.Object.resolver.interface, "Found"):
            guard let found = Self.found(arguments, zone) else { return nil }
            self = found
        case (Avahi.Object.browser.interface, "Failure"), (Avahi.Object.resolver.interface, "Failure"):
            guard arguments.count == 1, case .string(let reason) = arguments[0] else { return nil }
            self = .failed(Self.bounded(reason))
        default: return nil
        }
    }

    private static func bounded(_ text: String) -> String {
        DisplayName(cleaning: text, fallback: "no reason given").text
    }

    /// The first five arguments of signals about services.
    private static func service(_ arguments: [DBusValue]) -> AvahiService? {
        guard arguments.count >= 5, case .int32(let interface) = arguments[0], interface >= 0,
            case .int32(let networkProtocol) = arguments[1], (0...1).contains(networkProtocol),
            case .string(let name) = arguments[2], !name.isEmpty, name.utf8.count <= Avahi.instanceBytesMaximum,
            case .string(Avahi.serviceType) = arguments[3],
            case .string(let domain) = arguments[4], !domain.isEmpty, domain.utf8.count <= Avahi.domainBytesMaximum
        else { return nil }
        return AvahiService(interface: interface, networkProtocol: networkProtocol, name: name, domain: domain)
    }

    private static func found(_ arguments: [DBusValue], _ zone: (Int32) -> String?) -> AvahiSignal? {
        guard arguments.count == 11, let service = service(arguments), case .string = arguments[5],
            case .int32 = arguments[6], case .string(let address) = arguments[7], case .uint16(let port) = arguments[8],
            let strings = arguments[9].arrayValue, case .uint32 = arguments[10]
        else { return nil }
        guard let place = NearbyPlace(address: address, port: port, zone: zone(service.interface)) else {
            return .foundNowhere(service)
        }
        var txt: [[UInt8]] = []
        for string in strings.prefix(Avahi.stringsMaximum) {
            guard case .bytes(let bytes) = string else { return nil }
            txt.append(bytes)
        }
        return .found(service, place, txt: txt)
    }
}
