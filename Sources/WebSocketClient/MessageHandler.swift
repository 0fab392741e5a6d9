// The frames of an open WebSocket.
import NIOCore
import NIOPosix
import NIOWebSocket
import WebSockets

/// Hands messages to the connection, answers pings, and tells how the WebSocket ends.
final class MessageHandler: ChannelInboundHandler {
    typealias InboundIn = WebSocketFrame
    typealias OutboundOut = WebSocketFrame

    private let connection: WebSocketConnection
    private var isOver = false

    init(_ connection: WebSocketConnection) { self.connection = connection }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !isOver else { return }
        let frame = unwrapInboundIn(data)
        switch frame.opcode {
        case .binary:
            guard frame.maskKey == nil else { return violate(context, "a masked frame") }
            connection.tell(.message(Array(frame.data.readableBytesView)))
        case .text: violate(context, "a text message", code: 1_003)
        case .ping:
            // A server that does not read gets no pongs: they would wait here.
            guard context.channel.isWritable else { return }
            let pong = WebSocketFrame(fin: true, opcode: .pong, maskKey: .random(), data: frame.unmaskedData)
            context.writeAndFlush(wrapOutboundOut(pong), promise: nil)
        case .pong: break
        case .connectionClose: closed(context, frame.unmaskedData)
        default: violate(context, "a frame of an unknown kind")
        }
    }

    private func closed(_ context: ChannelHandlerContext, _ payload: ByteBuffer) {
        isOver = true
        var payload = payload
        let code = payload.readInteger(as: UInt16.self)
        let reason = String(decoding: payload.readableBytesView.prefix(123), as: UTF8.self)
        // The same code goes back (RFC 6455, section 5.5.1); then the connection is closed.
        WebSocketConnection.sayClose(context.channel, code: code ?? 1_000, reason: "")
        connection.end(.closed(code: code, reason: reason))
        context.close(promise: nil)
    }

    private func violate(_ context: ChannelHandlerContext, _ what: String, code: UInt16 = 1_002) {
        guard !isOver else { return }
        isOver = true
        WebSocketConnection.sayClose(context.channel, code: code, reason: what)
        connection.end(.violation(what))
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        switch error {
        case NIOWebSocketError.invalidFrameLength: violate(context, "a message that is too long", code: 1_009)
        case is NIOWebSocketError, is NIOWebSocketFrameAggregator.Error: violate(context, "\(error)")
        default:
            isOver = true
            connection.end(.lost(WebSocketConnection.words(error)))
            context.close(promise: nil)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        isOver = true
        connection.end(.lost("it ended"))
    }
}
