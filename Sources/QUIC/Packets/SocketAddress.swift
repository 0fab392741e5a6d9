// An IP address and port as a value: printable, comparable, convertible to what socket calls take, and found by a name.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import Reactor

/// An IPv4 or IPv6 address with a UDP port.
///
/// An IPv4 address and the same address in its IPv6-mapped form (RFC 4291, section 2.5.5.2), which dual-stack
/// sockets report, are equal.
public struct SocketAddress: Hashable, Sendable, CustomStringConvertible {
    /// The address's 16 bytes as two numbers; IPv4 in the mapped form.
    private let high: UInt64
    private let low: UInt64
    private let scope: UInt32
    /// The UDP port; 0 lets the kernel choose when binding.
    public var port: UInt16

    private static let mappedPrefix: UInt64 = 0xFFFF

    /// What one customer of a network has: an IPv4 address, or the first half of an IPv6 address; without a port.
    var block: SocketAddress {
        SocketAddress(high: high, low: isIPv4 ? low : 0, scope: scope, port: 0)
    }

    private init(high: UInt64, low: UInt64, scope: UInt32, port: UInt16) {
        self.high = high
        self.low = low
        self.scope = scope
        self.port = port
    }

    private init(_ four: in_addr, port: UInt16) {
        self.init(high: 0, low: Self.mappedPrefix << 32 | UInt64(UInt32(bigEndian: four.s_addr)), scope: 0, port: port)
    }

    private init(_ six: in6_addr, scope: UInt32, port: UInt16) {
        let (high, low) = withUnsafeBytes(of: six) {
            ($0.loadUnaligned(as: UInt64.self), $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
        }
        self.init(high: UInt64(bigEndian: high), low: UInt64(bigEndian: low), scope: scope, port: port)
    }

    /// The numeric address `host` ("192.0.2.1", "2001:db8::1", "fe80::1%eth0"), or nil when it is none.
    public init?(_ host: String, port: UInt16) {
        // To inet_pton(3) text ends at its first NUL.
        guard !host.utf8.contains(0) else { return nil }
        var four = in_addr()
        if inet_pton(AF_INET, host, &four) == 1 {
            self.init(four, port: port)
            return
        }
        let parts = host.split(separator: "%", maxSplits: 1, omittingEmptySubsequences: false)
        var six = in6_addr()
        guard let address = parts.first, inet_pton(AF_INET6, String(address), &six) == 1 else { return nil }
        var scope: UInt32 = 0
        if parts.count == 2 {
            scope = UInt32(parts[1]) ?? if_nametoindex(String(parts[1]))
            guard scope != 0 else { return nil }
        }
        self.init(six, scope: scope, port: port)
    }

    /// The address in a kernel structure, or nil when it is of another family than IP or cut short.
    init?(_ pointer: UnsafeRawPointer, length: Int) {
        guard length >= MemoryLayout<sa_family_t>.size else { return nil }
        switch Int32(pointer.loadUnaligned(as: sa_family_t.self)) {
        case AF_INET where length >= MemoryLayout<sockaddr_in>.size:
            let four = pointer.loadUnaligned(as: sockaddr_in.self)
            self.init(four.sin_addr, port: UInt16(bigEndian: four.sin_port))
        case AF_INET6 where length >= MemoryLayout<sockaddr_in6>.size:
            let six = pointer.loadUnaligned(as: sockaddr_in6.self)
            self.init(six.sin6_addr, scope: six.sin6_scope_id, port: UInt16(bigEndian: six.sin6_port))
        default: return nil
        }
    }

    /// Every local address, IPv4 and IPv6.
    public static func any(port: UInt16 = 0) -> SocketAddress { SocketAddress(high: 0, low: 0, scope: 0, port: port) }

    /// 127.0.0.1.
    public static func loopback(port: UInt16 = 0) -> SocketAddress {
        SocketAddress(high: 0, low: mappedPrefix << 32 | 0x7F00_0001, scope: 0, port: port)
    }

    /// Whether it is an IPv4 address.
    public var isIPv4: Bool { high == 0 && low >> 32 == Self.mappedPrefix }

    /// Whether it stands for every local address.
    public var isUnspecified: Bool { high == 0 && (low == 0 || low == Self.mappedPrefix << 32) }

    /// The address without the port, in its usual notation.
    public var host: String {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        if isIPv4 {
            var four = fourBytes
            inet_ntop(AF_INET, &four, &text, socklen_t(text.count))
        } else {
            var six = sixBytes
            inet_ntop(AF_INET6, &six, &text, socklen_t(text.count))
        }
        let name = String(decoding: text.prefix { $0 != 0 }.map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        return scope == 0 ? name : "\(name)%\(scope)"
    }

    /// "192.0.2.1:4433" or "[2001:db8::1]:4433".
    public var description: String { isIPv4 ? "\(host):\(port)" : "[\(host)]:\(port)" }

    /// The same address with port 0.
    var withoutPort: SocketAddress { SocketAddress(high: high, low: low, scope: scope, port: 0) }

    /// "Every address" as IPv4 writes it; others stay as they are.
    var asIPv4: SocketAddress {
        isUnspecified ? SocketAddress(high: 0, low: Self.mappedPrefix << 32, scope: 0, port: port) : self
    }

    private var fourBytes: in_addr { in_addr(s_addr: UInt32(truncatingIfNeeded: low).bigEndian) }

    private var sixBytes: in6_addr {
        var six = in6_addr()
        withUnsafeMutableBytes(of: &six) {
            $0.storeBytes(of: high.bigEndian, as: UInt64.self)
            $0.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
        }
        return six
    }

    /// Writes the kernel structure for a socket of `family` (AF_INET or AF_INET6) and returns its length; 0 when
    /// such a socket cannot reach the address.
    func encode(family: Int32, into storage: UnsafeMutableRawPointer) -> socklen_t {
        if family == AF_INET {
            guard isIPv4 || isUnspecified else { return 0 }
            var four = sockaddr_in()
            four.sin_family = sa_family_t(AF_INET)
            four.sin_port = port.bigEndian
            four.sin_addr = fourBytes
            storage.storeBytes(of: four, as: sockaddr_in.self)
            return socklen_t(MemoryLayout<sockaddr_in>.size)
        }
        var six = sockaddr_in6()
        six.sin6_family = sa_family_t(AF_INET6)
        six.sin6_port = port.bigEndian
        six.sin6_addr = sixBytes
        six.sin6_scope_id = scope
        storage.storeBytes(of: six, as: sockaddr_in6.self)
        return socklen_t(MemoryLayout<sockaddr_in6>.size)
    }
}

extension SocketAddress {
    /// The addresses of `host`, in the resolver's order of preference (getaddrinfo(3)). The resolver blocks, so it
    /// runs on a thread of its own; a numeric host needs none.
    ///
    /// - Throws: `QUICError.unresolvedHost`.
    public static func resolve(_ host: String, port: UInt16) async throws(QUICError) -> [SocketAddress] {
        if let numeric = SocketAddress(host, port: port) { return [numeric] }
        let result = await withCheckedContinuation { (continuation: CheckedContinuation<Resolution, Never>) in
            let work = Unmanaged.passRetained(
                Work { continuation.resume(returning: lookUp(host, port: port)) })
            var thread = pthread_t()
            let status = pthread_create(
                &thread, nil,
                { argument in
                    if let argument { Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().run() }
                    return nil
                }, work.toOpaque())
            guard status == 0 else {
                work.release()
                let error = SystemError("pthread_create", code: status)
                continuation.resume(returning: .failure(.socket(error, during: "resolving '\(host)'")))
                return
            }
            pthread_detach(thread)
        }
        return try result.get()
    }
}

private typealias Resolution = Result<[SocketAddress], QUICError>

/// What a thread has to do.
private final class Work {
    let run: () -> Void

    init(_ run: @escaping () -> Void) { self.run = run }
}

private func lookUp(_ host: String, port: UInt16) -> Resolution {
    var hints = addrinfo()
    hints.ai_family = AF_UNSPEC
    hints.ai_socktype = Int32(SOCK_DGRAM.rawValue)
    var list: UnsafeMutablePointer<addrinfo>?
    let status = getaddrinfo(host, nil, &hints, &list)
    guard status == 0 else { return .failure(.unresolvedHost(host, reason: String(cString: gai_strerror(status)))) }
    defer { freeaddrinfo(list) }
    var addresses: [SocketAddress] = []
    var next = list
    while let entry = next {
        if let address = entry.pointee.ai_addr,
            var found = SocketAddress(UnsafeRawPointer(address), length: Int(entry.pointee.ai_addrlen))
        {
            found.port = port
            addresses.append(found)
        }
        next = entry.pointee.ai_next
    }
    return addresses.isEmpty ? .failure(.unresolvedHost(host, reason: "no IP address")) : .success(addresses)
}
