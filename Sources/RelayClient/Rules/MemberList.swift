// Who is on the channel, as far as the relay told. Pure.
import RelayProtocol

/// The members besides this one, by their identifiers.
struct MemberList {
    private var members: [MemberID: RelayMember] = [:]

    /// Takes a member, or what is new of a known one. Beyond `RelayClientCore.membersMaximum` they are not remembered.
    @discardableResult
    mutating func remember(_ member: ServerMessage.Member) -> RelayMember {
        let known = RelayMember(id: member.id.description, name: member.displayName.text)
        if members[member.id] != nil || members.count < RelayClientCore.membersMaximum { members[member.id] = known }
        return known
    }

    /// Takes one out; nil: it was not known.
    mutating func forget(_ id: MemberID) -> RelayMember? { members.removeValue(forKey: id) }

    /// Who that is. One that was not announced goes under its identifier: it is heard nevertheless.
    func named(_ id: MemberID) -> RelayMember {
        members[id] ?? RelayMember(id: id.description, name: id.description)
    }
}
