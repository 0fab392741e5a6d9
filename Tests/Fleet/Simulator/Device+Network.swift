// What a device hears of its relays, and how its connections end.
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import RelayServer

@testable import Bridge
@testable import RelayClient

extension Device {
    var link: SimulatedLink? { process?.director.bridge?.link }

    func receive(_ message: ServerMessage, on connection: Connection) {
        clock.whenAwake { [self] in link?.receive(message, on: connection) }
    }

    /// Nobody repeats a datagram.
    func receive(datagram: [UInt8], on connection: Connection) {
        if clock.asleepSince == nil { link?.receive(datagram: datagram, on: connection) }
    }

    func receive(answer bytes: [UInt8], on connection: Connection) {
        clock.whenAwake { [self] in link?.receive(answer: bytes, on: connection) }
    }

    /// The relay has taken the floor from it for somebody more important: on a healthy network it knows that soon.
    func isOverridden(_ request: FloorRequestID, on channel: String, by relay: SimulatedRelay) {
        guard let process, let connection = link?.connection, connection.relay === relay,
            let burst = process.channel.machine.transmission,
            // A burst that waited in the network may be over at its talker, who may have left that channel.
            link?.lastRequest == request, process.director.machine.active?.descriptor.name == channel,
            // An earlier burst of it may still be on its way, and the request of this one may wait for that.
            link?.openBursts.count == 1,
            // On another network it hears nothing before its connection has moved, too.
            !connection.isStalled
        else { return }
        let now = world.now
        world.after(Self.overrideLimit) { [self] in
            guard self.process === process, link?.connection === connection, connection.isOpenAtRelay,
                connection.path.troubledUntil < now, network.isSettled(at: now), relay.haltedUntil < now,
                process.channel.machine.transmission?.begunAt == burst.begunAt
            else { return }
            world.fail("I2", "\(name) transmits \(Self.overrideLimit) after the relay took its floor")
        }
    }

    /// The relay closed it.
    func isClosed(_ connection: Connection, code: RelayCloseCode, _ text: String) {
        guard connection.question == nil else { return }
        // An attempt that the relay has not answered ends by its own time-out, whatever a successor's place is known from.
        clock.whenAwake { [self] in
            let wasMember = link?.connection === connection && link?.isReady == true
            link?.isLost(connection, RelayLinkError(closedWith: code.rawValue, text))
            if code == .goingDown, wasMember { isSentAway(by: connection) }
        }
    }

    /// Whose relay goes down and has named a successor is there soon, when nothing is in the way.
    private func isSentAway(by connection: Connection) {
        if fleet.cluster != nil { return isSentOn(by: connection) }
        guard let process, let link, let successor = fleet.relay(named: connection.relay.successor),
            successor.isServing, link.hasBeenSent(to: successor, by: connection)
        else { return }
        let now = world.now
        let path = fleet.path(of: self, to: successor)
        world.after(Self.moveLimit) { [self] in
            guard self.process === process, self.link === link, successor.isUntroubled(since: now),
                path.troubledUntil < now, network.isSettled(at: now), isOpen, !link.isReady
            else { return }
            world.fail("L", "\(name) has no link \(Self.moveLimit) after its relay named a successor")
        }
    }

    /// Nothing has come for too long.
    func isTimedOut(_ connection: Connection) { loses(connection, "nothing came for too long") }

    private func loses(_ connection: Connection, _ why: String) {
        clock.whenAwake { [self] in link?.isLost(connection, .lost(why)) }
    }

    /// The relay does not know it any more: it says so to whatever comes, at the latest to the next keep-alive.
    func isReset(_ connection: Connection) {
        connection.whenItPasses { [self] in
            let path = connection.path
            world.at(max(path.reliable(up: true), path.upBlocked)) { [self] in
                world.at(path.reliable(up: false)) { [self] in loses(connection, "stateless reset") }
            }
        }
    }

    /// Either end finds out for itself.
    func reset(_ connection: Connection) {
        let path = connection.path
        path.noteTrouble(for: .seconds(4))
        world.after(path.milliseconds(0...2_000)) { connection.relay.lose(connection) }
        world.after(path.milliseconds(0...2_000)) { [self] in loses(connection, "reset") }
    }

    /// Somebody sends the recorded first packets again. Nobody has the key for the rest of the handshake.
    func replay() {
        for relay in fleet.relays {
            guard let early = recorded[fleet.ticketPlace(of: relay)], early.ticketKey == relay.ticketKey,
                early.life != relay.life
            else { continue }
            world.note(name, "its join at \(relay.place) is sent again")
            relay.accept(device: number, pin: pin, by: path, early: early, isReplay: true) { [world] made in
                made.question = { _ in }
                world.after(NetworkPath.handshakeTimeout) { relay.lose(made) }
            }
        }
    }

    /// Looks after the idle time-outs of a connection that was made.
    func watch(_ connection: Connection) {
        connections.append(connection)
        if let owner = process { watchOwner(connection, owner) }
    }

    /// A pttd that is killed says nothing: the relay waits for the idle time-out.
    private func watchOwner(_ connection: Connection, _ owner: Process) {
        world.after(NetworkPath.idleTimeout) { [self] in
            guard connection.isOpenAtRelay else { return }
            if owner.isAlive, connection.isOpenAtClient { return watchOwner(connection, owner) }
            connection.relay.lose(connection)
        }
    }
}
