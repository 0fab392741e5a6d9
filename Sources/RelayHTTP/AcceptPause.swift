// Back-off of a listening port when a connection cannot be accepted because file descriptors or memory are used up.
import Glibc
import Logging
import NIOCore

/// A connection that cannot be accepted stays in the kernel's queue, and a listener that retried at once would be busy
/// with nothing else. So it pauses, and reports that once.
public struct AcceptPause: Sendable {
    /// What a listener does after accept(2) has failed.
    public enum Verdict: Sendable, Equatable {
        /// Accepts again when the kernel reports a connection.
        case goOn
        /// Accepts nothing for `time`. `tells`: log it, because it is the first time.
        case pause(tells: Bool)
    }

    /// How long it accepts nothing.
    public static let time: Duration = .seconds(1)

    private var isShort = false

    /// Nothing has failed yet.
    public init() {}

    /// A connection was accepted.
    public mutating func accepted() { isShort = false }

    /// accept(2) has failed with the code `code` (errno).
    public mutating func failed(_ code: Int32) -> Verdict {
        guard [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else { return .goOn }
        defer { isShort = true }
        return .pause(tells: !isShort)
    }

    /// The message for the log.
    public static let advice =
        "cannot accept a connection: file descriptors or memory are used up; raise LimitNOFILE of the service"
}

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
