// An HTTP proxy on loopback, for tests: it passes on what the test lets it.
import NIOCore
import NIOPosix
import Synchronization

/// A proxy that answers CONNECT, and passes bytes on; or a plain path of TCP, with no proxy's answer, if it has a target.
public final class ScriptedProxy: Sendable {
    private struct State {
        var heads: [String] = []
        var isFrozen = false
        var channels: [any Channel] = []
    }

    /// Its port.
    public let port: UInt16
    private let listener: any Channel
    private let group: MultiThreadedEventLoopGroup
    private let state = Mutex(State())

    /// The requests that came, each up to the empty line.
    public var heads: [String] { state.withLock { $0.heads } }

    /// Connections that are open.
    public var connectionCount: Int { state.withLock { $0.channels.count } / 2 }

    /// Listens from now on.
    ///
    /// - Parameters:
    ///   - target: Where everything goes, without a request; nil: where the requests say, at loopback.
    ///   - answer: What is answered in place of "200"; nil: nothing special.
    public init(target: UInt16? = nil, answer: String? = nil) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        self.group = group
        let box = Mutex2<ScriptedProxy>()
        listener = try await ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let handler = Passing(answer: answer, target: target) { head, channel in
                        box.value.withLock { proxy in
                            proxy?.state.withLock {
                                if let head { $0.heads.append(head) }
                                if let channel {
                                    $0.channels.append(channel)
                                    if $0.isFrozen { channel.setOption(.autoRead, value: false).whenComplete { _ in } }
                                }
                            }
                        }
                    }
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = UInt16(listener.localAddress?.port ?? 0)
        box.value.withLock { $0 = self }
    }

    /// Passes nothing on, or again all that came meanwhile.
    public func freeze(_ isFrozen: Bool) {
        let channels = state.withLock { state in
            state.isFrozen = isFrozen
            return state.channels
        }
        for channel in channels { channel.setOption(.autoRead, value: !isFrozen).whenComplete { _ in } }
    }

    /// Cuts all connections.
    public func cut() {
        let channels = state.withLock { state in
            defer { state.channels = [] }
            return state.channels
        }
        for channel in channels { channel.close(promise: nil) }
    }

    /// Listens no more.
    public func stop() async {
        try? await listener.close()
        cut()
        try? await group.shutdownGracefully()
    }
}

private final class Mutex2<Value: AnyObject & Sendable>: Sendable {
    let value = Mutex<Value?>(nil)
}

/// The client's side of one connection.
private final class Passing: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let answer: String?
    private let target: UInt16?
    private let note: (String?, (any Channel)?) -> Void
    private var head = ""
    private var other: (any Channel)?
    private var isConnecting = false
    private var waiting: [ByteBuffer] = []

    init(answer: String?, target: UInt16?, note: @escaping (String?, (any Channel)?) -> Void) {
        (self.answer, self.target, self.note) = (answer, target, note)
    }

    func channelActive(context: ChannelHandlerContext) {
        if let target { connect(context, port: Int(target), answering: nil) }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        if let other { return other.writeAndFlush(bytes, promise: nil) }
        if isConnecting { return waiting.append(bytes) }
        head += String(decoding: bytes.readableBytesView, as: UTF8.self)
        guard head.hasSuffix("\r\n\r\n") else { return }
        note(head, nil)
        if let answer {
            context.writeAndFlush(NIOAny(context.channel.allocator.buffer(string: answer)), promise: nil)
            return
        }
        let place = head.split(separator: " ")[1]
        let port = Int(place.split(separator: ":").last ?? "") ?? 0
        connect(context, port: port, answering: "HTTP/1.1 200 Connection established\r\n\r\n")
    }

    private func connect(_ context: ChannelHandlerContext, port: Int, answering words: String?) {
        isConnecting = true
        let client = context.channel
        let this = NIOLoopBound(self, eventLoop: context.eventLoop)
        ClientBootstrap(group: context.eventLoop)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Returning(client))
                }
            }
            .connect(host: "127.0.0.1", port: port)
            .whenComplete { result in
                guard case .success(let channel) = result else { return client.close(promise: nil) }
                if let words { client.writeAndFlush(client.allocator.buffer(string: words), promise: nil) }
                this.value.other = channel
                for bytes in this.value.waiting { channel.writeAndFlush(bytes, promise: nil) }
                this.value.waiting = []
                this.value.note(nil, client)
                this.value.note(nil, channel)
            }
    }

    func channelInactive(context: ChannelHandlerContext) { other?.close(promise: nil) }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// The server's side of it.
private final class Returning: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let client: any Channel
    init(_ client: any Channel) { self.client = client }
    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        client.writeAndFlush(unwrapInboundIn(data), promise: nil)
    }
    func channelInactive(context: ChannelHandlerContext) { client.close(promise: nil) }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
