// Notices that the process behind a relay's UDP port has ended.
import Cryptography
import Glibc
import MonotonicTime
import Reactor

/// Watches one UDP port. A host whose kernel runs answers packets to a port that nobody has with "port unreachable" (RFC 1122, 4.1.3.1),
/// which tells a process that was killed from a host that is gone.
///
/// It believes that only of a port that was open before: it sends a first packet of an unknown QUIC version, which a relay answers with
/// those that it knows (RFC 9000, 6). On the loop only.
final class PortWatch {
    private let descriptor: Int32
    private let loop: EventLoop
    private let onClosed: () -> Void
    private var watch: EventLoop.Watch?
    private var timer: EventLoop.Timer?
    private var isOpen = false

    /// How often it asks.
    private static let interval: Duration = .milliseconds(250)
    /// A server takes no first packet that is shorter.
    private static let byteCount = 1_200

    /// - Parameter onClosed: Called once.
    init?(_ address: PortAddress, on loop: EventLoop, onClosed: @escaping () -> Void) {
        self.loop = loop
        self.onClosed = onClosed
        descriptor = socket(
            address.family, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { return nil }
        guard address.withBytes({ connect(descriptor, $0, $1) }) == 0 else { return nil }
        watch = try? loop.watch(descriptor, for: .readable) { [weak self] _ in self?.receive() }
        ask()
    }

    deinit { close(descriptor) }

    func cancel() {
        watch?.cancel()
        timer?.cancel()
        (watch, timer) = (nil, nil)
    }

    private func ask() {
        timer = loop.schedule(after: Self.interval) { [weak self] in self?.ask() }
        var packet = [UInt8](repeating: 0, count: isOpen ? 1 : Self.byteCount)
        if !isOpen {
            // A long header, a version that is reserved for this, and two connection identifiers of eight bytes (RFC 9000, 17.2 and 15).
            let head: [UInt8] = [0xC0, 0x1A, 0x2A, 0x3A, 0x4A, 8] + SecureRandom.bytes(8) + [8] + SecureRandom.bytes(8)
            packet.replaceSubrange(0..<head.count, with: head)
        }
        if send(descriptor, packet, packet.count, Int32(MSG_NOSIGNAL)) < 0, errno == ECONNREFUSED { refused() }
    }

    private func receive() {
        var buffer = [UInt8](repeating: 0, count: 2_048)
        while true {
            if recv(descriptor, &buffer, buffer.count, 0) >= 0 {
                isOpen = true
            } else if errno == ECONNREFUSED {
                return refused()
            } else if errno != EINTR {
                return
            }
        }
    }

    private func refused() {
        guard isOpen else { return }
        cancel()
        onClosed()
    }
}

/// A numeric address with a port.
struct PortAddress: Sendable {
    let family: Int32
    private let bytes: [UInt8]

    /// The first address of `place`, which is `host:port` or `[host]:port`; nil: it has none. It may wait for a name server.
    static func find(_ place: String) -> PortAddress? {
        guard let colon = place.lastIndex(of: ":") else { return nil }
        let host = place[..<colon].trimmingPrefix("[")
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_DGRAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let name = String(host.hasSuffix("]") ? host.dropLast() : host)
        guard getaddrinfo(name, String(place[place.index(after: colon)...]), &hints, &list) == 0 else { return nil }
        defer { freeaddrinfo(list) }
        guard let first = list?.pointee, let address = first.ai_addr else { return nil }
        return PortAddress(
            family: first.ai_family,
            bytes: Array(UnsafeRawBufferPointer(start: address, count: Int(first.ai_addrlen))))
    }

    func withBytes<T>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> T) -> T {
        bytes.withUnsafeBytes { buffer in
            // Never empty: it is what getaddrinfo(3) has made.
            body(buffer.baseAddress!.assumingMemoryBound(to: sockaddr.self), socklen_t(buffer.count))
        }
    }
}
