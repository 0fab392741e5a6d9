// A state machine with a clock and an Avahi that does what a test says.
import Cryptography
import DBus
import MonotonicTime
import RelayProtocol

@testable import Nearby

typealias Machine = NearbyStateMachine

/// Drives the machine, and keeps what it wants.
struct World {
    var machine = Machine()
    var now = Instant.zero + .seconds(100)
    var actions: [Machine.Action] = []
    var answersProbes = false
    private var nextPath = 0
    /// Avahi's objects, and what each is for.
    private(set) var objects: [DBusObjectPath: Machine.Wish] = [:]

    init(isThere: Bool = true) {
        if isThere { handle(.daemonCame) }
    }

    @discardableResult
    mutating func handle(_ event: Machine.Event) -> [Machine.Action] {
        let new = machine.handle(event, at: now)
        note(new)
        return new
    }

    /// Lets time pass, and does on the way what is due.
    @discardableResult
    mutating func pass(_ duration: Duration) -> [Machine.Action] {
        let end = now + duration
        var all: [Machine.Action] = []
        while let deadline = machine.nextDeadline(at: now), deadline <= end {
            now = max(now, deadline)
            let new = machine.handleTimeout(at: now)
            note(new)
            all += new
            if answersProbes { for (_, number) in new.probes { handle(.answered(number)) } }
        }
        now = end
        return all
    }

    private mutating func note(_ new: [Machine.Action]) {
        actions += new
        for case .free(_, let path) in new { objects[path] = nil }
    }

    /// Avahi makes what was asked for, and registers what was added; again and again, until nothing is asked for.
    mutating func answerAll() {
        while !actions.isEmpty {
            let waiting = actions
            actions = []
            for action in waiting {
                switch action {
                case .open(let wish, let ticket): make(wish, ticket)
                case .register(_, _, let ticket): handle(.registered(ticket: ticket))
                default: break
                }
            }
        }
    }

    /// Avahi makes an object.
    @discardableResult
    mutating func make(_ wish: Machine.Wish, _ ticket: UInt64) -> DBusObjectPath {
        actions.removeAll { $0 == .open(wish, ticket: ticket) }
        nextPath += 1
        let path: DBusObjectPath = try! DBusObjectPath("/Client1/Object\(nextPath)")
        objects[path] = wish
        handle(.opened(wish.kind, ticket: ticket, path))
        return path
    }

    var browser: DBusObjectPath? { objects.first { $0.value == .browser }?.key }
    var group: DBusObjectPath? { groups.first }
    var groups: [DBusObjectPath] { objects.filter { $0.value == .group }.keys.sorted() }

    func resolver(of service: AvahiService) -> DBusObjectPath? {
        objects.first { $0.value == .resolver(service) }?.key
    }

    /// Somebody's service is heard, and resolved.
    mutating func hear(_ service: AvahiService, _ announcement: NearbyAnnouncement, at place: String) {
        if let browser { handle(.signal(browser, .appeared(service))) }
        answerAll()
        tell(service, announcement, at: place)
    }

    mutating func tell(_ service: AvahiService, _ announcement: NearbyAnnouncement, at place: String) {
        guard let path = resolver(of: service), let place = makePlace(place) else { return }
        handle(.signal(path, .found(service, place, txt: announcement.txt)))
        pass(Machine.reportPause)
    }

    mutating func lose(_ service: AvahiService) {
        if let browser { handle(.signal(browser, .disappeared(service))) }
        pass(Machine.reportPause)
    }

    /// The list that was reported last.
    var list: [NearbyChannel] { machine.channels }
}

extension Machine.Wish {
    var kind: Avahi.Object {
        switch self {
        case .group: .group
        case .browser: .browser
        case .resolver: .resolver
        }
    }
}

func makeService(_ name: String, interface: Int32 = 2, six: Bool = false) -> AvahiService {
    AvahiService(interface: interface, networkProtocol: six ? 1 : 0, name: name, domain: "local")
}

func makePlace(_ address: String, port: UInt16 = 5_000) -> NearbyPlace? {
    NearbyPlace(address: address, port: port, zone: "eth0")
}

extension [Machine.Action] {
    var offers: [AvahiOffer] {
        compactMap {
            switch $0 {
            case .register(_, let offer, _), .update(_, let offer, _): offer
            default: nil
            }
        }
    }

    var probes: [(place: RelayPlace, number: UInt64)] {
        compactMap { if case .probe(let place, let number) = $0 { (place, number) } else { nil } }
    }

    var freed: [DBusObjectPath] { compactMap { if case .free(_, let path) = $0 { path } else { nil } } }

    var tickets: [UInt64] { compactMap { if case .open(_, let ticket) = $0 { ticket } else { nil } } }
}
