// Where the relay is looked for: its places, the addresses that a place is known to have, and whose turn it is. Pure.
import MonotonicTime
import QUIC
import RelayProtocol

/// A draining relay may name another address with a relay of the same key, and a channel nearby may be found at several
/// addresses. They are tried first, then the invitation's address, in turns until one admits the client. So the client
/// finds a relay that has returned even if the successor never appears.
struct RelayPlaces: Sendable {
    /// Maximum number of addresses in addition to the invitation's.
    static let successorsMaximum = 8

    private let home: RelayPlace
    private var successors: [RelayPlace] = []
    /// The place that the relay itself has named, until an attempt there has failed: others are only announced, by whomever.
    private var named: RelayPlace?
    /// A place that is one of the addresses of the invitation's name: whoever looks there finds it anyway.
    private var covered: RelayPlace?
    /// The next attempt's, among the successors and the invitation's place after them.
    private var turn = 0
    /// Where the attempt under way, or the link, leads.
    private(set) var current: RelayPlace

    init(home: RelayPlace) {
        self.home = home
        current = home
    }

    /// Whether there are several places, so that an attempt at one of them keeps the others waiting.
    var areSeveral: Bool { successors.contains { $0 != home } }

    /// The relay goes, and has named this place.
    mutating func follow(to place: RelayPlace) {
        if seededFault("a-successor-is-forgotten") { return }
        named = place
        move(to: [place])
    }

    /// The relay is found at these places now, the best one first.
    mutating func move(to places: [RelayPlace]) {
        successors = []
        let first = seededFault("an-announcement-counts-more-than-the-relay") ? nil : named
        for place in (first.map { [$0] } ?? []) + places
        where !successors.contains(place) && successors.count < Self.successorsMaximum {
            successors.append(place)
        }
        if successors == [home] { successors = [] }
        turn = 0
    }

    /// An attempt begins, and leads to `current`.
    mutating func attempt() {
        let turns = successors.contains(home) ? successors : successors + [home]
        current = turns[turn % turns.count]
        if !seededFault("only-the-successor-is-looked-for") { turn = (turn + 1) % turns.count }
    }

    /// The attempt has failed, or the link is lost.
    mutating func failed() {
        if current == named { named = nil }
        guard isCovered else { return }
        successors.removeAll { $0 == current }
        turn = 0
    }

    /// The invitation's name has the address of `current`, which is another node of its cluster.
    mutating func cover() { if isAway { covered = current } }

    private var isCovered: Bool { current == covered }

    /// Whether the relay is looked for elsewhere than where the invitation says.
    var isAway: Bool { current != home }

    /// What is there is not the relay's successor, whatever it is.
    mutating func giveUpSuccessor() {
        successors.removeAll { $0 == current }
        failed()
        turn = 0
    }

    /// The relay there has let the client in. A link that is lost is looked for where it was.
    mutating func joined() {
        // Where the invitation leads is where everybody else is, too.
        successors = current == home || isCovered ? [] : [current]
        named = nil
        turn = 0
    }
}

/// The relay's addresses, as looked up last, and this machine's routes to them when it last looked.
///
/// Between attempts a change of the network is worth an attempt at once when it gives the relay another way. What changes elsewhere,
/// an interface that has nothing to do with it say, is not. Every change is noted, also those while a connection is there: one that was
/// lost because there was no network is worth an attempt as soon as the same network is back.
struct KnownAddresses: Sendable {
    /// The most that are remembered.
    static let countMaximum = 16

    /// The way to an address by this machine's routes; nil: there is none. Nothing is sent.
    typealias Router = (SocketAddress) -> NetworkRoute?

    /// The addresses, in the order of the look-up.
    private(set) var addresses: [SocketAddress] = []
    private var routes: [NetworkRoute?] = []

    /// These are the relay's addresses.
    mutating func know(_ found: [SocketAddress], route: Router) {
        addresses = Array(found.prefix(Self.countMaximum))
        routes = addresses.map(route)
    }

    /// The network has changed.
    ///
    /// - Parameter isNumeric: The relay's place is an address instead of a name, so that no other address is to be found.
    /// - Returns: Whether an attempt may succeed that did not before, where none is under way.
    mutating func noteChange(_ news: NetworkChanges.News, isNumeric: Bool, route: Router) -> Bool {
        if seededFault("a-new-network-is-not-worth-an-attempt") { return false }
        guard !addresses.isEmpty else { return true }
        let before = routes
        routes = addresses.map(route)
        // Where none of the addresses can be reached, the name may have others by now.
        guard !isNumeric || routes.contains(where: { $0 != nil }) else { return false }
        return routes != before || news == .woke
    }
}

/// A name may have addresses that do not lead to the relay from here (one of IPv6 on a host without, say), so attempts
/// take turns, while the address that worked is kept.
struct AddressTurns {
    private var last: SocketAddress?
    private var isUnproven = false

    /// The address for the next attempt: of the relay's, the one after the last that was tried; nil without any.
    mutating func next(of addresses: [SocketAddress]) -> SocketAddress? {
        guard !addresses.isEmpty else { return nil }
        let index = last.flatMap(addresses.firstIndex(of:))
        let next = addresses[index.map { isUnproven ? ($0 + 1) % addresses.count : $0 } ?? 0]
        tries(next)
        return next
    }

    /// An attempt begins at that address, which may be one that another relay has named.
    mutating func tries(_ address: SocketAddress) {
        (last, isUnproven) = (address, !seededFault("another-address-has-no-turn"))
    }

    /// The relay does not answer at the address that was used last.
    mutating func failed() { if !seededFault("another-address-has-no-turn") { isUnproven = true } }

    /// The attempt reached the relay.
    mutating func succeeded() { isUnproven = false }
}
