// What a relay's lists tell of channels, invitations and members, and what is the same at every start.
import RelayProtocol
import Testing

@testable import pttrelay

/// What the lists tell.
struct ProgramRecords: Equatable {
    /// What a command or a device has done, or was about to do.
    enum Change {
        case invite(uses: Int)
        case channel(String)
        case withdraw(Int64)
        case remove(String)
        case removeInvited(Int64)
        case enrol(String, by: Int64)

        /// The command, and what its output has when it is done.
        var command: (words: [String], answer: String) {
            switch self {
            case .invite(let uses): (["invite", "Team", "--new", "--uses", "\(uses)"], "ptt://")
            case .channel(let name): (["invite", name, "--end-to-end"], "#key=")
            case .withdraw(let number): (["revoke", "Team", "--invitation", "\(number)"], "\(number) is withdrawn")
            case .remove(let name): (["revoke", "Team", name], "is removed")
            case .removeInvited(let number):
                (["revoke", "Team", "--invitation", "\(number)", "--delete-members"], "\(number) is withdrawn")
            case .enrol: ([], "")
            }
        }
    }

    struct Invitation: Equatable {
        var state: String
        var used = 0
        var uses: Int?
    }
    struct Member: Equatable {
        var invitation: Int64
        var isRemoved = false
    }
    /// Those to Team, by their numbers.
    var invitations: [Int64: Invitation] = [1: Invitation(state: "standing")]
    /// Those of Team, by their names.
    var members: [String: Member] = [:]
    /// The open invitations to each other channel.
    var channels: [String: Int] = [:]

    static func listed(by program: RunningProgram) async throws -> ProgramRecords {
        var records = ProgramRecords(invitations: [:])
        for words in try await rows(["invite", "Team", "--list"], program) {
            let number = try #require(Int64(words[0]))
            let used = try #require(Int(words[2]))
            records.invitations[number] = Invitation(
                state: words[1], used: used, uses: words[3] == "of" ? Int(words[4]) : nil)
        }
        for words in try await rows(["members", "Team", "--all"], program) {
            let number = try #require(Int64(words[5]))
            records.members[words[1]] = Member(invitation: number, isRemoved: words[3] == "removed")
        }
        for words in try await rows(["channels"], program) { records.channels[words[0]] = Int(words[3]) }
        let team = records.channels.removeValue(forKey: "Team")
        let open = records.invitations.values.count { ["open", "standing"].contains($0.state) }
        #expect(team == open || records.isCut, "the lists differ in what is open")
        return records
    }

    private static func rows(_ words: [String], _ program: RunningProgram) async throws -> [[String]] {
        let outcome = try await program.command(words)
        try #require(outcome.status == 0, "\(words): \(outcome.errors)")
        return outcome.rows.dropFirst().map { row in row.split(separator: " ").map { String($0) } }
    }

    /// Whether there may be earlier invitations than are listed.
    var isCut: Bool { invitations.count >= AdministrationLimits.invitationsPerResponse }

    /// - Parameter made: The number of an invitation that was made.
    mutating func apply(_ change: Change, number made: Int64? = nil) {
        switch change {
        case .invite(let uses): if let made { invitations[made] = Invitation(state: "open", uses: uses) }
        case .channel(let name): channels[name] = 1
        case .withdraw(let number): invitations[number]?.state = "withdrawn"
        case .remove(let name):
            guard let member = members[name] else { return }
            members[name]?.isRemoved = true
            invitations[member.invitation]?.state = "withdrawn"
        case .removeInvited(let number):
            for (name, member) in members where member.invitation == number { members[name]?.isRemoved = true }
            invitations[number]?.state = "withdrawn"
        case .enrol(let name, let number):
            members[name] = Member(invitation: number)
            guard var invitation = invitations[number] else { return }
            invitation.used += 1
            if invitation.used == invitation.uses { invitation.state = "over" }
            invitations[number] = invitation
        }
    }

    /// Takes a change that may have happened over, whole, if one mark of it is in the lists.
    mutating func settle(_ change: Change, by listed: ProgramRecords) {
        let known = invitations
        switch change {
        case .invite(let uses):
            let made = listed.invitations.first { known[$0.key] == nil && $0.value.uses == uses }?.key
            apply(change, number: made)
        // The channel and its invitation are two steps.
        case .channel(let name): channels[name] = listed.channels[name]
        case .withdraw(let number): if listed.invitations[number]?.state == "withdrawn" { apply(change) }
        case .remove(let name): if listed.members[name]?.isRemoved == true { apply(change) }
        case .removeInvited(let number):
            if !listed.members.values.contains(where: { $0.invitation == number && !$0.isRemoved }) { apply(change) }
        case .enrol(let name, _): if listed.members[name] != nil { apply(change) }
        }
    }
}

/// What is the same at every start.
struct ProgramIdentity {
    private var files: [String: [UInt8]] = [:]
    private var standing: InvitationLink?

    init() {}

    /// Compares with what is there now; a kill may have come before some of it, but only at first.
    mutating func compare(_ program: RunningProgram, _ place: String) throws {
        let found = program.files()
        for name in ["identity.pem", "transport.key", "operator.token"] {
            let isSame = files[name] == nil || files[name] == found[name]
            #expect(isSame, "\(place): \(name) is another one")
            files[name] = found[name]
        }
        guard program.said.contains("\n") else { return }
        var link = try program.standing
        // The system chooses another port at every start.
        link.port = 1
        let isSame = standing == nil || standing == link
        #expect(isSame, "\(place): the standing link is another one")
        standing = link
    }
}

extension RunningProgram {
    /// The link that it has printed.
    var standing: InvitationLink { get throws { try InvitationLink(said.prefix { $0 != "\n" }) } }
}

extension RunningProgram.Outcome {
    /// The number of the invitation that was made.
    var invitation: Int64? {
        let line = errors.split(separator: "\n").first { $0.hasPrefix("invitation ") }
        return line.flatMap { Int64($0.dropFirst("invitation ".count)) }
    }
}
