// Keeps the records of a relay and does what the operator's commands ask, with the running relay or without one.
import Cryptography
import Glibc
import Logging
import Reactor
import RelayProtocol
import RelayServer
import RelayStore

/// The one who writes to a relay's records. It has a thread of its own, which may wait for the disk: the relay's does not.
actor Registrar {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Holds the state directory for as long as it writes to it.
    private let state: RelayState
    private var store: RelayStore { state.store }
    private var pin: PublicKeyPin { state.identity.pin }
    private let logger: Logger
    private let clock: @Sendable () -> Int64
    private var server: RelayServer?
    /// What the configuration says of the floors, by the channels' names.
    private var floors = Floors()
    /// The name and port in links.
    private var address: (host: String, port: UInt16)?

    /// - Parameters:
    ///   - host: The name or address of the relay in links; nil: that of its last start.
    ///   - clock: Seconds since 1970.
    init(
        state: RelayState, host: String? = nil, port: UInt16? = nil, logger: Logger,
        clock: @escaping @Sendable () -> Int64 = { Int64(time(nil)) }
    ) throws {
        self.state = state
        self.logger = logger
        self.clock = clock
        loop = try EventLoop(name: "records")
        let last = try state.store.lastStart()
        if let host = host ?? last?.host {
            address = (host, port ?? last?.port ?? RelayServerConfiguration.defaultPort)
        }
    }

    deinit { loop.stop() }

    /// From now on it answers this relay's clients, and the relay hears of what changes. Before the relay is started: the first client
    /// may come with the first packet.
    func connect(_ server: RelayServer, floors: Floors = Floors()) {
        self.server = server
        self.floors = floors
    }

    /// The relay listens there, and serves these channels.
    func started(host: String, port: UInt16, channels: [ChannelID]) throws {
        address = (host, port)
        try store.setLastStart(host: host, port: port)
        try store.setServed(Set(channels))
    }

    /// The relay has ended.
    func disconnect() { server = nil }

    // MARK: Turns

    private var isBusy = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// Waits until nobody else changes anything. What a command reads of the records and of the relay has to be so still when it
    /// changes them, though it waits for the relay in between; enrolments, which wait for nothing, need no turn.
    private func takeTurn() async throws {
        guard isBusy else {
            isBusy = true
            return
        }
        guard waiting.count < AdministrationLimits.waitingCommands else {
            throw RelayStateError(description: "too many commands come at once; try again")
        }
        await withCheckedContinuation { waiting.append($0) }
    }

    /// The next one's turn.
    private func passTurn() {
        if waiting.isEmpty { isBusy = false } else { waiting.removeFirst().resume() }
    }

    /// Does something of several steps while no command does.
    func inTurn<T: Sendable>(_ body: (isolated Registrar) async throws -> T) async throws -> T {
        try await takeTurn()
        defer { passTurn() }
        return try await body(self)
    }

    /// The relay, if it runs, and the channels that it is to serve, made if they are new: see `RelayState.channels(named:)`. From now on
    /// it has these floors.
    func reloaded(
        channels names: [String], floors: Floors
    ) throws -> (server: RelayServer, channels: [RelayChannelConfiguration])? {
        guard let server else { return nil }
        let channels = try state.channels(named: names)
        try store.setServed(Set(channels.map(\.id)))
        self.floors = floors
        return (server, channels)
    }

    /// See `PushSettings.certificate`.
    func pushCertificate(_ push: PushSettings) throws -> (String, String) {
        try push.certificate(state, logger: logger)
    }

    // MARK: Enrolment

    /// A client of the relay shows an invitation; called on the relay's loop.
    nonisolated func enrol(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {
        loop.execute { [weak self] in self?.assumeIsolated { $0.answer(connection, enrolment) } }
    }

    private func answer(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {
        let verdict: RelayEnrolmentVerdict
        do throws(RelayStoreError) {
            let outcome = try store.enrol(
                enrolment.member, named: enrolment.name, with: enrolment.token, in: enrolment.channel, now: clock())
            switch outcome {
            case .member(let member): verdict = .admitted(member.membership)
            case .refused(let refusal): verdict = refusal.verdict
            }
        } catch {
            logger.error("a member cannot be enrolled", metadata: ["member": "\(enrolment.member)", "why": "\(error)"])
            verdict = .refused(.relayBusy, "the relay cannot write its records")
        }
        server?.enrolled(connection, enrolment, verdict)
    }

    // MARK: Commands

    /// Does what a command asks.
    func answer(_ request: AdministrationRequest) async -> AdministrationResponse {
        do {
            return try await inTurn { try await $0.carryOut(request) }
        } catch {
            return .failed("\(error)")
        }
    }

    private func carryOut(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        switch request {
        case .invite(let name, let terms, let key): try await invite(name, terms, key)
        case .invitations(let name): try invitations(name)
        case .channels: .channels(try await channels())
        case .members(let name, let after): try await members(name, after)
        case .revoke(let name, let member, let keeps): try await revoke(name, member, keepingInvitation: keeps)
        case .withdraw(let name, let number):
            try withdraw(number, try store.channel(named: name))
        case .revokeInvited(let name, let number): try await revokeInvited(name, number)
        case .readmit(let name, let member, let priority, let isListenOnly):
            try await readmit(name, member, priority, isListenOnly)
        }
    }

    private func invite(
        _ name: String, _ terms: AdministrationRequest.Terms?, _ key: AdministrationRequest.MediaKeyOrigin?
    ) async throws -> AdministrationResponse {
        guard let address else {
            throw RelayStateError(
                description: "the relay was not started yet, so its address is not known; name it with --host")
        }
        let channel = try await channel(named: name, for: key)
        let isFirst = try store.invitations(to: channel.id, limit: 1).isEmpty
        if channel.isEndToEnd, key == nil || key == .first && !isFirst {
            throw RelayStoreError.wrongKind(
                """
                the media key of '\(channel.name)' is in its earlier links, and the relay does not know it. Give one of them with \
                --end-to-end --like LINK, so that the new member hears the others; or --end-to-end --new-key to begin another key, \
                after which everybody needs a new link
                """)
        }
        var number: Int64?
        var expiresAt: Int64?
        let token: InvitationToken
        if terms == nil, let standing = try store.standingToken(of: channel.id) {
            token = standing
        } else {
            let terms = terms ?? .init(priority: 0, isListenOnly: false)
            token = InvitationToken()
            let now = clock()
            expiresAt = terms.lifetime.map { now.addingReportingOverflow($0).partialValue }
            number = try store.invite(
                to: channel.id, token: token,
                terms: InvitationTerms(
                    expiresAt: expiresAt, uses: terms.uses, priority: terms.priority, isListenOnly: terms.isListenOnly),
                now: now)
        }
        let link = try InvitationLink(
            host: address.host, port: address.port, channelName: channel.name, channel: channel.id, token: token,
            pin: pin)
        return .invitation(
            .init(
                link: link.text, isEndToEnd: channel.isEndToEnd, members: try store.memberCount(of: channel.id),
                number: number, expiresAt: expiresAt))
    }

    /// The channel that somebody is invited to.
    private func channel(
        named name: String, for key: AdministrationRequest.MediaKeyOrigin?
    ) async throws -> ChannelRecord {
        switch key {
        case nil: return try store.channel(named: name)
        case .first, .new: return try await endToEndChannel(name)
        case .earlierLink(let id, let pin):
            // Its media key would open nothing on another channel, and nobody would hear why.
            let channel = try store.channel(named: name)
            guard pin == self.pin.description else {
                throw RelayStoreError.wrongKind(
                    "the link of --like is of another relay, whose key is not this one's; give one that this relay printed"
                )
            }
            guard id == channel.id.description else {
                let other = try store.channels().first { $0.id.description == id }
                throw RelayStoreError.wrongKind(
                    "the link of --like is for \(other.map { "'\($0.name)'" } ?? "a channel that the relay does not have"), "
                        + "not for '\(channel.name)'; give one for that")
            }
            return try await endToEndChannel(name)
        }
    }

    /// The channel, made and served at once if there is none.
    private func endToEndChannel(_ text: String) async throws -> ChannelRecord {
        if let found = try store.channels().first(where: { $0.name.text == text }) {
            guard found.isEndToEnd else {
                throw RelayStoreError.wrongKind(
                    "the media key of '\(found.name)' comes from the relay, and a channel stays as it was made; "
                        + "name a new channel: pttrelay invite NAME --end-to-end")
            }
            return found
        }
        guard let name = DisplayName(text) else { throw RelayStateError.badChannelName(text) }
        let channel = try store.addChannel(name, isEndToEnd: true, isAdded: true, isServed: true, now: clock())
        var configuration = channel.configuration(token: nil)
        configuration.rules = floors.rules(of: channel.name)
        configuration.retention = floors.retention(of: channel.name)
        if let server, await !server.serve(configuration) {
            throw RelayStateError(
                description: "the channel is made, but the relay serves as many as it can; restart it with fewer others"
            )
        }
        return channel
    }

    private func invitations(_ name: String) throws -> AdministrationResponse {
        let now = clock()
        let found = try store.invitations(
            to: try store.channel(named: name).id, limit: AdministrationLimits.invitationsPerResponse)
        return .invitations(
            found.map {
                .init(
                    number: $0.number, isStanding: $0.standingToken != nil, isOpen: $0.isOpen(at: now),
                    isWithdrawn: $0.withdrawnAt != nil, used: $0.used, uses: $0.terms.uses,
                    expiresAt: $0.terms.expiresAt, priority: $0.terms.priority, isListenOnly: $0.terms.isListenOnly,
                    madeAt: $0.madeAt)
            })
    }

    private func channels() async throws -> [AdministrationResponse.ChannelLine] {
        var lines: [AdministrationResponse.ChannelLine] = []
        let now = clock()
        for channel in try store.channels() {
            let open = try store.openInvitationCount(of: channel.id, now: now)
            lines.append(
                .init(
                    name: channel.name.text, id: channel.id.description,
                    members: try store.memberCount(of: channel.id),
                    connected: await server?.connectedMembers(of: channel.id)?.count, openInvitations: open,
                    isEndToEnd: channel.isEndToEnd))
        }
        return lines
    }

    private func members(_ name: String, _ after: String?) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let start = after.flatMap { Hexadecimal.decode($0) }.flatMap { MemberID(bytes: $0) }
        let limit = AdministrationLimits.membersPerResponse
        let connected = await server?.connectedMembers(of: channel.id)
        let found = try store.members(of: channel.id, after: start, limit: limit)
        return .members(
            found.map { $0.line(connected) }, next: found.count < limit ? nil : found.last?.id.description)
    }

    private func revoke(
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
                description: "\(line.fullName) is out, but only until the relay is started again: \(error)")
        }
        await server?.revoke(member.id, from: channel.id)
        return .removed(
            line,
            .init(
                hasWithdrawnInvitation: outcome.hasWithdrawnInvitation,
                hasNewStandingInvitation: outcome.hasNewStandingInvitation, wasRevoked: outcome.wasRevoked,
                isEndToEnd: channel.isEndToEnd))
    }

    private func withdraw(_ number: Int64, _ channel: ChannelRecord) throws -> AdministrationResponse {
        try store.withdraw(number, of: channel.id, now: clock())
        return .done
    }

    private func revokeInvited(_ name: String, _ number: Int64) async throws -> AdministrationResponse {
        let channel = try store.channel(named: name)
        let members = try store.members(invitedBy: number, to: channel.id)
        let outcome: InvitationRevocation
        do throws(RelayStoreError) {
            outcome = try store.revokeMembers(invitedBy: number, to: channel.id, now: clock())
        } catch {
            guard let server else { throw error }
            await server.revoke(members, from: channel.id)
            throw RelayStateError(
                description:
                    "\(members.count) members are out, but only until the relay is started again: \(error)")
        }
        await server?.revoke(outcome.members, from: channel.id)
        return .removedInvited(
            members: outcome.members.count,
            .init(
                hasWithdrawnInvitation: outcome.hasWithdrawnInvitation,
                hasNewStandingInvitation: outcome.hasNewStandingInvitation, wasRevoked: false,
                isEndToEnd: channel.isEndToEnd))
    }

    private func readmit(
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

extension ChannelRecord {
    /// As the relay serves it. Its own token is not what opens it: that is in the records.
    func configuration(token: InvitationToken?) -> RelayChannelConfiguration {
        RelayChannelConfiguration(id: id, name: name, token: token ?? InvitationToken(), isEndToEnd: isEndToEnd)
    }
}

extension EnrolmentRefusal {
    /// What the device is told.
    fileprivate var verdict: RelayEnrolmentVerdict {
        switch self {
        case .unknown: .refused(.notInvited, "no such channel, or the invitation does not open it")
        case .withdrawn: .refused(.revoked, "the invitation was withdrawn; ask for another one")
        case .expired: .refused(.notInvited, "the invitation has expired; ask for another one")
        case .usedUp:
            .refused(.notInvited, "the invitation was used by as many devices as it was for; ask for another one")
        case .revoked: .refused(.revoked, "the member was removed from the channel")
        case .full: .refused(.channelFull, "the channel has as many members as the relay keeps")
        }
    }
}
