// One WebSocket over TLS, between NIO's thread and the loop of its user. No rules of what is carried.
import NIOCore
import NIOWebSocket
import Reactor
import Synchronization
import WebSockets

/// A connection to a WebSocket server over TLS. TLS accepts any certificate: its user has to prove inside who the other
/// end is.
public final class WebSocketConnection: WebSocket {
    /// For what opens WebSockets without knowing this module.
    public static let opener: WebSocketOpener = { WebSocketConnection($0, loop: $1, handler: $2) }

    /// What is handed over and not yet taken by the kernel may be so much; beyond it, its user keeps what waits.
    public static let roomBytes = 2_048
    /// What the kernel may keep unsent. Half a second of speech, since nothing overtakes it any more.
    public static let unsentBytes = 4_096
    /// What was received and not told yet may be so much, until nothing more is read.
    static let untoldBytesMaximum = 256 * 1_024
    /// After a Close frame, how long that of the other end is waited for.
    static let closingTime = TimeAmount.seconds(1)

    /// What both threads share.
    private struct State {
        var stage = WebSocketError.Stage.connecting
        var channel: (any Channel)?
        var isOpen = false
        var isOver = false
        /// Not given to the channel yet.
        var outbox: [[UInt8]] = []
        var isWriting = false
        /// Given to it, or about to be, and not taken by the kernel.
        var unwritten = 0
        var wantsRoom = false
        var untold: [WebSocketEvent] = []
        var untoldBytes = 0
        var isTelling = false
        var isPaused = false
    }

    let request: WebSocketRequest
    private let loop: Reactor.EventLoop
    private let handler: @Sendable (WebSocketEvent) -> Void
    private let state = Mutex(State())

    /// Begins to connect.
    ///
    /// - Parameters:
    ///   - loop: The loop of its user.
    ///   - handler: Called there with each event, never from within a call.
    public init(
        _ request: WebSocketRequest, loop: Reactor.EventLoop, handler: @escaping @Sendable (WebSocketEvent) -> Void
    ) {
        self.request = request
        self.loop = loop
        self.handler = handler
        connect()
    }

    // MARK: The user's side

    /// Whether less waits than `roomBytes`.
    public var hasRoom: Bool {
        state.withLock { state in
            let hasRoom = state.unwritten < Self.roomBytes
            if !hasRoom { state.wantsRoom = true }
            return hasRoom
        }
    }

    /// Hands the message to NIO's thread.
    public func send(_ message: [UInt8]) {
        let channel: (any Channel)? = state.withLock { state in
            guard state.isOpen, !state.isOver else { return nil }
            state.outbox.append(message)
            state.unwritten += message.count
            guard !state.isWriting else { return nil }
            state.isWriting = true
            return state.channel
        }
        channel?.eventLoop.execute { self.write() }
    }

    /// Sends a Close frame, and waits `closingTime` for that of the other end.
    public func close(code: UInt16, reason: String) {
        let channel: (any Channel)? = state.withLock { state in
            guard !state.isOver else { return nil }
            state.isOver = true
            (state.untold, state.untoldBytes) = ([], 0)
            return state.channel
        }
        guard let channel else { return }
        channel.eventLoop.execute {
            guard self.state.withLock({ $0.isOpen }) else {
                channel.close(promise: nil)
                return
            }
            self.write()
            Self.sayClose(channel, code: code, reason: reason)
            _ = channel.eventLoop.scheduleTask(in: Self.closingTime) { channel.close(promise: nil) }
        }
    }

    private func tellAll() {
        while true {
            let event: WebSocketEvent? = state.withLock { state in
                guard !state.untold.isEmpty else {
                    state.isTelling = false
                    return nil
                }
                return state.untold.removeFirst()
            }
            guard let event else { break }
            if case .message(let bytes) = event { state.withLock { $0.untoldBytes -= bytes.count } }
            handler(event)
        }
        let resumed: (any Channel)? = state.withLock { state in
            guard state.isPaused, state.untoldBytes == 0 else { return nil }
            state.isPaused = false
            return state.channel
        }
        resumed?.setOption(.autoRead, value: true).whenComplete { _ in }
    }

    // MARK: NIO's side

    /// Whether its user wants it no more, or it has ended.
    var isOver: Bool { state.withLock { $0.isOver } }

    /// Whether the connection has come so far that it may go on; its user may have closed it.
    func reached(_ stage: WebSocketError.Stage) { state.withLock { $0.stage = stage } }

    func connected(_ channel: any Channel) {
        let isOver = state.withLock { state in
            state.channel = channel
            return state.isOver
        }
        if isOver { channel.close(promise: nil) }
    }

    func opened() {
        state.withLock { $0.isOpen = true }
        tell(.opened)
    }

    /// Tells the user of an event, with those that follow soon.
    func tell(_ event: WebSocketEvent) {
        let (mustTell, paused): (Bool, (any Channel)?) = state.withLock { state in
            guard !state.isOver else { return (false, nil) }
            state.untold.append(event)
            var paused: (any Channel)?
            if case .message(let bytes) = event {
                state.untoldBytes += bytes.count
                if state.untoldBytes > Self.untoldBytesMaximum, !state.isPaused {
                    state.isPaused = true
                    paused = state.channel
                }
            }
            if case .ended = event { state.isOver = true }
            guard !state.isTelling else { return (false, paused) }
            state.isTelling = true
            return (true, paused)
        }
        paused?.setOption(.autoRead, value: false).whenComplete { _ in }
        if mustTell { loop.execute { self.tellAll() } }
    }

    /// It is over; the first reason counts.
    func end(_ end: WebSocketEnd) {
        tell(.ended(end))
        state.withLock { $0.channel }?.close(promise: nil)
    }

    /// It did not open.
    func fail(_ error: (WebSocketError.Stage) -> WebSocketError) {
        let stage = state.withLock { $0.stage }
        end(.failed(error(stage)))
    }

    /// Time is up.
    func timeUp() {
        guard !state.withLock({ $0.isOpen }) else { return }
        fail { .timeout(host: request.authority, $0) }
    }

    private func write() {
        let (messages, channel) = state.withLock { state in
            defer { (state.outbox, state.isWriting) = ([], false) }
            return (state.outbox, state.channel)
        }
        guard let channel, !messages.isEmpty else { return }
        let bytes = messages.reduce(0) { $0 + $1.count }
        for message in messages.dropLast() { channel.write(Self.frame(channel, .binary, message), promise: nil) }
        let taken = channel.eventLoop.makePromise(of: Void.self)
        taken.futureResult.whenComplete { _ in self.taken(bytes) }
        channel.writeAndFlush(Self.frame(channel, .binary, messages[messages.count - 1]), promise: taken)
    }

    private func taken(_ bytes: Int) {
        let isRoom = state.withLock { state in
            state.unwritten -= bytes
            guard state.wantsRoom, state.unwritten < Self.roomBytes else { return false }
            state.wantsRoom = false
            return true
        }
        if isRoom { tell(.room) }
    }

    /// A client masks its frames (RFC 6455, section 5.3).
    private static func frame(_ channel: any Channel, _ opcode: WebSocketOpcode, _ bytes: [UInt8]) -> WebSocketFrame {
        WebSocketFrame(fin: true, opcode: opcode, maskKey: .random(), data: channel.allocator.buffer(bytes: bytes))
    }

    static func sayClose(_ channel: any Channel, code: UInt16, reason: String) {
        var bytes = [UInt8(code >> 8), UInt8(code & 0xFF)]
        // At a whole character (RFC 6455, section 5.5: 125 bytes with the code).
        for character in reason {
            guard bytes.count + character.utf8.count <= 125 else { break }
            bytes += character.utf8
        }
        channel.writeAndFlush(frame(channel, .connectionClose, bytes), promise: nil)
    }
}
