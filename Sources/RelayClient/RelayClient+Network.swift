// Reacts to changes of this machine's network: a connection may have to migrate, and a back-off may end early.
import Logging
import QUIC
import Reactor
import RelayProtocol

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
            logger.warning("network changes are not detected", metadata: ["why": "\(error)"])
        }
    }

    /// Looks after the network no longer.
    func leaveNetwork() {
        networkChanges?.cancel()
        networkChanges = nil
        idleTimer?.cancel()
        idleTimer = nil
    }

    func networkHas(_ news: NetworkChanges.News) {
        let isWorthAnAttempt = known.noteChange(news, isNumeric: isNumeric, route: route)
        defer { choose(.networkChanged) }
        for transport in transports.values { transport.networkChanged(news) }
        // A connection over QUIC knows its path. Without one, another way to the relay is worth an attempt at once, other changes are not.
        guard isWorthAnAttempt, transports[.quic] == nil else { return }
        if isAttemptOutdated { beginAnew() } else if transports.isEmpty { take(.networkChanged) }
    }

    /// Whether the attempt under way is to begin anew after a change. While no address is known, each change may be one of the way to the
    /// relay: then only a look-up begins anew, because the old network's name server may be asked.
    private var isAttemptOutdated: Bool {
        guard choice.isTryingQUIC else { return choice.isRacing && !known.addresses.isEmpty }
        return lookUps < Self.lookUpsMaximum
    }

    /// Look-ups of attempts that may be under way when another one begins: each has a thread until the name server answers, or does not.
    private static let lookUpsMaximum = 4

    /// The network has changed under a connection that is not ready: what was sent is lost, and would be repeated ever more rarely.
    func networkChanged(under sender: QUICTransport) {
        guard choice.isRacing else { return sender.end(Self.networkHasChanged) }
        beginAnew()
    }

    /// Ends the attempt under way over both kinds of connection, and soon begins the next one.
    private func beginAnew() {
        // A join that was sent may arrive all the same.
        if let transport { forget(transport) }
        take(.connectionEnded(Self.networkHasChanged))
        take(.networkChanged)
    }

    private static let networkHasChanged = RelayLinkError.lost("the network has changed")

    /// These are the relay's addresses.
    func know(_ addresses: [SocketAddress]) { known.know(addresses, route: route) }

    /// The relay's place is an address instead of a name.
    private var isNumeric: Bool { SocketAddress(core.relay.host, port: core.relay.port) != nil }

    /// Looks up the relay's name for a connection that cannot reach it any more; what is found is a change of the network for it.
    func lookUpAgain() {
        guard !isLookingUp, !isNumeric else { return }
        isLookingUp = true
        let place = core.relay.place
        Task {
            do throws(QUICError) {
                let found = try await resolve(place.host, place.port)
                if !found.isEmpty, place == core.relay.place { know(found) }
            } catch {
                logger.debug("the relay's name cannot be resolved", metadata: ["why": "\(error)"])
            }
            isLookingUp = false
            transports[.quic]?.networkChanged(.changed)
        }
    }
}
