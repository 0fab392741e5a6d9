// A machine that vanishes without a word disappears, and comes back when it answers.
import DBus
import MonotonicTime
import RelayProtocol
import Testing

@testable import Nearby

@Suite struct PlaceWatchTests {
    private func world(_ count: Int = 1, sameHost: Bool = false) -> World {
        var world = World()
        world.handle(.browse(true))
        world.answerAll()
        for number in 0..<count {
            let host = sameHost ? "10.0.0.1" : "10.0.\(number / 200).\(number % 200 + 1)"
            let service = makeService("n\(number)")
            if let browser = world.browser { world.handle(.signal(browser, .appeared(service))) }
            world.answerAll()
            if world.resolver(of: service) == nil { world.pass(.seconds(1)) }
            world.answerAll()
            guard let path = world.resolver(of: service),
                let place = NearbyPlace(address: host, port: UInt16(5_000 + number), zone: nil)
            else { continue }
            world.handle(.signal(path, .found(service, place, txt: makeAnnouncement("Crane \(number)").txt)))
        }
        world.pass(Machine.reportPause)
        return world
    }

    /// Answers every probe for so long; how many there were.
    private func answer(
        _ world: inout World, for duration: Duration, unless isGone: (RelayPlace) -> Bool = { _ in false }
    )
        -> Int
    {
        let end = world.now + duration
        var count = 0
        world.actions = []
        while world.now < end {
            world.pass(.milliseconds(20))
            for (place, number) in world.actions.probes {
                count += 1
                if !isGone(place) { world.handle(.answered(number)) }
            }
            world.actions = []
        }
        return count
    }

    @Test func `a host that answers is asked every four seconds`() {
        var world = world()
        let count = answer(&world, for: .seconds(60))
        #expect((14...16).contains(count))
        #expect(world.list.count == 1)
    }

    @Test func `a host that vanishes is gone within fifteen seconds`() {
        for offset in stride(from: 0, through: 4_000, by: 250) {
            var world = world()
            _ = answer(&world, for: .seconds(10) + .milliseconds(offset))
            let began = world.now
            while !world.list.isEmpty, world.now - began < .seconds(30) { world.pass(.milliseconds(10)) }
            #expect(world.now - began <= .seconds(11))
            #expect(world.now - began >= .seconds(5))
        }
    }

    @Test func `it is asked on with back off and shown when it answers`() {
        var world = world()
        world.actions = []
        world.pass(.seconds(120))
        // At 4, 8, 16, 31, 46 … seconds.
        #expect((7...12).contains(world.actions.probes.count), "\(world.actions.probes.count)")
        #expect(world.list.isEmpty)
        let began = world.now
        _ = answer(&world, for: .seconds(16))
        #expect(world.list.count == 1 && world.now - began < .seconds(17))
        #expect((14...16).contains(answer(&world, for: .seconds(60))))
    }

    @Test func `one lost probe is nothing`() {
        var world = world()
        world.actions = []
        var number = 0
        for _ in 0..<600 {
            world.pass(.milliseconds(100))
            for (_, probe) in world.actions.probes {
                number += 1
                if number % 2 == 0 { world.handle(.answered(probe)) }
            }
            world.actions = []
            #expect(world.list.count == 1)
        }
    }

    @Test func `one answering place is enough`() {
        var world = World()
        world.handle(.browse(true))
        world.answerAll()
        let one = makeAnnouncement()
        world.hear(makeService("Crane 2"), one, at: "10.0.0.1")
        world.hear(makeService("Crane 2", six: true), one, at: "fe80::1")
        _ = answer(&world, for: .seconds(30)) { $0.host == "10.0.0.1" }
        #expect(world.list.first?.places.map(\.host) == ["fe80::1%eth0"])
        _ = answer(&world, for: .seconds(20))
        #expect(world.list.first?.places.map(\.host) == ["10.0.0.1", "fe80::1%eth0"])
        _ = answer(&world, for: .seconds(20)) { _ in true }
        #expect(world.list.isEmpty)
    }

    @Test func `news of a host bring it back at once`() throws {
        var world = World()
        world.handle(.browse(true))
        world.answerAll()
        let channel = ChannelID()
        world.hear(makeService("Crane 2"), makeAnnouncement(channel: channel), at: "10.0.0.1")
        world.pass(.seconds(60))
        #expect(world.list.isEmpty)
        world.tell(makeService("Crane 2"), makeAnnouncement(channel: channel, members: 2), at: "10.0.0.1")
        #expect(world.list.count == 1)
        // The same once more is no news.
        world.pass(.seconds(60))
        world.tell(makeService("Crane 2"), makeAnnouncement(channel: channel, members: 2), at: "10.0.0.1")
        #expect(world.list.isEmpty)
    }

    @Test func `probes are spread and bounded`() {
        var world = world(256)
        #expect(world.machine.sizes.places == 256)
        var perSecond: [Int] = []
        var most = 0
        for _ in 0..<60 {
            var count = 0
            for _ in 0..<20 {
                world.actions = []
                world.pass(.milliseconds(50))
                most = max(most, world.actions.probes.count)
                for (_, number) in world.actions.probes {
                    count += 1
                    world.handle(.answered(number))
                }
            }
            perSecond.append(count)
        }
        #expect(perSecond.max() ?? 0 <= PlaceWatch.probesPerSecond)
        #expect(perSecond.dropFirst(5).min() ?? 0 > 30)
        #expect(most <= 16)
        #expect(world.list.count == 128)
    }

    @Test func `one address is asked seldom whatever is announced there`() {
        var world = world(100, sameHost: true)
        for _ in 0..<60 {
            world.actions = []
            world.pass(.seconds(1))
            #expect(world.actions.probes.count <= 2 * PlaceWatch.probesPerSecondOfHost)
        }
    }

    @Test func `nobody is asked when nobody looks`() {
        var world = world(8)
        world.pass(.seconds(5))
        world.handle(.browse(false))
        world.actions = []
        world.pass(.seconds(60))
        #expect(world.actions.isEmpty)
        #expect(world.machine.nextDeadline(at: world.now) == nil)
        #expect(world.list.isEmpty)
    }

    @Test func `a followed host is asked while there is a list`() {
        var world = World()
        let one = makeAnnouncement()
        world.handle(.follow([FollowedChannel(channel: one.channel, pin: one.pin)]))
        world.handle(.browse(true))
        world.answerAll()
        world.hear(makeService("Crane 2 \(NearbyAnnouncer.tag(one.channel, one.pin))AAAAAAAB"), one, at: "10.0.0.1")
        #expect(world.machine.sizes.places == 1)
        world.handle(.browse(false))
        #expect(world.machine.sizes.places == 0)
        world.answerAll()
        world.handle(.browse(true))
        #expect(world.machine.sizes.places == 1)
    }

    @Test func `a strange or late answer is nothing`() {
        var world = world()
        #expect(world.handle(.answered(4_711)).isEmpty)
        world.actions = []
        while world.actions.probes.isEmpty { world.pass(.milliseconds(100)) }
        let number = world.actions.probes[0].number
        world.pass(.seconds(20))
        #expect(world.list.isEmpty)
        world.handle(.answered(number))
        world.pass(.seconds(1))
        #expect(world.list.isEmpty)
    }
}
