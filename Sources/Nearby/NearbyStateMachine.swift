// Channels on the local network: what is announced, what is found, what is shown. Pure: events and time go in, actions come out.
import Cryptography
import DBus
import MonotonicTime
import RelayProtocol

/// The rules of channels on the local network.
struct NearbyStateMachine {
    /// What happens.
    enum Event: Sendable {
        /// Avahi is on the bus.
        case daemonCame
        /// It has left the bus, or is not there to begin with.
        case daemonLeft(NearbyProblem)
        /// It says how it is with the host's name.
        case serverChanged(Avahi.ServerState)
        /// The host has this name on the network.
        case hostNamed(String)
        /// Somebody looks at the list, or nobody does any more.
        case browse(Bool)
        /// The hosts of these channels are wanted to be known, whether somebody looks at the list or not.
        case follow(Set<FollowedChannel>)
        /// This machine hosts the channel.
        case announce(NearbyAnnouncement, port: UInt16)
        /// It does no more.
        case withdraw(ChannelID)
        /// Avahi has made the object that was asked for under this ticket.
        case opened(Avahi.Object, ticket: UInt64, DBusObjectPath)
        /// The service of this ticket has been added and committed.
        case registered(ticket: UInt64)
        /// What was asked for under this ticket was refused.
        case refused(ticket: UInt64, isCollision: Bool, reason: String)
        /// An object of Avahi's has sent a signal.
        case signal(DBusObjectPath, AvahiSignal)
        /// A probe has been answered.
        case answered(UInt64)
    }

    /// An object that is requested from Avahi.
    enum Wish: Hashable, Sendable {
        case group
        case browser
        case resolver(AvahiService)
    }

    /// What is to be done.
    enum Action: Hashable, Sendable {
        case open(Wish, ticket: UInt64)
        /// Add the service to the group, and commit it.
        case register(DBusObjectPath, AvahiOffer, ticket: UInt64)
        /// Replace the TXT record of the group's service.
        case update(DBusObjectPath, AvahiOffer, ticket: UInt64)
        case free(Avahi.Object, DBusObjectPath)
        case probe(RelayPlace, number: UInt64)
        case askHostName
        /// Ask the bus to start Avahi.
        case startDaemon
        /// No probe is wanted for now.
        case endProbing
        /// The list has changed.
        case report([NearbyChannel])
        /// The hosts of the followed channels have changed, this machine's not among them.
        case hosts([FollowedChannel: [NearbyHostSighting]])
        /// Why nothing is found or announced has changed.
        case problem(NearbyProblem?)
        /// The network knows the channel by this name.
        case announced(ChannelID, instance: String)
    }

    /// Foreign channels that are listed. Those that were found first are kept.
    static let channelsMaximum = 128
    /// The least time between two reports.
    static let reportPause = Duration.milliseconds(50)
    /// Signals of objects whose path is not known yet: as many as the first resolvers can send.
    static let earlyMaximum = 256

    private var announcer = NearbyAnnouncer()
    private var finder = NearbyFinder()
    private var places = PlaceWatch()
    private var tickets = Tickets()
    private var early: [(path: DBusObjectPath, signal: AvahiSignal)] = []
    private var isThere = false
    private var isBrowsing = false
    private var followed: Set<FollowedChannel> = []
    private var hosts: [FollowedChannel: [NearbyHostSighting]] = [:]
    private var hasAskedForDaemon = false
    private var absence: NearbyProblem?
    private var hasTooMany = false
    private(set) var problem: NearbyProblem?
    /// What was reported last.
    private(set) var channels: [NearbyChannel] = []
    private var reportedAt: Instant?
    private var isReportDue = false
    /// Of which findings and announcements the places are watched, and whether they are.
    private var watched = (found: 0, announced: 0, isBrowsing: false)

    /// Foreign channels that were found and are not listed, because there are too many.
    private(set) var unlisted = 0
    /// The channels that this machine announces, or would.
    var announced: [ChannelID] { announcer.announced.map(\.channel) }
    /// Services that were found and are not followed, because there are too many.
    var leftOut: Int { finder.leftOut }
    /// Announcements that made no sense.
    var senseless: Int { finder.senseless }
    /// For tests: how much is kept.
    var sizes: (services: Int, resolvers: Int, places: Int, early: Int) {
        (finder.count, finder.resolverCount, places.count, early.count)
    }

    /// When `handleTimeout` has something to do; nil: not before the next event.
    mutating func nextDeadline(at now: Instant) -> Instant? {
        var deadlines = [announcer.nextDeadline, finder.nextDeadline(at: now), places.nextDeadline].compactMap { $0 }
        if isReportDue { deadlines.append(reportedAt.map { $0 + Self.reportPause } ?? now) }
        return deadlines.min()
    }

    /// Takes in what happened.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        switch event {
        case .daemonCame:
            isThere = true
            absence = nil
            actions.append(.askHostName)
            announcer.daemonCame(&tickets, &actions)
            look(at: now, &actions)
        case .daemonLeft(let problem):
            if isThere { hasAskedForDaemon = false }
            isThere = false
            absence = problem
            early = []
            announcer.daemonLeft()
            finder.end(isGone: true, &actions)
            listMayHaveChanged(at: now)
        case .serverChanged(let state): if isThere, state == .running { actions.append(.askHostName) }
        case .hostNamed(let name): announcer.hostNamed(name, &tickets, &actions)
        case .browse(let isWanted): browse(isWanted, at: now, &actions)
        case .follow(let channels):
            followed = channels
            look(at: now, &actions)
            listMayHaveChanged(at: now)
        case .announce(let announcement, let port):
            hasTooMany = !announcer.announce(announcement, port: port, at: now, &tickets, &actions)
            listMayHaveChanged(at: now)
        case .withdraw(let channel):
            announcer.withdraw(channel, &actions)
            hasTooMany = false
            listMayHaveChanged(at: now)
        case .opened(let object, let ticket, let path): opened(object, ticket, path, at: now, &actions)
        case .registered(let ticket): announcer.registered(ticket, at: now, &actions)
        case .refused(let ticket, let isCollision, let reason):
            announcer.refused(ticket, isCollision: isCollision, reason: reason, at: now, &tickets, &actions)
            finder.refused(ticket, reason: reason, at: now)
            listMayHaveChanged(at: now)
        case .signal(let path, let signal): heard(signal, from: path, at: now, &actions)
        case .answered(let number): if places.answered(number) { isReportDue = true }
        }
        finish(at: now, &actions)
        return actions
    }

    /// Does what is due.
    mutating func handleTimeout(at now: Instant) -> [Action] {
        var actions: [Action] = []
        announcer.handleTimeout(at: now, &tickets, &actions)
        finder.handleTimeout(at: now, &tickets, &actions)
        if places.handleTimeout(at: now, &tickets, &actions) { isReportDue = true }
        finish(at: now, &actions)
        return actions
    }

    private mutating func browse(_ isWanted: Bool, at now: Instant, _ actions: inout [Action]) {
        guard isWanted != isBrowsing else { return }
        isBrowsing = isWanted
        look(at: now, &actions)
        // The end is told at once.
        if !isWanted { reportedAt = nil }
        isReportDue = true
        listMayHaveChanged(at: now)
        if !isWanted { actions.append(.endProbing) }
    }

    /// Looks for what is wanted now.
    private mutating func look(at now: Instant, _ actions: inout [Action]) {
        guard isThere else { return }
        if isBrowsing {
            finder.begin(only: nil, at: now, &tickets, &actions)
        } else if !followed.isEmpty {
            let tags = Set(followed.map { NearbyAnnouncer.tag($0.channel, $0.pin) })
            finder.begin(only: tags, at: now, &tickets, &actions)
        } else {
            finder.end(isGone: false, &actions)
        }
    }

    private mutating func opened(
        _ object: Avahi.Object, _ ticket: UInt64, _ path: DBusObjectPath, at now: Instant, _ actions: inout [Action]
    ) {
        guard announcer.opened(ticket, path, at: now, &actions) || finder.opened(ticket, path) else {
            return actions.append(.free(object, path))
        }
        let waiting = early.filter { $0.path == path }
        early.removeAll { $0.path == path }
        for (_, signal) in waiting { heard(signal, from: path, at: now, &actions) }
    }

    private mutating func heard(
        _ signal: AvahiSignal, from path: DBusObjectPath, at now: Instant, _ actions: inout [Action]
    ) {
        if case .group(let state, let reason) = signal {
            if announcer.groupChanged(path, state, reason: reason, at: now, &tickets, &actions) { return }
        } else if finder.knows(path) {
            let revived = finder.heard(signal, from: path, at: now, &tickets, &actions)
            listMayHaveChanged(at: now)
            for place in revived { places.revive(place, at: now) }
            return
        }
        // Perhaps of an object whose path is still on its way.
        guard announcer.isOpening || finder.isOpening else { return }
        if early.count >= Self.earlyMaximum { early.removeFirst() }
        early.append((path, signal))
    }

    // MARK: What follows from all of it

    private mutating func listMayHaveChanged(at now: Instant) {
        let new = (finder.changes, announcer.changes, isBrowsing)
        guard watched != new else { return }
        watched = new
        isReportDue = true
        let foreign = finder.findings.filter { !announcer.announces($0.announcement) }
        // Without a list nobody asks for signs of life.
        places.watch(isBrowsing ? Set(foreign.map(\.place.place)) : [], at: now)
    }

    private mutating func finish(at now: Instant, _ actions: inout [Action]) {
        let newHosts = hostsNow()
        if newHosts != hosts {
            hosts = newHosts
            actions.append(.hosts(newHosts))
        }
        if !early.isEmpty, !announcer.isOpening, !finder.isOpening { early = [] }
        if isReportDue, reportedAt.map({ $0 + Self.reportPause <= now }) ?? true {
            isReportDue = false
            let new = list()
            if new != channels {
                reportedAt = now
                channels = new
                actions.append(.report(new))
            }
        }
        let isWanted = isBrowsing || !followed.isEmpty || !announcer.isEmpty
        if isWanted, !isThere, absence != nil, absence != .noBus, !hasAskedForDaemon {
            hasAskedForDaemon = true
            actions.append(.startDaemon)
        }
        if !isWanted { hasAskedForDaemon = false }
        let new = isWanted ? currentProblem : nil
        if new != problem {
            problem = new
            actions.append(.problem(new))
        }
    }

    private var currentProblem: NearbyProblem? {
        if let absence { return absence }
        if let refusal = announcer.refusal ?? finder.refusal { return .refused(refusal) }
        return hasTooMany
            ? .refused("one machine announces no more than \(NearbyAnnouncer.channelsMaximum) channels") : nil
    }

    /// The hosts of the followed channels as they are now.
    private func hostsNow() -> [FollowedChannel: [NearbyHostSighting]] {
        guard !followed.isEmpty else { return [:] }
        var found: [FollowedChannel: [HostID: [NearbyPlace]]] = [:]
        var generations: [HostID: UInt32] = [:]
        for finding in finder.findings {
            let announcement = finding.announcement
            let channel = FollowedChannel(channel: announcement.channel, pin: announcement.pin)
            guard followed.contains(channel), !announcer.announces(announcement) else { continue }
            let isKnown = found[channel]?[announcement.host] != nil
            guard isKnown || (found[channel]?.count ?? 0) < NearbyHostSighting.hostsMaximum else { continue }
            generations[announcement.host] = generations[announcement.host] ?? announcement.generation
            found[channel, default: [:]][announcement.host, default: []].append(finding.place)
        }
        return found.mapValues { hosts in
            hosts.sorted { $0.key < $1.key }.map { host, places in
                NearbyHostSighting(host: host, generation: generations[host] ?? 0, places: Self.best(places))
            }
        }
    }

    /// The places of one host, the best one first: in the order in which they were found, within each kind.
    private static func best(_ places: [NearbyPlace]) -> [RelayPlace] {
        let sorted = NearbyPlace.Kind.allCases.flatMap { kind in places.filter { $0.kind == kind } }
        return Array(sorted.prefix(NearbyChannel.placesMaximum).map(\.place))
    }

    /// The current list.
    private mutating func list() -> [NearbyChannel] {
        unlisted = 0
        guard isBrowsing else { return [] }
        struct Key: Hashable {
            var channel: ChannelID
            var pin: PublicKeyPin
        }
        var own: [Key: NearbyAnnouncement] = [:]
        for announcement in announcer.announced {
            own[Key(channel: announcement.channel, pin: announcement.pin)] = announcement
        }
        var foreign: [(key: Key, announcement: NearbyAnnouncement)] = []
        var found: [Key: [NearbyPlace]] = [:]
        for finding in finder.findings {
            let key = Key(channel: finding.announcement.channel, pin: finding.announcement.pin)
            guard own[key] != nil || places.isThere(finding.place.place) else { continue }
            // Of several that tell of the same channel, the first counts: whoever repeats it changes nothing.
            if own[key] == nil, found[key] == nil { foreign.append((key, finding.announcement)) }
            if found[key]?.contains(finding.place) != true { found[key, default: []].append(finding.place) }
        }
        unlisted = max(0, foreign.count - Self.channelsMaximum)
        let all =
            own.map { ($0.key, $0.value, true) }
            + foreign.prefix(Self.channelsMaximum).map { ($0.key, $0.announcement, false) }
        let listed = all.map { key, announcement, isOwn in
            NearbyChannel(announcement: announcement, places: Self.best(found[key] ?? []), isOwn: isOwn)
        }
        return listed.sorted(by: NearbyChannel.isBefore)
    }
}
