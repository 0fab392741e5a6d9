// Converts the director's values for its neighbours: topics and pushes.
import MonotonicTime
import PushToTalkCore
import RelayClient
import RelayProtocol

extension PushTopic {
    /// The topic of pushes to the program of this name; programs without one share one.
    init(program name: String) {
        // Bus names are printing ASCII and at most 255 bytes long.
        let topic = PushTopic(application: name.isEmpty ? "org.pttd" : name) ?? PushTopic(application: "org.pttd")
        guard let topic else { preconditionFailure("a topic that is one") }
        self = topic
    }
}

extension Push {
    /// A push as the relay delivers it; nil when its payload is none, which the relay should have refused.
    init?(_ push: RelayPush) {
        guard let payload = try? PushPayload(validating: push.payload) else { return nil }
        self.init(
            identifier: "relay at \(push.receivedAt.nanoseconds)", token: push.token, payload: payload,
            isHighPriority: push.priority > 5, expiry: push.expiresAt.map { .at($0) } ?? .immediate)
    }
}
