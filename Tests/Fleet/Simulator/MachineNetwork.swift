// The network that one machine is on, and what happens when it gets another address.
import MonotonicTime
import QUIC

@testable import RelayClient

/// This machine's route to the relays. Both relays are behind the same one.
final class MachineNetwork {
    /// A connection goes on so soon after the machine has an address again.
    static let moveLimit = Duration.milliseconds(1_500)
    /// The same where nobody could answer at first.
    static let lateMoveLimit = Duration.seconds(5)
    /// What went wrong with a relay may keep a link waiting for as long.
    private static let aftermath = Duration.seconds(15)

    private unowned let device: Device
    private let world: World
    /// nil: it is on no network.
    private(set) var route: NetworkRoute?
    /// The network is there by all that the kernel knows, and carries nothing.
    private(set) var isBlack = false
    private var addresses = 0
    private var changes = 0
    private var changedAt = Instant.zero

    init(device: Device) {
        self.device = device
        world = device.world
        route = nextRoute()
    }

    private func nextRoute() -> NetworkRoute? {
        addresses += 1
        let host = "10.\(device.number).\(addresses / 250).\(addresses % 250 + 1)"
        return SocketAddress(host, port: 0).map { NetworkRoute(source: $0, interface: "net\(addresses % 2)") }
    }

    /// Whether packets of a socket on that route get anywhere.
    func carries(_ used: NetworkRoute?) -> Bool { !isBlack && route != nil && route == used }

    /// Whether it has been the same for a while at that time, and since.
    func isSettled(at time: Instant) -> Bool {
        changedAt + .seconds(1) < time && !isBlack && route != nil && device.clock.asleepSince == nil
    }

    // MARK: Trouble

    /// The machine moves to another network: at once (`how` 0), after being on none (1), or after one that carries nothing (2); or it
    /// comes back to the same one (3). It may be on none for so long that all is given up (4).
    func move(_ how: Int, for time: Duration) {
        let before = route
        let time = how == 4 ? time + NetworkPath.idleTimeout : time
        switch how {
        case 0: return change(to: nextRoute(), wasAtOnce: true)
        case 2:
            world.note(device.name, "the network carries nothing")
            device.path.noteTrouble(for: time)
            isBlack = true
            if let connection = device.link?.connection { stall(connection) }
        default:
            device.path.noteTrouble(for: time)
            change(to: nil)
        }
        world.after(time) { [self] in change(to: how == 3 ? before ?? nextRoute() : nextRoute()) }
    }

    private func change(to new: NetworkRoute?, wasAtOnce: Bool = false) {
        world.note(device.name, new.map { "the network is \($0)" } ?? "no network")
        let isAtOnce = wasAtOnce && !isBlack && route != nil
        (route, isBlack) = (new, false)
        if let connection = device.link?.connection, connection.route != new { stall(connection) }
        tell(.changed, isAtOnce: isAtOnce)
    }

    /// The machine falls asleep: nothing passes.
    func fellAsleep() {
        // Nothing is expected of a machine that sleeps.
        changes += 1
        changedAt = world.now
        if let connection = device.link?.connection { stall(connection) }
    }

    /// The machine wakes up: packets pass where it is still on the same network.
    func wakesUp() {
        changedAt = world.now
        guard let connection = device.link?.connection, connection.isStalled, carries(connection.route) else { return }
        connection.goOn()
    }

    /// The machine slept: what routers knew of the connection may be over.
    func woke() { tell(.woke, isAtOnce: !isBlack && route != nil) }

    private func tell(_ news: NetworkChanges.News, isAtOnce: Bool) {
        changes += 1
        changedAt = world.now
        // Who sleeps is told when it wakes up.
        guard device.clock.asleepSince == nil else { return }
        let (link, connection) = (device.link, device.link?.connection)
        link?.networkHas(news)
        guard route != nil, !isBlack, let link else { return }
        expect(link, keeps: isAtOnce && link.isReady ? connection : nil)
    }

    /// Nothing passes from now on. Both ends give it up when that lasts.
    private func stall(_ connection: Connection) {
        guard !connection.isStalled else { return }
        connection.isStalled = true
        let since = connection.stalls
        world.after(NetworkPath.idleTimeout) {
            if connection.isStalled, connection.stalls == since { connection.relay.lose(connection) }
        }
        device.clock.after(NetworkPath.idleTimeout) { [self] in
            if connection.isStalled, connection.stalls == since { device.isTimedOut(connection) }
        }
    }

    /// The link of now is to be ready soon, over the same connection where nothing was in its way.
    private func expect(_ link: SimulatedLink, keeps connection: Connection?) {
        // A host of a channel nearby, or a relay of a cluster, comes and goes meanwhile.
        guard let process = device.process, !device.fleet.resumesBursts else { return }
        let path = device.path
        let isTroubled = path.troubledUntil > world.now
        let (from, changes) = (max(world.now, path.troubledUntil), changes)
        let limit = isTroubled ? Self.lateMoveLimit : Self.moveLimit
        world.at(from + limit) { [self] in
            guard device.process === process, process.isAlive, device.link === link, self.changes == changes,
                device.fleet.relays.allSatisfy({ $0.isUntroubled(since: from - Self.aftermath) })
            else { return }
            if path.troubledUntil > from { return expect(link, keeps: nil) }
            if !link.isReady || link.connection?.isStalled != false {
                return world.fail("L", "\(device.name) has no link \(limit) after it has another address")
            }
            if let connection, !isTroubled, connection.isOpenAtRelay, link.connection !== connection {
                world.fail("L", "\(device.name) has another address, and gives its connection up")
            }
        }
    }
}

/// The path of one attempt and of the connection that it comes to, as `QUICTransport` follows it.
final class LinkPath {
    /// Nobody has answered on a new path after this time.
    private static let validationTime = Duration.seconds(1)

    private unowned let link: SimulatedLink
    private let device: Device
    private let world: World
    private let clock: MachineClock
    private var machine: PathStateMachine
    private lazy var alarm = Alarm(clock, of: self) { $0.handle(.deadline) }
    private var moves = 0
    /// The attempt, or the connection, is over.
    var isOver = false

    init(link: SimulatedLink, device: Device) {
        self.link = link
        self.device = device
        world = device.world
        clock = device.clock
        machine = PathStateMachine(route: device.network.route)
    }

    func networkHas(_ news: NetworkChanges.News, at address: SocketAddress, among known: [SocketAddress]) {
        let route = device.network.route
        let elsewhere = PathStateMachine.Elsewhere(than: address, among: known) { _ in route }
        handle(news == .woke ? .woke(route, elsewhere: elsewhere) : .changed(route, elsewhere: elsewhere))
    }

    private func handle(_ event: PathStateMachine.Event) {
        guard !isOver, link.isAlive else { return }
        device.fleet.coverage.record("path", state: event)
        for action in machine.handle(event, at: clock.now) where !isOver {
            switch action {
            case .move, .moveTo: move()
            case .reconnect: link.gaveUp("no answer on the new network path")
            case .lookUp: handle(.changed(device.network.route))
            case .noteOffline, .noteMoved: break
            }
        }
        alarm.set(isOver ? nil : machine.nextDeadline)
    }

    private func move() {
        // What was sent of a handshake is lost, and would be repeated ever more rarely.
        guard let connection = link.connection else {
            return link.gaveUp("the network has changed", triesAgain: true)
        }
        moves += 1
        let (number, route, path) = (moves, device.network.route, connection.path)
        world.note(device.name, "link: moves to \(route.map { "\($0)" } ?? "nothing")")
        connection.route = route
        connection.isStalled = true
        var isAnswered = false
        world.at(path.reliable(up: true)) { [self] in
            guard number == moves, !isOver, !isAnswered, device.network.carries(route) else { return }
            connection.relay.challenged { [self] in
                guard number == moves, !isOver, !isAnswered, device.network.carries(route) else { return }
                // It sends by the new path from now on, or knows nothing of the connection.
                connection.goOn()
                guard connection.isOpenAtRelay else { return device.isReset(connection) }
                world.at(path.reliable(up: false)) { [self] in
                    clock.whenAwake { [self] in
                        guard number == moves, !isAnswered, device.network.carries(route) else { return }
                        isAnswered = true
                        handle(.validated)
                    }
                }
            }
        }
        clock.after(Self.validationTime) { [self] in
            guard number == moves, !isAnswered else { return }
            isAnswered = true
            handle(.failed)
        }
    }
}
