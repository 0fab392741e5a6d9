// pttrelay members, revoke, readmit and channels: lists, removes and readmits members.
import ArgumentParser
import RelayProtocol
import RelayServer
import Terminal

/// Lists a channel's members.
struct MembersCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "members", abstract: "List the members of a channel.",
        discussion: """
            A member is a device that has enrolled with an invitation. 'on' marks members that are connected now. NAME \
            NOW is the name that a member uses now, if it differs from the one it enrolled by.
            """)

    @Argument(help: "The channel's name.") var channel: String
    @OptionGroup var relay: RelayOptions
    @Flag(help: "Also list removed members.") var all = false

    func run() throws {
        try relay.administer { administration in
            var rows = [["MEMBER", "NAME", "NAME NOW", "STATE", "PRIORITY", "INVITATION", "ENROLLED"]]
            var next: String?
            repeat {
                let request = AdministrationRequest.members(channel: .named(channel), after: next)
                guard case .members(let page, let following) = try await administration.ask(request) else { return }
                rows += page.filter { all || $0.revokedAt == nil }.map(Self.row)
                next = following
            } while next != nil
            for line in table(rows) { Console.say(line) }
        }
    }

    static func row(_ member: AdministrationResponse.MemberLine) -> [String] {
        let state = member.revokedAt != nil ? "removed" : member.isConnected.map { $0 ? "on" : "off" } ?? "-"
        return [
            member.id, member.name, member.nameNow.flatMap { $0 == member.name ? nil : $0 } ?? "-", state,
            member.isListenOnly ? "listens" : "\(member.priority)",
            "\(member.invitation)", timeText(member.enrolledAt),
        ]
    }
}

/// Removes a member, or withdraws an invitation.
struct RevokeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "revoke", abstract: "Remove a member from a channel, or withdraw an invitation.",
        discussion: """
            The member's connection ends at once, the relay renews the channel's media key, and the device is not \
            admitted again with any link. Its invitation is withdrawn, so that the same link does not admit another \
            device of the same person; other members who enrolled with it stay. --keep-invitation leaves it open. \
            --invitation withdraws an invitation, and removes its members only with --delete-members.
            """)

    @Argument(help: "The channel's name.") var channel: String
    @Argument(
        help: "The member: its identifier, the beginning of it, the name it enrolled by, or the one it is connected by."
    )
    var member: String?
    @Option(help: ArgumentHelp("Withdraw this invitation instead.", valueName: "number")) var invitation: Int64?
    @Flag(help: "Remove all members who came by the invitation, too.") var deleteMembers = false
    @Flag(help: "Leave the member's invitation open for other devices.") var keepInvitation = false
    @OptionGroup var relay: RelayOptions

    func validate() throws {
        guard (member == nil) != (invitation == nil) else {
            throw ValidationError("give a member, or --invitation with a number")
        }
        if deleteMembers, invitation == nil { throw ValidationError("--delete-members is for --invitation") }
        if keepInvitation, invitation != nil { throw ValidationError("--keep-invitation is for a member") }
    }

    func run() throws {
        try relay.administer { administration in
            if let invitation, deleteMembers {
                let request = AdministrationRequest.revokeInvited(channel: .named(channel), invitation: invitation)
                guard case .removedInvited(let count, let removal) = try await administration.ask(request) else {
                    return
                }
                for sentence in Self.sentences(invitation, count, removal, channel: channel) { Console.say(sentence) }
                return
            }
            if let invitation {
                _ = try await administration.ask(.withdraw(channel: .named(channel), invitation: invitation))
                return Console.say("invitation \(invitation) is withdrawn; members who enrolled with it stay")
            }
            let request = AdministrationRequest.revoke(
                channel: .named(channel), member: member ?? "", keepsInvitation: keepInvitation)
            guard case .removed(let line, let removal) = try await administration.ask(request) else { return }
            for sentence in Self.sentences(line, removal, channel: channel) { Console.say(sentence) }
        }
    }

    static func sentences(
        _ member: AdministrationResponse.MemberLine, _ removal: AdministrationResponse.Removal, channel: String
    ) -> [String] {
        var sentences = ["\(member.fullName) (\(member.id)) is removed" + (removal.wasRevoked ? " already" : "")]
        if removal.hasNewStandingInvitation {
            sentences.append(newStanding(channel))
        } else if removal.hasWithdrawnInvitation {
            sentences.append("invitation \(member.invitation) is withdrawn; other members who enrolled with it stay")
        }
        return sentences + (removal.isEndToEnd ? [newKey(channel, whoHasIt: "\(member.name) has it")] : [])
    }

    static func sentences(
        _ invitation: Int64, _ count: Int, _ removal: AdministrationResponse.Removal, channel: String
    ) -> [String] {
        let members =
            count == 0 ? "it had no members" : count == 1 ? "its member is removed" : "its \(count) members are removed"
        let isNew = removal.hasWithdrawnInvitation
        var sentences = ["invitation \(invitation) is withdrawn\(isNew ? "" : " already"), and \(members)"]
        if removal.hasNewStandingInvitation { sentences.append(newStanding(channel)) }
        if removal.isEndToEnd, count > 0 { sentences.append(newKey(channel, whoHasIt: "the removed members have it")) }
        return sentences
    }

    private static func newStanding(_ channel: String) -> String {
        "the channel has a new standing invitation: 'pttrelay invite \(channel)' prints it"
    }

    private static func newKey(_ channel: String, whoHasIt: String) -> String {
        """
        The media key of this channel is in its members' links, and \(whoHasIt): recorded network traffic can still be \
        decrypted with it. Make a new link with 'pttrelay invite \(channel) --end-to-end --new-key', and have every \
        member enrol with that.
        """
    }
}

/// Lets a member that was removed in again, or changes what one may do.
struct ReadmitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "readmit", abstract: "Let a removed member in again, or change what a member may do.",
        discussion: "The device needs no new link: it is known by its key. It joins again when its user joins.")

    @Argument(help: "The channel's name.") var channel: String
    @Argument(
        help: "The member: its identifier, the beginning of it, the name it enrolled by, or the one it is connected by."
    )
    var member: String
    @Option(help: ArgumentHelp("The name in lists; the device has its own.", valueName: "name")) var name: String?
    @Option(help: ArgumentHelp("The highest priority of its requests to talk, from 0 to 254.", valueName: "number"))
    var priority: UInt8?
    @Flag(inversion: .prefixedNo, help: "Whether it may only listen.") var listenOnly: Bool?
    @OptionGroup var relay: RelayOptions

    func validate() throws {
        guard priority ?? 0 <= RelayMembership.priorityMaximum else {
            throw ValidationError("--priority is 0 to \(RelayMembership.priorityMaximum)")
        }
    }

    func run() throws {
        try relay.administer { administration in
            let request = AdministrationRequest.readmit(
                channel: .named(channel), member: member,
                MemberChange(name: name, priority: priority, isListenOnly: listenOnly))
            guard case .member(let line) = try await administration.ask(request) else { return }
            Console.say(
                "\(line.fullName) (\(line.id)) is a member, "
                    + (line.isListenOnly ? "and listens" : "with priority \(line.priority)"))
        }
    }
}

/// Lists the channels.
struct ChannelsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "channels", abstract: "List the channels with the number of their members.")

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            var rows = [["CHANNEL", "MEMBERS", "ON", "INVITATIONS", "MEDIA KEY"]]
            rows += try await administration.channels().map {
                [
                    $0.name, "\($0.members)", $0.connected.map { "\($0)" } ?? "-", "\($0.openInvitations)",
                    $0.isEndToEnd ? "the members'" : "the relay's",
                ]
            }
            for line in table(rows) { Console.say(line) }
        }
    }
}
