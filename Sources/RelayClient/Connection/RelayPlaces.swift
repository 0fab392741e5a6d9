// Where a client looks for its relay: where the invitation says, or where the relay itself has sent it. Pure.
import MonotonicTime
import RelayProtocol

/// A relay that goes down may name another place, where a relay of the same key is. It is tried first, then the invitation's place, in
/// turns until one lets the client in: so neither a successor that never comes nor a relay that is back is missed.
struct RelayPlaces: Sendable {
    private let home: RelayPlace
    private var successor: RelayPlace?
    private var isHomesTurn = false
    /// Where the attempt under way, or the link, leads.
    private(set) var current: RelayPlace

    init(home: RelayPlace) {
        self.home = home
        current = home
    }

    /// The relay goes down, and says where to go on.
    mutating func move(to place: RelayPlace) {
        if seededFault("a-successor-is-forgotten") { return }
        successor = place == home ? nil : place
        isHomesTurn = false
    }

    /// An attempt begins, and leads to `current`.
    mutating func attempt() {
        guard let successor else {
            current = home
            return
        }
        current = isHomesTurn ? home : successor
        if !seededFault("only-the-successor-is-looked-for") { isHomesTurn.toggle() }
    }

    /// Whether the relay is looked for elsewhere than where the invitation says.
    var isAway: Bool { current != home }

    /// What is there is not the relay's successor, whatever it is.
    mutating func giveUpSuccessor() { successor = nil }

    /// The relay there has let the client in.
    mutating func joined() {
        // Where the invitation leads is where everybody else is, too.
        if current == home { successor = nil }
        // A link that is lost is looked for where it was.
        isHomesTurn = false
    }
}
