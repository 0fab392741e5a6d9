// The route of packets to a peer: the source address and the interface.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc

/// The kernel's choice for packets to one address. When it changes, so does the path to the peer.
public struct NetworkRoute: Sendable, Equatable, CustomStringConvertible {
    /// This machine's address on the way; its port is 0.
    public let source: SocketAddress
    /// The interface's name; empty when the address is on none (a policy of the host's).
    public let interface: String

    /// The route by `source` through `interface`.
    public init(source: SocketAddress, interface: String) {
        self.source = source
        self.interface = interface
    }

    /// "192.0.2.1 through wlan0".
    public var description: String { interface.isEmpty ? source.host : "\(source.host) through \(interface)" }

    /// The current route to `remote`; nil when there is none, or its interface is down. It sends nothing.
    public static func toward(_ remote: SocketAddress) -> NetworkRoute? {
        let family = remote.isIPv4 ? AF_INET : AF_INET6
        let descriptor = socket(family, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var storage = sockaddr_storage()
        let source = withUnsafeMutableBytes(of: &storage) { bytes -> SocketAddress? in
            guard let base = bytes.baseAddress else { return nil }
            let address = base.assumingMemoryBound(to: sockaddr.self)
            var length = remote.encode(family: family, into: base)
            guard connect(descriptor, address, length) == 0 else { return nil }
            length = socklen_t(bytes.count)
            guard getsockname(descriptor, address, &length) == 0 else { return nil }
            return SocketAddress(base, length: Int(length))
        }
        guard let source else { return nil }
        let own = source.withoutPort
        guard let (interface, isRunning) = owner(of: own) else { return NetworkRoute(source: own, interface: "") }
        return isRunning ? NetworkRoute(source: own, interface: interface) : nil
    }

    /// The interface that has the address, and whether it is up and has a carrier.
    private static func owner(of address: SocketAddress) -> (name: String, isRunning: Bool)? {
        var list: UnsafeMutablePointer<ifaddrs>?
        guard getifaddrs(&list) == 0 else { return nil }
        defer { freeifaddrs(list) }
        var next = list
        while let entry = next?.pointee {
            next = entry.ifa_next
            guard let known = entry.ifa_addr else { continue }
            let length =
                Int32(known.pointee.sa_family) == AF_INET
                ? MemoryLayout<sockaddr_in>.size : MemoryLayout<sockaddr_in6>.size
            guard SocketAddress(known, length: length)?.withoutPort == address else { continue }
            let wanted = UInt32(IFF_UP) | UInt32(IFF_RUNNING)
            return (String(cString: entry.ifa_name), entry.ifa_flags & wanted == wanted)
        }
        return nil
    }
}
