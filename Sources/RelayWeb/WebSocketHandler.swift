// A WebSocket (RFC 6455) between NIO's frames and the relay's messages. It holds no rules of the relay.
import MonotonicTime
import NIOCore
import NIOWebSocket
import RelayHTTP
import RelayProtocol
import RelayServer

/// One client's WebSocket.
final class WebSocketHandler: ChannelInboundHandler, RelayWebSocket {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let worker: RelayWebWorker
    private let closingTime: TimeAmount
    private var context: ChannelHandlerContext?
    private var peer: RelayWebPeer?
    private var timer: Scheduled<Void>?
    private var isClosing = false
    private var hasWritten = false

    init(_ worker: RelayWebWorker, closingTime: TimeAmount) {
        self.worker = worker
        self.closingTime = closingTime
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        peer = worker.accept(self)
        if peer == nil {
            close(
                code: WebLinkLimits.closeCodeBase + UInt16(RelayCloseCode.goingDown.rawValue),
                reason: "the relay is not running")
        }
    }

    func handlerRemoved(context: ChannelHandlerContext) { end() }

    func channelInactive(context: ChannelHandlerContext) {
        end()
        context.fireChannelInactive()
    }

    private func end() {
        timer?.cancel()
        timer = nil
        context = nil
        guard let peer else { return }
        self.peer = nil
        peer.closed()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var frame = unwrapInboundIn(data)
        guard !isClosing else {
            if frame.opcode == .connectionClose { context.close(promise: nil) }
            return
        }
        switch frame.opcode {
        case .binary:
            let buffer = frame.unmaskedData
            guard buffer.readableBytes > 0 else { return refuse(.dataInconsistentWithMessage, "an empty message") }
            peer?.received(Array(buffer.readableBytesView))
        case .text: refuse(.unacceptableData, "messages are binary")
        case .ping:
            // Who does not read gets no pongs: they would wait here.
            guard context.channel.isWritable else { return }
            frame = WebSocketFrame(fin: true, opcode: .pong, data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(frame), promise: nil)
        case .connectionClose:
            var data = frame.unmaskedData
            refuse(WebSocketErrorCode(answering: data.readWebSocketErrorCode()), "")
            // The server closes first (section 7.1.1), behind its answer.
            context.close(mode: .output, promise: nil)
        default: break
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        if context.channel.isWritable, !isClosing { peer?.becameWritable() }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let code = WebSocketErrorCode(error) else { return context.close(promise: nil) }
        refuse(code, "")
    }

    /// Ends the membership at once, and the connection behind a Close frame.
    private func refuse(_ code: WebSocketErrorCode, _ reason: String) {
        let peer = peer
        self.peer = nil
        close(code, reason)
        peer?.closed()
    }

    // MARK: What the relay asks for

    var isWritable: Bool { !isClosing && context?.channel.isWritable == true }

    func write(_ message: [UInt8]) {
        guard let context, !isClosing else { return }
        let frame = WebSocketFrame.message(message, byteCount: message.count, context.channel.allocator)
        context.write(wrapOutboundOut(frame), promise: nil)
        hasWritten = true
    }

    func flush() {
        guard hasWritten else { return }
        hasWritten = false
        context?.flush()
    }

    func proved() { context?.triggerUserOutboundEvent(ConnectionWatch.Event.proven, promise: nil) }

    func wake(at time: Instant?) {
        timer?.cancel()
        timer = nil
        guard let time, let context else { return }
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(max(.zero, time - .now))) {
            [weak self] in
            self?.timer = nil
            self?.peer?.deadlineCame()
        }
    }

    func close(code: UInt16, reason: String) {
        peer = nil
        close(WebSocketErrorCode(codeNumber: Int(code)), reason)
    }

    private func close(_ code: WebSocketErrorCode, _ reason: String) {
        guard let context, !isClosing else { return }
        isClosing = true
        let channel = context.channel
        let written = context.writeAndFlush(wrapOutboundOut(WebSocketFrame.close(code, reason, channel.allocator)))
        // The client closes when it has read it; who does not is cut off.
        written.whenFailure { _ in channel.close(promise: nil) }
        context.eventLoop.scheduleTask(in: closingTime) { channel.close(mode: .all, promise: nil) }
    }
}
