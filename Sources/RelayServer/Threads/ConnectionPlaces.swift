// The addresses of a relay's connections. After a crash the next start tells idle clients to reconnect.
import QUIC
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
