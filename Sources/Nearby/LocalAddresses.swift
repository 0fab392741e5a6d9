// The addresses of this machine, read from the kernel when they are needed.
import Glibc

/// This machine's addresses on networks, and the interfaces by which link-local addresses of others may be reached.
public enum LocalAddresses {
    /// Maximum number of reported interfaces.
    public static let zonesMaximum = 4

    private struct Found {
        var address: [UInt8]
        var zone: String
        var kind: NearbyPlace.Kind
    }

    /// The addresses at which others may reach this machine, 4 or 16 bytes each: IPv4, global IPv6, link-local IPv6.
    ///
    /// - Parameter bridge: An interface whose addresses come first, because a record holds only a few.
    public static func all(with bridge: String? = nil) -> [[UInt8]] {
        let found = interfaces()
        var told: [[UInt8]] = []
        for entry in found where entry.zone == bridge && !told.contains(entry.address) { told.append(entry.address) }
        for kind in NearbyPlace.Kind.allCases {
            for entry in found where entry.kind == kind && !told.contains(entry.address) { told.append(entry.address) }
        }
        return told
    }

    /// The interfaces with a link-local address, at most `zonesMaximum`.
    public static var zones: [String] {
        var told: [String] = []
        for entry in interfaces() where entry.kind == .linkLocal && !told.contains(entry.zone) {
            told.append(entry.zone)
        }
        return Array(told.prefix(zonesMaximum))
    }

    /// The text of an address of 4 or 16 bytes; nil for any other number of bytes.
    static func text(_ address: [UInt8]) -> String? {
        guard address.count == 4 || address.count == 16 else { return nil }
        var buffer = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let family = address.count == 4 ? AF_INET : AF_INET6
        guard inet_ntop(family, address, &buffer, socklen_t(buffer.count)) != nil else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
    }

    private static func interfaces() -> [Found] {
        var list: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&list) == 0 else { return [] }
        defer { freeifaddrs(list) }
        var found: [Found] = []
        var next = list
        while let entry = next?.pointee {
            next = entry.ifa_next
            guard entry.ifa_flags & UInt32(IFF_UP) != 0, entry.ifa_flags & UInt32(IFF_LOOPBACK) == 0,
                let socketAddress = entry.ifa_addr, let address = bytes(of: socketAddress), let text = text(address)
            else { continue }
            let zone = String(cString: entry.ifa_name)
            // The port is of no account: it is the place of a machine on a network, or it is not.
            guard let place = NearbyPlace(address: text, port: 1, zone: zone) else { continue }
            found.append(Found(address: address, zone: zone, kind: place.kind))
        }
        return found
    }

    private static func bytes(of address: UnsafeMutablePointer<sockaddr>) -> [UInt8]? {
        switch Int32(address.pointee.sa_family) {
        case AF_INET:
            address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) { four in
                withUnsafeBytes(of: four.pointee.sin_addr) { [UInt8]($0) }
            }
        case AF_INET6:
            address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) { six in
                withUnsafeBytes(of: six.pointee.sin6_addr) { [UInt8]($0) }
            }
        default: nil
        }
    }
}
