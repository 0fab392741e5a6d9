// What is announced, under which name, and when again.
import DBus
import MonotonicTime
import RelayProtocol
import Testing

@testable import Nearby

@Suite struct AnnouncerTests {
    @Test func `nothing is asked for before something is wanted`() {
        var world = World(isThere: false)
        #expect(world.handle(.daemonLeft(.notRunning)).isEmpty)
        #expect(world.handle(.daemonCame) == [.askHostName])
        #expect(world.machine.nextDeadline(at: world.now) == nil)
    }

    @Test func `a channel is announced and costs no wake ups`() throws {
        var world = World()
        let one = makeAnnouncement()
        let tag = NearbyAnnouncer.tag(one)
        let asked = world.handle(.announce(one, port: 5_000))
        let path = world.make(.group, try #require(asked.tickets.first))
        #expect(
            world.actions.offers == [
                AvahiOffer(instance: "Crane 2 \(tag)", host: nil, port: 5_000, txt: one.txt)
            ])
        world.answerAll()
        #expect(world.handle(.signal(path, .group(.registering, reason: ""))).isEmpty)
        let told = world.handle(.signal(path, .group(.established, reason: "")))
        #expect(told == [.announced(one.channel, instance: "Crane 2 \(tag)")])
        #expect(world.handle(.signal(path, .group(.established, reason: ""))).isEmpty)
        #expect(world.machine.nextDeadline(at: world.now) == nil)
        // The same again is nothing new.
        #expect(world.handle(.announce(one, port: 5_000)).isEmpty)
        #expect(world.handle(.withdraw(one.channel)) == [.free(.group, path)])
        #expect(world.handle(.withdraw(one.channel)).isEmpty)
    }

    @Test func `changes are sent at most once a second`() {
        var world = World()
        let channel = ChannelID()
        world.handle(.announce(makeAnnouncement(channel: channel), port: 5_000))
        world.answerAll()
        var sent: [(Instant, [UInt8])] = []
        for members in 2...101 {
            let one = makeAnnouncement(channel: channel, members: members)
            for offer in world.handle(.announce(one, port: 5_000)).offers { sent.append((world.now, offer.txt[5])) }
            for offer in world.pass(.milliseconds(50)).offers { sent.append((world.now, offer.txt[5])) }
        }
        for offer in world.pass(.seconds(2)).offers { sent.append((world.now, offer.txt[5])) }
        #expect(sent.count <= 7)
        #expect(sent.last?.1 == Array("n=101".utf8))
        #expect(world.machine.nextDeadline(at: world.now) == nil)
        // After a pause a change goes out at once.
        #expect(world.handle(.announce(makeAnnouncement(channel: channel), port: 5_000)).offers.count == 1)
    }

    @Test func `another name or port is announced anew`() throws {
        var world = World()
        let channel = ChannelID()
        world.handle(.announce(makeAnnouncement(channel: channel), port: 5_000))
        world.answerAll()
        let path = try #require(world.group)
        let other = makeAnnouncement("Crane 3", channel: channel)
        #expect(world.handle(.announce(other, port: 5_000)).freed == [path])
        world.answerAll()
        let second = try #require(world.group)
        #expect(world.handle(.announce(other, port: 5_001)).freed == [second])
    }

    @Test func `a taken name gets a number`() throws {
        var world = World()
        let one = makeAnnouncement()
        let tag = NearbyAnnouncer.tag(one)
        world.handle(.announce(one, port: 5_000))
        world.answerAll()
        let path = try #require(world.group)
        // Another machine has the name.
        #expect(world.handle(.signal(path, .group(.collision, reason: "taken"))).freed == [path])
        let ticket = try #require(world.actions.tickets.last)
        world.actions = []
        world.make(.group, ticket)
        #expect(world.actions.offers.map(\.instance) == ["Crane 2 \(tag) #2"])
        // Another program of this machine has the second.
        guard case .register(_, _, let second)? = world.actions.last else {
            Issue.record("nothing registered")
            return
        }
        let again = world.handle(.refused(ticket: second, isCollision: true, reason: "taken"))
        world.make(.group, try #require(again.tickets.last))
        #expect(world.actions.offers.map(\.instance).last == "Crane 2 \(tag) #3")
        #expect(world.machine.problem == nil)
    }

    @Test func `whoever takes every name costs little`() {
        var world = World()
        world.handle(.announce(makeAnnouncement(), port: 5_000))
        var names: [String] = []
        for _ in 0..<600 {
            let waiting = world.actions
            world.actions = []
            for case .open(let wish, let ticket) in waiting { world.make(wish, ticket) }
            for case .register(_, let offer, let ticket) in world.actions {
                names.append(offer.instance)
                world.handle(.refused(ticket: ticket, isCollision: true, reason: "taken"))
            }
            world.actions.removeAll { if case .register = $0 { true } else { false } }
            world.pass(.milliseconds(100))
        }
        #expect(Set(names).count == names.count)
        // In a minute: eight at once, then eight after pauses of 1, 2, 4 … seconds.
        #expect((24...64).contains(names.count), "\(names.count)")
    }

    @Test func `names fit into a label`() throws {
        let (many, accents) = (String(repeating: "x", count: 100), String(repeating: "é", count: 40))
        let cases = [
            ("x", 1, "x tag"), ("x", 12, "x tag #12"), (many, 1, String(repeating: "x", count: 59) + " tag"),
            (many, 2, String(repeating: "x", count: 56) + " tag #2"),
            (accents, 1, String(repeating: "é", count: 29) + " tag"),
            (String(repeating: "🏗️", count: 18), 10, String(repeating: "🏗️", count: 7) + " tag #10"),
        ]
        for (name, number, expected) in cases {
            let instance = NearbyAnnouncer.instance(try #require(DisplayName(name)), tag: "tag", number: number)
            #expect(instance == expected)
            #expect(instance.utf8.count <= 63)
        }
        // One character of very many parts.
        let marks = "a" + String(repeating: "\u{301}", count: 60)
        #expect(NearbyAnnouncer.instance(try #require(DisplayName(marks)), tag: "tag", number: 1).utf8.count == 63)
    }

    @Test func `a channel has a name of its own on each host`() {
        let one = makeAnnouncement()
        var other = one
        other.members = 7
        #expect(NearbyAnnouncer.tag(one) == NearbyAnnouncer.tag(other))
        other.pin = makeAnnouncement(key: 2).pin
        #expect(NearbyAnnouncer.tag(one) != NearbyAnnouncer.tag(other))
        #expect(NearbyAnnouncer.tag(one) != NearbyAnnouncer.tag(makeAnnouncement()))
        #expect(NearbyAnnouncer.tag(one).utf8.count == 16)
    }

    @Test func `what fails is tried again with pauses`() throws {
        var world = World()
        world.handle(.announce(makeAnnouncement(), port: 5_000))
        var tries: [Instant] = []
        for _ in 0..<10 {
            let ticket = try #require(world.actions.tickets.last)
            world.actions = []
            tries.append(world.now)
            let told = world.handle(.refused(ticket: ticket, isCollision: false, reason: "no room"))
            if tries.count == 1 { #expect(told == [.problem(.refused("no room"))]) }
            world.pass(.seconds(61))
            while world.actions.tickets.isEmpty { world.pass(.seconds(1)) }
        }
        #expect(tries.count == 10)
        // It works at last.
        world.answerAll()
        let path = try #require(world.group)
        #expect(world.handle(.signal(path, .group(.established, reason: ""))).contains(.problem(nil)))
        // The group fails later.
        let failed = world.handle(.signal(path, .group(.failure, reason: "no network")))
        #expect(failed == [.free(.group, path), .problem(.refused("no network"))])
        #expect(world.pass(.seconds(1)).tickets.count == 1)
    }

    @Test func `everything is announced anew after a restart`() throws {
        var world = World()
        let all = (0..<3).map { makeAnnouncement("Crane \($0)") }
        for one in all { world.handle(.announce(one, port: 5_000)) }
        world.answerAll()
        let old = world.groups
        #expect(old.count == 3)
        world.handle(.signal(try #require(old.first), .group(.collision, reason: "")))
        let left = world.handle(.daemonLeft(.notRunning))
        #expect(left.contains(.problem(.notRunning)) && left.freed.isEmpty)
        #expect(world.pass(.seconds(100)).isEmpty)
        // A late answer of the old one, had it come through, changes nothing.
        world.actions = []
        let came = world.handle(.daemonCame)
        #expect(came.tickets.count == 3 && came.contains(.problem(nil)))
        world.answerAll()
        // Two of the old one's, of which nobody has told us that they are gone.
        #expect(world.groups.count == 5)
        // Signals of the earlier one's objects are nobody's.
        #expect(world.handle(.signal(old[1], .group(.failure, reason: ""))).isEmpty)
    }

    @Test func `another host name is announced anew and the same is not`() {
        var world = World()
        world.handle(.announce(makeAnnouncement(), port: 5_000))
        world.answerAll()
        #expect(world.handle(.hostNamed("crane.local")).isEmpty)
        #expect(world.handle(.serverChanged(.registering)).isEmpty)
        #expect(world.handle(.serverChanged(.running)) == [.askHostName])
        #expect(world.handle(.hostNamed("crane.local")).isEmpty)
        let renamed = world.handle(.hostNamed("crane-2.local"))
        #expect(renamed.freed.count == 1 && renamed.tickets.count == 1)
        world.answerAll()
        #expect(world.handle(.announce(makeAnnouncement("Gate"), port: 5_000)).tickets.count == 1)
    }

    @Test func `a wish that ends before its object is there is freed`() throws {
        var world = World()
        let one = makeAnnouncement()
        let ticket = try #require(world.handle(.announce(one, port: 5_000)).tickets.first)
        #expect(world.handle(.withdraw(one.channel)).isEmpty)
        #expect(world.handle(.opened(.group, ticket: ticket, "/Client1/EntryGroup1")).freed.count == 1)
    }

    @Test func `a signal before its object is known is heard`() throws {
        var world = World()
        let one = makeAnnouncement()
        let ticket = try #require(world.handle(.announce(one, port: 5_000)).tickets.first)
        #expect(world.handle(.signal("/a", .group(.collision, reason: "taken"))).isEmpty)
        #expect(world.handle(.signal("/b", .group(.collision, reason: "taken"))).isEmpty)
        let then = world.handle(.opened(.group, ticket: ticket, "/a"))
        #expect(then.freed == ["/a"] && then.tickets.count == 1)
        // It is kept no longer than something is on its way, and not without bound.
        for number in 0..<1_000 {
            world.handle(.signal(try DBusObjectPath("/x\(number)"), .group(.failure, reason: "")))
        }
        #expect(world.machine.sizes.early == Machine.earlyMaximum)
        world.answerAll()
        #expect(world.machine.sizes.early == 0)
    }

    @Test func `not too many are announced`() {
        var world = World()
        let all = (0...NearbyAnnouncer.channelsMaximum).map { makeAnnouncement("Crane \($0)") }
        for one in all { world.handle(.announce(one, port: 5_000)) }
        world.answerAll()
        #expect(world.groups.count == NearbyAnnouncer.channelsMaximum)
        #expect(world.machine.problem?.description.contains("no more than 16 channels") == true)
        world.handle(.withdraw(all[0].channel))
        #expect(world.machine.problem == nil)
    }

    @Test func `a daemon that is not there is asked for once`() {
        var world = World(isThere: false)
        world.handle(.daemonLeft(.notRunning))
        let wanted = world.handle(.announce(makeAnnouncement(), port: 5_000))
        #expect(wanted == [.startDaemon, .problem(.notRunning)])
        let missing = world.handle(.daemonLeft(.notInstalled))
        #expect(missing == [.problem(.notInstalled)])
        #expect("\(NearbyProblem.notInstalled)" == "avahi-daemon is not running: install avahi-daemon")
        #expect(world.machine.nextDeadline(at: world.now) == nil)
        #expect(world.handle(.daemonCame).contains(.problem(nil)))
    }
}
