// How a link connects, what the network does to its attempts, and how it closes.
import MonotonicTime
import QUIC
import RelayProtocol

@testable import RelayClient

extension SimulatedLink {
    func close() {
        attempt += 1
        probe = nil
        leavePath()
        if core.isLostInSilence { turns.failed() }
        guard let connection else { return }
        connection.isOpenAtClient = false
        self.connection = nil
        let relay = connection.relay
        // A CONNECTION_CLOSE is not repeated.
        guard !connection.isStalled else { return }
        for time in connection.path.datagram(up: true).prefix(1) {
            world.at(max(time, connection.lastUp)) { relay.lose(connection) }
        }
    }

    func connect() {
        attempt += 1
        let number = attempt
        let route = device.network.route
        guard route != nil else {
            // No name can be looked up.
            return process.later { [self] in
                if number == attempt { take(.connectionEnded(.unreachable("the name is not found"))) }
            }
        }
        path = LinkPath(link: self, device: device)
        guard let cluster = device.fleet.cluster else {
            known.know([Self.address]) { _ in route }
            return connect(to: device.fleet.relay(at: core.relay.place, for: device), by: route, number)
        }
        if let node = cluster.relay(at: "\(core.relay.place)") {
            let address = SimulatedCluster.addresses[node.number]
            known.know([address]) { _ in route }
            turns.tries(address)
            // It is one of those that the invitation's name leads to, if that was looked up before.
            if core.hasOtherAddresses { process.later { [self] in take(.placeCovered) } }
            return connect(to: node, by: route, number)
        }
        world.after(device.path.milliseconds(1...20)) { [self] in
            guard number == attempt, isAlive else { return }
            known.know(cluster.namedAddresses) { _ in route }
            take(.addressesFound(cluster.namedAddresses.count))
            watchIdle()
            guard number == attempt, let address = turns.next(of: known.addresses) else { return }
            connect(
                to: SimulatedCluster.addresses.firstIndex(of: address).map { device.fleet.relays[$0] }, by: route,
                number)
        }
    }

    private func connect(to relay: SimulatedRelay?, by route: NetworkRoute?, _ number: UInt64) {
        clock.after(NetworkPath.handshakeTimeout) { [self] in
            guard number == attempt, connection == nil else { return }
            attempt += 1
            leavePath()
            take(.connectionEnded(.unreachable("no answer")))
        }
        // Where no relay ever is, nobody answers.
        guard let relay else { return }
        offerEarlyData(to: relay)
        world.at(device.fleet.path(of: device, to: relay).reliable(up: true)) { [self] in
            guard number == attempt, isAlive else { return }
            // Probes repeat the first packet while the relay is not there.
            reach(relay, by: route, number)
        }
    }

    private func retry(_ relay: SimulatedRelay, by route: NetworkRoute?, _ number: UInt64) {
        let path = device.fleet.path(of: device, to: relay)
        clock.after(path.milliseconds(200...900)) { [self] in
            guard number == attempt, connection == nil, isAlive else { return }
            guard relay.isListening || relay.refuses, device.network.carries(route) else {
                return retry(relay, by: route, number)
            }
            world.at(path.reliable(up: true)) { [self] in
                if number == attempt, isAlive { reach(relay, by: route, number) }
            }
        }
    }

    private func reach(_ relay: SimulatedRelay, by route: NetworkRoute?, _ number: UInt64) {
        let path = device.fleet.path(of: device, to: relay)
        guard relay.isListening, device.network.carries(route) else {
            guard relay.refuses, core.hasOtherAddresses, let time = path.datagram(up: false).first else {
                return retry(relay, by: route, number)
            }
            return world.at(time) { [self] in clock.whenAwake { [self] in isRefused(number) } }
        }
        relay.accept(device: device.number, pin: device.pin, by: path, early: early) { [self] made in
            world.at(made.lastDown) { [self] in
                clock.whenAwake { [self] in connected(by: made, route, number) }
            }
        }
    }

    /// The machine there says that nobody has the port, and another address has its turn.
    private func isRefused(_ number: UInt64) {
        guard number == attempt, isAlive, connection == nil else { return }
        attempt += 1
        leavePath()
        take(.connectionEnded(.unreachable("no relay listens there")))
    }

    /// Asks the relay for a sign of life when nothing has come for a while, where another one may serve.
    private func watchIdle() {
        guard isAlive, core.hasOtherAddresses, !isWatchingIdle else { return }
        let (asks, next) = IdleWatch.look(heard: core.isReady ? connection?.heard : nil, at: clock.now)
        if asks { verify() }
        isWatchingIdle = true
        clock.at(next) { [self] in
            isWatchingIdle = false
            watchIdle()
        }
    }

    private func connected(by made: Connection, _ route: NetworkRoute?, _ number: UInt64) {
        guard number == attempt, isAlive, connection == nil, device.network.carries(route) else {
            // It gave up meanwhile; the relay hears of it when nothing comes.
            world.after(NetworkPath.idleTimeout) { made.relay.lose(made) }
            if number == attempt, isAlive, connection == nil { retry(made.relay, by: route, number) }
            return
        }
        made.route = route
        connection = made
        turns.succeeded()
        made.heard = clock.now
        device.watch(made)
        complete(made)
        take(.connected)
    }

    // MARK: Early data

    /// The first packet carries the join, when the relay has given a ticket.
    private func offerEarlyData(to relay: SimulatedRelay) {
        early = nil
        let place = device.fleet.ticketPlace(of: relay)
        guard device.fleet.site == nil, let ticketKey = device.tickets[place] else { return }
        for action in handle(.earlyDataOffered) {
            guard case .send(let message) = action else {
                carryOut([action])
                continue
            }
            early = EarlyJoin(message: message, ticketKey: ticketKey, life: relay.life)
        }
        if let early { device.recorded[place] = early }
    }

    /// The end of the handshake, and what the relay has not taken before.
    private func complete(_ made: Connection) {
        device.tickets[device.fleet.ticketPlace(of: made.relay)] = made.relay.ticketKey
        guard let early else { return }
        self.early = nil
        guard made.takesEarlyData else { return send(early.message) }
        let sentAt = world.now
        made.lastUp = made.path.reliable(up: true)
        world.at(made.lastUp) { [self, device, process] in
            guard isRepeated(on: made, by: process, since: sentAt) else { return }
            made.relay.confirmed(made, pin: device.pin)
        }
    }

    func leavePath() {
        path?.isOver = true
        path = nil
    }

    // MARK: This machine's network

    private static let address = SocketAddress("192.0.2.1", port: 1)!

    func networkHas(_ news: NetworkChanges.News) {
        guard isAlive else { return }
        let route = device.network.route
        let isWorthAnAttempt = known.noteChange(news, isNumeric: false) { _ in route }
        if let path { return path.networkHas(news, at: Self.address, among: known.addresses) }
        if isWorthAnAttempt { take(.networkChanged) }
    }

    /// The attempt, or the connection, leads nowhere any more.
    func gaveUp(_ why: String, triesAgain: Bool = false) {
        if let connection { return isLost(connection, .lost(why)) }
        leavePath()
        attempt += 1
        take(.connectionEnded(.lost(why)))
        if triesAgain { take(.networkChanged) }
    }
}
