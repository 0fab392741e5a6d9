// Who hosts a channel when this relay goes: the members who offered to, in the order in which they did. Pure.
import MonotonicTime
import RelayProtocol

/// The members that offered to host one channel after this relay.
struct ChannelSuccession: Sendable {
    private var offers: [(connection: ConnectionID, member: MemberID)] = []

    /// Their connections, in the order of the offers.
    var connections: [ConnectionID] { offers.map(\.connection) }

    /// A member offers to host the channel. It gets what it needs for that, and the members whose turn comes before its
    /// own.
    mutating func offer(_ member: ChannelMember, _ channel: RelayChannelConfiguration) -> [RelayAction] {
        let id = member.connection
        guard channel.succession != nil, !connections.contains(id), member.id != channel.hostMember else { return [] }
        offers.append((id, member.id))
        // Behind the published order, it changes nothing for the others.
        return tell(offers.count <= ServerMessage.Succession.orderMaximum ? connections : [id], channel)
    }

    /// A member is there no more.
    mutating func withdraw(_ id: ConnectionID, _ channel: RelayChannelConfiguration) -> [RelayAction] {
        guard let index = connections.firstIndex(of: id) else { return [] }
        offers.remove(at: index)
        return index < ServerMessage.Succession.orderMaximum ? tell(connections, channel) : []
    }

    private func tell(_ ids: [ConnectionID], _ channel: RelayChannelConfiguration) -> [RelayAction] {
        guard let succession = channel.succession, !ids.isEmpty, !seededFault("nobody-is-told-how-to-host") else {
            return []
        }
        let order = offers.prefix(ServerMessage.Succession.orderMaximum).map(\.member)
        return [.send(.succession(succession.with(order: order)), to: ids)]
    }
}
