// Frames of a WebSocket (RFC 6455): as the endpoint writes them, and those that it refuses.
import NIOCore
import NIOWebSocket

extension WebSocketFrame {
    /// Section 5.2: two bytes, and eight of length, and four of the mask.
    private static let headBytesMaximum = 14
    /// Section 5.5: a control frame has at most 125 bytes, two of which are the code.
    private static let reasonBytesMaximum = 123

    /// A binary message in one frame, whose head goes in front of the message in the same buffer, so that both are one TLS record.
    static func message(
        _ bytes: some Sequence<UInt8>, byteCount: Int, maskKey: WebSocketMaskingKey? = nil,
        _ allocator: ByteBufferAllocator
    ) -> WebSocketFrame {
        var buffer = allocator.buffer(capacity: headBytesMaximum + byteCount)
        buffer.moveWriterIndex(to: headBytesMaximum)
        buffer.writeBytes(bytes)
        buffer.moveReaderIndex(to: headBytesMaximum)
        return WebSocketFrame(fin: true, opcode: .binary, maskKey: maskKey, data: buffer)
    }

    /// A Close frame; a reason that is too long is cut.
    static func close(
        _ code: WebSocketErrorCode, _ reason: String, maskKey: WebSocketMaskingKey? = nil,
        _ allocator: ByteBufferAllocator
    ) -> WebSocketFrame {
        var text = reason
        while text.utf8.count > reasonBytesMaximum { text.removeLast() }
        var data = allocator.buffer(capacity: 2 + text.utf8.count)
        data.write(webSocketErrorCode: code)
        data.writeString(text)
        return WebSocketFrame(fin: true, opcode: .connectionClose, maskKey: maskKey, data: data)
    }
}

extension WebSocketErrorCode {
    /// The code that a Close frame is answered with: the same one (section 5.5.1), unless it is one that no frame may have (section 7.4).
    init(answering code: WebSocketErrorCode?) {
        guard let code else {
            self = .normalClosure
            return
        }
        let number = UInt16(webSocketErrorCode: code)
        let isPossible = (1_000...4_999).contains(number) && ![1_004, 1_005, 1_006, 1_015].contains(number)
        self = isPossible ? code : .protocolError
    }

    /// The code for what the frames of a peer have done wrong; nil: the connection itself has failed.
    init?(_ error: any Error) {
        switch error {
        case NIOWebSocketError.invalidFrameLength, NIOWebSocketFrameAggregator.Error.tooManyFragments,
            NIOWebSocketFrameAggregator.Error.accumulatedFrameSizeIsTooLarge:
            self = .messageTooLarge
        case is NIOWebSocketError, is NIOWebSocketFrameAggregator.Error, is FrameCheck.Failure: self = .protocolError
        default: return nil
        }
    }
}

/// Stands before what puts fragments together. An error of it ends the connection.
final class FrameCheck: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias InboundOut = WebSocketFrame

    /// A frame that is none.
    struct Failure: Error {}

    /// Whether the peer is a client.
    private let isMasked: Bool

    init(ofClient isMasked: Bool) { self.isMasked = isMasked }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .binary, .text, .continuation, .ping, .pong, .connectionClose: break
        // Section 5.2: an unknown opcode.
        default: return context.fireErrorCaught(Failure())
        }
        // Section 5.1: a client masks, and a server does not. Section 5.2: reserved bits are for extensions, and there are none.
        guard (frame.maskKey != nil) == isMasked, !frame.rsv1, !frame.rsv2, !frame.rsv3 else {
            return context.fireErrorCaught(Failure())
        }
        context.fireChannelRead(data)
    }
}
