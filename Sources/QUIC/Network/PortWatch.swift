// Notices that the process that had a UDP port has ended.
import CGnuTLS
import CLinux
import CNgtcp2
import Cryptography
import Glibc
import MonotonicTime
import Reactor

/// Watches one UDP port of a QUIC server. A host whose kernel runs answers packets to a port that nobody has with "port unreachable" (RFC
/// 1122, 4.1.3.1), which tells a process that has ended from a host that is gone, and from a process that is frozen. Where such answers are
/// filtered, it notices nothing. A port counts as closed only after it was open: first packets of an unknown QUIC version are sent until
/// one is answered with those that are known there (RFC 9000, 6). On one loop only.
public final class PortWatch {
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
    /// So many answers are read in one turn of the loop.
    private static let packetsPerTurn = 64

    /// Begins to ask; nil: there is no way to the address, or no descriptor.
    ///
    /// - Parameter onClosed: Called once, on the loop.
    public init?(_ address: SocketAddress, on loop: EventLoop, onClosed: @escaping () -> Void) {
        guard let descriptor = address.connectedSocket() else { return nil }
        (self.descriptor, self.loop, self.onClosed) = (descriptor, loop, onClosed)
        watch = try? loop.watch(descriptor, for: .readable) { [weak self] _ in self?.receive() }
        guard watch != nil else { return nil }
        ask()
    }

    deinit { close(descriptor) }

    /// Ends it.
    public func cancel() {
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
        // What is left is read in the next turn: whoever floods the port does not hold up the loop.
        for _ in 0..<Self.packetsPerTurn {
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
