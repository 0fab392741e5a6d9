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
    private let local: StoredEnd
    var watch: EventLoop.Watch?

    /// - Parameters:
    ///   - awaitsAddress: Whether the address may be one that the machine does not have yet.
    ///   - reportsErrors: Whether to queue ICMP errors.
    init(
        _ address: SocketAddress, reusePort: Bool, bufferSize: Int, awaitsAddress: Bool = false,
        reportsErrors: Bool = false
    ) throws(QUICError) {
        // Where IPv6 is switched off, "every address" means every IPv4 address.
        var family = address.isIPv4 ? AF_INET : AF_INET6
        let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        var descriptor = Glibc.socket(family, kind, 0)
        if descriptor < 0, address.isUnspecified {
            family = AF_INET
            descriptor = Glibc.socket(family, kind, 0)
        }
        guard descriptor >= 0 else { throw Self.failure("socket", address) }
        var isComplete = false
        defer { if !isComplete { close(descriptor) } }
        try Self.setOptions(descriptor, family, address, reusePort: reusePort, bufferSize: bufferSize)
        local = StoredEnd(address, family: family)
        isAwaited = bind(descriptor, local.end.socketAddress, local.length) != 0
        if isAwaited {
            // An address that the machine is going to have: at boot, before its network is up.
            guard awaitsAddress, errno == EADDRNOTAVAIL, Self.mayBindFreely(descriptor, family),
                bind(descriptor, local.end.socketAddress, local.length) == 0
            else { throw Self.failure("bind", address) }
        }
        local.length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        guard getsockname(descriptor, local.end.socketAddress, &local.length) == 0,
            let localAddress = local.end.value
        else { throw Self.failure("getsockname", address) }
        isComplete = true
        self.descriptor = descriptor
        self.family = family
        self.reportsErrors = reportsErrors && ptt_report_errors(descriptor, family) == 0
        self.localAddress = localAddress
        isWildcard = localAddress.isUnspecified
    }

    deinit { close(descriptor) }

    static func setOption(_ descriptor: Int32, _ level: Int32, _ option: Int32, to value: Int32 = 1) -> Bool {
        var value = value
        return setsockopt(descriptor, level, option, &value, socklen_t(MemoryLayout<Int32>.size)) == 0
    }

    /// Whether any address can be bound from now on, also one that the machine does not have (ip(7), IP_FREEBIND).
    private static func mayBindFreely(_ descriptor: Int32, _ family: Int32) -> Bool {
        // IPV6_FREEBIND, which Swift does not see.
        family == AF_INET6
            ? setOption(descriptor, Int32(IPPROTO_IPV6), 78) : setOption(descriptor, Int32(IPPROTO_IP), IP_FREEBIND)
    }

    private static func failure(_ call: String, _ address: SocketAddress) -> QUICError {
        .socket(SystemError(call), during: "opening UDP \(address)")
    }

    private static func setOptions(
        _ descriptor: Int32, _ family: Int32, _ address: SocketAddress, reusePort: Bool, bufferSize: Int
    ) throws(QUICError) {
        func set(_ level: Int32, _ option: Int32, _ value: Int32) -> Bool {
            setOption(descriptor, level, option, to: value)
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
        let local = local ?? self.local.end
        var path = ngtcp2_path()
        path.local.addr = local.socketAddress
        path.local.addrlen = local.length
        path.remote.addr = remote.socketAddress
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

    /// As socket calls take it.
    var socketAddress: UnsafeMutablePointer<sockaddr> { address.assumingMemoryBound(to: sockaddr.self) }

    /// As a value; nil when it is no IP address.
    var value: SocketAddress? { SocketAddress(address, length: Int(length)) }

    /// Whether both are the same, byte for byte.
    func isSame(as other: NetworkEnd?) -> Bool {
        guard let other else { return false }
        return length == other.length && memcmp(address, other.address, Int(length)) == 0
    }
}

extension NetworkEnd {
    /// One end of a path of the library's.
    init(_ end: ngtcp2_addr) { self.init(address: UnsafeMutableRawPointer(end.addr), length: end.addrlen) }
}

/// An address in the kernel's form, at one place for as long as this lives.
final class StoredEnd {
    private let storage: UnsafeMutablePointer<sockaddr_storage>
    /// 0: there is none.
    var length: socklen_t = 0

    init(_ end: NetworkEnd? = nil) {
        storage = .allocate(capacity: 1)
        storage.initialize(to: sockaddr_storage())
        set(end)
    }

    /// For a socket of `family`; none when such a socket cannot reach the address.
    convenience init(_ address: SocketAddress, family: Int32) {
        self.init()
        length = address.encode(family: family, into: storage)
    }

    deinit { storage.deallocate() }

    func set(_ end: NetworkEnd?) {
        length = min(end?.length ?? 0, socklen_t(MemoryLayout<sockaddr_storage>.size))
        if let end { UnsafeMutableRawPointer(storage).copyMemory(from: end.address, byteCount: Int(length)) }
    }

    /// Valid while this lives.
    var end: NetworkEnd { NetworkEnd(address: UnsafeMutableRawPointer(storage), length: length) }
    /// The same; nil: there is none.
    var endIfAny: NetworkEnd? { length > 0 ? end : nil }
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
        length = ptt_write_packet_source(control, local.socketAddress)
    }

    func deallocate() { control.deallocate() }
}
