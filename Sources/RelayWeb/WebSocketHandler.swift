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
            refuse(Self.answer(to: data.readWebSocketErrorCode()), "")
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
        switch error {
        case NIOWebSocketError.invalidFrameLength, NIOWebSocketFrameAggregator.Error.tooManyFragments,
            NIOWebSocketFrameAggregator.Error.accumulatedFrameSizeIsTooLarge:
            refuse(.messageTooLarge, "")
        case is NIOWebSocketError, is NIOWebSocketFrameAggregator.Error, is FrameCheck.Failure:
            refuse(.protocolError, "")
        default: context.close(promise: nil)
        }
    }

    /// The same code goes back (RFC 6455, section 5.5.1), unless it is one that no frame may have (section 7.4).
    private static func answer(to code: WebSocketErrorCode?) -> WebSocketErrorCode {
        guard let code else { return .normalClosure }
        let number = UInt16(webSocketErrorCode: code)
        return [1_004, 1_005, 1_006, 1_015].contains(number) || !(1_000...4_999).contains(number)
            ? .protocolError : code
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

    /// RFC 6455, section 5.2: two bytes, and eight of length.
    private static let headBytesMaximum = 10

    func write(_ message: [UInt8]) {
        guard let context, !isClosing else { return }
        // The frame's head goes in front of the message, in the same buffer, so that both are one TLS record.
        var buffer = context.channel.allocator.buffer(capacity: Self.headBytesMaximum + message.count)
        buffer.moveWriterIndex(to: Self.headBytesMaximum)
        buffer.writeBytes(message)
        buffer.moveReaderIndex(to: Self.headBytesMaximum)
        let frame = WebSocketFrame(fin: true, opcode: .binary, data: buffer)
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

    /// RFC 6455, section 5.5: a control frame has at most 125 bytes.
    private static let reasonBytesMaximum = 123

    private func close(_ code: WebSocketErrorCode, _ reason: String) {
        guard let context, !isClosing else { return }
        isClosing = true
        var data = context.channel.allocator.buffer(capacity: 2 + Self.reasonBytesMaximum)
        data.write(webSocketErrorCode: code)
        var text = reason
        while text.utf8.count > Self.reasonBytesMaximum { text.removeLast() }
        data.writeString(text)
        let channel = context.channel
        let written = context.writeAndFlush(
            wrapOutboundOut(WebSocketFrame(fin: true, opcode: .connectionClose, data: data)))
        // The client closes when it has read it; who does not is cut off.
        written.whenFailure { _ in channel.close(promise: nil) }
        context.eventLoop.scheduleTask(in: closingTime) { channel.close(mode: .all, promise: nil) }
    }
}
