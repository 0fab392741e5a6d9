// What is found becomes a list: of several findings one channel, of strangers no more than a line.
import Cryptography
import DBus
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

@Suite struct FinderTests {
    private func browsing() -> World {
        var world = World()
        world.handle(.browse(true))
        world.answerAll()
        return world
    }

    @Test func `nothing is looked for before somebody looks`() {
        var world = World()
        #expect(world.browser == nil)
        world.handle(.browse(true))
        #expect(world.actions.contains { if case .open(.browser, _) = $0 { true } else { false } })
        world.answerAll()
        #expect(world.browser != nil)
        #expect(world.machine.nextDeadline(at: world.now) == nil)
        world.handle(.browse(false))
        #expect(world.objects.isEmpty && world.actions.contains(.endProbing))
    }

    @Test func `who is followed is found without a list`() {
        var world = World()
        let one = makeAnnouncement(host: 1)
        let followed = FollowedChannel(channel: one.channel, pin: one.pin)
        world.handle(.follow([followed]))
        world.answerAll()
        let tag = NearbyAnnouncer.tag(one.channel, one.pin)
        let service = makeService("Crane 2 \(tag)AAAAAAAB")
        world.hear(service, one, at: "10.0.0.1")
        world.hear(makeService("Gate xyz"), makeAnnouncement("Gate"), at: "10.0.0.2")
        #expect(world.machine.sizes.services == 1, "of others nothing is asked")
        #expect(world.list.isEmpty)
        #expect(world.machine.nextDeadline(at: world.now) == nil, "nor are hosts asked for a sign of life")
        let sighting = NearbyHostSighting(
            host: makeHost(1), generation: 0, places: [RelayPlace(host: "10.0.0.1", port: 5_000)!])
        func told(_ actions: [Machine.Action]) -> [FollowedChannel: [NearbyHostSighting]]? {
            for case .hosts(let hosts) in actions { return hosts }
            return nil
        }
        // Another host of it, and the first one goes.
        world.actions = []
        let second = makeService("Crane 2 \(tag)AAAAAAAC")
        var other = one
        other.host = makeHost(2)
        other.generation = 1
        if let browser = world.browser { world.handle(.signal(browser, .appeared(second))) }
        world.answerAll()
        if let path = world.resolver(of: second), let place = makePlace("10.0.0.3") {
            let found = told(world.handle(.signal(path, .found(second, place, txt: other.txt))))
            #expect(found?[followed]?.map(\.host) == [makeHost(1), makeHost(2)] && found?[followed]?.first == sighting)
        }
        if let browser = world.browser {
            #expect(told(world.handle(.signal(browser, .disappeared(service))))?[followed]?.map(\.generation) == [1])
        }
        // A list shows everybody, and what is followed stays known.
        world.actions = []
        world.handle(.browse(true))
        #expect(world.actions.freed.count == 1 && world.machine.sizes.services == 1)
        world.answerAll()
        if let browser = world.browser {
            for service in [second, makeService("Gate xyz")] { world.handle(.signal(browser, .appeared(service))) }
            world.handle(.signal(browser, .toldAll))
        }
        #expect(world.machine.sizes.services == 2)
        world.handle(.browse(false))
        #expect(world.machine.sizes.services == 1)
        #expect(told(world.handle(.follow([]))) == [:] && world.machine.sizes.services == 0)
    }

    @Test func `own hosts are not followed`() {
        var world = World()
        let one = makeAnnouncement(host: 1)
        world.handle(.announce(one, port: 5_000))
        world.handle(.follow([FollowedChannel(channel: one.channel, pin: one.pin)]))
        world.answerAll()
        let tag = NearbyAnnouncer.tag(one.channel, one.pin)
        world.actions = []
        world.hear(makeService("Crane 2 \(tag)AAAAAAAB"), one, at: "10.0.0.1")
        #expect(!world.actions.contains { if case .hosts = $0 { true } else { false } })
    }

    @Test func `a channel appears changes and disappears`() throws {
        var world = browsing()
        let service = makeService("Crane 2")
        let channel = ChannelID()
        world.hear(service, makeAnnouncement(channel: channel), at: "10.0.0.1")
        #expect(world.list.map(\.announcement.name.text) == ["Crane 2"])
        #expect(world.list.first?.places.map { "\($0)" } == ["10.0.0.1:5000"])
        #expect(world.list.first?.isOwn == false)
        world.tell(service, makeAnnouncement(channel: channel, members: 4), at: "10.0.0.1")
        #expect(world.list.first?.announcement.members == 4)
        world.actions = []
        world.lose(service)
        #expect(world.list.isEmpty && world.actions.freed.count == 1)
        #expect(world.machine.sizes.resolvers == 0 && world.machine.sizes.places == 0)
    }

    @Test func `all findings of a channel are one entry the best place first`() {
        var world = browsing()
        let one = makeAnnouncement()
        world.hear(makeService("Crane 2", six: true), one, at: "fe80::1")
        world.hear(makeService("Crane 2", interface: 3, six: true), one, at: "2001:db8::1")
        world.hear(makeService("Crane 2"), one, at: "192.168.1.5")
        world.hear(makeService("Crane 2", interface: 3), one, at: "192.168.1.5")
        #expect(world.list.count == 1)
        #expect(
            world.list.first?.places.map { "\($0)" } == [
                "192.168.1.5:5000", "[2001:db8::1]:5000", "[fe80::1%25eth0]:5000",
            ])
        for interface in 4..<20 {
            world.hear(makeService("Crane 2", interface: Int32(interface)), one, at: "192.168.2.\(interface)")
        }
        #expect(world.list.first?.places.count == NearbyChannel.placesMaximum)
        // One interface goes: the channel stays.
        world.lose(makeService("Crane 2"))
        #expect(world.list.count == 1)
    }

    @Test func `a false announcement costs a line`() {
        var world = browsing()
        let true1 = makeAnnouncement("Crane 2", members: 3)
        let false1 = makeAnnouncement("Crane 2", by: "Eve", channel: true1.channel, key: 9, members: 99)
        for order in [[true1, false1], [false1, true1]] {
            for (number, one) in order.enumerated() {
                world.hear(makeService("n\(number)"), one, at: one == true1 ? "10.0.0.1" : "10.0.0.66")
            }
            #expect(world.list.count == 2)
            let shown = world.list.first { $0.announcement.pin == true1.pin }
            #expect(shown?.announcement == true1)
            #expect(shown?.places.map(\.host) == ["10.0.0.1"])
            for number in order.indices { world.lose(makeService("n\(number)")) }
        }
    }

    @Test func `whoever repeats an announcement changes nothing of it`() {
        var world = browsing()
        let one = makeAnnouncement("Crane 2")
        var copy = one
        copy.name = DisplayName(cleaning: "Free beer", fallback: "?")
        world.hear(makeService("Crane 2"), one, at: "10.0.0.1")
        world.hear(makeService("Free beer"), copy, at: "10.0.0.66")
        #expect(world.list.map(\.announcement) == [one])
        #expect(world.list.first?.places.map(\.host) == ["10.0.0.1", "10.0.0.66"])
    }

    @Test func `equal names are kept apart and the order is always the same`() throws {
        var world = browsing()
        let ids = try (0..<4).map { try #require(ChannelID("00000000-0000-0000-0000-00000000000\(3 - $0)")) }
        for (number, id) in ids.enumerated() {
            world.hear(makeService("n\(number)"), makeAnnouncement("Crane", channel: id), at: "10.0.0.\(number + 1)")
        }
        world.hear(makeService("a"), makeAnnouncement("Bridge"), at: "10.0.0.9")
        #expect(world.list.map(\.announcement.name.text) == ["Bridge", "Crane", "Crane", "Crane", "Crane"])
        #expect(world.list.dropFirst().map(\.announcement.channel) == ids.reversed())
    }

    @Test func `what makes no sense is not listed`() throws {
        var world = browsing()
        let service = makeService("Crane 2")
        world.hear(service, makeAnnouncement(), at: "10.0.0.1")
        let path = try #require(world.resolver(of: service))
        let place = try #require(makePlace("10.0.0.1"))
        world.handle(.signal(path, .found(service, place, txt: [[1, 2, 3]])))
        world.pass(.seconds(1))
        #expect(world.list.isEmpty && world.machine.senseless == 1)
        world.tell(service, makeAnnouncement(), at: "10.0.0.1")
        #expect(world.list.count == 1)
        world.handle(.signal(path, .foundNowhere(service)))
        world.pass(.seconds(1))
        #expect(world.list.isEmpty)
        // What a resolver tells of another service than its own is not heard.
        world.handle(.signal(path, .found(makeService("Gate"), place, txt: makeAnnouncement().txt)))
        world.pass(.seconds(1))
        #expect(world.list.isEmpty)
    }

    @Test func `own channels are marked and not probed`() {
        var world = browsing()
        let own = makeAnnouncement("Own")
        world.handle(.announce(own, port: 5_000))
        world.answerAll()
        world.pass(.seconds(1))
        #expect(world.list.map(\.isOwn) == [true])
        #expect(world.list.first?.places.isEmpty == true)
        world.hear(makeService("Own"), own, at: "10.0.0.1")
        #expect(world.list.map(\.isOwn) == [true])
        #expect(world.list.first?.places.count == 1)
        world.actions = []
        world.pass(.seconds(60))
        #expect(world.actions.probes.isEmpty && world.list.count == 1)
        // Another's announcement of it is a foreign line.
        world.hear(makeService("False"), makeAnnouncement("Own", channel: own.channel, key: 5), at: "10.0.0.6")
        #expect(world.list.map(\.isOwn).sorted { $0 && !$1 } == [true, false])
        world.handle(.withdraw(own.channel))
        world.pass(.seconds(1))
        // Until Avahi has forgotten it, it is one of the others.
        #expect(world.list.allSatisfy { !$0.isOwn })
    }

    @Test func `the oldest are kept when there are too many`() {
        var world = browsing()
        for number in 0..<200 {
            world.hear(
                makeService("n\(number)"), makeAnnouncement("Crane \(number)"), at: "10.0.\(number).1")
            if number % 16 == 0 { world.pass(.milliseconds(600)) }
            for (_, probe) in world.actions.probes { world.handle(.answered(probe)) }
            world.actions = []
        }
        #expect(world.list.count == Machine.channelsMaximum)
        #expect(world.machine.unlisted == 72)
        #expect(Set(world.list.map(\.announcement.name.text)) == Set((0..<128).map { "Crane \($0)" }))
    }

    @Test func `a flood is bounded and costs no other entry`() throws {
        var world = browsing()
        let one = makeAnnouncement("True")
        world.answersProbes = true
        world.hear(makeService("True"), one, at: "10.0.0.1")
        let browser = try #require(world.browser)
        world.actions = []
        var opened = 0
        for number in 0..<5_000 {
            opened += world.handle(.signal(browser, .appeared(makeService("Flood \(number)")))).tickets.count
        }
        #expect(opened <= NearbyFinder.resolversAtOnce)
        let inASecond = world.pass(.seconds(1)).tickets.count
        #expect(inASecond <= NearbyFinder.resolversPerSecond + 1)
        world.answerAll()
        #expect(world.machine.sizes.services == NearbyFinder.servicesMaximum)
        #expect(world.machine.leftOut == 5_001 - NearbyFinder.servicesMaximum)
        #expect(world.list.map(\.announcement) == [one])
        // The flood ends: what had to be left out is looked for once more, and what has gone meanwhile is known.
        for number in 0..<250 { world.handle(.signal(browser, .disappeared(makeService("Flood \(number)")))) }
        world.pass(NearbyFinder.browserPause)
        world.answerAll()
        let second = try #require(world.browser)
        #expect(second != browser)
        world.handle(.signal(second, .appeared(makeService("True"))))
        world.handle(.signal(second, .appeared(makeService("Late"))))
        world.handle(.signal(second, .toldAll))
        world.answerAll()
        #expect(world.machine.sizes.services == 2 && world.machine.sizes.resolvers == 2)
        #expect(world.list.map(\.announcement) == [one])
    }

    @Test func `reports are bounded`() throws {
        var world = browsing()
        let service = makeService("Crane 2")
        let channel = ChannelID()
        world.hear(service, makeAnnouncement(channel: channel), at: "10.0.0.1")
        let path = try #require(world.resolver(of: service))
        let place = try #require(makePlace("10.0.0.1"))
        world.actions = []
        for turn in 0..<1_000 {
            let txt = makeAnnouncement(channel: channel, members: turn % 9_000).txt
            world.handle(.signal(path, .found(service, place, txt: txt)))
            world.pass(.milliseconds(1))
        }
        let reports = world.actions.filter { if case .report = $0 { true } else { false } }
        #expect((10...21).contains(reports.count))
        world.pass(.seconds(1))
        #expect(world.list.first?.announcement.members == 999)
    }

    @Test func `a resolver that fails is made again`() throws {
        var world = browsing()
        let service = makeService("Crane 2")
        world.hear(service, makeAnnouncement(), at: "10.0.0.1")
        let path = try #require(world.resolver(of: service))
        #expect(world.handle(.signal(path, .failed("timeout"))).freed == [path])
        world.pass(.milliseconds(900))
        #expect(world.list.isEmpty)
        world.actions = []
        world.pass(.milliseconds(200))
        world.answerAll()
        world.tell(service, makeAnnouncement(), at: "10.0.0.1")
        #expect(world.list.count == 1)
    }

    @Test func `a browser that fails is made again and told of`() throws {
        var world = browsing()
        let browser = try #require(world.browser)
        let failed = world.handle(.signal(browser, .failed("no memory")))
        #expect(failed.contains(.problem(.refused("no memory"))) && failed.freed == [browser])
        #expect(world.pass(.milliseconds(1_100)).tickets.count == 1)
        world.answerAll()
        #expect(world.machine.problem == nil)
    }

    @Test func `a restarted daemon is asked anew`() throws {
        var world = browsing()
        world.hear(makeService("Crane 2"), makeAnnouncement(), at: "10.0.0.1")
        let old = try #require(world.browser)
        world.handle(.daemonLeft(.notRunning))
        world.pass(.seconds(1))
        #expect(world.list.isEmpty && world.machine.problem == .notRunning)
        #expect(world.handle(.signal(old, .appeared(makeService("Ghost")))).isEmpty)
        world.handle(.daemonCame)
        world.answerAll()
        let new = try #require(world.objects.filter { $0.value == .browser && $0.key != old }.first?.key)
        world.handle(.signal(new, .appeared(makeService("Crane 2"))))
        #expect(
            world.actions.contains { if case .open(.resolver(makeService("Crane 2")), _) = $0 { true } else { false } })
        #expect(world.machine.sizes.services == 1)
    }
}
