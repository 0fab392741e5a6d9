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
        guard let descriptor = remote.connectedSocket() else { return nil }
        defer { close(descriptor) }
        let source = StoredEnd()
        source.length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        guard getsockname(descriptor, source.end.socketAddress, &source.length) == 0,
            let own = source.end.value?.withoutPort
        else { return nil }
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

extension SocketAddress {
    /// A UDP socket, non-blocking, whose packets go to this address; nil: there is no way to it, or no descriptor.
    func connectedSocket() -> Int32? {
        let family = isIPv4 ? AF_INET : AF_INET6
        let kind = SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        let descriptor = socket(family, Int32(kind), 0)
        guard descriptor >= 0 else { return nil }
        let peer = StoredEnd(self, family: family)
        guard connect(descriptor, peer.end.socketAddress, peer.length) == 0 else {
            close(descriptor)
            return nil
        }
        return descriptor
    }
}
