// Succession of hosts: who hosts a channel nearby when its host leaves, and which of several hosts stays. Pure: events
// and time go in, actions come out.
import MonotonicTime
import RelayProtocol

/// The rules of succession, as one member of a channel follows them.
///
/// All members know the order of their turns. A member that has lost its host searches for another one. If none is
/// announced before its turn, it becomes the host of the next generation. Of several hosts the one of the older
/// generation stays, and of equal generations the one with the smaller id. The others see it, check that it is
/// reachable, and send their members to it.
public struct SuccessionStateMachine: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// This member is on the channel.
        case linkReady
        /// Its host has sent its identity, and the number of members whose turn comes before this member's; nil: this
        /// member is not in the order.
        case told(generation: UInt32, host: HostID, turn: Int?)
        /// Its host is leaving and has named another one, to which its members go.
        case sent
        /// This member has lost the channel, or has still not joined it. `isAnnounced`: the host announced that it is
        /// leaving.
        case linkLost(isAnnounced: Bool)
        /// These hosts are announced, this machine not among them.
        case seen([NearbyHostSighting])
        /// This machine hosts the channel as the action asked, under this id; nil: it cannot.
        case served(HostID?)
        /// Whether a host that was to be checked has shown the channel's key.
        case checked(HostID, isThere: Bool)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Look for the channel at these addresses.
        case reach([RelayPlace])
        /// Probe the host: the link is lost if it does not answer.
        case verifyLink
        /// Host the channel, as this generation.
        case serve(generation: UInt32)
        /// Find out whether that host has the channel's key.
        case check(HostID, [RelayPlace])
        /// Send the members to that address, and stop hosting the channel.
        case standDown(to: RelayPlace)
    }

    /// How long a lost host may take to return before the first successor takes its turn, unless it announced its
    /// leaving.
    public static let returnTimeout: Duration = .milliseconds(500)
    /// The time between two turns: enough to host the channel, to announce that and to be seen.
    public static let turnInterval: Duration = .milliseconds(500)
    /// How long a host that is announced may take to let this member in, before it counts as gone.
    public static let joinTimeout: Duration = .seconds(3)
    /// How often the member whose turn comes first probes the host.
    public static let watchInterval: Duration = .seconds(1)
    /// How often the other members in the order probe it: a network may split between the first one and them.
    public static let furtherWatchInterval: Duration = .seconds(5)
    /// The time after which what has failed is tried again.
    public static let retryInterval: Duration = .seconds(5)
    /// How long a burst may continue when the host leaves, so that it leaves between bursts if possible. The rest of a
    /// second remains for the next host to announce itself and to be found. A burst in progress continues there.
    public static let leavingTime: Duration = .milliseconds(600)
    /// The same when another host takes over.
    public static let movingTime: Duration = .seconds(5)
    /// The turn of a member that is not in the order.
    public static let lastTurn = ServerMessage.Succession.orderMaximum

    private enum Role: Sendable, Equatable {
        case member
        /// This machine is about to host the channel.
        case starting(generation: UInt32)
        case host(generation: UInt32, id: HostID)
    }

    private enum Link: Sendable, Equatable {
        case ready
        case lost(since: Instant)
    }

    private var role = Role.member
    private var link: Link
    /// The newest generation that is known.
    private var generation: UInt32
    /// The host that this member is or was with.
    private var host: HostID?
    /// Where that host is or was announced.
    private var hostPlaces: [RelayPlace] = []
    /// The other hosts that were announced when the host sent its identity.
    private var knownBefore: Set<HostID> = []
    private var turn: Int?
    /// The host has named the next one.
    private var isSent = false
    private var sightings: [NearbyHostSighting] = []
    /// Since when nothing is left of the lost host.
    private var goneSince: Instant?
    /// Since when the link could be with another host.
    private var otherSince: Instant?
    private var watchAt: Instant?
    /// No turn is taken before.
    private var notBefore: Instant?
    /// Of hosts that would stay instead of this one: when each is checked again; nil: its check is under way.
    private var checks: [HostID: Instant?] = [:]
    private var reached: [RelayPlace] = []

    /// A member that is not on the channel yet.
    ///
    /// - Parameter generation: The newest one that is known.
    public init(generation: UInt32, at now: Instant) {
        self.generation = generation
        link = .lost(since: now)
    }

    /// Whether this machine hosts the channel.
    public var isHost: Bool { if case .host = role { true } else { false } }

    /// When `.deadline` must be delivered, at the latest; nil when there is nothing to wait for.
    public var nextDeadline: Instant? {
        switch (role, link) {
        case (.member, .ready): watchAt
        case (.member, .lost): turnAt
        case (.starting, _): nil
        case (.host, _): checks.values.compactMap(\.self).min()
        }
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .linkReady:
            link = .ready
            (goneSince, otherSince, notBefore, reached, isSent) = (nil, nil, nil, [], false)
            watch(at: now)
            return []
        case .sent:
            isSent = true
            return []
        case .told(let generation, let host, let turn):
            self.generation = max(self.generation, generation)
            if self.host != host {
                hostPlaces = []
                knownBefore = Set(sightings.map(\.host)).subtracting([host])
            }
            (self.host, self.turn) = (host, turn)
            noteHostPlaces()
            watch(at: now)
            return []
        case .linkLost(let isAnnounced): return lost(isAnnounced: isAnnounced, at: now)
        case .seen(let sightings): return seen(sightings, at: now)
        case .served(let id):
            guard case .starting(let generation) = role else { return [] }
            guard let id else {
                role = .member
                notBefore = now + Self.retryInterval
                return []
            }
            role = .host(generation: generation, id: id)
            checks = [:]
            // No order counts any more, unless another host has let this member in meanwhile.
            if link != .ready { turn = nil }
            self.generation = max(self.generation, generation)
            return checkBetterHosts(at: now)
        case .checked(let host, let isThere): return checked(host, isThere: isThere, at: now)
        case .deadline:
            guard let due = nextDeadline, due <= now else { return [] }
            switch role {
            case .member where link == .ready:
                watch(at: now)
                return seededFault("nobody-looks-after-the-host") ? [] : [.verifyLink]
            case .member:
                // A host may have told any number.
                let next = generation == .max ? .max : generation + 1
                if seededFault("a-lost-host-is-not-replaced") {
                    notBefore = now + Self.retryInterval
                    return []
                }
                role = .starting(generation: next)
                isSent = false
                return [.serve(generation: next)]
            case .starting: return []
            case .host: return checkBetterHosts(at: now)
            }
        }
    }

    // MARK: A member

    private mutating func watch(at now: Instant) {
        guard link == .ready, let turn else { return watchAt = nil }
        watchAt = now + (turn == 0 ? Self.watchInterval : Self.furtherWatchInterval)
    }

    private mutating func lost(isAnnounced: Bool, at now: Instant) -> [Action] {
        if link == .ready {
            link = .lost(since: now)
            (goneSince, otherSince) = (nil, isSent ? now : nil)
        }
        if isAnnounced, goneSince == nil { goneSince = now }
        return lookElsewhere(at: now)
    }

    private mutating func seen(_ new: [NearbyHostSighting], at now: Instant) -> [Action] {
        let known = Set(sightings.map(\.host))
        sightings = new
        noteHostPlaces()
        let hosts = Set(new.map(\.host))
        if case .host = role { return checkBetterHosts(at: now) }
        guard link == .ready else { return lookElsewhere(at: now) }
        // The host has gone, or members have a reason to believe it: is it there?
        let hasVanished = host.map { known.contains($0) && !hosts.contains($0) } ?? false
        return hasVanished || !hosts.subtracting(known).subtracting([host].compactMap(\.self)).isEmpty
            ? [.verifyLink] : []
    }

    private mutating func noteHostPlaces() {
        if let own = sightings.first(where: { $0.host == host }) { hostPlaces = own.places }
    }

    /// Whether that announcement is a cached one of an earlier run of this member's host: it existed before the host
    /// sent its identity, and has an address that only one of the two can have.
    private func isEarlierLife(_ sighting: NearbyHostSighting) -> Bool {
        knownBefore.contains(sighting.host) && sighting.places.contains(where: hostPlaces.contains)
    }

    /// Goes to where the channel is announced, the lost host last: it may be back.
    private mutating func lookElsewhere(at now: Instant) -> [Action] {
        guard case .member = role, link != .ready else { return [] }
        let others = sightings.filter { $0.host != host && !isEarlierLife($0) }.sorted(by: Self.isBefore)
        let former = sightings.filter { $0.host == host || isEarlierLife($0) }
        let isAnnounced = former.contains { $0.host == host }
        if !isAnnounced, host != nil, goneSince == nil { goneSince = now }
        // A host that was named is waited for like one that is announced: that may come later.
        if others.isEmpty, !isSent { otherSince = nil } else if otherSince == nil { otherSince = now }
        let places = (others + former).flatMap(\.places)
        guard places != reached else { return [] }
        reached = places
        return places.isEmpty || seededFault("nobody-looks-for-the-next-host") ? [] : [.reach(places)]
    }

    /// When this member becomes the host, unless another one is there before.
    private var turnAt: Instant? {
        guard case .lost(let since) = link else { return nil }
        let own = Self.turnInterval * (turn ?? Self.lastTurn)
        let due = min(since + Self.returnTimeout, goneSince ?? since + Self.returnTimeout) + own
        let other = otherSince.map { $0 + Self.joinTimeout + own } ?? due
        return [due, other, notBefore ?? due].max()
    }

    // MARK: A host

    /// Checks the hosts that stay when they meet this one.
    private mutating func checkBetterHosts(at now: Instant) -> [Action] {
        guard case .host(let generation, let id) = role, !seededFault("a-host-looks-for-no-other-one") else {
            return []
        }
        let own = NearbyHostSighting(host: id, generation: generation, places: [])
        let better = sightings.filter { Self.isBefore($0, own) }.sorted(by: Self.isBefore)
        checks = checks.filter { host, _ in better.contains { $0.host == host } }
        return better.compactMap { host in
            if let check = checks[host.host], check.map({ $0 > now }) ?? true { return nil }
            checks[host.host] = .some(nil)
            return .check(host.host, host.places)
        }
    }

    private mutating func checked(_ host: HostID, isThere: Bool, at now: Instant) -> [Action] {
        guard isHost, checks[host] == .some(nil) else { return [] }
        guard isThere || seededFault("an-announcement-is-believed"),
            let better = sightings.first(where: { $0.host == host }), let place = better.places.first
        else {
            // An announcement that nobody stands behind: a stranger's, or one that the network still remembers.
            checks[host] = now + Self.retryInterval
            return []
        }
        role = .member
        checks = [:]
        generation = better.generation
        // It may be on that one's channel already, and know its turn there.
        if self.host != host { turn = nil }
        if link != .ready {
            // It goes there like any other member, and has as long for it.
            link = .lost(since: now)
            (goneSince, otherSince, reached) = (nil, nil, [])
        }
        return [.standDown(to: place)] + lookElsewhere(at: now)
    }

    private static func isBefore(_ lhs: NearbyHostSighting, _ rhs: NearbyHostSighting) -> Bool {
        if seededFault("the-younger-host-stays") { return (lhs.generation, lhs.host) > (rhs.generation, rhs.host) }
        return (lhs.generation, lhs.host) < (rhs.generation, rhs.host)
    }
}
