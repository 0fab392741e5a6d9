// What this end knows about the channel: its members, who may talk at the same time, and what the answer to a request
// for the floor would be. Pure.
import RelayProtocol
import Vocabulary

/// The floor as a client sees it: the mirror of the relay's rules, from `Welcome`, `FloorRules`, `FloorTaken` and `FloorIdle`.
///
/// Only the relay decides. This says beforehand what it would, so that a press that is going to be granted begins at once, and one
/// that is not is refused before anybody speaks into it.
public struct FloorView: Sendable {
    private var rules: ServerMessage.FloorRules
    private var priorities: [SSRC: UInt8] = [:]
    /// Whether nobody else has the floor, as far as the relay has said.
    public var isIdle: Bool { priorities.isEmpty }

    private var mode: FloorMode { rules.mode }
    /// The highest priority that this member's requests count with.
    public var priority: UInt8 { min(rules.priority, FloorPriority.emergency - 1) }

    /// What the relay said upon joining.
    public init(_ welcome: ServerMessage.Welcome) {
        rules = welcome.floorRules
        for taken in (welcome.floor.map { [$0] } ?? []) + welcome.moreFloors { self.taken(taken) }
    }

    /// How many may talk at once.
    public var talkersMaximum: Int { mode == .fullDuplex ? RelayProtocolLimits.talkersMaximum : 1 }

    /// What a request of this member's own priority would meet now, and what an emergency would; `nil` where the relay
    /// has not said how it decides.
    public var outlook: (normal: FloorOutlook, emergency: FloorOutlook)? {
        guard mode != .unspecified else { return nil }
        return (outlook(of: priority), outlook(of: FloorPriority.emergency))
    }

    /// Somebody else has the floor.
    public mutating func taken(_ taken: ServerMessage.FloorTaken) {
        // One at a time: whoever had it has it no more, whether that was told or not.
        if talkersMaximum == 1 { priorities = [:] }
        if priorities[taken.ssrc] != nil || priorities.count < RelayProtocolLimits.talkersMaximum {
            priorities[taken.ssrc] = taken.priority
        }
    }

    /// Changes the rules. Current priorities continue.
    public mutating func change(to rules: ServerMessage.FloorRules) { self.rules = rules }

    /// A burst is over.
    public mutating func idle(_ ssrc: SSRC) { priorities[ssrc] = nil }

    private func outlook(of asked: UInt8) -> FloorOutlook {
        if rules.isListenOnly { return .listenOnly }
        if priorities.count < talkersMaximum || priorities.values.contains(where: { overrides(asked, $0) }) {
            return .idle
        }
        return rules.hasQueue ? .queueable : .unknown
    }

    private func overrides(_ asked: UInt8, _ talker: UInt8) -> Bool {
        let emergency = FloorPriority.emergency
        if mode == .cutIn { return asked == emergency || talker != emergency }
        if asked == emergency || talker == emergency { return asked == emergency && talker != emergency }
        return rules.preemptionStep > 0 && Int(asked) >= Int(talker) + Int(rules.preemptionStep)
    }
}

extension FloorDenial {
    /// What a relay's refusal means here.
    init(_ denial: ServerMessage.FloorDeny) {
        self =
            switch denial.cause {
            case .anotherClientHasPermission: .taken
            case .receiveOnly: .listenOnly
            case .queueFull: .queueFull
            case .retryAfterNotExpired: .tooSoon(retryAfter: denial.retryAfter)
            case .internalError, .onlyOneParticipant, .noResources, .other:
                .refused(denial.phrase.isEmpty ? "\(denial.cause)" : denial.phrase)
            }
    }
}

extension FloorRevocation {
    /// What a relay's revocation means here.
    init(_ revocation: ServerMessage.FloorRevoke) {
        self =
            switch revocation.cause {
            case .mediaBurstTooLong: .talkTimeLimit
            case .preempted: .preempted(revocation.phrase)
            case .noPermission: .notPermitted
            case .onlyOneParticipant, .noResources, .other:
                .other(revocation.phrase.isEmpty ? "\(revocation.cause)" : revocation.phrase)
            }
    }
}

/// The members besides this one, by their identifiers.
struct MemberList {
    private var members: [MemberID: RelayMember] = [:]

    /// Takes a member, or what is new of a known one. Beyond `RelayClientCore.membersMaximum` they are not remembered.
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
