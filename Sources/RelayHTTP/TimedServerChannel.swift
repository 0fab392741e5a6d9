// Closes connections whose handshake takes too long, or whose client may not push, so that they cannot keep others out.
import HummingbirdCore
import HummingbirdHTTP2
import Logging
import NIOCore
import NIOSSL
import NIOTLS

/// HTTP/2 over TLS, with a timeout for the handshake, and one for clients that may not push.
struct TimedServerChannel: ServerChildChannel {
    let upgrade: Current<HTTP2UpgradeChannel>
    let handshakeTime: Duration
    let strangerTime: Duration
    /// Whether a client with this certificate, or none, may push.
    let mayPush: @Sendable (NIOSSLCertificate?) -> Bool

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP2UpgradeChannel.Value> {
        let prepared = upgrade.get().setup(channel: channel, logger: logger)
        do {
            let pipeline = channel.pipeline.syncOperations
            let tls = try pipeline.handler(type: NIOSSLServerHandler.self)
            let mayPush = mayPush
            let timer = HandshakeTimer(TimeAmount(handshakeTime), strangers: TimeAmount(strangerTime)) { [weak tls] in
                mayPush(tls?.peerCertificate)
            }
            try pipeline.addHandler(timer, position: .after(tls))
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return prepared
    }

    func handle(value: HTTP2UpgradeChannel.Value, logger: Logger) async {
        await upgrade.get().handle(value: value, logger: logger)
    }
}

/// Closes its connection if the handshake does not complete in time, or if the server shuts down before that. It closes
/// the connection of a client that may not push after a further timeout.
private final class HandshakeTimer: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = NIOAny

    private let time: TimeAmount
    private let strangerTime: TimeAmount
    private let mayPush: () -> Bool
    private var timer: Scheduled<Void>?
    private var isThrough = false

    init(_ time: TimeAmount, strangers: TimeAmount, mayPush: @escaping () -> Bool) {
        self.time = time
        strangerTime = strangers
        self.mayPush = mayPush
    }

    func handlerAdded(context: ChannelHandlerContext) { close(context, in: time) }

    private func close(_ context: ChannelHandlerContext, in time: TimeAmount) {
        let channel = context.channel
        timer = context.eventLoop.scheduleTask(in: time) { channel.close(mode: .all, promise: nil) }
    }

    func handlerRemoved(context: ChannelHandlerContext) { timer?.cancel() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        switch event {
        case TLSUserEvent.handshakeCompleted:
            isThrough = true
            timer?.cancel()
            // Time enough to be told why.
            if mayPush() {
                context.triggerUserOutboundEvent(ConnectionWatch.Event.proven, promise: nil)
            } else {
                close(context, in: strangerTime)
            }
        case is ChannelShouldQuiesceEvent where !isThrough: context.close(promise: nil)
        default: break
        }
        context.fireUserInboundEventTriggered(event)
    }
}
