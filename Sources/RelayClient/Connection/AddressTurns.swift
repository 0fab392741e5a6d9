// Chooses the next address of a relay to try. Pure.
import MonotonicTime
import QUIC

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
