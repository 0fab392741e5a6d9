// The addresses of the relay that a link knows, and the routes that led to them. Pure.
import MonotonicTime
import QUIC

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
