// A server of WebSockets over TLS on loopback, for tests: it does what the test says, also what no server should.
import Cryptography
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOWebSocket
import Synchronization

/// One connection that was upgraded.
public final class ScriptedWebSocket: Sendable {
    /// What comes of it.
    public enum Event: Sendable, Equatable {
        /// It is open.
        case opened
        /// A binary message, unmasked.
        case message([UInt8])
        /// A Close frame with that code.
        case closed(UInt16?)
        /// The answer to a ping.
        case pong
        /// The connection is gone.
        case gone
    }

    let channel: any Channel

    init(_ channel: any Channel) { self.channel = channel }

    /// Sends a binary message, in frames of at most `size` bytes.
    public func send(_ bytes: [UInt8], fragments size: Int = .max) {
        var rest = bytes[...]
        var opcode = WebSocketOpcode.binary
        repeat {
            let part = rest.prefix(size)
            rest = rest.dropFirst(part.count)
            send(frame: opcode, Array(part), fin: rest.isEmpty)
            opcode = .continuation
        } while !rest.isEmpty
    }

    /// Sends a text message.
    public func send(text: String) { send(frame: .text, Array(text.utf8), fin: true) }

    /// Sends a frame of any kind.
    public func send(frame opcode: WebSocketOpcode, _ bytes: [UInt8], fin: Bool = true, masked: Bool = false) {
        let frame = WebSocketFrame(
            fin: fin, opcode: opcode, maskKey: masked ? .random() : nil, data: channel.allocator.buffer(bytes: bytes))
        channel.writeAndFlush(frame, promise: nil)
    }

    /// Sends a binary message with a mask, as only a client may.
    public func send(masked bytes: [UInt8]) { send(frame: .binary, bytes, masked: true) }

    /// Sends a Close frame, and closes.
    public func close(code: UInt16, reason: String = "") {
        send(frame: .connectionClose, [UInt8(code >> 8), UInt8(code & 0xFF)] + Array(reason.utf8))
    }

    /// Cuts the connection.
    public func cut() { channel.close(promise: nil) }

    /// Reads no more, or again.
    public func read(_ isReading: Bool) { channel.setOption(.autoRead, value: isReading).whenComplete { _ in } }
}

/// A server on 127.0.0.1.
public final class ScriptedWebServer: Sendable {
    /// How connections are answered.
    public enum Behaviour: Sendable {
        /// They become WebSockets.
        case webSocket(subprotocol: String)
        /// With a status and a page.
        case status(HTTPResponseStatus)
        /// With bytes in place of HTTP, inside TLS.
        case garbage([UInt8])
        /// With bytes in place of TLS.
        case noTLS([UInt8])
        /// Not at all, after TCP.
        case silentTCP
        /// Not at all, after TLS.
        case silentTLS
    }

    /// Its port.
    public let port: UInt16
    private let listener: any Channel
    private let group: MultiThreadedEventLoopGroup
    private let requests = Mutex<[HTTPRequestHead]>([])
    private let connections = Counter()

    /// How many connections there are.
    public var connectionCount: Int { connections.value.withLock { $0 } }

    /// The requests that came.
    public var heads: [HTTPRequestHead] { requests.withLock { $0 } }
    /// What they asked for.
    public var targets: [String] { heads.map(\.uri) }

    /// Listens from now on.
    public init(
        _ behaviour: Behaviour, identity: Identity,
        _ handler: @escaping @Sendable (ScriptedWebSocket, ScriptedWebSocket.Event) -> Void = { _, _ in }
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        self.group = group
        let certificate = try NIOSSLCertificate(bytes: identity.certificateDER, format: .der)
        let key = try NIOSSLPrivateKey(bytes: identity.privateKeyDER, format: .der)
        var tls = TLSConfiguration.makeServerConfiguration(
            certificateChain: [.certificate(certificate)], privateKey: .privateKey(key))
        tls.applicationProtocols = ["http/1.1"]
        let context = try NIOSSLContext(configuration: tls)
        let note = Box<ScriptedWebServer>()
        let connections = connections
        listener = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            // The kernel would take megabytes for a server that does not read, and on each machine others.
            .serverChannelOption(.socketOption(.so_rcvbuf), value: 65_536)
            .childChannelInitializer { channel in
                connections.value.withLock { $0 += 1 }
                channel.closeFuture.whenComplete { _ in connections.value.withLock { $0 -= 1 } }
                return channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    switch behaviour {
                    case .silentTCP: break
                    case .noTLS(let bytes): try pipeline.addHandler(Blurter(bytes))
                    case .silentTLS: try pipeline.addHandler(NIOSSLServerHandler(context: context))
                    case .garbage(let bytes):
                        try pipeline.addHandler(NIOSSLServerHandler(context: context))
                        try pipeline.addHandler(Blurter(bytes))
                    case .status(let status):
                        try pipeline.addHandler(NIOSSLServerHandler(context: context))
                        try pipeline.configureHTTPServerPipeline()
                        try pipeline.addHandler(Page(status))
                    case .webSocket(let subprotocol):
                        try pipeline.addHandler(NIOSSLServerHandler(context: context))
                        let upgrader = NIOWebSocketServerUpgrader(
                            maxFrameSize: 1 << 20, automaticErrorHandling: true
                        ) { channel, head in
                            note.value.withLock { server in server?.requests.withLock { $0.append(head) } }
                            return channel.eventLoop.makeSucceededFuture(["Sec-WebSocket-Protocol": subprotocol])
                        } upgradePipelineHandler: { channel, _ in
                            channel.eventLoop.makeCompletedFuture {
                                try channel.pipeline.syncOperations.addHandler(SocketHandler(handler))
                            }
                        }
                        try pipeline.configureHTTPServerPipeline(
                            withServerUpgrade: (upgraders: [upgrader], completionHandler: { _ in }))
                    }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = UInt16(listener.localAddress?.port ?? 0)
        note.value.withLock { $0 = self }
    }

    /// Listens no more.
    public func stop() async {
        try? await listener.close()
        try? await group.shutdownGracefully()
    }
}

private final class Counter: Sendable {
    let value = Mutex(0)
}

private final class Box<Value: AnyObject & Sendable>: Sendable {
    let value = Mutex<Value?>(nil)
}

/// Says something to whatever comes.
private final class Blurter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let bytes: [UInt8]
    init(_ bytes: [UInt8]) { self.bytes = bytes }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.writeAndFlush(NIOAny(context.channel.allocator.buffer(bytes: bytes)), promise: nil)
    }
}

/// Answers every request with a page.
private final class Page: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    private let status: HTTPResponseStatus
    init(_ status: HTTPResponseStatus) { self.status = status }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .end = unwrapInboundIn(data) else { return }
        let body = context.channel.allocator.buffer(string: "<html>Please log in</html>")
        let headers: HTTPHeaders = ["Content-Type": "text/html", "Content-Length": "\(body.readableBytes)"]
        context.write(wrapOutboundOut(.head(.init(version: .http1_1, status: status, headers: headers))), promise: nil)
        context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }
}

private final class SocketHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    private let handler: @Sendable (ScriptedWebSocket, ScriptedWebSocket.Event) -> Void
    private var socket: ScriptedWebSocket?

    init(_ handler: @escaping @Sendable (ScriptedWebSocket, ScriptedWebSocket.Event) -> Void) { self.handler = handler }

    func handlerAdded(context: ChannelHandlerContext) {
        let socket = ScriptedWebSocket(context.channel)
        self.socket = socket
        handler(socket, .opened)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let socket else { return }
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .binary: handler(socket, .message(Array(frame.unmaskedData.readableBytesView)))
        case .connectionClose:
            var payload = frame.unmaskedData
            handler(socket, .closed(payload.readInteger(as: UInt16.self)))
            context.close(promise: nil)
        case .pong: handler(socket, .pong)
        default: break
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        if let socket { handler(socket, .gone) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
