// When the relay may be gone without a word: a press that nobody answers does not wait for the idle time-out.
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

extension RelayClient {
    /// A burst that was not answered, while nothing at all came from the relay, means that there is no connection any more.
    func doubt(after event: RelayLinkEvent, at now: Instant) {
        guard case .transmissionEnded(_, .notAnswered, _) = event, let transport,
            let heard = transport.connection.lastHeard, now - heard >= UplinkStateMachine.answerTimeout
        else { return }
        let attempt = attempt
        loop.execute { [weak self] in
            self?.assumeIsolated { client in
                guard attempt == client.attempt else { return }
                client.take(.connectionEnded(.lost("the relay does not answer")))
            }
        }
    }
}
