// Channels whose hosts succeed each other: what a member that may become the next host learns, and where it goes when
// another member does.
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
    /// The host goes, and has named another one, to which this end goes.
    case sent
    /// It is not on the channel, and tries to be again and again.
    case lost(RelayLinkError)
    /// It does not try any more: the channel was left or deleted, or this end is not let in.
    case stopped

    /// What a new state of the link says of the host; nil: nothing.
    init?(_ state: RelayLinkState) {
        switch state {
        case .ready: self = .ready
        case .unavailable(_, nil), .stopped: self = .stopped
        case .unavailable(let error, _?): self = .lost(error)
        case .connecting: return nil
        }
    }
}

extension RelayClient {
    /// Offers to host the channel if its host leaves. `handler` gets reports about the host on the loop. Call it before
    /// `join`.
    public func followHost(_ handler: @escaping @Sendable (RelayHostEvent) -> Void) {
        hostHandler = handler
        core.offersSuccession = true
    }

    /// The relay with the invitation's key is now at these addresses, at most 8, the best one first. A working link is
    /// kept; otherwise the client tries them at once.
    public func relayMoved(to places: [RelayPlace]) {
        guard !places.isEmpty else { return }
        call(.relayMoved(places))
    }

    /// Asks the relay for a sign of life. When none comes within 0.4 s, the link is lost.
    public func verify() { verify(path: false) }

    /// The same; `path`: because this path may be dead, where there is another one.
    func verify(path: Bool) {
        guard core.isReady, !isVerifying, let transport else { return }
        isVerifying = true
        let question =
            path || transport.isReliable
            ? LivenessProbe(askedAt: .now, roundTrip: transport.roundTripTime, isReliable: transport.isReliable)
            : LivenessProbe(askedAt: .now)
        transport.keepAlive = LivenessProbe.interval
        look(for: question, attempt, at: question.askedAt + LivenessProbe.lookInterval)
    }

    /// Looks for the sign of life again and again: it is one packet, then, instead of several.
    private func look(for question: LivenessProbe, _ attempt: UInt64, at time: Instant) {
        loop.schedule(at: time) { [weak self] in
            self?.assumeIsolated { client in
                guard attempt == client.attempt, client.core.isReady, let transport = client.transport
                else { return client.isVerifying = false }
                let verdict = question.verdict(heard: transport.lastHeard, at: .now)
                if case .look(let time) = verdict { return client.look(for: question, attempt, at: time) }
                client.isVerifying = false
                transport.keepAlive = client.core.keepAlive
                if verdict == .isGone { client.lost(transport, .lost("the relay does not answer")) }
            }
        }
    }

    func tellOfHost(changed state: RelayLinkState) {
        if let event = RelayHostEvent(state) { tellOfHost(event) }
    }

    /// Not from within the rules' present turn.
    func tellOfHost(_ event: RelayHostEvent) {
        guard let hostHandler else { return }
        loop.execute { hostHandler(event) }
    }
}
