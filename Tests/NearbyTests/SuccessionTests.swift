// Who hosts a channel when its host goes, and which host stays when several meet.
import MonotonicTime
import RelayProtocol
import Testing

@testable import Nearby

@Suite struct SuccessionTests {
    private typealias Machine = SuccessionStateMachine
    private var now = Instant.zero + .seconds(100)
    private var machine = SuccessionStateMachine(generation: 0, at: .zero + .seconds(100))
    private let first = makeSighting(1, generation: 0)

    private mutating func handle(_ event: Machine.Event, after: Duration = .zero) -> [Machine.Action] {
        now = now + after
        return machine.handle(event, at: now)
    }

    /// Lets time pass, and delivers the deadlines on the way.
    private mutating func pass(_ duration: Duration) -> [(at: Duration, Machine.Action)] {
        let (began, end) = (now, now + duration)
        var all: [(Duration, Machine.Action)] = []
        while let deadline = machine.nextDeadline, deadline <= end {
            now = max(now, deadline)
            let new = machine.handle(.deadline, at: now)
            all += new.map { (now - began, $0) }
            if case .serve = new.first { break }
        }
        now = end
        return all
    }

    /// On the channel, with that many before it.
    private mutating func joined(turn: Int?) {
        _ = handle(.linkReady)
        _ = handle(.told(generation: 0, host: first.host, turn: turn))
        _ = handle(.seen([first]))
    }

    @Test(arguments: [0, 1, 7]) mutating func `each takes over in its turn when the host says that it goes`(turn: Int) {
        joined(turn: turn)
        _ = handle(.linkLost(isAnnounced: true))
        let done = pass(.seconds(10))
        #expect(done.map(\.1) == [.serve(generation: 1)])
        #expect(done.first?.at == Machine.turnInterval * turn)
    }

    @Test mutating func `a host that only went silent has time to come back`() {
        joined(turn: 0)
        #expect(handle(.linkLost(isAnnounced: false)).isEmpty == false, "it is looked for where it is announced")
        #expect(pass(.milliseconds(499)).isEmpty)
        #expect(handle(.linkReady).isEmpty)
        #expect(pass(.milliseconds(900)).isEmpty)
        _ = handle(.linkLost(isAnnounced: false))
        #expect(pass(.seconds(1)).first?.at == Machine.returnTimeout)
    }

    @Test mutating func `an announcement that ends tells that the host has gone`() {
        joined(turn: 1)
        #expect(handle(.seen([])) == [.verifyLink], "the link says whether it is true")
        _ = handle(.linkLost(isAnnounced: false))
        #expect(pass(.seconds(2)).first?.at == Machine.turnInterval)
    }

    @Test mutating func `who sees the next host goes there, and hosts nothing itself`() {
        joined(turn: 1)
        _ = handle(.linkLost(isAnnounced: true))
        let next = makeSighting(2, generation: 1)
        #expect(handle(.seen([first, next]), after: .milliseconds(100)) == [.reach(next.places + first.places)])
        #expect(handle(.seen([first, next])).isEmpty, "once")
        #expect(pass(.seconds(2)).isEmpty)
        _ = handle(.linkReady)
        _ = handle(.told(generation: 1, host: next.host, turn: 0))
        _ = handle(.linkLost(isAnnounced: true))
        _ = handle(.seen([]))
        #expect(pass(.seconds(10)).map(\.1) == [.serve(generation: 2)])
    }

    @Test mutating func `a next host that lets nobody in counts as gone`() {
        joined(turn: 0)
        _ = handle(.linkLost(isAnnounced: true))
        _ = handle(.seen([makeSighting(2, generation: 1)]))
        let done = pass(.seconds(10))
        #expect(done.map(\.1) == [.serve(generation: 1)] && done.first?.at == Machine.joinTimeout)
    }

    @Test mutating func `the first in the order looks after the host most often, who is not in it never`() {
        joined(turn: 0)
        #expect(pass(.seconds(3)).map(\.1) == [.verifyLink, .verifyLink, .verifyLink])
        _ = handle(.told(generation: 0, host: first.host, turn: 1))
        #expect(pass(.seconds(11)).map(\.1) == [.verifyLink, .verifyLink])
        _ = handle(.told(generation: 0, host: first.host, turn: nil))
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `another host makes a member ask its own for a sign of life`() {
        joined(turn: 3)
        #expect(handle(.seen([first, makeSighting(2, generation: 1)])) == [.verifyLink])
        #expect(handle(.seen([first, makeSighting(2, generation: 1)])).isEmpty)
    }

    @Test mutating func `a machine that starts alone hosts what it was on, after everybody else's turn`() {
        _ = handle(.linkLost(isAnnounced: false))
        #expect(pass(.seconds(20)).first?.at == Machine.returnTimeout + Machine.turnInterval * Machine.lastTurn)
    }

    @Test mutating func `a generation that cannot be counted on is no reason to stop`() {
        _ = handle(.linkReady)
        _ = handle(.told(generation: .max, host: first.host, turn: 0))
        _ = handle(.linkLost(isAnnounced: true))
        #expect(pass(.seconds(1)).map(\.1) == [.serve(generation: .max)])
    }

    @Test mutating func `who cannot host tries again later`() {
        joined(turn: 0)
        _ = handle(.linkLost(isAnnounced: true))
        #expect(pass(.milliseconds(10)).map(\.1) == [.serve(generation: 1)])
        #expect(handle(.served(nil)).isEmpty && !machine.isHost)
        #expect(pass(.seconds(4)).isEmpty)
        #expect(pass(.seconds(2)).map(\.1) == [.serve(generation: 1)])
    }

    @Test mutating func `a host that was named has as long to let its members in as one that is announced`() {
        joined(turn: 0)
        #expect(handle(.sent).isEmpty)
        // The announcement of the one that goes may be forgotten before it ends the link, and the other one's comes later.
        _ = handle(.seen([]))
        _ = handle(.linkLost(isAnnounced: true), after: .seconds(1))
        #expect(pass(.milliseconds(2_900)).isEmpty)
        #expect(handle(.linkReady).isEmpty)
        _ = handle(.told(generation: 1, host: makeHost(2), turn: 0))
        _ = handle(.linkLost(isAnnounced: true))
        #expect(pass(.seconds(1)).map(\.1) == [.serve(generation: 2)], "it has named nobody")
    }

    @Test mutating func `a host that was named and lets nobody in counts as gone`() {
        joined(turn: 0)
        _ = handle(.sent)
        _ = handle(.linkLost(isAnnounced: true))
        let done = pass(.seconds(10))
        #expect(done.map(\.1) == [.serve(generation: 1)] && done.first?.at == Machine.joinTimeout)
    }

    @Test mutating func `what is remembered of an earlier life of the host keeps nobody from taking over`() {
        let earlier = NearbyHostSighting(host: makeHost(7), generation: 0, places: first.places)
        _ = handle(.seen([first, earlier]))
        _ = handle(.linkReady)
        _ = handle(.told(generation: 0, host: first.host, turn: 0))
        _ = handle(.seen([earlier]))
        #expect(handle(.linkLost(isAnnounced: false)) == [.reach(first.places)])
        #expect(pass(.seconds(1)).map(\.1) == [.serve(generation: 1)])
    }

    @Test mutating func `a later life of the host at the same place has the time that any other host has`() {
        joined(turn: 0)
        _ = handle(.seen([NearbyHostSighting(host: makeHost(7), generation: 0, places: first.places)]))
        _ = handle(.linkLost(isAnnounced: false))
        #expect(pass(.milliseconds(2_900)).isEmpty)
    }

    // MARK: Hosts that meet

    private mutating func hosts(_ number: UInt8) {
        joined(turn: 0)
        _ = handle(.linkLost(isAnnounced: true))
        _ = handle(.seen([]))
        _ = pass(.milliseconds(10))
        _ = handle(.served(makeHost(number)))
        _ = handle(.linkReady)
        #expect(machine.isHost)
    }

    @Test mutating func `the host of the older generation stays, once it has shown its key`() {
        hosts(9)
        #expect(handle(.seen([first])) == [.check(first.host, first.places)])
        #expect(handle(.seen([first])).isEmpty, "one check at a time")
        #expect(handle(.checked(first.host, isThere: true)) == [.standDown(to: first.places[0])])
        #expect(!machine.isHost)
    }

    @Test mutating func `who is let in by another host while it begins to be one keeps its turn there`() {
        joined(turn: 0)
        _ = handle(.linkLost(isAnnounced: true))
        #expect(pass(.milliseconds(10)).map(\.1) == [.serve(generation: 1)])
        let other = makeSighting(2, generation: 0)
        _ = handle(.linkReady)
        _ = handle(.told(generation: 0, host: other.host, turn: 0))
        _ = handle(.served(makeHost(9)))
        #expect(handle(.seen([other])) == [.check(other.host, other.places)])
        #expect(handle(.checked(other.host, isThere: true)) == [.standDown(to: other.places[0])])
        #expect(pass(.seconds(1)).map(\.1) == [.verifyLink], "it is the first to look after that host")
        _ = handle(.seen([]))
        _ = handle(.linkLost(isAnnounced: false))
        #expect(pass(.seconds(1)).map(\.1) == [.serve(generation: 1)])
    }

    @Test mutating func `an announcement that nobody stands behind moves nobody, and is looked at again`() {
        hosts(9)
        _ = handle(.seen([first]))
        #expect(handle(.checked(first.host, isThere: false)).isEmpty && machine.isHost)
        #expect(pass(Machine.retryInterval).map(\.1) == [.check(first.host, first.places)])
        #expect(handle(.seen([])).isEmpty)
        #expect(handle(.checked(first.host, isThere: true)).isEmpty && machine.isHost, "it has gone meanwhile")
    }

    @Test mutating func `of two of one generation the smaller id stays`() {
        hosts(5)
        #expect(handle(.seen([makeSighting(6, generation: 1), makeSighting(1, generation: 2)])).isEmpty)
        let better = makeSighting(4, generation: 1)
        #expect(handle(.seen([better])) == [.check(better.host, better.places)])
    }

    @Test mutating func `who stands down does not take over again because its own host said farewell`() {
        hosts(9)
        _ = handle(.seen([first]))
        _ = handle(.checked(first.host, isThere: true))
        #expect(handle(.linkLost(isAnnounced: true)) == [.reach(first.places)])
        #expect(pass(.milliseconds(2_900)).isEmpty)
    }

    @Test mutating func `who stands down without a link of its own has as long for the other host as any member`() {
        hosts(9)
        _ = handle(.linkLost(isAnnounced: false))
        _ = handle(.seen([first]))
        _ = handle(.seen([first]), after: .seconds(10))
        #expect(
            handle(.checked(first.host, isThere: true)) == [
                .standDown(to: first.places[0]), .reach(first.places),
            ])
        #expect(pass(.milliseconds(2_900)).isEmpty)
    }
}

func makeSighting(_ number: UInt8, generation: UInt32) -> NearbyHostSighting {
    NearbyHostSighting(
        host: makeHost(number), generation: generation, places: [RelayPlace(host: "10.0.0.\(number)", port: 5_000)!])
}
