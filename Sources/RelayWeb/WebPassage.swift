// One end of a link that is passed on: what comes here leaves at the other end. It knows nothing of what the messages say.
import NIOCore
import NIOWebSocket
import RelayHTTP

/// A WebSocket whose messages go to another WebSocket, and that writes what comes there.
///
/// Each end is read only while the other one can be written to, so what waits is in the kernel of whoever sends it.
final class WebPassage: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    /// Whether this is the end of a client, which masks what it sends (RFC 6455, section 5.1).
    private let isClient: Bool
    private let closingTime: TimeAmount
    private var context: ChannelHandlerContext?
    /// The other end; nil: it is not connected yet, or this one has ended.
    private var other: WebPassage?
    /// What came before that.
    private var waiting: [ByteBuffer] = []
    private var isClosing = false
    private let onEnd: () -> Void

    /// Messages that may come before the other end is connected. A client sends its hello, and waits for the relay's.
    private static let waitingMaximum = 4
    /// After this time the other relay has let the client in, or has closed the link: no proof and no join may take longer.
    private static let provenTime: TimeAmount = .seconds(25)

    /// - Parameter onEnd: Called once, when no message comes any more.
    init(isClient: Bool, closingTime: TimeAmount, onEnd: @escaping () -> Void = {}) {
        self.isClient = isClient
        self.closingTime = closingTime
        self.onEnd = onEnd
    }

    /// Passes on to `other` from now on, and the other way round.
    func join(_ other: WebPassage) {
        guard !isClosing, !other.isClosing else {
            close(.goingAway, "")
            return other.close(.goingAway, "")
        }
        (self.other, other.other) = (other, self)
        for data in waiting { other.write(data) }
        waiting = []
        other.flush()
        setReading(other.context?.channel.isWritable ?? false)
        context?.eventLoop.assumeIsolated().scheduleTask(in: Self.provenTime) { [weak self] in
            guard let self, !isClosing else { return }
            context?.triggerUserOutboundEvent(ConnectionWatch.Event.proven, promise: nil)
        }
    }

    /// Whether it is read from.
    func setReading(_ reads: Bool) {
        guard let context, !isClosing else { return }
        try? context.channel.syncOptions?.setOption(.autoRead, value: reads)
    }

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func handlerRemoved(context: ChannelHandlerContext) { lost() }

    func channelInactive(context: ChannelHandlerContext) {
        lost()
        context.fireChannelInactive()
    }

    private func lost() {
        let other = unlink()
        (context, isClosing) = (nil, true)
        other?.close(.goingAway, "")
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        guard !isClosing else {
            if frame.opcode == .connectionClose { context.close(promise: nil) }
            return
        }
        switch frame.opcode {
        case .binary: pass(frame.unmaskedData)
        case .text: end(.unacceptableData, "messages are binary")
        case .ping:
            guard context.channel.isWritable else { return }
            let pong = WebSocketFrame(fin: true, opcode: .pong, maskKey: newMask, data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
        case .connectionClose:
            var data = frame.unmaskedData
            let code = WebSocketErrorCode(answering: data.readWebSocketErrorCode())
            end(code, data.readString(length: data.readableBytes) ?? "")
            // The server closes first (section 7.1.1), behind its answer.
            if !isClient { context.close(mode: .output, promise: nil) }
        default: break
        }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        other?.flush()
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        other?.setReading(context.channel.isWritable)
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let code = WebSocketErrorCode(error) else { return context.close(promise: nil) }
        end(code, "")
    }

    private func pass(_ data: ByteBuffer) {
        if let other { return other.write(data) }
        guard waiting.count < Self.waitingMaximum else { return end(.policyViolation, "") }
        waiting.append(data)
    }

    private func write(_ data: ByteBuffer) {
        guard let context, !isClosing else { return }
        let frame = WebSocketFrame.message(
            data.readableBytesView, byteCount: data.readableBytes, maskKey: newMask, context.channel.allocator)
        context.write(wrapOutboundOut(frame), promise: nil)
    }

    private func flush() { context?.flush() }

    private var newMask: WebSocketMaskingKey? { isClient ? .random() : nil }

    // MARK: The end

    /// Closes both ends, each with a Close frame.
    func end(_ code: WebSocketErrorCode, _ reason: String) {
        other?.close(code, reason)
        close(code, reason)
    }

    private func close(_ code: WebSocketErrorCode, _ reason: String) {
        guard let context, !isClosing else { return }
        isClosing = true
        // Its peer's Close frame, or the end of the connection, is still to come.
        try? context.channel.syncOptions?.setOption(.autoRead, value: true)
        _ = unlink()
        let channel = context.channel
        let written = context.writeAndFlush(
            wrapOutboundOut(WebSocketFrame.close(code, reason, maskKey: newMask, channel.allocator)))
        written.whenFailure { _ in channel.close(promise: nil) }
        context.eventLoop.scheduleTask(in: closingTime) { channel.close(mode: .all, promise: nil) }
    }

    private var hasEnded = false

    private func unlink() -> WebPassage? {
        defer { other = nil }
        waiting = []
        other?.other = nil
        if !hasEnded {
            hasEnded = true
            onEnd()
        }
        return other
    }
}
