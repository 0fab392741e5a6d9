// The transport's path through the network: it moves when this machine's addresses or routes change.
import Logging
import MonotonicTime
import QUIC
import Reactor

extension QUICTransport {
    /// This machine's network has changed, or the machine slept.
    func networkChanged(_ news: NetworkChanges.News) {
        guard !isClosed else { return }
        let route = route(target)
        let known = client?.assumeIsolated { $0.known.addresses } ?? []
        let elsewhere = PathStateMachine.Elsewhere(than: target, among: known, route: self.route)
        switch news {
        case .changed: pathHandles(.changed(route, elsewhere: elsewhere))
        case .woke: pathHandles(.woke(route, elsewhere: elsewhere))
        }
    }

    /// Moves the connection to a new socket, bound to `local`, at once, and to the relay's address that is to be used.
    ///
    /// - Throws: `QUICError` when it cannot move now; it stays where it was.
    func migrate(to local: SocketAddress = .any()) throws(QUICError) {
        try connection.migrate(to: local, peerAt: target, .atOnce)
    }

    func pathHandles(_ event: PathStateMachine.Event) {
        guard !isClosed else { return }
        for action in path.handle(event, at: .now) {
            switch action {
            case .move: move()
            case .moveTo(let address):
                logger.info("trying another address of the relay", metadata: ["relay": "\(address)"])
                target = address
                move()
            case .lookUp: client?.assumeIsolated { $0.lookUpAgain() }
            case .reconnect: end(.lost("no answer on the new network path"))
            case .noteOffline: logger.info("no route to the relay", metadata: ["relay": "\(target)"])
            case .noteMoved(let route, let delay):
                logger.info(
                    "path changed",
                    metadata: [
                        "relay": "\(target)", "route": "\(route)",
                        "after": "\(Int(delay.milliseconds)) ms",
                        "t": "\(Instant.now.nanoseconds)",
                    ])
            }
        }
        armPath()
    }

    private func move() {
        guard connection.isReady else {
            client?.assumeIsolated { $0.networkChanged(under: self) }
            return
        }
        do throws(QUICError) {
            try migrate()
        } catch {
            logger.debug("connection migration failed", metadata: ["why": "\(error)"])
            pathHandles(.refused)
        }
    }

    private func armPath() {
        pathTimer?.cancel()
        guard !isClosed, let deadline = path.nextDeadline else { return }
        pathTimer = loop.schedule(at: deadline) { [weak self] in self?.pathHandles(.deadline) }
    }
}
