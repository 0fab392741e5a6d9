// Which tokens are registered, and which pushes were already delivered. Pure rules.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// The client's side of pushes.
public struct PushRegistrations: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// The user wants the pushes for a token.
        case register(PushToken, PushTopic)
        /// The user declares a token dead.
        case unregister(PushToken)
        /// Messages can be sent.
        case linkReady
        /// Messages cannot be sent any more.
        case linkLost
        /// The relay registered a token.
        case registered(PushToken)
        /// The relay did not.
        case refused(ServerMessage.PushRefused)
        /// A push came.
        case push(ServerMessage.Push)
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Send a control message.
        case send(ClientMessage)
        /// Tell the user.
        case tell(PushLinkEvent)
    }

    /// The most tokens at one time, as the relay has it for one member.
    public static let tokensMaximum = 8
    /// Maximum number of dead tokens to report to the relay. Beyond it, the oldest is not reported.
    public static let unregistrationsMaximum = 8
    /// How many pushes are remembered, so that a repeated push is not delivered again.
    public static let rememberedPushes = 64

    private var isReady = false
    /// In the order registered.
    private var tokens: [(token: PushToken, topic: PushTopic)] = []
    private var dead: [PushToken] = []
    private var told: [PushID] = []

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .register(let token, let topic): return register(token, topic)
        case .unregister(let token): return unregister(token)
        case .linkReady:
            isReady = true
            defer { dead = [] }
            return dead.map { .send(.pushUnregister($0)) }
                + tokens.map { .send(.pushRegister(.init(token: $0.token, topic: $0.topic))) }
        case .linkLost:
            isReady = false
            return []
        case .registered(let token): return knows(token) ? [.tell(.registered(token))] : []
        case .refused(let refusal): return refused(refusal)
        case .push(let push): return take(push, at: now)
        }
    }

    private func knows(_ token: PushToken) -> Bool { tokens.contains { $0.token == token } }

    private mutating func register(_ token: PushToken, _ topic: PushTopic) -> [Action] {
        dead.removeAll { $0 == token }
        if let index = tokens.firstIndex(where: { $0.token == token }) {
            tokens[index].topic = topic
        } else {
            guard tokens.count < Self.tokensMaximum else {
                return [.tell(.refused(token, .tooMany, "at most \(Self.tokensMaximum) tokens can be registered"))]
            }
            tokens.append((token, topic))
        }
        return isReady ? [.send(.pushRegister(.init(token: token, topic: topic)))] : []
    }

    private mutating func unregister(_ token: PushToken) -> [Action] {
        tokens.removeAll { $0.token == token }
        if isReady { return [.send(.pushUnregister(token))] }
        dead.removeAll { $0 == token }
        dead.append(token)
        dead.removeFirst(max(0, dead.count - Self.unregistrationsMaximum))
        return []
    }

    private mutating func refused(_ refusal: ServerMessage.PushRefused) -> [Action] {
        guard knows(refusal.token) else { return [] }
        switch refusal.cause {
        // What will not change is not asked for again on the next connection.
        case .malformed, .taken, .dead: tokens.removeAll { $0.token == refusal.token }
        case .tooMany, .relayFull, .noEndpoint, .other: break
        }
        return [.tell(.refused(refusal.token, refusal.cause, refusal.phrase))]
    }

    private mutating func take(_ push: ServerMessage.Push, at now: Instant) -> [Action] {
        guard knows(push.token) else {
            return [.send(.pushReceipt(.init(id: push.id, outcome: .unknownToken)))]
        }
        let receipt = Action.send(.pushReceipt(.init(id: push.id, outcome: .taken)))
        guard !told.contains(push.id) else { return [receipt] }
        told.append(push.id)
        told.removeFirst(max(0, told.count - Self.rememberedPushes))
        let expiresAt = push.lifetime > .zero ? now + push.lifetime : nil
        return [
            receipt,
            .tell(
                .push(
                    RelayPush(
                        token: push.token, payload: push.payload, priority: push.priority, expiresAt: expiresAt,
                        receivedAt: now))),
        ]
    }
}
