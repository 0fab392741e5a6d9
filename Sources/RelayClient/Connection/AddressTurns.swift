// Chooses the next address of a relay to try. Pure.
import QUIC

/// A name may have addresses that do not lead to the relay from here (one of IPv6 on a host without, say), so attempts
/// take turns, while the address that worked is kept.
struct AddressTurns {
    private var turn = 0
    private var isUnproven = false

    /// The address for the next attempt; nil without any.
    mutating func next(of addresses: [SocketAddress]) -> SocketAddress? {
        guard !addresses.isEmpty else { return nil }
        if isUnproven { turn = (turn + 1) % addresses.count }
        isUnproven = true
        return addresses[turn % addresses.count]
    }

    /// The relay does not answer at the address that was used last.
    mutating func failed() { isUnproven = true }

    /// The attempt reached the relay.
    mutating func succeeded() { isUnproven = false }
}
