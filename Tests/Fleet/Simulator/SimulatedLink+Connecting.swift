// How a link connects, what the network does to its attempts, and how it closes.
import MonotonicTime
import QUIC
import RelayProtocol

@testable import RelayClient

extension SimulatedLink {
    func close() {
        attempt += 1
        leavePath()
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
        known.know([Self.address]) { _ in route }
        path = LinkPath(link: self, device: device)
        let relay = device.fleet.relay(at: core.relay.place, for: device)
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
            guard relay.isUp, device.network.carries(route) else { return retry(relay, by: route, number) }
            world.at(path.reliable(up: true)) { [self] in
                if number == attempt, isAlive { reach(relay, by: route, number) }
            }
        }
    }

    private func reach(_ relay: SimulatedRelay, by route: NetworkRoute?, _ number: UInt64) {
        guard relay.isUp, device.network.carries(route) else { return retry(relay, by: route, number) }
        let path = device.fleet.path(of: device, to: relay)
        relay.accept(device: device.number, pin: device.pin, by: path, early: early) { [self] made in
            world.at(made.lastDown) { [self] in
                clock.whenAwake { [self] in connected(by: made, route, number) }
            }
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
        made.heard = clock.now
        device.watch(made)
        complete(made)
        take(.connected)
    }

    // MARK: Early data

    /// The first packet carries the join, when the relay has given a ticket.
    private func offerEarlyData(to relay: SimulatedRelay) {
        early = nil
        guard device.fleet.site == nil, let ticketKey = device.tickets[relay.place] else { return }
        for action in handle(.earlyDataOffered) {
            guard case .send(let message) = action else {
                carryOut([action])
                continue
            }
            early = EarlyJoin(message: message, ticketKey: ticketKey, life: relay.generation)
        }
        if let early { device.recorded[relay.place] = early }
    }

    /// The end of the handshake, and what the relay has not taken before.
    private func complete(_ made: Connection) {
        device.tickets[made.relay.place] = made.relay.ticketKey
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
