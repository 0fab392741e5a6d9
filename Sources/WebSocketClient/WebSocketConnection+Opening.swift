// From nothing to an open WebSocket: TCP, the proxy, TLS, the request.
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOTLS
import NIOWebSocket
import WebSockets

extension WebSocketConnection {
    func connect() { WebSocketThread.use { self.connect(on: $0) } }

    private func connect(on group: MultiThreadedEventLoopGroup) {
        let place = request.proxy.map { ($0.host, $0.port) } ?? (request.host, request.port)
        let timeout = TimeAmount(request.timeout)
        let timer = group.next().scheduleTask(in: timeout) { self.timeUp() }
        ClientBootstrap(group: group)
            .resolver(ThreadResolver(on: group.next()))
            .connectTimeout(timeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.tcpOption(.init(rawValue: TCP_NOTSENT_LOWAT)), value: .init(Self.unsentBytes))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    if self.request.proxy == nil {
                        try self.addTLS(to: channel)
                    } else {
                        try channel.pipeline.syncOperations.addHandler(ProxyHandler(self))
                    }
                }
            }
            .connect(host: place.0, port: Int(place.1))
            .whenComplete { result in
                switch result {
                case .success(let channel):
                    self.connected(channel)
                    channel.closeFuture.whenComplete { _ in timer.cancel() }
                case .failure(let error):
                    timer.cancel()
                    self.fail { _ in self.connectError(error) }
                }
            }
    }

    /// Any certificate is accepted: the relay proves itself inside (docs/relay-protocol.md, section 21).
    func addTLS(to channel: any Channel) throws {
        reached(.tls)
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.certificateVerification = .none
        configuration.minimumTLSVersion = .tlsv12
        configuration.applicationProtocols = ["http/1.1"]
        let context = try NIOSSLContext(configuration: configuration)
        // Addresses are no names of servers (RFC 6066).
        let isAddress = (try? SocketAddress(ipAddress: request.host, port: 0)) != nil
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(NIOSSLClientHandler(context: context, serverHostname: isAddress ? nil : request.host))
        try addRequest(to: channel)
    }

    private func addRequest(to channel: any Channel) throws {
        let pipeline = channel.pipeline.syncOperations
        let opening = OpeningHandler(self)
        let box = NIOLoopBound(opening, eventLoop: channel.eventLoop)
        let upgrader = NIOWebSocketClientUpgrader(
            maxFrameSize: request.messageBytesMaximum, automaticErrorHandling: false
        ) { channel, response in
            channel.eventLoop.makeCompletedFuture { [request = self.request] in
                guard response.headers.first(name: "Sec-WebSocket-Protocol") == request.subprotocol else {
                    // Nobody else looks at what is thrown here.
                    let error = WebSocketError.notWebSocket(
                        host: request.authority, why: "it does not offer '\(request.subprotocol)'")
                    self.fail { _ in error }
                    throw error
                }
                let pipeline = channel.pipeline.syncOperations
                try pipeline.addHandler(
                    NIOWebSocketFrameAggregator(
                        minNonFinalFragmentSize: 0, maxAccumulatedFrameCount: 256,
                        maxAccumulatedFrameSize: request.messageBytesMaximum))
                try pipeline.addHandler(MessageHandler(self))
                box.value.isDone = true
                self.opened()
            }
        }
        let encoder = HTTPRequestEncoder()
        let decoder = ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .forwardBytes))
        try pipeline.addHandler(encoder)
        try pipeline.addHandler(decoder)
        try pipeline.addHandler(
            NIOHTTPClientUpgradeHandler(
                upgraders: [upgrader], httpHandlers: [encoder, decoder, opening],
                upgradeCompletionHandler: { _ in }))
        try pipeline.addHandler(opening)
    }

    private func connectError(_ error: any Error) -> WebSocketError {
        let why = Self.words(error)
        if let proxy = request.proxy { return .proxyUnreachable(proxy, why: why) }
        return .unreachable(host: request.authority, why: why)
    }

    /// What the system says, in its own words.
    static func words(_ error: any Error) -> String {
        switch error {
        case let error as NIOConnectionError:
            if let first = error.connectionErrors.first { return words(first.error) }
            if let error = error.dnsAError ?? error.dnsAAAAError { return words(error) }
            return "its name has no address"
        case let error as IOError: return String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout: return "no answer"
        default: return "\(error)"
        }
    }
}

/// Asks the proxy for the connection, and goes when it is there.
private final class ProxyHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer

    private let connection: WebSocketConnection
    private var answer = ProxyAnswer()
    private var isOver = false

    init(_ connection: WebSocketConnection) { self.connection = connection }

    func channelActive(context: ChannelHandlerContext) {
        guard let proxy = connection.request.proxy else { return }
        connection.reached(.proxy)
        let place = connection.request.authority
        var text = "CONNECT \(place) HTTP/1.1\r\nHost: \(place)\r\n"
        if let authorization = proxy.authorization { text += "Proxy-Authorization: \(authorization)\r\n" }
        let buffer = context.channel.allocator.buffer(string: text + "\r\n")
        context.writeAndFlush(NIOAny(buffer), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver, let proxy = connection.request.proxy else { return }
        do throws(ProxyAnswer.Failure) {
            let rest = try answer.take(unwrapInboundIn(data).readableBytesView)
            guard let rest else { return }
            isOver = true
            do {
                try connection.addTLS(to: context.channel)
            } catch {
                return connection.fail { _ in .tls(host: connection.request.authority, why: "\(error)") }
            }
            if !rest.isEmpty { context.fireChannelRead(NIOAny(context.channel.allocator.buffer(bytes: rest))) }
            context.pipeline.syncOperations.removeHandler(self, promise: nil)
        } catch {
            isOver = true
            connection.fail { _ in
                switch error {
                case .refused(407): .proxyWantsCredentials(proxy)
                case .refused(let status): .proxyRefused(proxy, status: status)
                case .notHTTP, .tooLong: .proxyIsNone(proxy)
                }
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection.fail { .ended(host: connection.request.authority, $0) }
    }

    func channelInactive(context: ChannelHandlerContext) {
        connection.fail { .ended(host: connection.request.authority, $0) }
    }
}

/// Sends the request, and judges what comes in place of an open WebSocket.
private final class OpeningHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart

    private let connection: WebSocketConnection
    private var isAsked = false
    /// The WebSocket is open: this handler is about to be removed.
    var isDone = false

    init(_ connection: WebSocketConnection) { self.connection = connection }

    func handlerAdded(context: ChannelHandlerContext) {
        if context.channel.isActive { ask(context) }
    }

    func channelActive(context: ChannelHandlerContext) { ask(context) }

    /// TLS holds it back until its handshake is complete.
    private func ask(_ context: ChannelHandlerContext) {
        guard !isAsked else { return }
        isAsked = true
        let request = connection.request
        var headers = HTTPHeaders()
        headers.add(name: "Host", value: request.port == 443 ? hostOnly(request) : request.authority)
        headers.add(name: "Sec-WebSocket-Protocol", value: request.subprotocol)
        let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: request.path, headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    private func hostOnly(_ request: WebSocketRequest) -> String {
        request.host.contains(":") ? "[\(request.host)]" : request.host
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted? = event as? TLSUserEvent { connection.reached(.upgrade) }
        context.fireUserInboundEventTriggered(event)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data) else { return }
        let host = connection.request.authority
        let isSuccess = (200..<400).contains(head.status.code)
        connection.fail { _ in isSuccess ? .page(host: host) : .refused(host: host, status: Int(head.status.code)) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard !isDone else { return context.fireErrorCaught(error) }
        let host = connection.request.authority
        connection.fail { stage in
            switch error {
            case NIOSSLError.handshakeFailed(let why): .tls(host: host, why: "\(why)")
            case is HTTPParserError: .notWebSocket(host: host, why: "what it sends is not HTTP")
            case is NIOHTTPClientUpgradeError: .notWebSocket(host: host, why: "its answer to the request is wrong")
            default: .ended(host: host, stage)
            }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        guard !isDone else { return context.fireChannelInactive() }
        connection.fail { .ended(host: connection.request.authority, $0) }
    }
}
