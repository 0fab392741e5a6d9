// The addresses of a relay's connections. After a crash the next start tells those that they are gone, so that idle clients reconnect.
import Logging
import QUIC
import Reactor
import Synchronization

/// The places of all connections of all workers.
final class ConnectionPlaces: Sendable {
    private struct State {
        var known: [ConnectionID: QUICPeerPlace] = [:]
        var isChanged = false
    }

    private let state = Mutex(State())
    private let changed: @Sendable () -> Void

    /// - Parameter changed: Called on any thread with the first change after `take`, and once before that.
    init(changed: @escaping @Sendable () -> Void) { self.changed = changed }

    /// Sets the address of a connection; nil: it has closed.
    func set(_ place: QUICPeerPlace?, of id: ConnectionID) {
        let isFirst = state.withLock { state in
            guard state.known[id] != place else { return false }
            state.known[id] = place
            defer { state.isChanged = true }
            return !state.isChanged
        }
        if isFirst { changed() }
    }

    /// All of them as they are now, one a line.
    func take() -> String {
        let known = state.withLock { state in
            state.isChanged = false
            return state.known
        }
        return known.sorted { $0.key < $1.key }.map { $0.value.text + "\n" }.joined()
    }
}

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
