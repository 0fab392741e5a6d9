// What clients do about pushes, on its way to the shard that has the push tokens.
import RelayProtocol
import Vocabulary

/// Something for the `PushRegistry`, from a connection of another shard.
public enum PushEvent: Sendable, Equatable {
    /// A member wants the pushes for a token on a connection.
    case register(ClientMessage.PushRegister, MemberID, ConnectionID)
    /// A member declares a token dead.
    case unregister(PushToken, MemberID)
    /// A receipt came from a connection.
    case receipt(ClientMessage.PushReceipt, ConnectionID)
    /// A connection that has registered a token is gone.
    case disconnected(ConnectionID, MemberID)

    /// The connection that pushes go to from now on, and its end.
    var connection: (id: ConnectionID, isThere: Bool)? {
        switch self {
        case .register(_, _, let id): (id, true)
        case .disconnected(let id, _): (id, false)
        case .unregister, .receipt: nil
        }
    }
}
