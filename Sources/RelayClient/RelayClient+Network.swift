// This machine's network as a link sees it: a connection may have to move, and a wait for the next attempt to end.
import Logging
import MonotonicTime
import QUIC
import Reactor

extension RelayClient {
    /// Looks after the network from now on, until `leaveNetwork`.
    func followNetwork() {
        guard networkChanges == nil else { return }
        do {
            networkChanges = try NetworkChanges(on: loop) { [weak self] news in
                self?.assumeIsolated { $0.networkHas(news) }
            }
        } catch {
            // Then the path changes only as the kernel sends packets by another route.
            logger.warning("changes of the network are not noticed", metadata: ["why": "\(error)"])
        }
    }

    /// Looks after the network no longer.
    func leaveNetwork() {
        networkChanges?.cancel()
        networkChanges = nil
    }

    private func networkHas(_ news: NetworkChanges.News) {
        if let transport { return transport.networkChanged(news) }
        // Not connected: another way to the relay is worth an attempt at once, other changes are not.
        guard let address = lastAddress else { return take(.networkChanged) }
        let route = NetworkRoute.toward(address)
        let isNew = route != lastRoute
        lastRoute = route
        if route != nil, isNew || news == .woke { take(.networkChanged) }
    }

    /// An attempt begins with this address.
    func noteAttempt(at address: SocketAddress) {
        lastAddress = address
        lastRoute = NetworkRoute.toward(address)
    }
}
