// Connections that do not get through their handshake are closed, so that they cannot keep others out.
import HummingbirdCore
import HummingbirdHTTP2
import Logging
import NIOCore
import NIOSSL
import NIOTLS

/// HTTP/2 over TLS, with a limit to how long the handshake may take.
struct PatientChannel: ServerChildChannel {
    let upgrade: HTTP2UpgradeChannel
    let handshakeTime: Duration

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP2UpgradeChannel.Value> {
        let prepared = upgrade.setup(channel: channel, logger: logger)
        do {
            let pipeline = channel.pipeline.syncOperations
            let tls = try pipeline.handler(type: NIOSSLServerHandler.self)
            try pipeline.addHandler(HandshakeTimer(TimeAmount(handshakeTime)), position: .after(tls))
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return prepared
    }

    func handle(value: HTTP2UpgradeChannel.Value, logger: Logger) async {
        await upgrade.handle(value: value, logger: logger)
    }
}

/// Closes its connection unless TLS is through in time, or when the server goes down before.
private final class HandshakeTimer: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = NIOAny

    private let time: TimeAmount
    private var timer: Scheduled<Void>?
    private var isThrough = false

    init(_ time: TimeAmount) { self.time = time }

    func handlerAdded(context: ChannelHandlerContext) {
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(in: time) { channel.close(mode: .all, promise: nil) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case TLSUserEvent.handshakeCompleted:
            isThrough = true
            timer?.cancel()
        case is ChannelShouldQuiesceEvent where !isThrough: context.close(promise: nil)
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }
}
