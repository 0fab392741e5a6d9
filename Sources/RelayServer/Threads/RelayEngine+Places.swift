// Informs the members of a crashed relay at the next start.
import Logging
import MonotonicTime
import QUIC
import Reactor

extension RelayEngine {
    /// Stateless resets that are sent at once…
    private static let resetsAtOnce = 10
    /// …and how much later the next: a thousand a second, as many as come back in that time.
    private static let resetInterval: Duration = .milliseconds(10)
    /// A reset may get lost: all of them are sent again so much later.
    private static let secondRound: Duration = .milliseconds(500)

    /// Has `keep` called with where the connections are, a moment after that has changed.
    func keepPlaces(every interval: Duration, _ keep: @escaping @Sendable (String) -> Void) {
        let loop = loop
        places = ConnectionPlaces { [weak self] in
            loop.execute { [weak self] in self?.keepPlaces(after: interval, keep) }
        }
    }

    private func keepPlaces(after time: Duration, _ keep: @escaping @Sendable (String) -> Void) {
        loop.schedule(after: time) { [weak self] in
            if let places = self?.places { keep(places.take()) }
        }
    }

    /// Informs the connections of an earlier relay with the same keys that it is gone. A client that has already
    /// reconnected is not affected, because it uses another port.
    func callBack(_ text: String) {
        let bound = limits.connections + limits.connectionsRefused
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
