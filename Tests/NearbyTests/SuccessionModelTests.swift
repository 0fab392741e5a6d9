// Members of a channel in a world of their own: machines are killed, ended, cut off and come back, and the channel goes on.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import Nearby

/// Five machines, of which the first has created the channel. Time goes in steps of 50 ms.
private struct Site {
    struct Hosting {
        var id: HostID
        var generation: UInt32
        var members: [Int] = []
    }

    struct Machine {
        var isOn = true
        var half = 0
        var rules: SuccessionStateMachine?
        var hosting: Hosting?
        /// The machine whose relay it is with.
        var host: Int?
        var places: [RelayPlace] = []
        var nextTry = 0
        /// Since when its host gives no answer.
        var silentSince: Instant?
        var verifyUntil: Instant?
        var seen: [NearbyHostSighting] = []
        var generation: UInt32 = 0
    }

    /// An announcement as a half of the network remembers it.
    struct Record: Hashable {
        var host: HostID
        var generation: UInt32
        var machine: Int
        var half: Int
    }

    static let step = Duration.milliseconds(50)
    var now = Instant.zero + .seconds(100)
    var random: SeededGenerator
    var machines: [Machine] = Array(repeating: Machine(), count: 5)
    /// When each record appears or has appeared, and when it is forgotten.
    var records: [Record: (from: Instant, until: Instant?)] = [:]
    var lastHost: UInt8 = 0
    var takeovers = 0
    var handovers = 0
    private var later: [(Instant, Int, SuccessionStateMachine.Event)] = []

    init(seed: UInt64) {
        random = SeededGenerator(seed: seed)
        host(0, generation: 0)
        for number in 1..<5 { machines[number].rules = SuccessionStateMachine(generation: 0, at: now) }
    }

    private func place(_ number: Int) -> RelayPlace { RelayPlace(host: "10.0.0.\(number + 1)", port: 5_000)! }

    mutating func host(_ number: Int, generation: UInt32) {
        lastHost &+= 1
        let id = makeHost(UInt8.random(in: 0...255, using: &random) ^ lastHost)
        machines[number].hosting = Hosting(id: id, generation: generation)
        announce(number)
    }

    private mutating func announce(_ number: Int) {
        guard let hosting = machines[number].hosting else { return }
        let record = Record(
            host: hosting.id, generation: hosting.generation, machine: number, half: machines[number].half)
        if records[record]?.until != nil || records[record] == nil {
            records[record] = (now + .milliseconds(Int.random(in: 20...300, using: &random)), nil)
        }
    }

    private mutating func forget(_ number: Int, after delay: Duration) {
        for (record, time) in records where record.machine == number && time.until == nil {
            records[record]?.until = now + delay
        }
    }

    /// The relay of a machine ends; its members learn of it at once, or when they ask.
    mutating func endHosting(_ number: Int, isAnnounced: Bool) {
        machines[number].hosting = nil
        forget(number, after: isAnnounced ? .milliseconds(1_050) : .milliseconds(1_050))
        for other in machines.indices where machines[other].host == number && isAnnounced && reaches(other, number) {
            lose(other, isAnnounced: true)
        }
    }

    private func reaches(_ one: Int, _ other: Int) -> Bool {
        machines[one].isOn && machines[other].isOn && (one == other || machines[one].half == machines[other].half)
    }

    private mutating func lose(_ number: Int, isAnnounced: Bool) {
        (machines[number].host, machines[number].verifyUntil, machines[number].silentSince) = (nil, nil, nil)
        machines[number].nextTry = 5
        handle(number, .linkLost(isAnnounced: isAnnounced))
    }

    mutating func handle(_ number: Int, _ event: SuccessionStateMachine.Event) {
        guard machines[number].isOn, let actions = machines[number].rules?.handle(event, at: now) else { return }
        for action in actions {
            switch action {
            case .reach(let places):
                machines[number].places = places
                machines[number].nextTry = 0
            case .verifyLink:
                if machines[number].verifyUntil == nil { machines[number].verifyUntil = now + .milliseconds(400) }
            case .serve(let generation):
                takeovers += 1
                host(number, generation: generation)
                machines[number].places = [place(number)]
                machines[number].nextTry = 0
                later.append((now + .milliseconds(20), number, .served(machines[number].hosting?.id)))
            case .check(let id, _):
                let isThere = machines.indices.contains { machines[$0].hosting?.id == id && reaches(number, $0) }
                later.append((now + .milliseconds(isThere ? 20 : 5_000), number, .checked(id, isThere: isThere)))
            case .standDown(let place):
                handovers += 1
                let members = machines.indices.filter { machines[$0].host == number }
                for member in members { machines[member].places = [place] }
                endHosting(number, isAnnounced: true)
            }
        }
    }

    mutating func advance() {
        now = now + Self.step
        let due = later.filter { $0.0 <= now }
        later.removeAll { $0.0 <= now }
        for (_, number, event) in due { handle(number, event) }
        records = records.filter { $0.value.until.map { $0 > now } ?? true }
        for number in machines.indices where machines[number].isOn {
            announce(number)
            link(number)
            look(number)
            while let deadline = machines[number].rules?.nextDeadline, deadline <= now { handle(number, .deadline) }
        }
    }

    private mutating func look(_ number: Int) {
        let half = machines[number].half
        let records = records.filter { $0.key.half == half && $0.key.machine != number && $0.value.from <= now }
        let seen = records.keys.sorted { $0.host < $1.host }.map {
            NearbyHostSighting(host: $0.host, generation: $0.generation, places: [place($0.machine)])
        }
        guard seen != machines[number].seen else { return }
        machines[number].seen = seen
        handle(number, .seen(seen))
    }

    private mutating func link(_ number: Int) {
        if let host = machines[number].host {
            if machines[host].hosting != nil, reaches(number, host) {
                if machines[number].verifyUntil.map({ $0 <= now }) == true { machines[number].verifyUntil = nil }
                machines[number].silentSince = nil
            } else {
                let since = machines[number].silentSince ?? now
                machines[number].silentSince = since
                let isFound = machines[number].verifyUntil.map { $0 <= now } ?? false
                if isFound || now - since > .seconds(45) { lose(number, isAnnounced: false) }
            }
            return
        }
        machines[number].nextTry -= 1
        guard machines[number].nextTry <= 0 else { return }
        machines[number].nextTry = 10
        // The places that were found, then the one in the link, which is the creator's.
        let targets = (machines[number].places + [place(0)]).compactMap { place in
            machines.indices.first { self.place($0) == place }
        }
        let open = targets.first { machines[$0].hosting != nil && reaches(number, $0) }
        guard let target = open, let hosting = machines[target].hosting else {
            return handle(number, .linkLost(isAnnounced: false))
        }
        machines[number].host = target
        machines[number].generation = max(machines[number].generation, hosting.generation)
        handle(number, .linkReady)
        tellOrder(of: target)
    }

    private mutating func tellOrder(of host: Int) {
        guard let hosting = machines[host].hosting else { return }
        let members = machines.indices.filter { machines[$0].host == host && $0 != host }
        for (turn, member) in members.enumerated() {
            handle(member, .told(generation: hosting.generation, host: hosting.id, turn: turn))
        }
    }

    // MARK: What happens to it

    mutating func fault() {
        let number = Int.random(in: 0..<5, using: &random)
        switch Int.random(in: 0..<10, using: &random) {
        case 0, 1, 2:
            guard machines[number].isOn else { return }
            if machines[number].hosting != nil { endHosting(number, isAnnounced: Bool.random(using: &random)) }
            machines[number].isOn = false
            (machines[number].host, machines[number].rules) = (nil, nil)
        case 3, 4, 5:
            guard !machines[number].isOn else { return }
            start(number)
        case 6, 7: move(number, to: 1 - machines[number].half)
        default: for one in machines.indices { move(one, to: 0) }
        }
    }

    mutating func start(_ number: Int) {
        let (half, generation) = (machines[number].half, machines[number].generation)
        machines[number] = Machine(half: half, generation: generation)
        if number == 0 {
            host(0, generation: 0)
        } else {
            machines[number].rules = SuccessionStateMachine(generation: generation, at: now)
        }
    }

    private mutating func move(_ number: Int, to half: Int) {
        guard machines[number].half != half else { return }
        // The half that it leaves remembers its announcement for a while.
        for (record, time) in records where record.machine == number && time.until == nil {
            records[record]?.until = now + .seconds(Int.random(in: 2...120, using: &random))
        }
        machines[number].half = half
    }

    /// What is wrong while nothing has happened for long.
    var complaint: String? {
        for half in 0...1 {
            let here = machines.indices.filter { machines[$0].isOn && machines[$0].half == half }
            let hosts = here.filter { machines[$0].hosting != nil }
            if here.isEmpty { continue }
            if hosts.count != 1 { return "\(hosts.count) hosts in half \(half) of \(here)" }
            for one in here where machines[one].host != hosts[0] {
                return "\(one) is with \(machines[one].host.map { "\($0)" } ?? "nobody"), the host is \(hosts[0])"
            }
        }
        return nil
    }
}

@Suite struct SuccessionModelTests {
    /// So long after the last fault each half has one host and everybody in it is on its channel: an idle link is found to be dead within
    /// 45 s, an announcement that nobody stands behind is forgotten within 120 s.
    private static let settling: Duration = .seconds(140)

    @Test(arguments: 1...8 as ClosedRange<UInt64>) func `whatever happens, each half of the network has one host`(
        seed: UInt64
    ) {
        var site = Site(seed: seed)
        var (steps, rounds) = (0, 0)
        while steps < 14_000 {
            for _ in 0..<Int.random(in: 1...6, using: &site.random) {
                site.fault()
                for _ in 0..<Int.random(in: 0...60, using: &site.random) {
                    site.advance()
                    steps += 1
                }
            }
            let end = site.now + Self.settling
            while site.now < end, steps < 1_000_000 {
                site.advance()
                steps += 1
                if site.complaint == nil, site.now > end + .seconds(-20) { break }
            }
            rounds += 1
            guard site.complaint == nil else {
                let complaint = site.complaint ?? ""
                #expect(Bool(false), "seed \(seed), round \(rounds): \(complaint)")
                return
            }
        }
        #expect(site.takeovers > 0)
    }

    @Test func `a host that is killed is replaced within three seconds, and the older one takes over again`() {
        var site = Site(seed: 1)
        for _ in 0..<40 { site.advance() }
        #expect(site.complaint == nil)
        site.endHosting(0, isAnnounced: false)
        site.machines[0].isOn = false
        for _ in 0..<60 { site.advance() }
        #expect(site.complaint == nil && site.takeovers == 1)
        site.start(0)
        for _ in 0..<100 { site.advance() }
        #expect(site.complaint == nil, "\(site.machines.map { ($0.host, $0.hosting?.generation, $0.seen.count) })")
        #expect(site.machines[0].hosting != nil && site.handovers == 1)
    }
}
