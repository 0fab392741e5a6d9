// The channels nearby that somebody is joining: what a failed join takes back, and what it leaves to others.
import RelayProtocol

/// The joins of channels nearby that are under way.
///
/// A channel is in the record before its join is over, because its link is made within the join and looks there. Several callers may
/// join at the same time, also the same channel: a join that fails takes back only what nobody else has joined.
struct NearbyEntries {
    private struct Entry {
        var joinsUnderWay = 0
        /// It was joined before, or by one of the joins.
        var isJoined: Bool
    }

    /// No entry while nobody is joining a channel.
    private var entries: [ChannelID: Entry] = [:]

    /// Somebody begins to join a channel.
    mutating func begin(_ channel: ChannelID, in record: inout NearbyRecord) {
        let isJoined = record.joined.contains("\(channel)")
        entries[channel, default: Entry(isJoined: isJoined)].joinsUnderWay += 1
        if !isJoined { record.joined.append("\(channel)") }
    }

    /// A join that began is over.
    mutating func end(_ channel: ChannelID, isJoined: Bool, in record: inout NearbyRecord) {
        if isJoined { record.join(channel) }
        guard var entry = entries[channel] else { return }
        entry.joinsUnderWay -= 1
        entry.isJoined = entry.isJoined || isJoined
        entries[channel] = entry.joinsUnderWay > 0 ? entry : nil
        if entry.joinsUnderWay == 0, !entry.isJoined { record.forget(channel, besidesMembership: true) }
    }
}
