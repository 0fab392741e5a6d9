// Answers requests for the page, and those that are no link. It goes when the connection becomes a WebSocket.
import NIOCore
import NIOHTTP1

/// HTTP/1.1 for the page's files.
final class PageHandler: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    /// Bytes of a body, which no request here has, that are skipped.
    private static let bodyBytesMaximum = 65_536

    private let rules: WebRequest
    private let time: TimeAmount
    /// Whether more than one file may be asked for. A reverse proxy would send the next client's upgrade on the same connection, where
    /// only the first request can be one.
    private let keepsOpen: Bool
    private var timer: Scheduled<Void>?
    private var head: HTTPRequestHead?
    private var bodyBytes = 0

    init(_ rules: WebRequest, keepsOpen: Bool, time: TimeAmount) {
        self.rules = rules
        self.keepsOpen = keepsOpen
        self.time = time
    }

    func handlerAdded(context: ChannelHandlerContext) { restart(context) }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            self.head = head
            bodyBytes = 0
        case .body(let buffer):
            bodyBytes += buffer.readableBytes
            if bodyBytes > Self.bodyBytesMaximum { context.close(promise: nil) }
        case .end:
            guard let head else { return }
            self.head = nil
            answer(head, context)
        }
    }

    /// A request that may not upgrade is reported as an error before it arrives here, where it is answered. After any other error the
    /// connection is of no use.
    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if error is HTTPParserError || error is ChannelError { context.close(promise: nil) }
    }

    private func answer(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
        switch rules.judge(head) {
        case .file(let file):
            respond(.ok, file.mediaType, ByteBuffer(bytes: file.bytes), to: head, context)
        case .refuse(let status, let reason):
            respond(status, "text/plain; charset=utf-8", ByteBuffer(string: reason + "\n"), to: head, context)
        case .link:
            // Asked for as it should be, but with headers that are no handshake of RFC 6455.
            respond(
                .badRequest, "text/plain; charset=utf-8", ByteBuffer(string: "not a WebSocket handshake\n"), to: head,
                context)
        }
    }

    private func respond(
        _ status: HTTPResponseStatus, _ mediaType: String, _ body: ByteBuffer, to request: HTTPRequestHead,
        _ context: ChannelHandlerContext
    ) {
        var headers: HTTPHeaders = [
            "Content-Type": mediaType, "Content-Length": "\(body.readableBytes)", "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff", "Content-Security-Policy": WebPage.contentSecurityPolicy,
            "Permissions-Policy": WebPage.permissionsPolicy, "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
        ]
        switch status {
        case .methodNotAllowed: headers.add(name: "Allow", value: "GET, HEAD")
        case .upgradeRequired: headers.add(name: "Upgrade", value: "websocket")
        default: break
        }
        let isLast = !keepsOpen || !request.isKeepAlive || status != .ok
        if isLast { headers.add(name: "Connection", value: "close") }
        context.write(wrapOutboundOut(.head(.init(version: .http1_1, status: status, headers: headers))), promise: nil)
        if request.method != .HEAD { context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil) }
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in
            if isLast { channel.close(promise: nil) }
        }
        restart(context)
    }

    private func restart(_ context: ChannelHandlerContext) {
        timer?.cancel()
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(in: time) { channel.close(mode: .all, promise: nil) }
    }
}
