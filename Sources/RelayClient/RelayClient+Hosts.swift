// A channel whose members host it by turns: what a member that would be the next one is told, and where it goes when another one is.
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// How it is with the relay of a channel that its members host.
public enum RelayHostEvent: Sendable {
    /// This end is on the channel.
    case ready
    /// What it needs to host the channel itself, and when it is its turn; `own` is this member.
    case succession(ServerMessage.Succession, own: MemberID)
    /// It is not on the channel, and tries to be again and again.
    case lost(RelayLinkError)
    /// It does not try any more: the channel was left or deleted, or this end is not let in.
    case stopped
}

extension RelayClient {
    /// How long the relay may take to give a sign of life to `verify`.
    static let verificationPatience: Duration = .milliseconds(400)
    /// It is asked after so much silence meanwhile.
    private static let verificationInterval: Duration = .milliseconds(100)

    /// Offers to host the channel if its host goes, and has `handler` told on the loop how it is with the host. Before `join`.
    public func followHost(_ handler: @escaping @Sendable (RelayHostEvent) -> Void) {
        hostHandler = handler
        core.offersSuccession = true
    }

    /// The relay, with the key of the invitation, is at these places now, the best one first; at most 8. A link that works stays as it is,
    /// another one is tried there at once.
    public func relayMoved(to places: [RelayPlace]) {
        guard !places.isEmpty else { return }
        call(.relayMoved(places))
    }

    /// Asks the relay for a sign of life. When none comes within 0.4 s, the link is lost.
    public func verify() {
        guard core.isReady, !isVerifying, let transport else { return }
        isVerifying = true
        let (attempt, asked) = (attempt, Instant.now)
        transport.connection.keepAlive = Self.verificationInterval
        examine(attempt, since: asked)
    }

    /// Looks for the sign of life again and again: it is one packet, then, instead of several.
    private func examine(_ attempt: UInt64, since asked: Instant) {
        loop.schedule(after: Self.verificationInterval + .milliseconds(20)) { [weak self] in
            self?.assumeIsolated { client in
                guard attempt == client.attempt, client.core.isReady, let connection = client.transport?.connection
                else { return client.isVerifying = false }
                let isHeard = connection.lastHeard.map { $0 > asked } ?? false
                guard isHeard || .now - asked >= Self.verificationPatience else {
                    return client.examine(attempt, since: asked)
                }
                client.isVerifying = false
                connection.keepAlive = client.core.keepAlive
                if !isHeard { client.take(.connectionEnded(.lost("the relay does not answer"))) }
            }
        }
    }

    func tellOfHost(changed state: RelayLinkState) {
        switch state {
        case .ready: tellOfHost(RelayHostEvent.ready)
        case .unavailable(_, nil): tellOfHost(RelayHostEvent.stopped)
        case .unavailable(let error, _?): tellOfHost(RelayHostEvent.lost(error))
        case .stopped: tellOfHost(RelayHostEvent.stopped)
        case .connecting: break
        }
    }

    /// Not from within the rules' present turn.
    func tellOfHost(_ event: RelayHostEvent) {
        guard let hostHandler else { return }
        loop.execute { hostHandler(event) }
    }
}
