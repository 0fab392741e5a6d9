// Channels whose hosts succeed each other: what a member that may become the next host learns, and where it goes when
// another member does.
import MonotonicTime
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

    /// Asks the relay for a sign of life. When none comes within 0.4 s, or 1 s over TLS, the link is lost.
    public func verify() { verify(path: false) }

    /// The same.
    ///
    /// - Parameters:
    ///   - path: Because this path may be dead, where there is another one.
    ///   - patience: How much longer than usual the relay may take.
    func verify(path: Bool, patience: Duration = .zero) {
        guard core.isReady, let transport else { return }
        let question =
            path || transport.isReliable
            ? LivenessProbe(
                askedAt: .now, roundTrip: transport.roundTripTime, isReliable: transport.isReliable, patience: patience)
            : LivenessProbe(askedAt: .now)
        let isAsking = probe != nil
        // Of two questions, the one that is over first holds.
        if let probe, probe.deadline <= question.deadline { return }
        probe = question
        transport.keepAlive = LivenessProbe.interval
        if !isAsking { look(attempt, at: question.askedAt + LivenessProbe.lookInterval) }
    }

    /// Looks for the sign of life again and again: it is one packet, then, instead of several.
    private func look(_ attempt: UInt64, at time: Instant) {
        schedule(at: time) { client in
            guard attempt == client.attempt, let question = client.probe, let transport = client.transport else {
                return
            }
            // Who talks needs an acknowledgement: a network may block one direction only.
            let isUnacknowledged = client.core.doubt.isUnanswered(since: question.askedAt)
            let verdict = question.verdict(heard: isUnacknowledged ? nil : transport.lastHeard, at: .now)
            if case .look(let time) = verdict { return client.look(attempt, at: time) }
            client.probe = nil
            transport.keepAlive = client.core.keepAlive
            if verdict == .isGone { client.lost(transport, .lost("the relay does not answer")) }
        }
    }

    /// A burst that nobody answered makes the connection doubtful: a press does not wait for the idle timeout.
    func doubt(after event: RelayLinkEvent) {
        guard case .transmissionEnded(_, .notAnswered, _) = event else { return }
        answerDoubt.unanswered()
        later { [attempt] in $0.examineDoubt(of: attempt) }
    }

    private func examineDoubt(of attempt: UInt64) {
        guard attempt == self.attempt, let transport else { return }
        switch answerDoubt.verdict(heard: transport.lastHeard, at: .now) {
        case .isThere: break
        case .isGone: lost(transport, .lost("the relay does not answer"))
        case .look(let time): schedule(at: time) { $0.examineDoubt(of: attempt) }
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
