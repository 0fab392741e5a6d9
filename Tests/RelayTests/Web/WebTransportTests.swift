// A client's link over TLS to a relay that does what none should: hostile, broken, or silent.
import Cryptography
import MonotonicTime
import NIOWebSocket
import RelayProtocol
import Synchronization
import TestSupport
import Testing
import Vocabulary
import WebSockets
import WebTestSupport

@testable import RelayClient

/// A relay whose answers a test writes. A connection may be there still when the next one comes.
private final class ScriptedRelay: Sendable {
    /// What it does in the handshake.
    enum Hello: Sendable {
        case right
        case of(Identity)
        case bytes([UInt8])
        case changed(at: Int)
        case none
    }

    /// One connection.
    private struct Peer {
        var handshake: WebLinkServerHandshake?
        var cipher: WebLinkCipher?
    }

    private struct State {
        var peers: [ObjectIdentifier: Peer] = [:]
        var media: [[UInt8]] = []
        var messages: [WebSealedMessage] = []
        var connections = 0
        var closes: [UInt16?] = []
    }

    static let identity = try! Identity(generating: "relay")
    private let state = Mutex(State())
    private let hello: Hello
    /// Called after the proof, and with each sealed message.
    private let script: @Sendable (ScriptedRelay, ScriptedWebSocket, WebSealedMessage?) -> Void

    init(_ hello: Hello, _ script: @escaping @Sendable (ScriptedRelay, ScriptedWebSocket, WebSealedMessage?) -> Void) {
        (self.hello, self.script) = (hello, script)
    }

    var connections: Int { state.withLock { $0.connections } }
    var messages: [WebSealedMessage] { state.withLock { $0.messages } }
    var closes: [UInt16?] { state.withLock { $0.closes } }
    var mediaCount: Int { state.withLock { $0.media.count } }

    func handle(_ socket: ScriptedWebSocket, _ event: ScriptedWebSocket.Event) {
        switch event {
        case .opened:
            state.withLock { state in
                state.connections += 1
                let identity = if case .of(let other) = hello { other } else { Self.identity }
                let handshake = SigningKey(identity).map { WebLinkServerHandshake(key: $0) }
                state.peers[ObjectIdentifier(socket)] = Peer(handshake: handshake)
            }
        case .message(let bytes): receive(socket, bytes)
        case .closed(let code): state.withLock { $0.closes.append(code) }
        case .gone: state.withLock { $0.peers[ObjectIdentifier(socket)] = nil }
        case .pong: break
        }
    }

    private func receive(_ socket: ScriptedWebSocket, _ bytes: [UInt8]) {
        enum Step { case say([UInt8]), script(WebSealedMessage?), nothing }
        let peer = ObjectIdentifier(socket)
        let step: Step = state.withLock { state in
            switch bytes.first {
            case 1:
                guard var right = try? state.peers[peer]?.handshake?.receive(hello: bytes) else { return .nothing }
                switch hello {
                case .right, .of: return .say(right)
                case .bytes(let other): return .say(other)
                case .changed(let place):
                    right[place % right.count] ^= 1
                    return .say(right)
                case .none: return .nothing
                }
            case 3:
                let cipher = try? state.peers[peer]?.handshake?.receive(proof: bytes).cipher
                state.peers[peer]?.cipher = cipher
                return .script(nil)
            case 16:
                guard let message = try? state.peers[peer]?.cipher?.open(bytes) else { return .nothing }
                if case .media(let packet) = message {
                    state.media.append(packet)
                    return .nothing
                }
                state.messages.append(message)
                return .script(message)
            default: return .nothing
            }
        }
        switch step {
        case .say(let bytes): socket.send(bytes)
        case .script(let message): script(self, socket, message)
        case .nothing: break
        }
    }

    /// A sealed message, ready to be sent on that connection.
    func sealed(_ message: WebSealedMessage, for socket: ScriptedWebSocket) -> [UInt8] {
        state.withLock { state in (try? state.peers[ObjectIdentifier(socket)]?.cipher?.seal(message)) ?? [] }
    }

    func seal(_ message: ServerMessage, for socket: ScriptedWebSocket) -> [UInt8] {
        sealed(.control(Array(message.framed().dropFirst(4))), for: socket)
    }

    static var welcome: ServerMessage {
        .welcome(
            .init(
                ssrc: SSRC(rawValue: 7), downlinkKey: TrailerKey(), mediaKey: MediaKey(epoch: 1),
                channelName: DisplayName("c")!, members: [], floor: nil, memberID: MemberID(identity.pin),
                talkTimeLimit: nil))
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct WebTransportTests {
    /// A client at a relay that does so.
    private func withClient(
        _ hello: ScriptedRelay.Hello = .right,
        script: @escaping @Sendable (ScriptedRelay, ScriptedWebSocket, WebSealedMessage?) -> Void = { _, _, _ in },
        _ body: (TestClient, ScriptedRelay) async throws -> Void
    ) async throws {
        let relay = ScriptedRelay(hello, script)
        let server = try await ScriptedWebServer(
            .webSocket(subprotocol: WebLinkLimits.subprotocol), identity: try Identity(generating: "tls")
        ) { relay.handle($0, $1) }
        let link = try InvitationLink(
            host: "127.0.0.1", port: 1, channelName: DisplayName("c")!, channel: ChannelID(), token: InvitationToken(),
            pin: ScriptedRelay.identity.pin, web: WebPlace(port: server.port))
        let client = try await TestClient("Ann", link, network: RelayNetwork(transport: .tls))
        do { try await body(client, relay) } catch {
            await client.client.leave()
            await server.stop()
            throw error
        }
        await client.client.leave()
        await server.stop()
    }

    private static func joins(_ message: WebSealedMessage?) -> Bool {
        guard case .control(let bytes) = message, case .join? = try? ClientMessage(parsing: bytes) else { return false }
        return true
    }

    private static func refusal(_ client: TestClient) async throws -> RelayLinkError {
        try await client.recorder.wait("a refusal") {
            if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
        }.0
    }

    @Test func `a relay that does everything right is joined, and its messages may come in pieces`() async throws {
        try await withClient(script: { relay, socket, message in
            guard Self.joins(message) else { return }
            socket.send(relay.seal(ScriptedRelay.welcome, for: socket), fragments: 7)
            // Nothing of these is of this protocol: they are ignored.
            socket.send([99, 1, 2, 3])
            socket.send(relay.sealed(.ping(5), for: socket))
            socket.send([128, 1, 2])
        }) { client, relay in
            try await client.untilReady()
            for _ in 0..<500 where !relay.messages.contains(.pong(5)) { try await Task.sleep(for: .milliseconds(5)) }
            #expect(relay.messages.contains(.pong(5)))
            #expect(relay.messages.count { Self.joins($0) } == 1)
            let counters = await client.client.counters
            #expect(counters.dropped[.malformed] == 1, "\(counters)")
        }
    }

    @Test func `another key than the link's is not spoken to`() async throws {
        try await withClient(.of(try Identity(generating: "other"))) { client, relay in
            let error = try await Self.refusal(client)
            #expect(error == .wrongRelayKey)
            #expect(relay.messages.isEmpty, "nothing was revealed")
        }
    }

    @Test func `a hello that was changed anywhere is not believed`() async throws {
        for place in [0, 1, 20, 33, 60, 120, 200] {
            try await withClient(.changed(at: place)) { client, relay in
                guard case .protocolViolation = try await Self.refusal(client) else {
                    Issue.record("byte \(place): \(client.recorder.events)")
                    return
                }
                #expect(relay.messages.isEmpty)
            }
        }
    }

    @Test func `what is no hello ends the attempt`() async throws {
        var random = SeededGenerator(seed: SeededGenerator.seed())
        let zero = [2] + [UInt8](repeating: 0, count: 32) + random.bytes(180)
        for bytes in [[0], [2], [2] + random.bytes(31), [2] + random.bytes(600), [16] + random.bytes(40), zero] {
            try await withClient(.bytes(bytes)) { client, _ in
                guard case .protocolViolation = try await Self.refusal(client) else {
                    Issue.record("\(bytes.count) bytes: \(client.recorder.events)")
                    return
                }
            }
        }
    }

    @Test func `a relay that stops answering in the handshake is given up in time, and tried again`() async throws {
        try await withClient(.none) { client, relay in
            guard
                case .unreachable = try await client.recorder.wait(
                    "a refusal", within: .seconds(15),
                    { if case .state(.unavailable(let error, _)) = $0 { error } else { nil } }
                ).0
            else {
                Issue.record("\(client.recorder.events)")
                return
            }
            for _ in 0..<1_000 where relay.connections < 2 { try await Task.sleep(for: .milliseconds(5)) }
            #expect(relay.connections >= 2)
        }
    }

    @Test(arguments: [
        "changed", "repeated", "cut", "acknowledgement", "answers", "old answer", "message", "long", "text",
    ])
    func `what breaks the protocol after the join ends the connection, and the client returns`(_ what: String)
        async throws
    {
        let hasSpoken = Mutex(false)
        try await withClient(script: { relay, socket, message in
            guard Self.joins(message) else { return }
            socket.send(relay.seal(ScriptedRelay.welcome, for: socket))
            guard
                hasSpoken.withLock({ spoken in
                    defer { spoken = true }
                    return !spoken
                })
            else { return }
            switch what {
            case "changed":
                var bytes = relay.sealed(.ping(1), for: socket)
                bytes[3] ^= 1
                socket.send(bytes)
            case "repeated":
                let bytes = relay.sealed(.ping(1), for: socket)
                socket.send(bytes)
                socket.send(bytes)
            case "cut": socket.send(Array(relay.sealed(.ping(1), for: socket).dropLast()))
            case "acknowledgement": socket.send(relay.sealed(.acknowledgement(1), for: socket))
            case "answers":
                for number in 1...17 {
                    socket.send(relay.sealed(.answer(number: UInt32(number), isEnd: false, bytes: []), for: socket))
                }
            case "old answer":
                socket.send(relay.sealed(.answer(number: 2, isEnd: true, bytes: []), for: socket))
                socket.send(relay.sealed(.answer(number: 1, isEnd: true, bytes: []), for: socket))
            case "message": socket.send(relay.sealed(.control([0xFF, 0xFF, 0xFF]), for: socket))
            case "long": socket.send([UInt8](repeating: 16, count: WebLinkLimits.messageBytes + 1))
            default: socket.send(text: "hello")
            }
        }) { client, relay in
            let (error, index) = try await client.recorder.wait("the end") {
                if case .state(.unavailable(let error, _)) = $0 { error } else { nil }
            }
            guard case .protocolViolation = error else {
                Issue.record("\(error)")
                return
            }
            try await client.untilReady(from: index)
            #expect(relay.connections == 2)
        }
    }

    @Test func `the relay's reason for a close is told`() async throws {
        try await withClient(script: { relay, socket, message in
            if Self.joins(message) { socket.close(code: 4_005, reason: "removed by the operator") }
        }) { client, _ in
            let error = try await Self.refusal(client)
            #expect(error == .invitationRefused("removed by the operator"))
        }
    }
}
