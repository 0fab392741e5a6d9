// Pushes from outside: maps their tokens to connections, and keeps those that cannot be delivered yet. Pure rules.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// A push, checked as far as that needs no knowledge of tokens.
public struct PushRequest: Sendable, Equatable {
    /// Whom it is for.
    public let token: PushToken
    /// What it is for.
    public let topic: PushTopic
    /// A JSON object, 1 to 4096 bytes.
    public let payload: [UInt8]
    /// 1 to 10.
    public let priority: UInt8
    /// For how long it is worth delivering; zero: only right now.
    public let lifetime: Duration

    /// A push; nil when payload or priority are out of their range.
    public init?(token: PushToken, topic: PushTopic, payload: [UInt8], priority: UInt8, lifetime: Duration) {
        guard (1...RelayProtocolLimits.pushPayloadByteCountMaximum).contains(payload.count),
            ServerMessage.Push.priorities.contains(priority)
        else { return nil }
        self.token = token
        self.topic = topic
        self.payload = payload
        self.priority = priority
        self.lifetime = max(.zero, lifetime)
    }
}

/// What became of an accepted push.
public enum PushFate: Sendable, Equatable {
    /// It is on its way to the token's connection.
    case sent
    /// The token is not connected; the push waits for it.
    case kept
    /// The token is not connected and the push has no lifetime: it is gone.
    case dropped
}

/// What the relay says to a push.
public enum PushVerdict: Sendable, Equatable, CustomStringConvertible {
    /// It was taken.
    case accepted(PushFate)
    /// No such token was ever registered, as far as the relay remembers.
    case unknownToken
    /// The token died then.
    case unregistered(at: Instant)
    /// The token is registered for another topic.
    case otherTopic
    /// Too many pushes for the token, or the member has not confirmed the ones before.
    case tooMany
    /// The relay just started, so its clients may not be back; or it keeps as many pushes as it may.
    case unavailable
    /// The relay is going down.
    case shutDown

    /// As logs have it.
    public var description: String {
        switch self {
        case .accepted(let fate): "accepted (\(fate))"
        case .unknownToken: "unknown token"
        case .unregistered: "unregistered"
        case .otherTopic: "another topic"
        case .tooMany: "too many"
        case .unavailable: "unavailable"
        case .shutDown: "the relay is going down"
        }
    }
}

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

/// The push tokens of a relay: live ones with their connections, and dead ones as far as they are remembered.
///
/// A token belongs to the member that registered it first. It dies with `unregister`, or when it is displaced by
/// another one. A push goes to the token's connection at once. The newest push of each token with a lifetime is also
/// kept until its receipt arrives or its lifetime ends, and is sent again when the token is registered again. There are
/// no deadlines: expired entries are found when they are read.
struct PushRegistry: Sendable {
    private struct Kept: Sendable {
        let push: ServerMessage.Push
        let expiresAt: Instant
    }

    private struct Entry: Sendable {
        let member: MemberID
        var topic: PushTopic
        var connection: ConnectionID?
        var offlineSince: Instant
        var bucket: TokenBucket
        var kept: Kept?
    }

    private let limits: RelayLimits
    private let acceptsTokens: Bool
    /// Until when clients of the time before the start may not have come back yet.
    private let settledAt: Instant
    private var entries: [PushToken: Entry] = [:]
    /// In the order registered; at most `limits.pushTokensPerMember` each.
    private var tokensOfMember: [MemberID: [PushToken]] = [:]
    private var unconfirmed: [ConnectionID: [PushID: PushToken]] = [:]
    private var dead: [PushToken: Instant] = [:]
    /// Where in `deadInOrder` the next one goes, once that is full.
    private var oldestDead = 0
    private var deadInOrder: [PushToken] = []
    private var keptCount = 0

    /// A registry without tokens, of a relay that started at `start`. `acceptsTokens`: whether pushes can come at all.
    init(limits: RelayLimits, acceptsTokens: Bool = true, startedAt start: Instant) {
        self.limits = limits
        self.acceptsTokens = acceptsTokens
        settledAt = start + limits.pushGraceTime
    }

    /// The number of live tokens.
    var tokenCount: Int { entries.count }

    /// The number of pushes kept for later.
    var keptPushCount: Int { keptCount }

    // MARK: Clients

    /// `member` wants the pushes for a token on `connection`.
    mutating func register(
        _ registration: ClientMessage.PushRegister, by member: MemberID, on connection: ConnectionID, at now: Instant
    ) -> [RelayAction] {
        let token = registration.token
        var actions: [RelayAction] = []
        let refusal: (PushRefusal, String)? =
            if !acceptsTokens {
                (.noEndpoint, "the relay has no endpoint for pushes")
            } else if registration.topic.application == nil {
                (.malformed, "the topic does not end in \(PushTopic.suffix)")
            } else if dead[token] != nil {
                (.dead, "the token was unregistered")
            } else if let entry = entries[token] {
                entry.member == member ? nil : (.taken, "the token is another member's")
            } else {
                makeRoom(for: member, &actions, at: now)
            }
        if let (cause, phrase) = refusal {
            return actions + [
                .send(.pushRefused(.init(token: token, cause: cause, phrase: phrase)), to: [connection]),
                .note(.pushTokenRefused(member: member, token, cause)),
            ]
        }
        if entries[token] == nil { tokensOfMember[member, default: []].append(token) }
        var entry =
            entries[token]
            ?? Entry(
                member: member, topic: registration.topic, connection: nil, offlineSince: now,
                bucket: TokenBucket(depth: limits.pushBurst, perSecond: limits.pushesPerSecond, at: now))
        entry.topic = registration.topic
        entry.connection = connection
        entries[token] = entry
        actions += [
            .send(.pushRegistered(token), to: [connection]),
            .note(.pushTokenRegistered(member: member, token, registration.topic)),
        ]
        return actions + deliverKept(token, to: connection, at: now)
    }

    /// `member` declares a token dead.
    mutating func unregister(_ token: PushToken, by member: MemberID, at now: Instant) -> [RelayAction] {
        guard entries[token]?.member == member else { return [] }
        return kill(token, at: now)
    }

    /// Whether `connection` owes a receipt for that push. Such receipts do not count as messages: the relay asked for them.
    func awaitsReceipt(_ id: PushID, from connection: ConnectionID) -> Bool {
        unconfirmed[connection]?[id] != nil
    }

    /// A receipt came.
    mutating func receive(
        _ receipt: ClientMessage.PushReceipt, from connection: ConnectionID, at now: Instant
    ) -> [RelayAction] {
        guard let token = unconfirmed[connection]?.removeValue(forKey: receipt.id) else { return [] }
        guard receipt.outcome != .unknownToken else {
            return entries[token]?.connection == connection ? kill(token, at: now) : []
        }
        if entries[token]?.kept?.push.id == receipt.id { dropKept(token) }
        return []
    }

    /// `connection` of `member` is gone.
    mutating func disconnected(_ connection: ConnectionID, of member: MemberID, at now: Instant) {
        unconfirmed[connection] = nil
        for token in tokensOfMember[member] ?? [] where entries[token]?.connection == connection {
            entries[token]?.connection = nil
            entries[token]?.offlineSince = now
        }
    }

    // MARK: Pushes

    /// A push came from outside. `id` is what its receipt will name.
    mutating func push(_ request: PushRequest, id: PushID, at now: Instant) -> (PushVerdict, [RelayAction]) {
        let token = request.token
        if let diedAt = dead[token] { return (.unregistered(at: diedAt), []) }
        guard let topic = entries[token]?.topic else { return (now < settledAt ? .unavailable : .unknownToken, []) }
        guard topic == request.topic else { return (.otherTopic, []) }
        guard entries[token]?.bucket.take(at: now) == true else { return (.tooMany, []) }
        let lifetime = min(request.lifetime, limits.pushLifetimeMaximum)
        let push = ServerMessage.Push(
            id: id, token: token, payload: request.payload, priority: request.priority, lifetime: lifetime)
        let connection = entries[token]?.connection
        if let connection, unconfirmed[connection]?.count ?? 0 >= limits.pushesUnconfirmed { return (.tooMany, []) }
        if lifetime > .zero, !keep(push, until: now + lifetime, at: now) { return (.unavailable, []) }
        guard let connection else {
            let fate: PushFate = lifetime > .zero ? .kept : .dropped
            return (.accepted(fate), [.note(.push(token, id, fate))])
        }
        return (.accepted(.sent), [send(push, to: connection), .note(.push(token, id, .sent))])
    }

    private mutating func send(_ push: ServerMessage.Push, to connection: ConnectionID) -> RelayAction {
        unconfirmed[connection, default: [:]][push.id] = push.token
        return .send(.push(push), to: [connection])
    }

    private mutating func keep(_ push: ServerMessage.Push, until expiresAt: Instant, at now: Instant) -> Bool {
        dropKept(push.token)
        if keptCount >= limits.pushesKept {
            for token in entries.keys where entries[token]?.kept.map({ $0.expiresAt <= now }) == true {
                dropKept(token)
            }
            guard keptCount < limits.pushesKept else { return false }
        }
        entries[push.token]?.kept = Kept(push: push, expiresAt: expiresAt)
        keptCount += 1
        return true
    }

    private mutating func dropKept(_ token: PushToken) {
        guard entries[token]?.kept != nil else { return }
        entries[token]?.kept = nil
        keptCount -= 1
    }

    private mutating func deliverKept(_ token: PushToken, to connection: ConnectionID, at now: Instant) -> [RelayAction]
    {
        guard let kept = entries[token]?.kept else { return [] }
        guard kept.expiresAt > now else {
            dropKept(token)
            return []
        }
        // A registration repeated on one connection does not repeat the push that it has not confirmed.
        guard !awaitsReceipt(kept.push.id, from: connection) else { return [] }
        var push = kept.push
        push.lifetime = kept.expiresAt - now
        return [send(push, to: connection), .note(.push(token, push.id, .sent))]
    }

    // MARK: Room

    private mutating func makeRoom(
        for member: MemberID, _ actions: inout [RelayAction], at now: Instant
    ) -> (PushRefusal, String)? {
        let own = tokensOfMember[member] ?? []
        if own.count >= limits.pushTokensPerMember {
            // What a program left behind that lost its state.
            guard let offline = own.first(where: { entries[$0]?.connection == nil }) else {
                return (.tooMany, "a member has at most \(limits.pushTokensPerMember) tokens")
            }
            actions += kill(offline, at: now)
        }
        guard entries.count >= limits.pushTokens else { return nil }
        let oldest = entries.filter { $0.value.connection == nil }.min {
            $0.value.offlineSince < $1.value.offlineSince
        }
        guard let oldest else { return (.relayFull, "the relay has \(limits.pushTokens) tokens") }
        actions += kill(oldest.key, at: now)
        return nil
    }

    private mutating func kill(_ token: PushToken, at now: Instant) -> [RelayAction] {
        dropKept(token)
        guard let entry = entries.removeValue(forKey: token) else { return [] }
        tokensOfMember[entry.member]?.removeAll { $0 == token }
        if tokensOfMember[entry.member]?.isEmpty == true { tokensOfMember[entry.member] = nil }
        dead[token] = now
        if deadInOrder.count < limits.deadPushTokens {
            deadInOrder.append(token)
        } else {
            dead[deadInOrder[oldestDead]] = nil
            deadInOrder[oldestDead] = token
            oldestDead = (oldestDead + 1) % limits.deadPushTokens
        }
        return [.note(.pushTokenDead(member: entry.member, token))]
    }
}
