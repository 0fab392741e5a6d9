// The members on the channel, as the relay reports them. Pure.
import RelayProtocol
import Vocabulary

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

    /// The member with this identifier. A member that was not announced gets its identifier as its name, and is still
    /// heard.
    func named(_ id: MemberID) -> RelayMember {
        members[id] ?? RelayMember(id: id.description, name: id.description)
    }
}
