// Reports the state of a connection to the gate, and closes it if its request takes too long or its peer does not read.
import MonotonicTime
import NIOCore

/// The timeouts of a connection.
package struct ConnectionTimeouts {
    /// How long a request may take, from the first byte of its head to the last byte of its answer; nil: enforced
    /// elsewhere.
    var requestTime: Duration?
    /// How long its peer may read nothing of what waits for it, and how much may wait; nil: any.
    var unreadTime: Duration
    var unreadBytes: Int?

    /// Timeouts of a connection.
    package init(requestTime: Duration?, unreadTime: Duration, unreadBytes: Int?) {
        self.requestTime = requestTime
        self.unreadTime = unreadTime
        self.unreadBytes = unreadBytes
    }
}

/// Stands next to the socket.
package final class ConnectionWatch: ChannelDuplexHandler, RemovableChannelHandler {
    package typealias InboundIn = NIOAny
    package typealias OutboundIn = IOData

    /// What the other handlers tell, as an outbound event.
    package enum Event: Sendable {
        /// A request's head is there.
        case requestBegan
        /// Its answer has been handed over to be written.
        case requestEnded
        /// The client is one that may push.
        case proven
    }

    private let id: ConnectionAdmission.ID
    private let gate: ConnectionGate
    private let requestTime: TimeAmount?
    private var unread: UnreadAnswers
    private var requestTimer: Scheduled<Void>?
    private var unreadTimer: Scheduled<Void>?
    private var isAnswered = false

    init(_ id: ConnectionAdmission.ID, gate: ConnectionGate, timeouts: ConnectionTimeouts) {
        self.id = id
        self.gate = gate
        requestTime = timeouts.requestTime.map { TimeAmount($0) }
        unread = UnreadAnswers(time: timeouts.unreadTime, bytesMaximum: timeouts.unreadBytes)
    }

    // Time counts from the beginning of the connection.
    package func handlerAdded(context: ChannelHandlerContext) { start(context) }

    package func handlerRemoved(context: ChannelHandlerContext) {
        stop()
        unreadTimer?.cancel()
        unreadTimer = nil
        gate.closed(id)
    }

    package func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        gate.read(id)
        start(context)
        context.fireChannelRead(data)
    }

    package func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        let count = unwrapOutboundIn(data).readableBytes
        guard unread.add(count, at: .now) else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return context.close(mode: .all, promise: nil)
        }
        let written = promise ?? context.eventLoop.makePromise(of: Void.self)
        written.futureResult.assumeIsolated().whenComplete { [self] _ in
            unread.taken(count, at: .now)
            endIfWritten()
        }
        context.write(data, promise: written)
        watchUnread(context)
    }

    package func triggerUserOutboundEvent(
        context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?
    ) {
        guard let event = event as? Event else {
            return context.triggerUserOutboundEvent(event, promise: promise)
        }
        switch event {
        case .requestBegan: start(context)
        case .requestEnded:
            isAnswered = true
            endIfWritten()
        case .proven: gate.proved(id)
        }
        promise?.succeed()
    }

    /// A client that does not read its answer has proven nothing.
    private func endIfWritten() {
        guard isAnswered, unread.bytes == 0 else { return }
        isAnswered = false
        stop()
        gate.proved(id)
    }

    private func start(_ context: ChannelHandlerContext) {
        guard let requestTime, requestTimer == nil else { return }
        let channel = context.channel
        requestTimer = context.eventLoop.scheduleTask(in: requestTime) { channel.close(mode: .all, promise: nil) }
    }

    private func stop() {
        requestTimer?.cancel()
        requestTimer = nil
    }

    /// One timer at a time: when it fires, it looks again.
    private func watchUnread(_ context: ChannelHandlerContext) {
        guard unreadTimer == nil, let deadline = unread.deadline else { return }
        let channel = context.channel
        unreadTimer = context.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(deadline - .now)) { [self] in
            unreadTimer = nil
            guard let deadline = unread.deadline else { return }
            if deadline <= .now { channel.close(mode: .all, promise: nil) } else { watchUnread(context) }
        }
    }
}
