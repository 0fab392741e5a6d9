// Detects that the relay has vanished: an unanswered press does not wait for the idle timeout.
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

extension RelayClient {
    /// A burst that nobody answered makes the connection doubtful.
    func doubt(after event: RelayLinkEvent) {
        guard case .transmissionEnded(_, .notAnswered, _) = event else { return }
        answerDoubt.unanswered()
        let attempt = attempt
        // Not at once: this is within `carryOut`.
        loop.execute { [weak self] in self?.assumeIsolated { $0.examineDoubt(of: attempt) } }
    }

    private func examineDoubt(of attempt: UInt64) {
        guard attempt == self.attempt, let transport else { return }
        switch answerDoubt.verdict(heard: transport.lastHeard, at: .now) {
        case .none: break
        case .gone: lost(transport, .lost("the relay does not answer"))
        case .look(let time):
            loop.schedule(at: time) { [weak self] in self?.assumeIsolated { $0.examineDoubt(of: attempt) } }
        }
    }
}
