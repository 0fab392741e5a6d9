// What the operator's commands about members do.
import Cryptography
import Logging
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    func members(
        _ reference: ChannelReference, _ after: String?, _ limit: Int?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let start = after.flatMap { Hexadecimal.decode($0) }.flatMap { MemberID(bytes: $0) }
        let limit = min(limit ?? .max, AdministrationLimits.membersPerResponse)
        let connected = await server?.connectedMembers(of: channel.id)
        let found = try store.members(of: channel.id, after: start, limit: limit + 1)
        let lines = found.prefix(limit).map { $0.line(connected) }
        return .members(lines, next: found.count > limit ? lines.last?.id : nil)
    }

    func member(_ reference: ChannelReference, _ text: String) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let connected = await server?.connectedMembers(of: channel.id)
        return .member(try meant(text, of: channel, connected).line(connected))
    }

    private func meant(
        _ text: String, of channel: ChannelRecord, _ connected: [MemberID: DisplayName]?, tag: String? = nil
    ) throws -> MemberRecord {
        let member = try store.member(text, of: channel.id, connected: connected ?? [:])
        if let tag, member.line(connected).tag != tag { throw RelayStoreError.changedSince("the member '\(text)'") }
        return member
    }

    func revoke(
        _ reference: ChannelReference, _ text: String, keepingInvitation: Bool, _ tag: String?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let connected = await server?.connectedMembers(of: channel.id)
        let member = try meant(text, of: channel, connected, tag: tag)
        let line = member.line(connected)
        let outcome: Revocation
        do throws(RelayStoreError) {
            outcome = try store.revoke(
                member.id, from: channel.id, keepingInvitation: keepingInvitation, now: clock())
        } catch {
            // Whoever has to go goes, whatever the disk says.
            guard let server, owns(channel.id) else { throw error }
            await server.revoke(member.id, from: channel.id)
            throw RelayStateError(
                description:
                    "\(line.fullName) is removed only until the relay restarts, and no invitation is withdrawn: \(error)"
            )
        }
        await server?.revoke(member.id, from: channel.id)
        return .removed(
            line,
            .init(
                hasWithdrawnInvitation: outcome.hasWithdrawnInvitation,
                hasNewStandingInvitation: outcome.hasNewStandingInvitation, wasRevoked: outcome.wasRevoked,
                isEndToEnd: channel.isEndToEnd))
    }

    func withdraw(_ number: Int64, _ channel: ChannelRecord) throws -> AdministrationResponse {
        try store.withdraw(number, of: channel.id, now: clock())
        return .done
    }

    func revokeInvited(_ reference: ChannelReference, _ number: Int64) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let members = try store.members(invitedBy: number, to: channel.id)
        let outcome: InvitationRevocation
        do throws(RelayStoreError) {
            outcome = try store.revokeMembers(invitedBy: number, to: channel.id, now: clock())
        } catch {
            guard let server, owns(channel.id) else { throw error }
            await server.revoke(members, from: channel.id)
            throw RelayStateError(
                description: members.isEmpty
                    ? "invitation \(number) is still open: \(error)"
                    : "\(members.count) members are removed only until the relay restarts, and invitation \(number) is still open: \(error)"
            )
        }
        await server?.revoke(outcome.members, from: channel.id)
        logger.notice(
            "the members that came by an invitation are removed",
            metadata: [
                "channel": "\(channel.name)", "invitation": "\(number)", "members": "\(outcome.members.count)",
            ])
        return .removedInvited(
            members: outcome.members.count,
            .init(
                hasWithdrawnInvitation: outcome.hasWithdrawnInvitation,
                hasNewStandingInvitation: outcome.hasNewStandingInvitation, wasRevoked: false,
                isEndToEnd: channel.isEndToEnd))
    }

    /// The same for a member only that was not removed.
    func changeMember(
        _ reference: ChannelReference, _ text: String, _ change: MemberChange, _ tag: String?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let connected = await server?.connectedMembers(of: channel.id)
        let member = try meant(text, of: channel, connected, tag: tag)
        guard member.revokedAt == nil else { throw RelayStoreError.memberRemoved(text) }
        return .member(try await readmit(member, to: channel, change).line(connected))
    }

    /// Lets a member that was removed come again, or changes what one may do.
    func readmit(
        _ reference: ChannelReference, _ text: String, _ change: MemberChange
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let connected = await server?.connectedMembers(of: channel.id)
        let member = try meant(text, of: channel, connected)
        return .member(try await readmit(member, to: channel, change).line(connected))
    }

    private func readmit(
        _ meant: MemberRecord, to channel: ChannelRecord, _ change: MemberChange
    ) async throws -> MemberRecord {
        var name: DisplayName?
        if let text = change.name {
            name = DisplayName(text)
            guard name != nil else { throw RelayStateError.badMemberName(text) }
        }
        let member = try store.readmit(
            meant.id, to: channel.id, name: name, priority: change.priority, isListenOnly: change.isListenOnly)
        await server?.readmit(member.id, to: channel.id, as: member.membership)
        return member
    }

    // MARK: Status

    func status() async throws -> AdministrationResponse {
        guard let server, let statistics = await server.statistics else {
            throw RelayStateError(description: "no relay runs; start it: pttrelay run", mayPass: true)
        }
        var talkers: [AdministrationResponse.Talker] = []
        for channel in statistics.channels {
            for member in channel.members where member.isTalking {
                talkers.append(
                    .init(
                        channel: channel.id.description, channelName: channel.name.text,
                        member: member.id.description, name: member.name.text))
            }
        }
        return .status(
            .init(
                isServing: await server.isServing, isDraining: statistics.isDraining,
                uptimeSeconds: statistics.uptime.components.seconds, connections: statistics.connections,
                channels: statistics.channels.count,
                members: statistics.channels.reduce(0) { $0 + $1.members.count },
                talkers: Array(talkers.prefix(AdministrationLimits.talkersPerResponse))))
    }
}

extension MemberRecord {
    /// What the relay's rules have to know.
    var membership: RelayMembership {
        RelayMembership(priority: priority, isListenOnly: isListenOnly, isRevoked: revokedAt != nil)
    }

    fileprivate func line(_ connected: [MemberID: DisplayName]?) -> AdministrationResponse.MemberLine {
        .init(
            id: id.description, name: name.text, nameNow: connected?[id]?.text,
            isConnected: connected.map { $0[id] != nil }, invitation: invitation,
            priority: priority, isListenOnly: isListenOnly, enrolledAt: enrolledAt, revokedAt: revokedAt)
    }
}
