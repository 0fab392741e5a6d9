// Refuses frames that RFC 6455 forbids and that NIO lets through.
import NIOCore
import NIOWebSocket

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
