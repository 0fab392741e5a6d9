// A connection to the web endpoint: TCP, TLS, HTTP/1.1, and then the page or a WebSocket.
import Glibc
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOSSL
import NIOWebSocket
import RelayHTTP
import RelayProtocol
import RelayServer

/// Sets connections up.
struct WebChannel: ServerChildChannel {
    /// A connection that is set up.
    struct Value: ServerChildChannelValue {
        let channel: any Channel
    }

    /// For new connections; nil: no TLS.
    let certificate: Current<NIOSSLContext?>
    let rules: WebRequest
    let worker: RelayWebWorker
    let passages: WebPassages
    let limits: WebEndpointLimits

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<Value> {
        // Without them speech still comes, but later.
        for (name, value) in [(TCP_NODELAY, 1), (TCP_NOTSENT_LOWAT, WebLinkLimits.kernelBacklogBytes)] {
            channel.setOption(.tcpOption(.init(rawValue: name)), value: .init(value)).whenFailure { _ in }
        }
        let buffer = ChannelOptions.Types.WriteBufferWaterMark(low: limits.writeBuffer / 4, high: limits.writeBuffer)
        channel.setOption(.writeBufferWaterMark, value: buffer).whenFailure { _ in }
        do {
            let pipeline = channel.pipeline.syncOperations
            let tls = certificate.get()
            if let context = tls { try pipeline.addHandler(NIOSSLServerHandler(context: context)) }
            let page = NIOLoopBound(
                PageHandler(rules, keepsOpen: tls != nil, time: TimeAmount(limits.requestTime)),
                eventLoop: channel.eventLoop)
            try pipeline.configureHTTPServerPipeline(
                withServerUpgrade: (
                    upgraders: [upgrader],
                    completionHandler: { $0.pipeline.syncOperations.removeHandler(page.value, promise: nil) }
                ))
            try pipeline.addHandler(page.value)
            return channel.eventLoop.makeSucceededFuture(Value(channel: channel))
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
    }

    private var upgrader: NIOWebSocketServerUpgrader {
        let (rules, worker, passages, limits) = (rules, worker, passages, limits)
        return NIOWebSocketServerUpgrader(
            maxFrameSize: WebLinkLimits.messageBytes,
            shouldUpgrade: { channel, head in
                let isLink = if case .link = rules.judge(head) { true } else { false }
                return channel.eventLoop.makeSucceededFuture(
                    isLink ? ["Sec-WebSocket-Protocol": WebLinkLimits.subprotocol] : nil)
            },
            upgradePipelineHandler: { channel, head in
                channel.eventLoop.makeCompletedFuture {
                    try Self.addFrames(to: channel, ofClient: true, limits)
                    if let target = WebLinkTarget(target: head.uri), let place = passages.place(for: target) {
                        return try passages.add(to: channel, target, at: place)
                    }
                    if WebLinkTarget(target: head.uri)?.isPassedOn == true { passages.noteTaken(channel) }
                    try channel.pipeline.syncOperations.addHandler(
                        WebSocketHandler(worker, closingTime: TimeAmount(limits.closingTime)))
                }
            })
    }

    /// Adds what checks the frames of a WebSocket, and puts their fragments together.
    static func addFrames(to channel: any Channel, ofClient: Bool, _ limits: WebEndpointLimits) throws {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(FrameCheck(ofClient: ofClient))
        try pipeline.addHandler(
            NIOWebSocketFrameAggregator(
                minNonFinalFragmentSize: 1, maxAccumulatedFrameCount: limits.framesPerMessage,
                maxAccumulatedFrameSize: WebLinkLimits.messageBytes))
    }

    func handle(value: Value, logger: Logger) async {
        // How it ends does not matter.
        try? await value.channel.closeFuture.get()
    }
}
