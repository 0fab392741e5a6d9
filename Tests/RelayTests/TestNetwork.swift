// A stretch of network between clients and a relay on loopback: it loses, doubles and delays packets, and can be
// led to another relay.
import CLinux
import Glibc
import MonotonicTime
import Reactor
import RelayProtocol
import TestSupport

/// Forwards UDP packets between whoever sends to `port` and a relay; each client gets a socket of its own.
final class TestNetwork: @unchecked Sendable {
    /// What the network does to packets, in both directions.
    struct Faults: Sendable {
        var lossPercent = 0
        var duplicatePercent = 0
        var delay: ClosedRange<Duration> = .zero...(.zero)
        var seed: UInt64 = 1
    }

    let loop: EventLoop
    let port: UInt16
    private let front: Int32
    private var target: UInt16
    private var isOpen = true
    private let faults: Faults
    private var random: SeededGenerator
    /// By the client's port: its socket towards the relay. Confined to the loop, like all below.
    private var backs: [UInt16: Int32] = [:]
    private var watches: [EventLoop.Watch] = []
    private var meddler: (@Sendable ([UInt8]) -> [[UInt8]])?
    private var recording: [(bytes: [UInt8], back: Int32)]?
    private var isBlocked: @Sendable (UInt8) -> Bool = { _ in false }
    private var diversion: (socket: Int32, takes: @Sendable (UInt8) -> Bool)?

    init(to target: UInt16, faults: Faults = Faults()) async throws {
        loop = try EventLoop(name: "network")
        self.target = target
        self.faults = faults
        random = SeededGenerator(seed: faults.seed)
        (front, port) = try Self.socket()
        try await loop.run { [self] in
            watches.append(
                try loop.watch(front, for: .readable) { [weak self] _ in
                    guard let self else { return }
                    Self.drain(front) { bytes, sender in
                        guard let back = self.back(for: sender) else { return }
                        let target = self.target
                        if let first = bytes.first, self.isBlocked(first) { return }
                        self.recording?.append((bytes, back))
                        self.pass(bytes, on: back, to: target)
                    }
                })
        }
    }

    deinit {
        loop.stop()
        if isOpen { close(front) }
        for back in backs.values { close(back) }
    }

    /// Leads every packet to another relay from now on, and forgets what the old one still says.
    func redirect(to target: UInt16) async throws {
        try await loop.run { [self] in self.target = target }
    }

    /// Nobody has `port` any more, as when a relay is killed.
    func end() async throws {
        try await loop.run { [self] in
            watches.removeFirst().cancel()
            close(front)
            isOpen = false
        }
    }

    /// Forgets its mappings, as a NAT may: from now on the relay sees every client at another port, and what it sends to
    /// the old ones is lost.
    func rebind() async throws {
        try await loop.run { [self] in
            for watch in watches.dropFirst() { watch.cancel() }
            watches.removeLast(watches.count - 1)
            for back in backs.values { close(back) }
            backs = [:]
        }
    }

    /// What becomes of each packet from the relay to a client.
    func meddle(_ meddler: @escaping @Sendable ([UInt8]) -> [[UInt8]]) async {
        try? await loop.run { [self] in self.meddler = meddler }
    }

    /// Lets no packet of a client pass whose first byte is one of those.
    func block(_ isBlocked: @escaping @Sendable (UInt8) -> Bool) async {
        try? await loop.run { [self] in self.isBlocked = isBlocked }
    }

    /// Keeps what clients send from now on.
    func record() async throws { try await loop.run { [self] in recording = [] } }

    /// Sends all that was recorded again, in its order: as if its senders did it, or from elsewhere.
    ///
    /// - Returns: How many packets that was.
    func replay(through socket: Int32? = nil) async throws -> Int {
        try await loop.run { [self] in
            for packet in recording ?? [] { Self.send(packet.bytes, on: socket ?? packet.back, to: target) }
            return recording?.count ?? 0
        }
    }

    /// Packets from the relay whose first byte `takes` likes come from another socket.
    func divert(through socket: Int32, _ takes: @escaping @Sendable (UInt8) -> Bool) async {
        try? await loop.run { [self] in diversion = (socket, takes) }
    }

    private func passBack(_ bytes: [UInt8], to client: UInt16) {
        guard isOpen else { return }
        if let diversion, let first = bytes.first, diversion.takes(first) {
            return Self.send(bytes, on: diversion.socket, to: client)
        }
        for packet in meddler?(bytes) ?? [bytes] { pass(packet, on: front, to: client) }
    }

    private func back(for client: UInt16) -> Int32? {
        if let known = backs[client] { return known }
        guard let (back, _) = try? Self.socket(),
            let watch = try? loop.watch(
                back, for: .readable,
                { [weak self] _ in
                    guard let self else { return }
                    Self.drain(back) { bytes, sender in
                        guard sender == self.target else { return }
                        self.passBack(bytes, to: client)
                    }
                })
        else { return nil }
        watches.append(watch)
        backs[client] = back
        return back
    }

    private func pass(_ bytes: [UInt8], on socket: Int32, to port: UInt16) {
        if random.chance(faults.lossPercent) { return }
        for _ in 0..<(random.chance(faults.duplicatePercent) ? 2 : 1) {
            let range = faults.delay.lowerBound.nanoseconds...faults.delay.upperBound.nanoseconds
            let delay = Int64.random(in: range, using: &random)
            guard delay > 0 else {
                Self.send(bytes, on: socket, to: port)
                continue
            }
            loop.schedule(after: .nanoseconds(delay)) { Self.send(bytes, on: socket, to: port) }
        }
    }

    // MARK: Sockets

    /// A UDP socket on 127.0.0.1 and its port.
    static func socket() throws -> (Int32, UInt16) {
        let descriptor = Glibc.socket(
            AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw SystemError("socket") }
        var address = loopback(0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let status = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 ? getsockname(descriptor, $0, &length) : -1
            }
        }
        guard status == 0 else { throw SystemError("bind") }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr)
        return address
    }

    static func send(_ bytes: [UInt8], on descriptor: Int32, to port: UInt16) {
        var address = loopback(port)
        withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                _ = bytes.withUnsafeBytes {
                    sendto(
                        descriptor, $0.baseAddress, $0.count, 0, pointer, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    private static func drain(_ descriptor: Int32, _ body: ([UInt8], UInt16) -> Void) {
        var buffer = [UInt8](repeating: 0, count: 2_048)
        while true {
            var address = sockaddr_in()
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let count = withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                    recvfrom(descriptor, &buffer, buffer.count, 0, pointer, &length)
                }
            }
            guard count > 0 else { return }
            body(Array(buffer[..<count]), UInt16(bigEndian: address.sin_port))
        }
    }
}

extension InvitationLink {
    /// The same invitation, reached through a network.
    func through(_ network: TestNetwork) -> InvitationLink {
        var link = self
        link.port = network.port
        return link
    }
}
