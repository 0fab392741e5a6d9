// What forwarding costs: CPU of the relay's thread per packet and listener, and the time a packet takes from the talker's call to
// the listener's handler, on loopback, beside a bare sendmmsg loop in the same run.
//
//   swift run -c release relay-forward [LISTENERS] [SECONDS]
import CLinux
import Cryptography
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import Reactor
import RelayClient
import RelayProtocol
import RelayServer
import Synchronization
import Vocabulary

/// One Opus frame of 20 ms at 24 kbit/s; with RTP, SFrame and trailer it is a packet of about 130 bytes.
private let payloadBytes = 60
private let framesPerSecond = 50

private final class Latencies: Sendable {
    private let values = Mutex<[Double]>([])
    func add(_ value: Duration) { values.withLock { $0.append(value.milliseconds * 1_000) } }
    func percentile(_ share: Double) -> Double {
        values.withLock { values in
            let sorted = values.sorted()
            return sorted.isEmpty ? .nan : sorted[min(sorted.count - 1, Int(share * Double(sorted.count)))]
        }
    }
    var count: Int { values.withLock { $0.count } }
}

@main
struct RelayForward {
    static func main() async throws {
        let arguments = CommandLine.arguments.dropFirst().compactMap { Int($0) }
        let listeners = arguments.first ?? 100
        let seconds = arguments.dropFirst().first ?? 10
        let quiet = Logger(label: "benchmark") { _ in SwiftLogNoOpLogHandler() }
        let channel = RelayChannelConfiguration(
            id: ChannelID(), name: DisplayName(cleaning: "Yard", fallback: "Yard"), token: InvitationToken())
        let server = try RelayServer(
            configuration: RelayServerConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, identity: Identity(generating: "relay"), channels: [channel]),
            logger: quiet)
        try await server.start()
        let link = try await server.invitation(for: channel.id, host: "127.0.0.1")

        let latencies = Latencies()
        let heard = Atomic<Int>(0)
        let hearing = try EventLoop(name: "listeners")
        let talking = try EventLoop(name: "talker")
        var clients: [RelayClient] = []
        for number in 0...listeners {
            let name = DisplayName(cleaning: "Member \(number)", fallback: "Member")
            let client = RelayClient(
                invitation: link, identity: try Identity(generating: name.text), displayName: name,
                openWebSocket: nil, loop: number == 0 ? talking : hearing, logger: quiet)
            let isMeasured = number == 1
            await client.setEventHandler { event in
                guard case .frame(let frame) = event else { return }
                heard.add(1, ordering: .relaxed)
                guard isMeasured, frame.payload.count >= 8 else { return }
                let sentAt = frame.payload.withUnsafeBytes { $0.loadUnaligned(as: Int64.self) }
                latencies.add(.now - Instant(nanoseconds: sentAt))
            }
            await client.join()
            clients.append(client)
            if number % 20 == 19 { try await Task.sleep(for: .milliseconds(200)) }
        }
        while await server.memberCount(of: channel.id) < listeners + 1 { try await Task.sleep(for: .milliseconds(20)) }

        let talker = clients[0]
        await talker.beginBurst(priority: 0)
        let before = try await threadTime(of: server.loop)
        let start = Instant.now
        for number in 0..<(seconds * framesPerSecond) {
            let due = start + .milliseconds(number * 1_000 / framesPerSecond)
            let wait = due - .now
            if wait > .zero { try await Task.sleep(for: wait) }
            await talker.send(frame())
        }
        let after = try await threadTime(of: server.loop)
        await talker.endBurst()
        try await Task.sleep(for: .milliseconds(500))
        let counters = await server.counters
        let perPacket = Double((after - before).nanoseconds) / 1_000 / Double(max(1, counters.packetsOut))
        let bare = try await bareLoop(recipients: listeners, packets: seconds * framesPerSecond)

        print("\(listeners) listeners, \(seconds) s of speech, \(framesPerSecond) packets/s up")
        print(
            "forwarded \(counters.packetsForwarded), sent \(counters.packetsOut), heard \(heard.load(ordering: .relaxed)), dropped \(counters.droppedTotal)"
        )
        print("relay thread, everything it does:  \(rounded(perPacket)) µs CPU a packet and listener")
        print("bare sendmmsg of the same size:    \(rounded(bare)) µs CPU a packet and recipient")
        print(
            "talker's call to listener's handler: p50 \(rounded(latencies.percentile(0.5))) µs, p95 \(rounded(latencies.percentile(0.95))) µs, p99 \(rounded(latencies.percentile(0.99))) µs (\(latencies.count) packets)"
        )
        for client in clients {
            let dropped = await client.counters.dropped
            if !dropped.isEmpty { print("a listener dropped \(dropped)") }
        }
        await server.stop()
    }

    private static func frame() -> OutgoingFrame {
        var payload = [UInt8](repeating: 0, count: payloadBytes)
        payload.withUnsafeMutableBytes { $0.storeBytes(of: Instant.now.nanoseconds, as: Int64.self) }
        return OutgoingFrame(payload: payload, samples: 960, capturedAt: .now)
    }

    private static func rounded(_ value: Double) -> String { "\((value * 100).rounded() / 100)" }

    private static func threadTime(of loop: EventLoop) async throws -> Duration {
        try await loop.run { ownThreadTime() }
    }

    private static func ownThreadTime() -> Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    /// The least that any relay pays: the same packets to as many sockets, all at once, without looking at them.
    private static func bareLoop(recipients: Int, packets: Int) async throws -> Double {
        let receiving = try EventLoop(name: "bare receivers")
        let sending = try EventLoop(name: "bare sender")
        var ports: [UInt16] = []
        for _ in 0..<recipients {
            let (descriptor, port) = try udpSocket()
            ports.append(port)
            try await receiving.run {
                _ = try receiving.watch(descriptor, for: .readable) { _ in
                    var buffer = [UInt8](repeating: 0, count: 256)
                    while recv(descriptor, &buffer, buffer.count, 0) > 0 {}
                }
            }
        }
        let targets = ports
        let spent = try await sending.run {
            let (descriptor, _) = try udpSocket()
            let addresses = UnsafeMutablePointer<sockaddr_in>.allocate(capacity: recipients)
            let vectors = UnsafeMutablePointer<iovec>.allocate(capacity: recipients)
            let messages = UnsafeMutablePointer<mmsghdr>.allocate(capacity: recipients)
            let packet = UnsafeMutableRawPointer.allocate(byteCount: 133, alignment: 8)
            packet.initializeMemory(as: UInt8.self, repeating: 0x80, count: 133)
            for (index, port) in targets.enumerated() {
                addresses[index] = loopback(port)
                vectors[index] = iovec(iov_base: packet, iov_len: 133)
                messages[index] = mmsghdr()
                messages[index].msg_hdr.msg_name = UnsafeMutableRawPointer(addresses + index)
                messages[index].msg_hdr.msg_namelen = socklen_t(MemoryLayout<sockaddr_in>.size)
                messages[index].msg_hdr.msg_iov = vectors + index
                messages[index].msg_hdr.msg_iovlen = 1
            }
            let before = ownThreadTime()
            for _ in 0..<packets {
                var sent = 0
                while sent < recipients {
                    let count = ptt_sendmmsg(descriptor, messages + sent, UInt32(min(64, recipients - sent)), 0)
                    guard count > 0 else { break }
                    sent += Int(count)
                }
                usleep(2_000)
            }
            return ownThreadTime() - before
        }
        return Double(spent.nanoseconds) / 1_000 / Double(packets * recipients)
    }

    private static func loopback(_ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
        return address
    }

    private static func udpSocket() throws -> (Int32, UInt16) {
        let descriptor = socket(AF_INET, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_NONBLOCK.rawValue), 0)
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
}
