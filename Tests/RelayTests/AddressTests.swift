// Relays whose name has several addresses.
import Cryptography
import Glibc
import MonotonicTime
import Reactor
import RelayProtocol
import Synchronization
import TestSupport
import Testing

@testable import QUIC
@testable import RelayClient
@testable import RelayServer

@Suite(.timeLimit(.minutes(2))) struct AddressTests {
    @Test func `attempts take turns until one reaches the relay, and its address is kept`() throws {
        let addresses = try (1...3).map { try #require(SocketAddress("127.0.0.\($0)", port: 1)) }
        var turns = AddressTurns()
        #expect(turns.next(of: addresses) == addresses[0])
        #expect(turns.next(of: addresses) == addresses[1])
        turns.succeeded()
        #expect(turns.next(of: addresses) == addresses[1])
        #expect(turns.next(of: addresses) == addresses[2])
        #expect(turns.next(of: addresses) == addresses[0])
        #expect(turns.next(of: []) == nil)
        _ = turns.next(of: addresses)
        _ = turns.next(of: addresses)
        #expect(turns.next(of: [addresses[0]]) == addresses[0])
        // A relay that goes has sent it to another one, which ends then.
        turns.tries(addresses[1])
        turns.succeeded()
        #expect(turns.next(of: addresses) == addresses[1])
        turns.succeeded()
        turns.failed()
        #expect(turns.next(of: addresses) == addresses[2])
        // One of another name.
        turns.tries(try #require(SocketAddress("192.0.2.1", port: 1)))
        #expect(turns.next(of: addresses) == addresses[0])
    }

    @Test func `a name whose first address is not the relay's is joined by the second`() async throws {
        let relay = try await TestRelay()
        let port = try #require(await relay.server.port)
        let stranger = try await Stranger()
        let name = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
        let asked = Mutex(0)
        let client = try await TestClient("Alice", name) { host, _ in
            asked.withLock { $0 += 1 }
            return host == "relay.test" ? [.loopback(port: stranger.port), .loopback(port: port)] : []
        }
        try await client.untilReady()
        #expect(asked.withLock { $0 } == 2)
        await client.client.leave()
        await relay.server.stop()
        try await stranger.stop()
    }

    @Test func `a relay whose process has ended is left for the next address before its silence is long`() async throws
    {
        let bound = PathDoubt.silence + LivenessProbe.timeout
        let isAsMeant = { (change: AddressChange) in change.longest < bound && change.heard == 100 }
        let change = try await attempts(3, until: isAsMeant) { try await changeAddress() }
        #expect(isAsMeant(change), "\(change)")
    }

    /// How long a member was without the relay, and how many of 100 frames were heard.
    private struct AddressChange {
        var longest: Duration
        var heard: Int
    }

    private func changeAddress() async throws -> AddressChange {
        let first = try await TestRelay()
        let second = try await TestRelay(channel: first.channel, keys: first.configuration.transportKeys)
        let network = try await TestNetwork(to: try #require(await first.server.port))
        // The one between them is that of a relay that does not run.
        var addresses: [SocketAddress] = [.loopback(port: network.port)]
        let closed = try await TestNetwork(to: 1)
        addresses += [.loopback(port: closed.port), .loopback(port: try #require(await second.server.port))]
        try await closed.end()
        let places = addresses
        let name = try await first.server.invitation(for: first.channel.id, host: "relay.test")
        var members: [TestClient] = []
        for member in ["Alice", "Bob"] { members.append(try await TestClient(member, name) { _, _ in places }) }
        for member in members { try await member.untilReady() }
        let talker = members[0]
        let talk = Task { try await talker.talk(1, frames: 100, spacing: .milliseconds(20)) }
        _ = try await members[1].recorder.wait("speech") { if case .frame = $0 { true } else { nil } }
        let counts = members.map(\.recorder.events.count)
        try await network.end()
        let ended = Instant.now
        var longest = Duration.zero
        for (member, count) in zip(members, counts) {
            let index = try await member.untilReady(from: count)
            let took = member.recorder.timed[index - 1].at - ended
            print("back after \(took)")
            longest = max(longest, took)
        }
        try await talk.value
        _ = try await members[1].recorder.wait("the burst's end") {
            if case .burstEnded(_, .completed, _) = $0 { true } else { nil }
        }
        let heard = members[1].heard()
        #expect(Set(heard).count == heard.count, "nothing is heard twice")
        for member in members { await member.client.leave() }
        await first.server.stop()
        await second.server.stop()
        return AddressChange(longest: longest, heard: heard.count)
    }

    @Test(.enabled(if: geteuid() == 0))
    func `who says in the name of the relay's host that nobody has the port ends no link`() async throws {
        // A relay that halts for longer than it may take to answer is given up, and rightly.
        let isAsMeant = { (link: QuestionedLink) in link.isQuestioned && link.isKept }
        let link = try await attempts(3, until: isAsMeant) { try await questionLink() }
        #expect(isAsMeant(link), "\(link)")
    }

    /// Whether the client has looked whether it is true that nobody has the port, and whether it has kept its link.
    private struct QuestionedLink {
        var isQuestioned: Bool
        var isKept: Bool
    }

    private func questionLink() async throws -> QuestionedLink {
        let relay = try await TestRelay()
        let port = try #require(await relay.server.port)
        let name = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
        let places = [SocketAddress.loopback(port: port), .loopback(port: 1)]
        let client = try await TestClient("Alice", name) { _, _ in places }
        try await client.untilReady()
        let (own, id) = try #require(await client.client.packetHead)
        let count = client.recorder.events.count
        var questions: [Int] = []
        // From one who guesses, from one who knows what packets look like, and from one who sees them.
        let packets: [[UInt8]] = [[], [0x40] + [UInt8](repeating: 7, count: id.count), [0x40] + id]
        for packet in packets {
            questions.append(0)
            for _ in 0..<20 {
                try sendPortUnreachable(about: packet, from: own, to: port)
                try await Task.sleep(for: .milliseconds(25))
                if await client.client.probe != nil { questions[questions.count - 1] += 1 }
            }
        }
        #expect(questions[0] == 0 && questions[1] == 0)
        try await Task.sleep(for: LivenessProbe.timeout * 2)
        let isKept = client.recorder.events.count == count
        await client.client.leave()
        await relay.server.stop()
        return QuestionedLink(isQuestioned: questions[2] > 0, isKept: isKept)
    }

    /// To this machine: a packet between two ports of its own came to a port that nobody has (RFC 792).
    private func sendPortUnreachable(about quoted: [UInt8], from source: UInt16, to destination: UInt16) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_RAW.rawValue), Int32(IPPROTO_ICMP))
        try #require(descriptor >= 0)
        defer { close(descriptor) }
        let loopback: [UInt8] = [127, 0, 0, 1]
        func bytes(_ number: UInt16) -> [UInt8] { [UInt8(number >> 8), UInt8(number & 0xFF)] }
        var packet: [UInt8] = [3, 3, 0, 0, 0, 0, 0, 0]
        packet +=
            [0x45, 0] + bytes(UInt16(28 + quoted.count)) + [0, 1, 0, 0, 64, UInt8(IPPROTO_UDP), 0, 0] + loopback
            + loopback
        packet += bytes(source) + bytes(destination) + bytes(UInt16(8 + quoted.count)) + [0, 0] + quoted
        if packet.count % 2 != 0 { packet.append(0) }
        var sum = stride(from: 0, to: packet.count, by: 2).reduce(0) { $0 + Int(packet[$1]) << 8 + Int(packet[$1 + 1]) }
        while sum > 0xFFFF { sum = sum & 0xFFFF + sum >> 16 }
        packet.replaceSubrange(2..<4, with: bytes(~UInt16(sum)))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr)
        let sent = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(descriptor, packet, packet.count, 0, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(sent == packet.count)
    }

    @Test func `a name without an address is an error, and is asked for again`() async throws {
        let relay = try await TestRelay()
        let name = try await relay.server.invitation(for: relay.channel.id, host: "relay.test")
        let client = try await TestClient("Alice", name) { _, _ in [] }
        var start = 0
        for _ in 0..<2 {
            // Where much runs beside it, looking up may take longer than an attempt may.
            let (_, next) = try await client.recorder.wait("the failure", from: start, within: .seconds(50)) {
                guard case .state(.unavailable(.unreachable("'relay.test' has no address"), .some)) = $0 else {
                    return Optional<Bool>.none
                }
                return true
            }
            start = next
        }
        await client.client.leave()
        await relay.server.stop()
    }
}

extension RelayClient {
    /// The port that packets to the relay leave from, and the id that they have.
    fileprivate var packetHead: (port: UInt16, id: [UInt8])? {
        guard let connection = (transport as? QUICTransport)?.connection, let id = connection.destinationID else {
            return nil
        }
        return (connection.endpoint.localAddress.port, id)
    }
}

/// A QUIC server that speaks something else.
private final class Stranger: @unchecked Sendable {
    let loop: EventLoop
    let port: UInt16
    private let endpoint: QUICEndpoint

    init() async throws {
        let loop = try EventLoop(name: "stranger")
        self.loop = loop
        let identity = try Identity(generating: "stranger")
        endpoint = try await loop.run {
            try QUICEndpoint(
                loop: loop, bind: .loopback(),
                configuration: QUICConfiguration(
                    applicationProtocol: "other/1",
                    identity: QUICIdentity(
                        certificate: identity.certificateDER, privateKey: identity.privateKeyDER, encoding: .der),
                    server: QUICServerOptions(keys: .generate())),
                logger: quietLogger("stranger"))
        }
        let endpoint = endpoint
        port = try await loop.run { endpoint.localAddress.port }
    }

    func stop() async throws {
        let endpoint = endpoint
        try await loop.run { endpoint.close() }
        loop.stop()
    }
}
