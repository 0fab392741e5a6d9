// The sockets for probes of hosts.
import Cryptography
import Glibc
import MonotonicTime
import Reactor
import RelayProtocol

/// Sends probes and reports which ones are answered. It runs on an event loop.
final class ProbeSocket {
    /// Maximum number of answers to read per turn of the loop.
    private static let packetsPerTurn = 64
    /// Probes whose answers are known: more than can wait for one.
    static let waitingMaximum = 2 * PlaceWatch.probesPerSecond * Int(PlaceWatch.answerTimeout.components.seconds)

    private let loop: EventLoop
    private let answered: (UInt64) -> Void
    private var sockets: [Int32: (descriptor: Int32, watch: EventLoop.Watch)] = [:]
    private var numbers: [VersionProbe.IDs: UInt64] = [:]
    private var order: [VersionProbe.IDs] = []

    /// - Parameter answered: Called on the loop with the number of a probe that a server has answered.
    init(on loop: EventLoop, answered: @escaping (UInt64) -> Void) {
        self.loop = loop
        self.answered = answered
    }

    /// Closes the sockets; the next probe opens them again.
    func close() {
        for (descriptor, watch) in sockets.values {
            watch.cancel()
            Glibc.close(descriptor)
        }
        sockets = [:]
        numbers = [:]
        order = []
    }

    /// Sends a probe. One that cannot be sent is one that is not answered.
    func send(to place: RelayPlace, number: UInt64) {
        let ids = VersionProbe.IDs(random: SecureRandom.bytes(2 * VersionProbe.idByteCount))
        let packet = VersionProbe.packet(ids)
        var four = sockaddr_in()
        var six = sockaddr_in6()
        if inet_pton(AF_INET, place.host, &four.sin_addr) == 1 {
            guard let descriptor = socket(AF_INET) else { return }
            four.sin_family = sa_family_t(AF_INET)
            four.sin_port = place.port.bigEndian
            Self.send(packet, to: &four, by: descriptor)
        } else {
            let halves = place.host.split(separator: "%", maxSplits: 1)
            guard inet_pton(AF_INET6, String(halves[0]), &six.sin6_addr) == 1, let descriptor = socket(AF_INET6)
            else { return }
            six.sin6_family = sa_family_t(AF_INET6)
            six.sin6_port = place.port.bigEndian
            if halves.count == 2 { six.sin6_scope_id = if_nametoindex(String(halves[1])) }
            Self.send(packet, to: &six, by: descriptor)
        }
        numbers[ids] = number
        order.append(ids)
        if order.count > Self.waitingMaximum { numbers[order.removeFirst()] = nil }
    }

    private static func send<Address>(_ packet: [UInt8], to address: inout Address, by descriptor: Int32) {
        withUnsafeBytes(of: &address) { address in
            guard let base = address.baseAddress else { return }
            _ = sendto(
                descriptor, packet, packet.count, 0, base.assumingMemoryBound(to: sockaddr.self),
                socklen_t(address.count))
        }
    }

    private func socket(_ family: Int32) -> Int32? {
        if let known = sockets[family] { return known.descriptor }
        let kind = Int32(SOCK_DGRAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = Glibc.socket(family, kind, 0)
        guard descriptor >= 0 else { return nil }
        do {
            let watch = try loop.watch(descriptor, for: .readable) { [weak self] _ in self?.receive(from: descriptor) }
            sockets[family] = (descriptor, watch)
            return descriptor
        } catch {
            Glibc.close(descriptor)
            return nil
        }
    }

    private func receive(from descriptor: Int32) {
        var buffer = [UInt8](repeating: 0, count: VersionProbe.byteCount)
        for _ in 0..<Self.packetsPerTurn {
            // Longer packets come cut, and are no answers of interest.
            let count = recv(descriptor, &buffer, buffer.count, 0)
            guard count >= 0 else { return }
            guard let ids = VersionProbe.answered(by: Array(buffer.prefix(count))),
                let number = numbers.removeValue(forKey: ids)
            else { continue }
            order.removeAll { $0 == ids }
            answered(number)
        }
    }
}
