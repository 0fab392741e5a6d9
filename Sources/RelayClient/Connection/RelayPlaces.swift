// The addresses at which a client looks for its relay: the invitation's, and those that the relay named as its
// successors. Pure.
import MonotonicTime
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
