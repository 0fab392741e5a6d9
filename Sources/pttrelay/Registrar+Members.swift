import Cryptography
// What the operator's commands about members do.
import Logging
import RelayProtocol
import RelayServer
import RelayStore

extension Registrar {
    func members(_ name: String, _ after: String?) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let start = after.flatMap { Hexadecimal.decode($0) }.flatMap { MemberID(bytes: $0) }
        let limit = AdministrationLimits.membersPerResponse
        let connected = await server?.connectedMembers(of: channel.id)
        let found = try store.members(of: channel.id, after: start, limit: limit)
        return .members(
            found.map { $0.line(connected) }, next: found.count < limit ? nil : found.last?.id.description)
    }

    func revoke(
        _ name: String, _ text: String, keepingInvitation: Bool
    ) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let connected = await server?.connectedMembers(of: channel.id)
        let member = try store.member(text, of: channel.id, connected: connected ?? [:])
        let line = member.line(connected)
        let outcome: Revocation
        do throws(RelayStoreError) {
            outcome = try store.revoke(
                member.id, from: channel.id, keepingInvitation: keepingInvitation, now: clock())
        } catch {
            // Whoever has to go goes, whatever the disk says.
            guard let server else { throw error }
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

    func revokeInvited(_ name: String, _ number: Int64) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let members = try store.members(invitedBy: number, to: channel.id)
        let outcome: InvitationRevocation
        do throws(RelayStoreError) {
            outcome = try store.revokeMembers(invitedBy: number, to: channel.id, now: clock())
        } catch {
            guard let server else { throw error }
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

    func readmit(
        _ name: String, _ text: String, _ priority: UInt8?, _ isListenOnly: Bool?
    ) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let connected = await server?.connectedMembers(of: channel.id)
        let meant = try store.member(text, of: channel.id, connected: connected ?? [:])
        let member = try store.readmit(meant.id, to: channel.id, priority: priority, isListenOnly: isListenOnly)
        await server?.readmit(member.id, to: channel.id, as: member.membership)
        return .member(member.line(connected))
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
