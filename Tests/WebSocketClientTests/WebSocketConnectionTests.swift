// WebSockets over TLS against a server and a proxy on loopback, which do what they should, and what they should not.
import Cryptography
import NIOHTTP1
import NIOWebSocket
import Reactor
import Synchronization
import Testing
import WebSockets
import WebTestSupport

@testable import WebSocketClient

/// What was told, in order.
private final class Told<Event: Sendable>: Sendable {
    private let events = Mutex<[Event]>([])

    func tell(_ event: Event) { events.withLock { $0.append(event) } }
    var all: [Event] { events.withLock { $0 } }

    func wait<Value: Sendable>(within: Duration = .seconds(10), _ match: (Event) -> Value?) async throws -> Value {
        let deadline = ContinuousClock.now + within
        while ContinuousClock.now < deadline {
            if let found = all.lazy.compactMap(match).first { return found }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw Missing(events: "\(all)")
    }

    struct Missing: Error { let events: String }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct WebSocketConnectionTests {
    private static let identity = try! Identity(generating: "server")
    private static let loop = try! EventLoop(name: "user")

    private static func request(_ port: UInt16, proxy: HTTPProxy? = nil) -> WebSocketRequest {
        WebSocketRequest(
            host: "127.0.0.1", port: port, path: "/pttd/1", subprotocol: "pttd.1", proxy: proxy,
            messageBytesMaximum: 1_000)
    }

    /// A connection, and what it tells.
    private static func connect(_ request: WebSocketRequest) -> (WebSocketConnection, Told<WebSocketEvent>) {
        let told = Told<WebSocketEvent>()
        return (WebSocketConnection(request, loop: loop) { told.tell($0) }, told)
    }

    private static func end(_ told: Told<WebSocketEvent>) async throws -> WebSocketEnd {
        try await told.wait { if case .ended(let end) = $0 { end } else { nil } }
    }

    /// How an attempt ends at a server that behaves so.
    private static func failure(
        of behaviour: ScriptedWebServer.Behaviour, _ change: (inout WebSocketRequest) -> Void = { _ in }
    ) async throws -> WebSocketError? {
        let server = try await ScriptedWebServer(behaviour, identity: identity)
        var request = request(server.port)
        change(&request)
        let (connection, told) = connect(request)
        let end = try await end(told)
        connection.close(code: 1_000)
        await server.stop()
        guard case .failed(let error) = end else { return nil }
        return error
    }

    /// An open WebSocket with what the server saw.
    private static func open(
        _ proxy: HTTPProxy? = nil,
        _ body: (
            WebSocketConnection, Told<WebSocketEvent>, ScriptedWebSocket, Told<ScriptedWebSocket.Event>,
            ScriptedWebServer
        )
            async throws -> Void
    ) async throws {
        let sockets = Told<ScriptedWebSocket>()
        let seen = Told<ScriptedWebSocket.Event>()
        let server = try await ScriptedWebServer(.webSocket(subprotocol: "pttd.1"), identity: identity) {
            socket, event in
            if event == .opened { sockets.tell(socket) } else { seen.tell(event) }
        }
        let (connection, told) = connect(request(server.port, proxy: proxy))
        _ = try await told.wait { $0 == .opened ? true : nil }
        let socket = try await sockets.wait { $0 }
        try await body(connection, told, socket, seen, server)
        connection.close(code: 1_000)
        await server.stop()
    }

    private func missed(_ what: String) { Issue.record("\(what)") }

    private static func message(_ event: ScriptedWebSocket.Event) -> [UInt8]? {
        if case .message(let bytes) = event { bytes } else { nil }
    }

    @Test func `messages go both ways, in order`() async throws {
        try await Self.open { connection, told, socket, seen, server in
            #expect(server.heads.first?.headers["Sec-WebSocket-Protocol"] == ["pttd.1"])
            #expect(server.heads.first?.headers["Origin"] == [], "a program is no browser")
            for number in 0..<200 { connection.send([UInt8](repeating: UInt8(number), count: number + 1)) }
            _ = try await seen.wait { Self.message($0)?.count == 200 ? true : nil }
            #expect(seen.all.compactMap(Self.message).map(\.count) == Array(1...200))
            for number in 0..<200 { socket.send([UInt8(number), 1]) }
            socket.send([UInt8](repeating: 7, count: 1_000), fragments: 300)
            _ = try await told.wait { $0 == .message([UInt8](repeating: 7, count: 1_000)) ? true : nil }
            #expect(told.all.count == 202)
        }
    }

    @Test func `what is sent before a close arrives, with its code`() async throws {
        try await Self.open { connection, _, _, seen, _ in
            connection.send([1, 2, 3])
            connection.close(code: 4_002, reason: "enough")
            let code = try await seen.wait { if case .closed(let code) = $0 { code } else { nil } }
            #expect(code == 4_002)
            #expect(seen.all.first == .message([1, 2, 3]))
        }
    }

    @Test func `the server's code and reason are told`() async throws {
        try await Self.open { _, told, socket, _, _ in
            socket.close(code: 4_003, reason: "replaced")
            let end = try await Self.end(told)
            #expect(end == .closed(code: 4_003, reason: "replaced"))
        }
    }

    @Test func `nothing is told after a close`() async throws {
        try await Self.open { connection, told, socket, _, _ in
            Self.loop.execute {
                connection.close(code: 1_000)
                socket.send([1])
                socket.cut()
            }
            try await Task.sleep(for: .milliseconds(100))
            #expect(told.all == [.opened])
        }
    }

    @Test func `a connection that is cut is told to be lost`() async throws {
        try await Self.open { _, told, socket, _, _ in
            socket.cut()
            guard case .lost = try await Self.end(told) else { return missed("\(told.all)") }
        }
    }

    @Test(arguments: ["text", "long", "long in pieces", "masked", "reserved"])
    func `what no server may send ends the connection`(_ what: String) async throws {
        try await Self.open { _, told, socket, seen, _ in
            switch what {
            case "text": socket.send(text: "hello")
            case "long": socket.send([UInt8](repeating: 1, count: 1_001))
            case "long in pieces": socket.send([UInt8](repeating: 1, count: 1_001), fragments: 100)
            case "masked": socket.send(frame: .binary, [1], masked: true)
            default: socket.send(frame: .continuation, [1])
            }
            guard case .violation = try await Self.end(told) else { return missed("\(told.all)") }
            _ = try await seen.wait { if case .closed = $0 { true } else { nil } }
        }
    }

    @Test func `a server that does not read leaves room for nothing more, and gives it back`() async throws {
        try await Self.open { connection, told, socket, seen, _ in
            socket.read(false)
            var sent = 0
            // The kernels' buffers fill up first.
            while sent < 20_000, connection.hasRoom || sent < 10 {
                connection.send([UInt8](repeating: 1, count: 1_000))
                sent += 1
                if sent % 50 == 0 { try await Task.sleep(for: .milliseconds(5)) }
                if !connection.hasRoom { try await Task.sleep(for: .milliseconds(20)) }
            }
            #expect(!connection.hasRoom)
            socket.read(true)
            for _ in 0..<2_000 where !connection.hasRoom { try await Task.sleep(for: .milliseconds(2)) }
            #expect(connection.hasRoom)
            #expect(told.all.contains(.room))
        }
    }

    @Test func `pings are answered, but pile up no answers for a server that does not read`() async throws {
        try await Self.open { connection, told, socket, seen, _ in
            socket.send(frame: .ping, [1])
            _ = try await seen.wait { $0 == .pong ? true : nil }
            socket.read(false)
            let pings = 20_000
            for _ in 0..<pings { socket.send(frame: .ping, [UInt8](repeating: 1, count: 125)) }
            socket.send([1])
            // With a full window, TCP may stand still in the other direction, too: then a little is read.
            for _ in 0..<30 where !told.all.contains(.message([1])) {
                try await Task.sleep(for: .seconds(2))
                socket.read(true)
                try await Task.sleep(for: .milliseconds(5))
                socket.read(false)
            }
            _ = try await told.wait { $0 == .message([1]) ? true : nil }
            socket.read(true)
            connection.send([2])
            _ = try await seen.wait { Self.message($0) == [2] ? true : nil }
            #expect(seen.all.count { $0 == .pong } < pings / 2)
        }
    }

    @Test func `a user that is slow stops the reading, and loses nothing`() async throws {
        try await Self.open { _, told, socket, _, _ in
            Self.loop.execute { Task.blockForTest(.milliseconds(200)) }
            for _ in 0..<2_000 { socket.send([UInt8](repeating: 9, count: 900)) }
            socket.send([1])
            _ = try await told.wait { $0 == .message([1]) ? true : nil }
            #expect(told.all.count == 2_002)
        }
    }

    @Test func `refusals are told by their meaning`() async throws {
        #expect(
            try await Self.failure(of: .status(.forbidden))?.description.contains(
                "(403): a proxy or firewall forbids it")
                == true)
        #expect(try await Self.failure(of: .status(.notFound))?.description.contains("'listen' in [web]") == true)
        #expect(
            try await Self.failure(of: .status(.proxyAuthenticationRequired))?.description.contains(
                "user and a password")
                == true)
        guard case .page = try await Self.failure(of: .status(.ok)) else { return missed("a page") }
        guard case .page = try await Self.failure(of: .status(.found)) else { return missed("a redirect") }
        #expect(try await Self.failure(of: .status(.badGateway))?.description.contains("before the relay") == true)
    }

    @Test func `what is not TLS, not HTTP or not the WebSocket asked for is told`() async throws {
        guard case .tls = try await Self.failure(of: .noTLS(Array("SSH-2.0-x\r\n".utf8))) else {
            return missed("no TLS")
        }
        guard case .notWebSocket = try await Self.failure(of: .garbage(Array("SSH-2.0-OpenSSH_9.2\r\n\0\u{1}".utf8)))
        else {
            return missed("garbage")
        }
        guard case .notWebSocket = try await Self.failure(of: .webSocket(subprotocol: "chat")) else {
            return missed("another subprotocol")
        }
    }

    @Test func `silence at any stage ends in time`() async throws {
        for (behaviour, stage): (ScriptedWebServer.Behaviour, WebSocketError.Stage) in [
            (.silentTCP, .tls), (.silentTLS, .upgrade),
        ] {
            let error = try await Self.failure(of: behaviour) { $0.timeout = .seconds(2) }
            guard case .timeout(_, stage) = error else { return missed("\(stage): \(String(describing: error))") }
        }
    }

    @Test func `nobody at the port, and a name without an address, are told`() async throws {
        let (_, told) = Self.connect(Self.request(1))
        guard case .failed(.unreachable) = try await Self.end(told) else { return missed("\(told.all)") }
        var request = Self.request(443)
        request.host = "no-such-host.invalid"
        let (_, other) = Self.connect(request)
        guard case .failed(.unreachable) = try await Self.end(other) else { return missed("\(other.all)") }
    }

    @Test func `a proxy passes the connection on, with the user's credentials`() async throws {
        let proxy = try await ScriptedProxy()
        let place = try HTTPProxy("http://ann:secret@127.0.0.1:\(proxy.port)")
        try await Self.open(place) { connection, told, socket, seen, server in
            connection.send([1, 2])
            _ = try await seen.wait { $0 == .message([1, 2]) ? true : nil }
            #expect(
                proxy.heads == [
                    "CONNECT 127.0.0.1:\(server.port) HTTP/1.1\r\nHost: 127.0.0.1:\(server.port)\r\n"
                        + "Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n"
                ])
        }
        await proxy.stop()
    }

    @Test func `what a proxy refuses is told with its name, and without the password`() async throws {
        for (answer, words) in [
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "asks for a user and a password"),
            ("HTTP/1.1 403 Forbidden\r\n\r\n", "refuses the connection (403)"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "is not an HTTP proxy"),
        ] {
            let proxy = try await ScriptedProxy(answer: answer)
            let (_, told) = Self.connect(
                Self.request(443, proxy: try HTTPProxy("http://ann:secret@127.0.0.1:\(proxy.port)")))
            guard case .failed(let error) = try await Self.end(told) else { return missed("\(told.all)") }
            #expect("\(error)".contains(words), "\(error)")
            #expect("\(error)".contains("127.0.0.1:\(proxy.port)") && !"\(error)".contains("secret"))
            await proxy.stop()
        }
        let (_, told) = Self.connect(Self.request(443, proxy: HTTPProxy(host: "127.0.0.1", port: 1)))
        guard case .failed(.proxyUnreachable) = try await Self.end(told) else { return missed("\(told.all)") }
    }
}

extension Task where Success == Never, Failure == Never {
    /// Keeps the calling thread.
    fileprivate static func blockForTest(_ time: Duration) {
        let end = ContinuousClock.now + time
        while ContinuousClock.now < end {}
    }
}
