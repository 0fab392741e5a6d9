// Links over TLS that a relay passes on to another one of its cluster: what comes through, and how either end ends.
import Cryptography
import Reactor
import RelayHTTP
import RelayProtocol
import RelayWeb
import Synchronization
import TestSupport
import Testing
import WebSocketClient
import WebSockets
import WebTestSupport

@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct WebPassageTests {
    /// What was told, in order.
    private final class Told<Event: Sendable>: Sendable {
        private let events = Mutex<[Event]>([])
        func add(_ event: Event) { events.withLock { $0.append(event) } }
        var all: [Event] { events.withLock { $0 } }

        func first<Value: Sendable>(_ match: (Event) -> Value?) async throws -> Value {
            let deadline = ContinuousClock.now + .seconds(20)
            while ContinuousClock.now < deadline {
                if let found = all.lazy.compactMap(match).first { return found }
                try await Task.sleep(for: .milliseconds(2))
            }
            throw TimedOut(description: "\(all.suffix(5))")
        }
    }

    /// The relay that takes links, the other relay, which is a server that does as the test says, and a client.
    private final class World: Sendable {
        static let identity = try! Identity(generating: "relay")
        let endpoint: WebEndpoint
        let other: ScriptedWebServer
        let sockets = Told<(ScriptedWebSocket, ScriptedWebSocket.Event)>()
        let log = KeptLog()
        private let serving: Task<Void, any Error>
        private let port: UInt16
        private let loop: EventLoop

        init(_ behaviour: ScriptedWebServer.Behaviour, passageTime: Duration?) async throws {
            let sockets = sockets
            other = try await ScriptedWebServer(behaviour, identity: Self.identity) { sockets.add(($0, $1)) }
            var configuration = WebEndpointConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0,
                certificate: (Self.identity.certificatePEM, Self.identity.pem))
            if let passageTime { configuration.limits.passageTime = passageTime }
            let endpoint = try WebEndpoint(
                configuration: configuration, identity: Self.identity, logger: log.logger)
            self.endpoint = endpoint
            let place = try #require(WebLinkAddress("wss://127.0.0.1:\(other.port)"))
            endpoint.setPlaces((0..<ChannelID.shareCount).map { $0 == 7 ? place : nil })
            let (ports, listening) = AsyncStream.makeStream(of: UInt16.self)
            let running = endpoint.listening { listening.yield($0) }
            serving = Task { try await running.run() }
            port = try #require(await ports.first { _ in true })
            loop = try EventLoop(name: "client")
        }

        /// A client's WebSocket, and what it tells.
        func connect(_ target: String = "/pttd/1?share=7") -> (any WebSocket, Told<WebSocketEvent>) {
            let told = Told<WebSocketEvent>()
            let request = WebSocketRequest(
                host: "127.0.0.1", port: port, path: target, subprotocol: WebLinkLimits.subprotocol,
                messageBytesMaximum: WebLinkLimits.messageBytes)
            return (WebSocketConnection.opener(request, loop) { told.add($0) }, told)
        }

        func perform(_ body: @escaping @Sendable () -> Void) { loop.execute(body) }

        /// The WebSocket at the other relay, when both ends of the passage are joined.
        func socket() async throws -> ScriptedWebSocket {
            let socket = try await sockets.first { if case .opened = $0.1 { $0.0 } else { nil } }
            let deadline = ContinuousClock.now + .seconds(20)
            while endpoint.passedOn.openTo == 0 {
                guard ContinuousClock.now < deadline else { throw TimedOut(description: "the ends are not joined") }
                try await Task.sleep(for: .milliseconds(2))
            }
            return socket
        }

        func stop() async {
            serving.cancel()
            await other.stop()
            loop.stop()
        }
    }

    private func inWorld(
        _ behaviour: ScriptedWebServer.Behaviour = .webSocket(subprotocol: WebLinkLimits.subprotocol),
        passageTime: Duration? = nil, _ body: (World) async throws -> Void
    ) async throws {
        let world = try await World(behaviour, passageTime: passageTime)
        do { try await body(world) } catch {
            await world.stop()
            throw error
        }
        await world.stop()
    }

    private func end(_ told: Told<WebSocketEvent>) async throws -> WebSocketEnd {
        try await told.first { if case .ended(let end) = $0 { end } else { nil } }
    }

    @Test func `messages of any length go there and come back, in their order`() async throws {
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            var random = SeededGenerator(seed: SeededGenerator.seed())
            let lengths =
                [1, 125, 126, WebLinkLimits.messageBytes]
                + (0..<200).map { _ in Int.random(in: 1...9_000, using: &random) }
            let messages = lengths.map { length in (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 7 &+ length) } }
            let there = try await world.socket()
            world.perform { for message in messages { client.send(message) } }
            _ = try await told.first { _ in
                world.sockets.all.count { if case .message = $0.1 { true } else { false } } == messages.count
                    ? true : nil
            }
            let came = world.sockets.all.compactMap { if case .message(let bytes) = $0.1 { bytes } else { nil } }
            #expect(came == messages)
            for message in messages { there.send(message, fragments: 4_000) }
            _ = try await told.first { _ in
                told.all.count { if case .message = $0 { true } else { false } } == messages.count ? true : nil
            }
            #expect(told.all.compactMap { if case .message(let bytes) = $0 { bytes } else { nil } } == messages)
            #expect(world.other.targets == ["/pttd/1?share=7&passed-on"])
        }
    }

    @Test func `a slow reader keeps its sender waiting, and gets everything`() async throws {
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            let there = try await world.socket()
            there.read(false)
            let message = [UInt8](repeating: 7, count: 16_000)
            let count = 1_000
            // The client's own queue takes what the kernel and the relay do not: 16 MB are more than both keep.
            world.perform { for _ in 0..<count { client.send(message) } }
            try await Task.sleep(for: .milliseconds(500))
            func came() -> Int { world.sockets.all.count { if case .message = $0.1 { true } else { false } } }
            let before = came()
            #expect(before < 20, "\(before)")
            there.read(true)
            _ = try await told.first { _ in came() == count ? true : nil }
        }
    }

    @Test func `a client that says more than its hello before the other relay answers is closed`() async throws {
        try await inWorld(.silentTLS) { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            world.perform { for _ in 0..<5 { client.send([1]) } }
            #expect(try await end(told) == .closed(code: 1_008, reason: ""))
            try await eventually("nobody asks any more") { world.other.connectionCount == 0 }
        }
    }

    @Test func `a client that goes while the other relay does not answer leaves nothing there`() async throws {
        for behaviour in [ScriptedWebServer.Behaviour.silentTCP, .silentTLS] {
            try await inWorld(behaviour) { world in
                let (client, told) = world.connect()
                _ = try await told.first { $0 == .opened ? true : nil }
                try await eventually("it is asked") { world.other.connectionCount == 1 }
                world.perform { client.close(code: 4_000, reason: "") }
                try await eventually("nobody asks any more") { world.other.connectionCount == 0 }
                #expect(world.log.lines.allSatisfy { !$0.contains("cannot be passed on") })
            }
        }
    }

    private func eventually(_ what: String, _ condition: () -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        while !condition() {
            guard ContinuousClock.now < deadline else { throw TimedOut(description: what) }
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    @Test func `either end may close it, and the other one is told why`() async throws {
        try await inWorld { world in
            let (client, told) = world.connect()
            try await world.socket().close(code: 4_005, reason: "the member was removed")
            #expect(try await end(told) == .closed(code: 4_005, reason: "the member was removed"))
            withExtendedLifetime(client) {}
        }
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            _ = try await world.socket()
            world.perform { client.close(code: 4_000, reason: "") }
            let code = try await world.sockets.first { if case .closed(let code) = $0.1 { code } else { nil } }
            #expect(code == 4_000)
        }
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            try await world.socket().cut()
            #expect(
                try await end(told) == .closed(code: 1_001, reason: ""),
                "it says nothing of the relay, so the client comes again")
            withExtendedLifetime(client) {}
        }
    }

    @Test func `frames that are none end it, whoever sends them`() async throws {
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await told.first { $0 == .opened ? true : nil }
            // A server does not mask (RFC 6455, section 5.1).
            try await world.socket().send(masked: [1])
            #expect(try await end(told) == .closed(code: 1_002, reason: ""))
            withExtendedLifetime(client) {}
        }
        try await inWorld { world in
            let (client, told) = world.connect()
            try await world.socket().send(text: "hello")
            #expect(try await end(told) == .closed(code: 1_003, reason: "messages are binary"))
            withExtendedLifetime(client) {}
        }
    }

    @Test func `a relay that goes down ends what it passes on, as it ends its own links`() async throws {
        try await inWorld { world in
            let (client, told) = world.connect()
            _ = try await world.socket()
            _ = try await told.first { $0 == .opened ? true : nil }
            world.endpoint.worker.detach()
            #expect(try await end(told) == .closed(code: 4_004, reason: RelayWebWorker.goingDown))
            _ = try await world.sockets.first { if case .closed = $0.1 { true } else { nil } }
            withExtendedLifetime(client) {}
        }
    }

    @Test func `links of other shares stay, as do those that were passed on once`() async throws {
        try await inWorld { world in
            for target in ["/pttd/1", "/pttd/1?share=8", "/pttd/1?share=7&passed-on", "/pttd/1?share=64"] {
                let (client, told) = world.connect(target)
                // The relay of this endpoint does not run.
                let ended = try await end(told)
                #expect(ended == .closed(code: 4_004, reason: "the relay is not running"), "\(target)")
                withExtendedLifetime(client) {}
            }
            #expect(world.other.targets.isEmpty)
        }
    }

    @Test(arguments: [
        ScriptedWebServer.Behaviour.garbage(Array("HTTP/1.1 404 No\r\n\r\n".utf8)), .garbage([0, 1, 2]),
        .noTLS([1, 2, 3]),
        .silentTLS,
    ])
    func `where the other relay takes no links the client is told to come again, and the operator once`(
        _ behaviour: ScriptedWebServer.Behaviour
    ) async throws {
        try await inWorld(behaviour, passageTime: .seconds(1)) { world in
            for _ in 0..<2 {
                let (client, told) = world.connect()
                guard case .closed(code: 1_013, reason: let why) = try await end(told) else {
                    Issue.record("\(told.all)")
                    return
                }
                #expect(why == "the relay that serves this channel cannot be reached")
                withExtendedLifetime(client) {}
            }
            #expect(world.log.lines.count { $0.contains("cannot be passed on") } == 1, "\(world.log.lines)")
            try await eventually("what did not open is closed") { world.other.connectionCount == 0 }
        }
    }
}
