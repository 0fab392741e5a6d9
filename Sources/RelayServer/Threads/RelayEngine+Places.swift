// After a crash: tells the connections of the relay before that they are gone.
import Logging
import QUIC
import Reactor

extension RelayEngine {
    /// Stateless resets that are sent at once…
    private static let resetsAtOnce = 10
    /// …and how much later the next: a thousand a second, as many as come back in that time.
    private static let resetInterval: Duration = .milliseconds(10)
    /// A reset may get lost: all of them are sent again so much later.
    private static let secondRound: Duration = .milliseconds(500)

    /// Informs the connections of an earlier relay with the same keys that it is gone. A client that has already
    /// reconnected is not affected, because it uses another port.
    func callBack(_ text: String) {
        let bound = exchange.limits.connections + exchange.limits.connectionsRefused
        let former = text.split(separator: "\n").prefix(bound).compactMap { QUICPeerPlace(text: $0) }
        guard !former.isEmpty else { return }
        logger.info("former connections are told of the restart", metadata: ["count": "\(former.count)"])
        callBack(former, from: 0, isLast: false)
    }

    private func callBack(_ former: [QUICPeerPlace], from start: Int, isLast: Bool) {
        guard !workers.isEmpty else { return }
        let end = min(start + Self.resetsAtOnce, former.count)
        for place in former[start..<end] { endpoint.sendReset(to: place) }
        let isRoundOver = end == former.count
        guard !isRoundOver || !isLast else { return }
        loop.schedule(after: isRoundOver ? Self.secondRound : Self.resetInterval) { [weak self] in
            self?.callBack(former, from: isRoundOver ? 0 : end, isLast: isLast || isRoundOver)
        }
    }
}
