// The interface for pushes: this machine registers tokens and receives the pushes for them. `RelayClient` implements
// it.
import MonotonicTime
import Reactor
import RelayProtocol
import Vocabulary

/// A link over which pushes come.
///
/// Pushes for a token come from `register` until `unregister`; the link registers it again on every connection it makes.
/// Events are delivered on the loop, in order, and never from within a call to the link.
public protocol PushLink: Actor {
    /// The loop it lives on and calls its handler on.
    nonisolated var loop: EventLoop { get }

    /// Sets the handler for pushes.
    func setPushHandler(_ handler: @escaping @Sendable (PushLinkEvent) -> Void)

    /// Wants the pushes for `token`, at most `PushRegistrations.tokensMaximum` at a time.
    ///
    /// `registered` or `refused` follows on every connection; nothing follows while there is none.
    func register(token: PushToken, topic: PushTopic)

    /// Unregisters the token for good. The relay is informed now, or at the next connection.
    func unregister(token: PushToken)
}

/// The events about pushes.
public enum PushLinkEvent: Sendable, Equatable {
    /// Pushes for the token come from now on, until the connection is lost.
    case registered(PushToken)
    /// No pushes for the token come; the phrase is the relay's.
    case refused(PushToken, PushRefusal, String)
    /// A push arrived. Each is reported once.
    case push(RelayPush)
}

/// One push.
public struct RelayPush: Sendable, Equatable {
    /// The token that it was sent to, one of the registered.
    public var token: PushToken
    /// A JSON object in UTF-8, at most 4096 bytes; checked by the relay, not here.
    public var payload: [UInt8]
    /// 1 to 10; 10 is for at once.
    public var priority: UInt8
    /// Until when it is worth anything; `nil`: only right now.
    public var expiresAt: Instant?
    /// When it came.
    public var receivedAt: Instant
}

/// What a client wants of a relay.
public enum RelayClientMode: Sendable, Equatable {
    /// To be a member of the channel: to hear, to talk, and to get pushes.
    case member
    /// Pushes only: the client is not a member of the channel, nobody sees it, and its bursts end with
    /// `linkUnavailable`.
    case pushOnly
}
