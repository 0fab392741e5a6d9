// Learns from the controller when a link ends, at the same time as the kernel does. It needs no capability.
import CBluetooth
import Glibc
import Reactor

/// An object that tracks the links of one adapter.
public protocol LELinkListener: AnyObject {
    /// The links that the kernel has now.
    func links() throws(LEConnectionError) -> [LELink]
    /// Ends it; nothing more is called.
    func shut()
}

/// A raw HCI socket of one adapter that takes only the event of a link's end. Confined to its loop's thread.
public final class LELinkWatch: LELinkListener {
    /// The longest event: its head and 255 bytes (Bluetooth Core, Vol 4, Part A, 2; Part E, 5.4.4).
    private static let packetMaximum = 1 + 2 + 255
    /// Events taken at a turn; the rest waits for the next one.
    private static let packetsPerTurn = 64

    private let adapter: UInt16
    private var socket: Int32
    private var watch: EventLoop.Watch?
    private let onEnd: (UInt16) -> Void
    private let onLoss: () -> Void

    /// Listens from now on.
    ///
    /// - Parameters:
    ///   - adapter: The kernel's number of the adapter.
    ///   - onEnd: Called with the handle of each link that has ended.
    ///   - onLoss: Called once when the adapter is gone; nothing more comes then.
    public init(
        adapter: UInt16, loop: EventLoop, onEnd: @escaping (UInt16) -> Void, onLoss: @escaping () -> Void
    ) throws(LEConnectionError) {
        self.adapter = adapter
        self.onEnd = onEnd
        self.onLoss = onLoss
        socket = hci_open_dev(Int32(adapter))
        guard socket >= 0 else { throw LEConnectionError("hci_open_dev", errno) }
        do throws(LEConnectionError) {
            var filter = hci_filter()
            hci_filter_clear(&filter)
            hci_filter_set_ptype(HCI_EVENT_PKT, &filter)
            hci_filter_set_event(EVT_DISCONN_COMPLETE, &filter)
            guard
                setsockopt(socket, SOL_HCI, HCI_FILTER, &filter, socklen_t(MemoryLayout<hci_filter>.size)) == 0,
                fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK) == 0
            else { throw LEConnectionError("setsockopt(HCI_FILTER)", errno) }
            do throws(SystemError) {
                watch = try loop.watch(socket, for: .readable) { [unowned self] _ in read() }
            } catch {
                throw LEConnectionError(error.call, error.code)
            }
        } catch {
            hci_close_dev(socket)
            throw error
        }
    }

    deinit { shut() }

    /// Ends it.
    public func shut() {
        watch?.cancel()
        watch = nil
        if socket >= 0 { hci_close_dev(socket) }
        socket = -1
    }

    /// The links that the kernel has now. What the controller had to say before is heard first, so that an end is never taken for that of a
    /// newer link with the same handle.
    public func links() throws(LEConnectionError) -> [LELink] {
        read()
        guard socket >= 0 else { throw .noAdapter }
        return try LEConnection.links(adapter: adapter, socket)
    }

    private func read() {
        for _ in 0..<Self.packetsPerTurn where socket >= 0 {
            let packet = withUnsafeTemporaryAllocation(byteCount: Self.packetMaximum, alignment: 1) {
                buffer -> [UInt8]? in
                let count = Glibc.read(socket, buffer.baseAddress, buffer.count)
                return count < 0 ? nil : Array(buffer.prefix(count))
            }
            guard let packet, !packet.isEmpty else {
                // A socket without a word to read has lost its adapter, too.
                if packet == nil, errno == EAGAIN || errno == EINTR { return }
                shut()
                return onLoss()
            }
            if let handle = Self.endedHandle(in: packet) { onEnd(handle) }
        }
    }

    /// The handle in an event of a link's end, Disconnection Complete (Bluetooth Core, Vol 4, Part E, 7.7.5); nil: it is none.
    static func endedHandle(in packet: [UInt8]) -> UInt16? {
        guard packet.count >= 7, packet[0] == HCI_EVENT_PKT, packet[1] == EVT_DISCONN_COMPLETE, packet[2] >= 4 else {
            return nil
        }
        // An attempt to end it that failed has a status.
        guard packet[3] == 0 else { return nil }
        return (UInt16(packet[4]) | UInt16(packet[5]) << 8) & 0x0fff
    }
}
