// When a connection moves, waits, and is given up.
import MonotonicTime
import QUIC
import TestSupport
import Testing

@testable import RelayClient

@Suite struct PathStateMachineTests {
    private static func route(_ number: Int) -> NetworkRoute {
        NetworkRoute(source: SocketAddress("192.0.2.\(number)", port: 0) ?? .any(), interface: "net\(number)")
    }

    private var machine = PathStateMachine(route: Self.route(1))
    private var now = Instant(nanoseconds: 1_000_000_000)

    @Test mutating func `a change of the route moves the connection at once, and the relay's answer settles it`() {
        #expect(machine.handle(.changed(Self.route(1)), at: now).isEmpty)
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        #expect(machine.nextDeadline == nil)
        now = now + .milliseconds(40)
        #expect(machine.handle(.validated, at: now) == [.noteMoved(Self.route(2), after: .milliseconds(40))])
        #expect(machine.handle(.changed(Self.route(2)), at: now).isEmpty)
    }

    @Test mutating func `without a route nothing is done until there is one again, be it the same`() {
        #expect(machine.handle(.changed(nil), at: now) == [.noteOffline])
        #expect(machine.handle(.changed(nil), at: now).isEmpty)
        #expect(machine.handle(.failed, at: now).isEmpty)
        #expect(machine.nextDeadline == nil)
        #expect(machine.handle(.changed(Self.route(1)), at: now) == [.move])
    }

    private static func way(_ number: Int) -> PathStateMachine.Way {
        .init(address: SocketAddress("2001:db8::\(number)", port: 1) ?? .any(), route: Self.route(number))
    }

    @Test
    mutating func `another address that can be reached is used after a moment, and a failure there is the last one`() {
        #expect(machine.handle(.changed(nil, elsewhere: .way(Self.way(7))), at: now) == [.noteOffline])
        #expect(machine.nextDeadline == now + PathStateMachine.otherAddressTimeout)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        now = now + .milliseconds(100)
        // What else is told meanwhile does not put it off, and the newest way counts.
        #expect(machine.handle(.changed(nil, elsewhere: .way(Self.way(8))), at: now).isEmpty)
        now = now + PathStateMachine.otherAddressTimeout - .milliseconds(100)
        #expect(machine.handle(.deadline, at: now) == [.moveTo(Self.way(8).address)])
        #expect(machine.nextDeadline == nil)
        var failing = machine
        #expect(failing.handle(.failed, at: now) == [.reconnect])
        now = now + .milliseconds(40)
        #expect(
            machine.handle(.validated, at: now)
                == [.noteMoved(Self.route(8), after: PathStateMachine.otherAddressTimeout + .milliseconds(40))])
        #expect(machine.handle(.changed(Self.route(8)), at: now).isEmpty)
        // There, it is a connection like any other.
        now = now + .seconds(1)
        #expect(machine.handle(.changed(Self.route(9)), at: now) == [.move])
        #expect(machine.handle(.failed, at: now) == [.move])
    }

    @Test func `another address is looked for when the one in use cannot be reached, and then another network`() throws
    {
        let four = try #require(SocketAddress("198.51.100.1", port: 1))
        let known = [four, Self.way(7).address, Self.way(8).address]
        func elsewhere(_ reached: @escaping (SocketAddress) -> Bool) -> PathStateMachine.Elsewhere {
            .init(than: four, among: known) { reached($0) ? Self.route(8) : nil }
        }
        #expect(elsewhere { _ in true } == .nothing)
        #expect(elsewhere { $0 == known[2] } == .way(Self.way(8)))
        #expect(elsewhere { $0 != four } == .way(.init(address: known[1], route: Self.route(8))))
        #expect(elsewhere { !$0.isIPv4 && !known.contains($0) } == .network)
        #expect(elsewhere { $0.isIPv4 && $0 != four } == .nothing, "a network of the same family does not lead there")
    }

    @Test mutating func `the address in use is kept when its route is back in that moment`() {
        _ = machine.handle(.changed(nil, elsewhere: .way(Self.way(7))), at: now)
        now = now + .milliseconds(100)
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `another address is not tried any more when the network is gone again`() {
        _ = machine.handle(.changed(nil, elsewhere: .way(Self.way(7))), at: now)
        #expect(machine.handle(.changed(nil), at: now).isEmpty)
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `moves to other addresses keep their distance, too`() {
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        now = now + .milliseconds(1)
        _ = machine.handle(.changed(nil, elsewhere: .way(Self.way(7))), at: now)
        #expect(machine.nextDeadline == now + PathStateMachine.otherAddressTimeout)
    }

    @Test
    mutating func
        `on a network where no address is known, the name is looked up a few times, whatever is told meanwhile`()
    {
        #expect(machine.handle(.changed(nil, elsewhere: .network), at: now) == [.noteOffline])
        var lookUps = 0
        while let deadline = machine.nextDeadline {
            #expect(deadline - now == PathStateMachine.lookUpPauses[lookUps])
            now = deadline
            #expect(machine.handle(.deadline, at: now) == [.lookUp])
            // What is found is told of as of a change.
            #expect(machine.handle(.changed(nil, elsewhere: .network), at: now).isEmpty)
            lookUps += 1
            guard lookUps < 100 else { break }
        }
        #expect(lookUps == PathStateMachine.lookUpPauses.count)
        #expect(machine.handle(.changed(nil, elsewhere: .network), at: now).isEmpty)
        #expect(machine.nextDeadline == nil)
        // An address that is found is used.
        _ = machine.handle(.changed(nil, elsewhere: .way(Self.way(7))), at: now)
        now = now + PathStateMachine.otherAddressTimeout
        #expect(machine.handle(.deadline, at: now) == [.moveTo(Self.way(7).address)])
    }

    @Test mutating func `after sleep the connection moves though the address is the same`() {
        #expect(machine.handle(.woke(Self.route(1)), at: now) == [.move])
        #expect(machine.handle(.woke(nil), at: now) == [.noteOffline])
    }

    @Test mutating func `a network that comes and goes uses up no more than one move in a while`() {
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        #expect(machine.handle(.changed(Self.route(1)), at: now).isEmpty)
        #expect(machine.handle(.changed(Self.route(3)), at: now).isEmpty)
        #expect(machine.nextDeadline == now + PathStateMachine.moveInterval)
        #expect(machine.handle(.deadline, at: now).isEmpty)
        now = now + PathStateMachine.moveInterval
        #expect(machine.handle(.deadline, at: now) == [.move])
        #expect(machine.handle(.validated, at: now).count == 1)
    }

    @Test mutating func `a path that nobody answers on is tried again, then the connection is given up`() {
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        #expect(machine.handle(.failed, at: now) == [.move])
        #expect(machine.handle(.failed, at: now) == [.move])
        #expect(machine.handle(.failed, at: now) == [.reconnect])
        #expect(machine.handle(.changed(Self.route(1)), at: now).isEmpty)
    }

    @Test mutating func `a connection that cannot move yet is asked again a little later`() {
        #expect(machine.handle(.changed(Self.route(2)), at: now) == [.move])
        #expect(machine.handle(.refused, at: now).isEmpty)
        #expect(machine.nextDeadline == now + PathStateMachine.retryInterval)
        now = now + PathStateMachine.retryInterval
        #expect(machine.handle(.deadline, at: now) == [.move])
        #expect(machine.handle(.refused, at: now).isEmpty)
        now = now + PathStateMachine.retryInterval
        #expect(machine.handle(.deadline, at: now) == [.move])
        #expect(machine.handle(.refused, at: now) == [.reconnect])
    }

    private static func isMoveElsewhere(_ actions: [PathStateMachine.Action]) -> Bool {
        if case .moveTo = actions.first { true } else { false }
    }

    @Test(arguments: [1, 2, 3])
    func `whatever happens, moves keep their distance and a machine that is left alone comes to rest`(seed: UInt64) {
        var machine = PathStateMachine(route: nil)
        var generator = SeededGenerator(seed: seed)
        var now = Instant(nanoseconds: 1)
        var started: Instant?
        for _ in 0..<2_000 {
            now = now + .milliseconds(Int.random(in: 0...400, using: &generator))
            let number = Int.random(in: 0...3, using: &generator)
            let route = number == 0 ? nil : Self.route(number)
            let elsewhere: [PathStateMachine.Elsewhere] = [.nothing, .network, .way(Self.way(number))]
            let other = elsewhere[Int.random(in: 0...2, using: &generator)]
            let events: [PathStateMachine.Event] = [
                .changed(route, elsewhere: other), .woke(route, elsewhere: other), .validated, .failed, .refused,
                .deadline, .deadline,
            ]
            let event = events[Int.random(in: 0..<events.count, using: &generator)]
            let actions = machine.handle(event, at: now)
            #expect(actions.count <= 1)
            if actions == [.reconnect] {
                machine = PathStateMachine(route: route)
                started = nil
            }
            guard actions == [.move] || Self.isMoveElsewhere(actions) else { continue }
            if let started, event != .failed { #expect(now - started >= PathStateMachine.moveInterval, "seed \(seed)") }
            started = now
        }
        while let deadline = machine.nextDeadline { _ = machine.handle(.deadline, at: deadline) }
        #expect(machine.nextDeadline == nil)
    }
}
