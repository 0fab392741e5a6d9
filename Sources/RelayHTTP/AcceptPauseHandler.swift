// A listening port that accepts nothing for a while when file descriptors are used up.
import Logging
import NIOCore

/// Stands first in the pipeline of a listening channel. SwiftNIO keeps the port registered when accept(2) fails, and would ask again
/// and again.
final class AcceptPauseHandler: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = any Channel
    typealias InboundOut = any Channel
    typealias OutboundIn = Never

    private let logger: Logger
    private var pause = AcceptPause()
    private var timer: Scheduled<Void>?

    init(logger: Logger) { self.logger = logger }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        pause.accepted()
        context.fireChannelRead(data)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let failure = error as? IOError, case .pause(let tells) = pause.failed(failure.errnoCode) else {
            context.fireErrorCaught(error)
            return
        }
        if tells { logger.warning("\(AcceptPause.advice)", metadata: ["why": "\(failure)"]) }
        guard timer == nil else { return }
        let channel = context.channel
        // It is what takes the port out of what the loop waits for.
        set(channel, autoRead: false)
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(AcceptPause.time)) { [self] in
            timer = nil
            set(channel, autoRead: true)
        }
    }

    func read(context: ChannelHandlerContext) {
        // The end of the pause asks.
        if timer == nil { context.read() }
    }

    func channelInactive(context: ChannelHandlerContext) {
        timer?.cancel()
        timer = nil
        context.fireChannelInactive()
    }

    private func set(_ channel: any Channel, autoRead: Bool) {
        // On the channel's loop it is done at once, and fails only for a channel that is closed.
        channel.setOption(.autoRead, value: autoRead).whenFailure { _ in }
    }
}
