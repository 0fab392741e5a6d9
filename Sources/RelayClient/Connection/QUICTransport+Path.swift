// The transport's path through the network: it moves when this machine's addresses or routes change.
import Logging
import MonotonicTime
import QUIC
import Reactor

/// What a transport knows of its path.
struct TransportPath {
    var machine: PathStateMachine
    /// The relay's address that is used, or is about to be.
    var address: SocketAddress
    var timer: EventLoop.Timer?
}

extension QUICTransport {
    /// Looks after the path from now on, until `close`.
    func followPath() {
        path = TransportPath(machine: PathStateMachine(route: route(address)), address: address)
    }

    /// Looks after the path no longer.
    func leavePath() {
        path?.timer?.cancel()
        path = nil
    }

    /// This machine's network has changed, or the machine slept.
    func networkChanged(_ news: NetworkChanges.News) {
        guard let address = path?.address else { return }
        let route = route(address)
        let known = client?.assumeIsolated { $0.known.addresses } ?? []
        let elsewhere = PathStateMachine.Elsewhere(than: address, among: known, route: self.route)
        switch news {
        case .changed: pathHandles(.changed(route, elsewhere: elsewhere))
        case .woke: pathHandles(.woke(route, elsewhere: elsewhere))
        }
    }

    /// Moves the connection to a new socket, bound to `local`, at once, and to the relay's address that is to be used.
    ///
    /// - Throws: `QUICError` when it cannot move now; it stays where it was.
    func migrate(to local: SocketAddress = .any()) throws(QUICError) {
        try connection.migrate(to: local, peerAt: path?.address, .atOnce)
    }

    private func pathHandles(_ event: PathStateMachine.Event) {
        guard !isClosed, let actions = path?.machine.handle(event, at: .now) else { return }
        for action in actions {
            switch action {
            case .move: move()
            case .moveTo(let address):
                logger.info("trying another address of the relay", metadata: ["relay": "\(address)"])
                path?.address = address
                move()
            case .lookUp: client?.assumeIsolated { $0.lookUpAgain() }
            case .reconnect: tell(.connectionEnded(.lost("no answer on the new network path")))
            case .noteOffline: logger.info("no route to the relay", metadata: ["relay": "\(path?.address ?? address)"])
            case .noteMoved(let route, let delay):
                logger.info(
                    "path changed",
                    metadata: [
                        "relay": "\(path?.address ?? address)", "route": "\(route)",
                        "after": "\(Int(delay.milliseconds)) ms",
                        "t": "\(Instant.now.nanoseconds)",
                    ])
            }
        }
        armPath()
    }

    private func move() {
        guard connection.isReady else {
            // What was sent is lost, and would be repeated ever more rarely: begin anew.
            tell(.connectionEnded(.lost("the network has changed")))
            client?.assumeIsolated { $0.take(.networkChanged) }
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
        path?.timer?.cancel()
        guard !isClosed, let deadline = path?.machine.nextDeadline else { return }
        path?.timer = loop.schedule(at: deadline) { [weak self] in self?.pathHandles(.deadline) }
    }

    /// QUIC reports the outcome of a migration.
    func moveEnded(_ succeeded: Bool) { pathHandles(succeeded ? .validated : .failed) }
}
