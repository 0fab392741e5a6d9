// What a user of WebSockets needs of one. The module WebSocketClient has them over TCP and TLS.
import Reactor

/// A connection to a WebSocket server, from the moment it begins to connect. It is closed by `close`, or ends by itself.
///
/// All calls are made on the user's loop, and all events come there, in order and several at a time; none comes after
/// `close`, or after `ended`.
public protocol WebSocket: AnyObject, Sendable {
    /// Whether what is sent now goes to the kernel soon. When it is false, `room` comes once it is true again.
    var hasRoom: Bool { get }

    /// Sends a binary message. No effect before `opened`, and after the end.
    func send(_ message: [UInt8])

    /// Closes it with that code and reason, after what was sent. No event follows.
    func close(code: UInt16, reason: String)
}

extension WebSocket {
    /// Closes it with that code and no reason.
    public func close(code: UInt16) { close(code: code, reason: "") }
}

/// What may happen to a WebSocket.
public enum WebSocketEvent: Sendable, Equatable {
    /// Messages can be sent and received.
    case opened
    /// A binary message came.
    case message([UInt8])
    /// There is room again, after `hasRoom` was false.
    case room
    /// It is over.
    case ended(WebSocketEnd)
}

/// Begins to connect. The handler is called on the loop with each event, never from within a call.
public typealias WebSocketOpener =
    @Sendable (
        _ request: WebSocketRequest, _ loop: EventLoop, _ handler: @escaping @Sendable (WebSocketEvent) -> Void
    ) -> any WebSocket
