// The services that Avahi finds, and their announcements. Pure.
import DBus
import MonotonicTime
import RelayProtocol

/// The services that Avahi's browser reports, each with its own resolver.
struct NearbyFinder {
    typealias Action = NearbyStateMachine.Action

    /// Services that are followed at a time, and so resolvers. Those that were there first are kept.
    static let servicesMaximum = 256
    /// Resolvers that are made at once, and then each second.
    static let resolversAtOnce = 64
    static let resolversPerSecond = 32
    /// The minimum time before another browser searches for services that the previous one had to drop.
    static let browserPause = Duration.seconds(10)

    private enum Browser {
        case none
        case opening(UInt64)
        case open(DBusObjectPath)
        case waiting(Instant)
    }

    private enum Resolver {
        /// In the queue.
        case none
        case opening(UInt64)
        case open(DBusObjectPath)
        case waiting(Instant)
    }

    /// The announcement of a service.
    struct Finding {
        var announcement: NearbyAnnouncement
        var place: NearbyPlace
    }

    private struct Service {
        /// Smaller numbers were there first.
        var order: UInt64
        var resolver = Resolver.none
        var failures = RetryPause()
        /// nil while nothing is known, and for what makes no sense.
        var finding: Finding?
    }

    /// What the names of the services that are followed contain; nil: all are followed.
    private var only: Set<String>?
    private var browser = Browser.none
    private var browserFailures = RetryPause()
    private var browserBegan = Instant.zero
    private var services: [AvahiService: Service] = [:]
    private var serviceOfTicket: [UInt64: AvahiService] = [:]
    private var serviceOfPath: [DBusObjectPath: AvahiService] = [:]
    private var queue: [AvahiService] = []
    /// Services that an earlier browser reported and this one has not reported yet.
    private var unconfirmed: Set<AvahiService> = []
    private var bucket: TokenBucket?
    private var nextOrder: UInt64 = 0
    /// Grows whenever `findings` may have changed.
    private(set) var changes = 0
    /// Services that were left out because there were too many, since they were last looked for.
    private(set) var leftOut = 0
    /// Services whose announcement makes no sense.
    private(set) var senseless = 0
    /// Why Avahi does not look for channels, as of its last refusal.
    private(set) var refusal: String?

    var count: Int { services.count }
    var resolverCount: Int { serviceOfPath.count + serviceOfTicket.count }

    /// Everything that is known, in the order in which it was found.
    var findings: [Finding] {
        services.values.filter { $0.finding != nil }.sorted { $0.order < $1.order }.compactMap(\.finding)
    }

    var isOpening: Bool {
        if case .opening = browser { return true }
        return !serviceOfTicket.isEmpty
    }

    /// When `handleTimeout` has something to do.
    mutating func nextDeadline(at now: Instant) -> Instant? {
        var deadlines: [Instant] = services.values.compactMap {
            if case .waiting(let time) = $0.resolver { time } else { nil }
        }
        switch browser {
        case .waiting(let time): deadlines.append(time)
        case .open where hasRoomAgain: deadlines.append(browserBegan + Self.browserPause)
        default: break
        }
        if !queue.isEmpty, let time = bucket?.nextToken(at: now) { deadlines.append(time) }
        return deadlines.min()
    }

    // MARK: Begin and end

    /// - Parameter only: What the names of the services that are followed contain; nil: all are followed. What is followed already stays
    ///   known when that changes.
    mutating func begin(
        only: Set<String>?, at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]
    ) {
        let isNew = if case .none = browser { true } else { false }
        guard isNew || only != self.only else { return }
        self.only = only
        for service in services.keys.filter({ !isWanted($0) }) { remove(service, &actions) }
        switch browser {
        case .none: break
        // It opens with the new names in mind.
        case .opening, .waiting: return
        case .open(let path): actions.append(.free(.browser, path))
        }
        bucket = bucket ?? TokenBucket(depth: Self.resolversAtOnce, perSecond: Self.resolversPerSecond, at: now)
        open(at: now, &tickets, &actions)
    }

    /// - Parameter isGone: Whether Avahi has gone, and its objects with it.
    mutating func end(isGone: Bool, _ actions: inout [Action]) {
        if !isGone {
            if case .open(let path) = browser { actions.append(.free(.browser, path)) }
            for path in serviceOfPath.keys.sorted() { actions.append(.free(.resolver, path)) }
        }
        let changes = changes + 1
        self = NearbyFinder()
        self.changes = changes
    }

    private mutating func open(at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]) {
        let ticket = tickets.next()
        browser = .opening(ticket)
        browserBegan = now
        leftOut = 0
        unconfirmed = Set(services.keys)
        actions.append(.open(.browser, ticket: ticket))
    }

    /// Whether services were dropped, and would fit now.
    private var hasRoomAgain: Bool { leftOut > 0 && services.count <= Self.servicesMaximum / 2 }

    private func isWanted(_ service: AvahiService) -> Bool {
        only.map { $0.contains { service.name.contains($0) } } ?? true
    }

    // MARK: What Avahi does

    /// - Returns: False when nobody waits for the object.
    mutating func opened(_ ticket: UInt64, _ path: DBusObjectPath) -> Bool {
        if case .opening(ticket) = browser {
            browser = .open(path)
            browserFailures = RetryPause()
            refusal = nil
            return true
        }
        guard let service = serviceOfTicket.removeValue(forKey: ticket) else { return false }
        services[service]?.resolver = .open(path)
        serviceOfPath[path] = service
        return true
    }

    mutating func refused(_ ticket: UInt64, reason: String, at now: Instant) {
        if case .opening(ticket) = browser {
            browser = .waiting(now + browserFailures.next())
            refusal = reason
        } else if let service = serviceOfTicket.removeValue(forKey: ticket) {
            wait(service, at: now)
        }
    }

    /// - Returns: Whether the object is one of this finder's.
    func knows(_ path: DBusObjectPath) -> Bool {
        if case .open(path) = browser { return true }
        return serviceOfPath[path] != nil
    }

    /// A signal of an object that it knows.
    ///
    /// - Returns: The places whose hosts have said something new.
    mutating func heard(
        _ signal: AvahiSignal, from path: DBusObjectPath, at now: Instant, _ tickets: inout Tickets,
        _ actions: inout [Action]
    ) -> [RelayPlace] {
        if case .open(path) = browser {
            switch signal {
            case .appeared(let service): appeared(service, at: now, &tickets, &actions)
            case .disappeared(let service): remove(service, &actions)
            case .toldAll:
                for service in unconfirmed.sorted(by: { order(of: $0) < order(of: $1) }) { remove(service, &actions) }
            case .failed(let reason):
                actions.append(.free(.browser, path))
                browser = .waiting(now + browserFailures.next())
                refusal = reason
            case .group, .found, .foundNowhere: break
            }
            return []
        }
        guard let service = serviceOfPath[path] else { return [] }
        switch signal {
        case .found(service, let place, let txt): return found(service, place, txt)
        case .foundNowhere(service): lose(service)
        case .failed:
            actions.append(.free(.resolver, path))
            serviceOfPath[path] = nil
            wait(service, at: now)
        default: break
        }
        return []
    }

    mutating func handleTimeout(at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]) {
        switch browser {
        case .waiting(let time) where time <= now: open(at: now, &tickets, &actions)
        case .open(let path) where hasRoomAgain && browserBegan + Self.browserPause <= now:
            actions.append(.free(.browser, path))
            open(at: now, &tickets, &actions)
        default: break
        }
        let due = services.filter {
            if case .waiting(let time) = $0.value.resolver { time <= now } else { false }
        }
        for (service, _) in due.sorted(by: { $0.value.order < $1.value.order }) {
            services[service]?.resolver = .none
            queue.append(service)
        }
        resolve(at: now, &tickets, &actions)
    }

    // MARK: Services

    private mutating func appeared(
        _ service: AvahiService, at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]
    ) {
        unconfirmed.remove(service)
        guard services[service] == nil, isWanted(service) else { return }
        guard services.count < Self.servicesMaximum else {
            leftOut += 1
            return
        }
        services[service] = Service(order: nextOrder)
        nextOrder += 1
        queue.append(service)
        resolve(at: now, &tickets, &actions)
    }

    private mutating func remove(_ service: AvahiService, _ actions: inout [Action]) {
        unconfirmed.remove(service)
        guard let removed = services.removeValue(forKey: service) else {
            if isWanted(service) { leftOut = max(0, leftOut - 1) }
            return
        }
        if removed.finding != nil { changes += 1 }
        switch removed.resolver {
        case .open(let path):
            serviceOfPath[path] = nil
            actions.append(.free(.resolver, path))
        // The object is freed when its path comes: nobody waits for it then.
        case .opening(let ticket): serviceOfTicket[ticket] = nil
        case .none: queue.removeAll { $0 == service }
        case .waiting: break
        }
    }

    private func order(of service: AvahiService) -> UInt64 { services[service]?.order ?? .max }

    private mutating func resolve(at now: Instant, _ tickets: inout Tickets, _ actions: inout [Action]) {
        while let service = queue.first, bucket?.take(at: now) == true {
            queue.removeFirst()
            let ticket = tickets.next()
            services[service]?.resolver = .opening(ticket)
            serviceOfTicket[ticket] = service
            actions.append(.open(.resolver(service), ticket: ticket))
        }
    }

    private mutating func wait(_ service: AvahiService, at now: Instant) {
        guard let pause = services[service]?.failures.next() else { return }
        services[service]?.resolver = .waiting(now + pause)
        lose(service)
    }

    private mutating func lose(_ service: AvahiService) {
        guard services[service]?.finding != nil else { return }
        services[service]?.finding = nil
        changes += 1
    }

    private mutating func found(_ service: AvahiService, _ place: NearbyPlace, _ txt: [[UInt8]]) -> [RelayPlace] {
        guard let announcement = try? NearbyAnnouncement(txt: txt) else {
            senseless += 1
            lose(service)
            return []
        }
        let old = services[service]?.finding
        services[service]?.failures = RetryPause()
        guard old?.announcement != announcement || old?.place != place else { return [] }
        services[service]?.finding = Finding(announcement: announcement, place: place)
        changes += 1
        return old?.announcement != announcement ? [place.place] : []
    }
}
