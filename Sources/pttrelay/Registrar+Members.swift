// What the operator's commands about members do.
import Cryptography
import Logging
import RelayCluster
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
        let found = try store.members(of: channel.id, after: start, limit: limit + 1)
        let ids = Set(found.prefix(limit).map(\.id.description))
        let present = await presence(of: [channel.id], .members(ids))[channel.id]
        let lines = found.prefix(limit).map { $0.line(present) }
        return .members(lines, next: found.count > limit ? lines.last?.id : nil)
    }

    func member(_ reference: ChannelReference, _ text: String) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let present = await presence(of: [channel.id], .meant(text))[channel.id]
        return .member(try meant(text, of: channel, present).line)
    }

    /// The member that an operator means, and what is told of it.
    private func meant(
        _ text: String, of channel: ChannelRecord, _ present: ChannelPresence?, tag: String? = nil
    ) throws -> (member: MemberRecord, line: AdministrationResponse.MemberLine) {
        let member = try store.member(text, of: channel.id, connected: present?.members ?? [:])
        let line = member.line(present)
        if let tag, line.tag != tag { throw RelayStoreError.changedSince("the member '\(text)'") }
        return (member, line)
    }

    /// Who is on the channel of the member that a change is about; nil: it is about none.
    func presence(neededBy request: AdministrationRequest) async -> ChannelPresence? {
        switch request {
        case .changeMember(let channel, let text, _, _), .revoke(let channel, let text, _, _),
            .readmit(let channel, let text, _):
            guard let id = try? record(channel).id else { return nil }
            return await presence(of: [id], .meant(text))[id]
        default: return nil
        }
    }

    func revoke(
        _ reference: ChannelReference, _ text: String, keepingInvitation: Bool, _ tag: String?,
        _ present: ChannelPresence?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let (member, line) = try meant(text, of: channel, present, tag: tag)
        let outcome: Revocation
        do throws(RelayStoreError) {
            outcome = try store.revoke(
                member.id, from: channel.id, keepingInvitation: keepingInvitation, now: clock())
        } catch {
            // Whoever has to go goes, whatever the disk says.
            guard let server, owns(channel.id) else { throw error }
            await server.revoke([member.id], from: channel.id)
            throw RelayStateError(
                description:
                    "\(line.fullName) is removed only until the relay restarts, and no invitation is withdrawn: \(error)"
            )
        }
        await server?.revoke([member.id], from: channel.id)
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
        _ reference: ChannelReference, _ text: String, _ change: MemberChange, _ tag: String?,
        _ present: ChannelPresence?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let member = try meant(text, of: channel, present, tag: tag).member
        guard member.revokedAt == nil else { throw RelayStoreError.memberRemoved(text) }
        return .member(try await readmit(member, to: channel, change).line(present))
    }

    /// Lets a member that was removed come again, or changes what one may do.
    func readmit(
        _ reference: ChannelReference, _ text: String, _ change: MemberChange, _ present: ChannelPresence?
    ) async throws -> AdministrationResponse {
        let channel = try record(reference)
        let member = try meant(text, of: channel, present).member
        return .member(try await readmit(member, to: channel, change).line(present))
    }

    private func readmit(
        _ meant: MemberRecord, to channel: ChannelRecord, _ change: MemberChange
    ) async throws -> MemberRecord {
        let name = change.name.flatMap { DisplayName($0) }
        if let text = change.name, name == nil { throw RelayStateError.badName(text, of: "member") }
        let member = try store.readmit(
            meant.id, to: channel.id, name: name, priority: change.priority, isListenOnly: change.isListenOnly)
        await server?.readmit(member.id, to: channel.id, as: member.membership)
        return member
    }

    // MARK: Status

    /// How the relay is; in a cluster, with what is on all of them.
    func status() async throws -> AdministrationResponse {
        var status = try await ownStatus()
        if let part {
            let answers = await part.node.askOthers(ClusterRequest.status.bytes)
            status.isPartial = !answers.areAll
            for answer in answers.all {
                guard case .status(let other)? = ClusterResponse(bytes: answer) else {
                    status.isPartial = true
                    continue
                }
                status.add(other)
            }
        }
        return .status(status)
    }

    /// How this relay is.
    func ownStatus() async throws -> AdministrationResponse.Status {
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
        return .init(
            isServing: await server.isServing, isDraining: statistics.isDraining,
            uptimeSeconds: statistics.uptime.components.seconds, connections: statistics.connections,
            channels: statistics.channels.count,
            members: statistics.channels.reduce(0) { $0 + $1.members.count },
            talkers: Array(talkers.prefix(AdministrationLimits.talkersPerResponse)))
    }
}

extension MemberRecord {
    /// What the relay's rules have to know.
    var membership: RelayMembership {
        RelayMembership(priority: priority, isListenOnly: isListenOnly, isRevoked: revokedAt != nil)
    }

    /// - Parameter presence: Who is on the channel, this member among those asked for; nil: nobody knows.
    fileprivate func line(_ presence: ChannelPresence?) -> AdministrationResponse.MemberLine {
        .init(
            id: id.description, name: name.text, nameNow: presence?.names[id.description],
            isConnected: presence.map { $0.names[id.description] != nil }, invitation: invitation,
            priority: priority, isListenOnly: isListenOnly, enrolledAt: enrolledAt, revokedAt: revokedAt)
    }
}
