// A hundred thousand steps against a simulated Avahi that is slow, fails, restarts and tells of strangers.
import Cryptography
import DBus
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

/// What the machine wants, and what there is.
private struct Model {
    var machine = Machine()
    var random: SeededGenerator
    var now = Instant.zero + .seconds(10)
    var isThere = false
    var isBrowsing = false
    var wanted: [ChannelID: NearbyAnnouncement] = [:]
    /// Objects that Avahi has and the machine has not freed.
    var objects: [DBusObjectPath: Machine.Wish] = [:]
    var pathOf: [Machine.Wish: DBusObjectPath] = [:]
    /// What was asked of Avahi and is not answered.
    var asked: [(wish: Machine.Wish, ticket: UInt64)] = []
    var adding: [UInt64] = []
    /// Services that are on the network, with what they tell.
    var services: [AvahiService: (announcement: NearbyAnnouncement, place: NearbyPlace)] = [:]
    /// The same in an order that does not depend on hashes.
    var inOrder: [AvahiService] = []
    /// Those that this session's browsers have told of.
    var followed: Set<FollowedChannel> = []
    var hosts: [FollowedChannel: [NearbyHostSighting]] = [:]
    var told: Set<AvahiService> = []
    var probes: [(number: UInt64, at: Instant)] = []
    var list: [NearbyChannel] = []
    var nextPath = 0
    var checks = 0
    var wrong: [String] = []

    init(seed: UInt64) { random = SeededGenerator(seed: seed) }

    mutating func handle(_ event: Machine.Event) {
        take(machine.handle(event, at: now))
        check()
    }

    mutating func expect(_ holds: Bool, _ what: @autoclosure () -> String) {
        if !holds { wrong.append(what()) }
    }

    mutating func take(_ actions: [Machine.Action]) {
        for action in actions {
            switch action {
            case .open(let wish, let ticket):
                expect(isThere, "nothing is asked of an Avahi that is not there")
                asked.append((wish, ticket))
                if case .resolver(let service) = wish {
                    let isWanted = isBrowsing || !followed.isEmpty
                    expect(isWanted && told.contains(service), "a resolver is for a service that was told of")
                }
            case .register(let path, let offer, let ticket):
                expect(objects[path] == .group, "a service goes into a group")
                adding.append(ticket)
                check(offer)
            case .update(let path, let offer, _):
                expect(objects[path] == .group, "an update is of a group")
                check(offer)
            case .free(let kind, let path):
                let freed = objects.removeValue(forKey: path)
                expect(freed?.kind == kind, "what is freed was there")
                if let freed, pathOf[freed] == path { pathOf[freed] = nil }
            case .probe(let place, let number):
                expect(isBrowsing, "nobody is asked while nobody looks")
                expect(services.values.contains { $0.place.place == place } || !told.isEmpty, "a place is a service's")
                probes.append((number, now))
            case .report(let channels):
                expect(channels != list, "a report is news")
                list = channels
            case .startDaemon: expect(!isThere, "it is started when it is not there")
            case .hosts(let new):
                expect(new != hosts, "hosts are told when they have changed")
                expect(Set(new.keys).isSubset(of: followed), "hosts are those of followed channels")
                expect(new.values.allSatisfy { $0.count <= NearbyHostSighting.hostsMaximum }, "hosts are bounded")
                hosts = new
            case .askHostName, .endProbing, .problem, .announced: break
            }
        }
    }

    mutating func check(_ offer: AvahiOffer) {
        let one = try? NearbyAnnouncement(txt: offer.txt)
        expect(one.map { wanted[$0.channel] == $0 } == true, "what is announced is wanted")
        expect((1...63).contains(offer.instance.utf8.count), "a name fits")
    }

    mutating func check() {
        let sizes = machine.sizes
        expect(sizes.services <= NearbyFinder.servicesMaximum, "services are bounded")
        expect(sizes.resolvers <= NearbyFinder.servicesMaximum, "resolvers are bounded")
        expect(sizes.places <= NearbyFinder.servicesMaximum, "places are bounded")
        expect(sizes.early <= Machine.earlyMaximum, "early signals are bounded")
        let second = now - .seconds(1)
        probes.removeAll { $0.at <= second }
        let sent = probes.count
        expect(sent <= PlaceWatch.probesPerSecond, "probes are bounded: \(sent)")
        checks += 1
        // What looks at every object takes its time.
        guard checks % 16 == 0 else { return }
        let groups = objects.values.count { $0 == .group }
        expect(groups <= wanted.count, "no group of a withdrawn channel")
        let resolvers = objects.values.count { $0.kind == .resolver }
        expect(resolvers <= sizes.resolvers, "resolvers are freed")
        if !isBrowsing, followed.isEmpty { expect(objects.values.allSatisfy { $0 == .group }, "nothing is looked for") }
        expect(list.count <= Machine.channelsMaximum + NearbyAnnouncer.channelsMaximum, "the list is bounded")
    }

    /// Time passes; all deadlines on the way are kept, and there are not too many.
    mutating func pass(_ duration: Duration) {
        let end = now + duration
        var turns = 0
        while let deadline = machine.nextDeadline(at: now), deadline <= end {
            turns += 1
            guard turns < 20_000 else { return wrong.append("deadlines without end") }
            now = max(now, deadline)
            take(machine.handleTimeout(at: now))
            check()
            // Most hosts answer.
            for probe in probes where probe.at == now && random.chance(90) { handle(.answered(probe.number)) }
        }
        now = end
    }

    /// After a report is due, the list holds what is there and nothing else.
    mutating func checkList() {
        for channel in list {
            let one = channel.announcement
            let isOwn = wanted[one.channel] == one
            expect(channel.isOwn == isOwn, "own channels are marked")
            expect(
                isOwn || told.contains { services[$0]?.announcement.channel == one.channel },
                "no entry of a service that is lost")
            expect(channel.places.count <= NearbyChannel.placesMaximum, "places are bounded")
        }
        if !isBrowsing || !isThere { expect(list.allSatisfy(\.isOwn), "strangers are listed while somebody looks") }
    }
}

extension Model {
    func object(_ wish: Machine.Wish) -> DBusObjectPath? {
        pathOf[wish]
    }

    mutating func step() {
        // Rarely Avahi goes, and rarely nobody looks: else there would never be much.
        if random.chance(2), random.chance(5) { return isThere ? leave() : handle(.withdraw(ChannelID())) }
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<4 where !isThere:
            isThere = true
            handle(.daemonCame)
        case 4..<6 where !isBrowsing || random.chance(5):
            isBrowsing.toggle()
            if !isBrowsing, followed.isEmpty { told = [] }
            handle(.browse(isBrowsing))
        case 6..<7: follow()
        case 7..<14: announce()
        case 14..<18: withdraw()
        case 18..<36: appear()
        case 36..<46: disappear()
        case 46..<56: tell()
        case 56..<76: answerAvahi()
        case 76..<80: complain()
        case 80..<90:
            if let probe = probes.randomElement(using: &random), random.chance(90) { handle(.answered(probe.number)) }
        default: pass(.milliseconds(Int.random(in: 0...3_000, using: &random)))
        }
    }

    /// The channels of three of the numbers by which services are made, or none.
    private mutating func follow() {
        followed = []
        for _ in 0..<(random.chance(30) ? 3 : 0) {
            let number = Int.random(in: 0..<400, using: &random)
            followed.insert(FollowedChannel(channel: Self.channel(number), pin: Self.pin(number)))
        }
        if !isBrowsing, followed.isEmpty { told = [] }
        handle(.follow(followed))
    }

    private static func channel(_ number: Int) -> ChannelID {
        ChannelID(bytes: (0..<16).map { UInt8(truncatingIfNeeded: number &* ($0 + 1)) }) ?? ChannelID()
    }

    private static func pin(_ number: Int) -> PublicKeyPin { PublicKeyPin(subjectPublicKeyInfo: [UInt8(number % 3)]) }

    private mutating func leave() {
        isThere = false
        (objects, pathOf, asked, adding, told) = ([:], [:], [], [], [])
        handle(.daemonLeft(.notRunning))
    }

    private mutating func announce() {
        let known = wanted.values.sorted { "\($0.channel)" < "\($1.channel)" }
        var one = makeAnnouncement(
            "Own \(Int.random(in: 0..<4, using: &random))", channel: ChannelID(bytes: random.bytes(16)) ?? ChannelID())
        if let old = known.randomElement(using: &random), random.chance(60) || known.count >= 12 {
            one = old
            if random.chance(70) { one.members = Int.random(in: 0...99, using: &random) }
            if random.chance(10) { one.name = DisplayName(cleaning: "Own 9", fallback: "?") }
        }
        wanted[one.channel] = one
        handle(.announce(one, port: random.chance(95) ? 5_000 : 5_001))
    }

    private mutating func withdraw() {
        let known = wanted.keys.sorted { "\($0)" < "\($1)" }
        guard let id = known.randomElement(using: &random) else { return }
        wanted[id] = nil
        handle(.withdraw(id))
    }

    private mutating func appear() {
        let number = Int.random(in: 0..<400, using: &random)
        let id = Self.channel(number)
        let name = "n\(number) \(NearbyAnnouncer.tag(id, Self.pin(number)))"
        let service = makeService(name, interface: Int32.random(in: 1...2, using: &random))
        if services[service] == nil {
            guard let place = makePlace("10.0.\(number % 7).\(number / 7 + 1)") else { return }
            inOrder.append(service)
            services[service] = (makeAnnouncement("Crane \(number % 50)", channel: id, key: UInt8(number % 3)), place)
        }
        guard let browser = object(.browser) else { return }
        told.insert(service)
        handle(.signal(browser, .appeared(service)))
    }

    private mutating func disappear() {
        guard let index = inOrder.indices.randomElement(using: &random), inOrder.count > 40 || random.chance(20) else {
            return
        }
        inOrder.swapAt(index, inOrder.count - 1)
        let service = inOrder.removeLast()
        services[service] = nil
        if let browser = object(.browser) {
            told.remove(service)
            handle(.signal(browser, .disappeared(service)))
        }
    }

    private mutating func tell() {
        guard let service = inOrder.randomElement(using: &random), let path = object(.resolver(service)) else { return }
        if random.chance(5) { return handle(.signal(path, .failed("timeout"))) }
        guard var known = services[service] else { return }
        if random.chance(30) { known.announcement.members = Int.random(in: 0...99, using: &random) }
        services[service] = known
        let txt = random.chance(3) ? [random.bytes(40)] : known.announcement.txt
        handle(.signal(path, .found(service, known.place, txt: txt)))
    }

    private mutating func answerAvahi() {
        for _ in 0..<Int.random(in: 1...8, using: &random) {
            if !adding.isEmpty, random.chance(50) {
                let ticket = adding.remove(at: Int.random(in: adding.indices, using: &random))
                if random.chance(80) {
                    handle(.registered(ticket: ticket))
                } else {
                    handle(.refused(ticket: ticket, isCollision: random.chance(50), reason: "no"))
                }
            }
            guard !asked.isEmpty else { continue }
            let (wish, ticket) = asked.remove(at: Int.random(in: asked.indices, using: &random))
            if random.chance(5) {
                handle(.refused(ticket: ticket, isCollision: false, reason: "too many"))
                continue
            }
            nextPath += 1
            guard let path = try? DBusObjectPath("/Client/\(nextPath)") else { return }
            objects[path] = wish
            pathOf[wish] = path
            if random.chance(20), case .resolver(let service) = wish, let known = services[service] {
                // Before the path.
                take(
                    machine.handle(.signal(path, .found(service, known.place, txt: known.announcement.txt)), at: now))
            }
            take(machine.handle(.opened(wish.kind, ticket: ticket, path), at: now))
            if wish == .browser, objects[path] != nil {
                told.formIntersection(services.keys)
                for service in inOrder where told.contains(service) && random.chance(90) {
                    handle(.signal(path, .appeared(service)))
                }
                handle(.signal(path, .toldAll))
            }
        }
    }

    private mutating func complain() {
        let groups = objects.filter { $0.value == .group }.keys.sorted()
        guard let path = groups.randomElement(using: &random) else { return }
        let states: [Avahi.GroupState] = [.registering, .established, .established, .collision, .failure]
        handle(.signal(path, .group(states.randomElement(using: &random) ?? .failure, reason: "so")))
    }
}

@Suite struct ModelTests {
    @Test func `a hundred thousand steps`() {
        let seed = SeededGenerator.seed()
        var model = Model(seed: seed)
        var listed = 0
        for step in 0..<100_000 {
            model.step()
            if step % 50 == 0 {
                model.pass(Machine.reportPause)
                model.checkList()
                listed = max(listed, model.list.count)
            }
            guard model.wrong.isEmpty else {
                Issue.record("step \(step): \(model.wrong)")
                return
            }
        }
        #expect(listed > 60, "\(listed)")
        // Everything ends: nothing is left, and nothing is due.
        for id in model.wanted.keys { model.handle(.withdraw(id)) }
        model.wanted = [:]
        model.isBrowsing = false
        model.handle(.browse(false))
        model.followed = []
        model.handle(.follow([]))
        for (wish, ticket) in model.asked {
            model.nextPath += 1
            guard let path = try? DBusObjectPath("/Client/\(model.nextPath)") else { continue }
            model.objects[path] = wish
            model.handle(.opened(wish.kind, ticket: ticket, path))
        }
        model.pass(.seconds(1))
        #expect(model.objects.isEmpty && model.list.isEmpty && model.wrong.isEmpty)
        #expect(model.machine.nextDeadline(at: model.now) == nil)
        let sizes = model.machine.sizes
        #expect(sizes.services == 0 && sizes.resolvers == 0 && sizes.places == 0 && sizes.early == 0)
    }
}
