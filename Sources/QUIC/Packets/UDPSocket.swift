// A UDP socket with its own address in the forms that the kernel and the QUIC library want.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// A bound, non-blocking UDP socket. IPv6 sockets serve IPv4 too, unless bound to one IPv6 address.
final class UDPSocket {
    let descriptor: Int32
    let family: Int32
    let localAddress: SocketAddress
    /// Bound to every address: each packet says which one it was sent to, and answers leave from that one.
    let isWildcard: Bool
    /// Bound to an address that the machine did not have then.
    let isAwaited: Bool
    /// Whether it queues ICMP errors for `nextError`.
    let reportsErrors: Bool
    private let local: UnsafeMutablePointer<sockaddr_storage>
    private let localLength: socklen_t
    var watch: EventLoop.Watch?

    /// - Parameters:
    ///   - awaitsAddress: Whether the address may be one that the machine does not have yet.
    ///   - reportsErrors: Whether to queue ICMP errors.
    init(
        _ address: SocketAddress, reusePort: Bool, bufferSize: Int, awaitsAddress: Bool = false,
        reportsErrors: Bool = false
    ) throws(QUICError) {
        let storage = UnsafeMutablePointer<sockaddr_storage>.allocate(capacity: 1)
        storage.initialize(to: sockaddr_storage())
        do throws(QUICError) {
            // Where IPv6 is switched off, "every address" means every IPv4 address.
            let wanted = address.isIPv4 ? AF_INET : AF_INET6
            let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
            var descriptor = Glibc.socket(wanted, kind, 0)
            var family = wanted
            if descriptor < 0, address.isUnspecified {
                family = AF_INET
                descriptor = Glibc.socket(family, kind, 0)
            }
            guard descriptor >= 0 else { throw Self.failure("socket", address) }
            var complete = false
            defer { if !complete { close(descriptor) } }
            try Self.setOptions(descriptor, family, address, reusePort: reusePort, bufferSize: bufferSize)
            let length = address.encode(family: family, into: storage)
            func isBound() -> Bool {
                UnsafeRawPointer(storage).withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, length) == 0
                }
            }
            if !isBound() {
                // An address that the machine is going to have: at boot, before its network is up.
                guard awaitsAddress, errno == EADDRNOTAVAIL, Self.mayBindFreely(descriptor, family), isBound() else {
                    throw Self.failure("bind", address)
                }
                isAwaited = true
            } else {
                isAwaited = false
            }
            var actual = socklen_t(MemoryLayout<sockaddr_storage>.size)
            let named = UnsafeMutableRawPointer(storage).withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getsockname(descriptor, $0, &actual)
            }
            guard named == 0, let localAddress = SocketAddress(storage, length: Int(actual)) else {
                throw Self.failure("getsockname", address)
            }
            complete = true
            self.descriptor = descriptor
            self.family = family
            self.reportsErrors = reportsErrors && ptt_report_errors(descriptor, family) == 0
            self.localAddress = localAddress
            isWildcard = localAddress.isUnspecified
            local = storage
            localLength = actual
        } catch {
            storage.deallocate()
            throw error
        }
    }

    deinit {
        close(descriptor)
        local.deallocate()
    }

    /// Whether any address can be bound from now on, also one that the machine does not have (ip(7), IP_FREEBIND).
    private static func mayBindFreely(_ descriptor: Int32, _ family: Int32) -> Bool {
        // IPV6_FREEBIND, which Swift does not see.
        let (level, option): (Int32, Int32) =
            family == AF_INET6 ? (Int32(IPPROTO_IPV6), 78) : (Int32(IPPROTO_IP), IP_FREEBIND)
        var isOn: Int32 = 1
        return setsockopt(descriptor, level, option, &isOn, socklen_t(MemoryLayout<Int32>.size)) == 0
    }

    private static func failure(_ call: String, _ address: SocketAddress) -> QUICError {
        .socket(SystemError(call), during: "opening UDP \(address)")
    }

    private static func setOptions(
        _ descriptor: Int32, _ family: Int32, _ address: SocketAddress, reusePort: Bool, bufferSize: Int
    ) throws(QUICError) {
        func set(_ level: Int32, _ option: Int32, _ value: Int32) -> Bool {
            var value = value
            return setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size)) == 0
        }
        if family == AF_INET6 {
            guard set(Int32(IPPROTO_IPV6), IPV6_V6ONLY, 0) else { throw failure("IPV6_V6ONLY", address) }
        }
        if reusePort {
            guard set(SOL_SOCKET, SO_REUSEPORT, 1) else { throw failure("SO_REUSEPORT", address) }
        }
        if address.isUnspecified {
            let told =
                family == AF_INET6
                ? set(Int32(IPPROTO_IPV6), PTT_IPV6_RECVPKTINFO, 1) : set(Int32(IPPROTO_IP), IP_PKTINFO, 1)
            guard told else { throw failure("IP_PKTINFO", address) }
        }
        // QUIC packets must not be fragmented (RFC 9000, section 14); best effort, as are the buffers.
        if family == AF_INET6 { _ = set(Int32(IPPROTO_IPV6), IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE) }
        _ = set(Int32(IPPROTO_IP), IP_MTU_DISCOVER, IP_PMTUDISC_PROBE)
        _ = set(SOL_SOCKET, SO_RCVBUF, Int32(clamping: bufferSize))
        _ = set(SOL_SOCKET, SO_SNDBUF, Int32(clamping: bufferSize))
    }

    /// An error that a host has reported.
    struct ReportedError {
        /// An errno value; -1: it is one of this machine.
        let code: Int32
        /// Where the packet was sent.
        let destination: SocketAddress?
        /// Its beginning, as far as the host quotes it.
        let packet: [UInt8]
    }

    /// Takes the next error; nil: there is none.
    func nextError() -> ReportedError? {
        var (destination, length) = (sockaddr_storage(), socklen_t(0))
        var packet = [UInt8](repeating: 0, count: Self.quotedBytesMaximum)
        var count = packet.count
        let code = ptt_next_error(descriptor, &destination, &length, &packet, &count)
        guard code != 0 else { return nil }
        return ReportedError(
            code: code, destination: withUnsafePointer(to: &destination) { SocketAddress($0, length: Int(length)) },
            packet: Array(packet.prefix(count)))
    }

    /// A QUIC header with the longest connection id that comes first in it.
    private static let quotedBytesMaximum = 6 + ConnectionID.maximumLength

    /// The path from `local`, or when that is nil this socket's own address, to `remote`, for one call of the library.
    func withPath<T>(from local: NetworkEnd? = nil, to remote: NetworkEnd, _ body: (UnsafePointer<ngtcp2_path>) -> T)
        -> T
    {
        let local = local ?? NetworkEnd(address: UnsafeMutableRawPointer(self.local), length: localLength)
        var path = ngtcp2_path()
        path.local.addr = local.address.assumingMemoryBound(to: sockaddr.self)
        path.local.addrlen = local.length
        path.remote.addr = remote.address.assumingMemoryBound(to: sockaddr.self)
        path.remote.addrlen = remote.length
        return body(&path)
    }

    /// Whether packets from `address` leave by this socket.
    func serves(_ address: SocketAddress) -> Bool {
        localAddress == address || (isWildcard && localAddress.port == address.port)
    }
}

/// An address in the kernel's form, somewhere in memory that outlives the use.
struct NetworkEnd {
    let address: UnsafeMutableRawPointer
    let length: socklen_t

    /// As a value; nil when it is no IP address.
    var value: SocketAddress? { SocketAddress(address, length: Int(length)) }

    /// Whether both are the same, byte for byte.
    func isSame(as other: NetworkEnd?) -> Bool {
        guard let other else { return false }
        return length == other.length && memcmp(address, other.address, Int(length)) == 0
    }
}

/// What makes packets leave from one of the host's addresses, for sockets that are bound to all of them.
struct PacketSource {
    let control = UnsafeMutableRawPointer.allocate(byteCount: Int(PTT_CONTROL_LENGTH), alignment: 8)
    private(set) var length = 0

    /// From now on, packets leave from `local` if `socket` has several addresses.
    mutating func set(_ local: NetworkEnd?, on socket: UDPSocket) {
        guard socket.isWildcard, let local, local.value?.isUnspecified == false else {
            length = 0
            return
        }
        length = ptt_write_packet_source(control, local.address.assumingMemoryBound(to: sockaddr.self))
    }

    func deallocate() { control.deallocate() }
}
