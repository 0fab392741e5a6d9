// Who hosts a channel when this relay goes: the members who offered to, in the order in which they did.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// A member offers to host the channel. It gets what it needs for that, and the members whose turn comes before its
    /// own.
    mutating func offerSuccession(_ id: ConnectionID, channel number: Int) -> [Action] {
        let configuration = channels[number].configuration
        guard configuration.succession != nil, !channels[number].successors.contains(id),
            let member = channels[number].members[id]?.id, member != configuration.hostMember
        else { return [] }
        channels[number].successors.append(id)
        return tellSuccession(of: number, to: changesOrder(number) ? channels[number].successors : [id])
    }

    /// A member is there no more.
    mutating func withdrawSuccession(_ id: ConnectionID, channel number: Int) -> [Action] {
        guard let index = channels[number].successors.firstIndex(of: id) else { return [] }
        channels[number].successors.remove(at: index)
        guard index < ServerMessage.Succession.orderMaximum else { return [] }
        return tellSuccession(of: number, to: channels[number].successors)
    }

    /// Whether the last member that offered is in the published order.
    private func changesOrder(_ number: Int) -> Bool {
        channels[number].successors.count <= ServerMessage.Succession.orderMaximum
    }

    private func tellSuccession(of number: Int, to ids: [ConnectionID]) -> [Action] {
        guard let succession = channels[number].configuration.succession, !ids.isEmpty,
            !seededFault("nobody-is-told-how-to-host")
        else { return [] }
        let order = channels[number].successors.prefix(ServerMessage.Succession.orderMaximum)
            .compactMap { channels[number].members[$0]?.id }
        return [.send(.succession(succession.with(order: order)), to: ids)]
    }
}
