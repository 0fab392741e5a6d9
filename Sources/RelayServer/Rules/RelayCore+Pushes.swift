// Pushes of a relay's rules. One registry has the tokens of all shards.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// Whether this shard has the registry of push tokens.
    var hasRegistry: Bool { shared.shard.number == 0 }

    /// A client does something about its tokens: the registry hears of it, here or on another shard.
    mutating func tell(_ event: PushEvent, at now: Instant) -> [Action] {
        guard !hasRegistry else { return take(event, at: now) }
        if case .register(_, _, let id) = event { shared.connections.noteToken(of: id) }
        return [.pushes(event)]
    }

    /// The registry takes an event of its own shard or of another one.
    mutating func take(_ event: PushEvent, at now: Instant) -> [Action] {
        switch event {
        case .register(let registration, let member, let id):
            return pushes.register(registration, by: member, on: id, at: now)
        case .unregister(let token, let member): return pushes.unregister(token, by: member, at: now)
        case .receipt(let receipt, let id): return pushes.receive(receipt, from: id, at: now)
        case .disconnected(let id, let member):
            pushes.disconnected(id, of: member, at: now)
            return []
        }
    }

    /// A push came from outside. For the shard that has the registry.
    public mutating func push(_ request: PushRequest, at now: Instant) -> (PushVerdict, [Action]) {
        guard !isShuttingDown, !isDraining else { return (.shutDown, []) }
        shared.counters.pushesIn += 1
        let (verdict, actions) = pushes.push(request, id: shared.secrets.pushID(), at: now)
        if case .accepted = verdict { shared.counters.pushesAccepted += 1 }
        return (verdict, actions)
    }
}
