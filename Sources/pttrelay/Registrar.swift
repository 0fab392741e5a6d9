// Keeps the records of a relay and carries out the operator's commands, with or without a running relay.
import Cryptography
import Glibc
import Logging
import Reactor
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore

/// The one who writes to a relay's records. It has a thread of its own, which may wait for the disk: the relay's does not.
actor Registrar {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// Holds the state directory for as long as it writes to it.
    let state: RelayState
    var store: RelayStore { state.store }
    var pin: PublicKeyPin { state.identity.pin }
    let logger: Logger
    let clock: @Sendable () -> Int64
    private(set) var server: RelayServer?
    /// The relay has not the records of its cluster yet, and so carries out no command.
    private var waitsForRecords = false
    /// In a cluster: this relay's part.
    var part: ClusterPart?
    /// The settings of the configuration for the floors, by the channels' names.
    var floors: Floors
    /// Channels that the relay may serve.
    let channelsMaximum: Int
    /// The name and port in links.
    private(set) var address: (host: String, port: UInt16)?
    /// Where links over TLS are taken, in links.
    private(set) var web: WebPlace?

    /// - Parameters:
    ///   - host: The name or address of the relay in links; nil: that of its last start.
    ///   - web: Where the relay takes links over TLS; nil: nowhere.
    ///   - floors: The settings of the configuration for the floors.
    ///   - channelsMaximum: Channels that the relay may serve.
    ///   - clock: Seconds since 1970.
    init(
        state: RelayState, host: String? = nil, port: UInt16? = nil, web: WebPlace? = nil, floors: Floors = Floors(),
        channelsMaximum: Int = RelayLimits().channels, logger: Logger,
        clock: @escaping @Sendable () -> Int64 = { Int64(time(nil)) }
    ) throws {
        self.state = state
        self.logger = logger
        self.web = web
        self.floors = floors
        self.channelsMaximum = channelsMaximum
        self.clock = clock
        loop = try EventLoop(name: "records", mayWait: true)
        let last = try state.store.lastStart()
        if let host = host ?? last?.host {
            address = (host, port ?? last?.port ?? RelayServerConfiguration.defaultPort)
        }
    }

    deinit { loop.stop() }

    /// From now on it answers this relay's clients, and the relay hears of what changes. Before the relay is started: the first client
    /// may come with the first packet.
    func connect(_ server: RelayServer) { self.server = server }

    /// While it waits for them, commands are refused.
    func setWaitsForRecords(_ waits: Bool) { waitsForRecords = waits }

    /// The name and port for links.
    func setAddress(host: String, port: UInt16) { address = (host, port) }

    /// The relay listens there, and serves these channels, some of which its configuration declares.
    func started(host: String, port: UInt16, channels: [ChannelID], declared: Set<ChannelID> = []) throws {
        address = (host, port)
        do throws(RelayStoreError) {
            try store.setLastStart(host: host, port: port)
            try store.setServed(Set(channels), declared: declared)
        } catch {
            // Only for later starts and for commands without a relay: a full disk keeps nobody from talking.
            guard error.mayPass else { throw error }
            logger.warning("the address and channels of this start cannot be recorded", metadata: ["why": "\(error)"])
        }
    }

    /// The relay has ended.
    func disconnect() { server = nil }

    // MARK: Turns

    private var isBusy = false
    private var waiting: [CheckedContinuation<Void, Never>] = []

    /// Commands that wait for their turn.
    var waitingCount: Int { waiting.count }

    /// Waits until nobody else changes anything. What a command reads of the records and of the relay has to be so still when it
    /// changes them, though it waits for the relay in between; enrolments, which wait for nothing, need no turn.
    private func takeTurn() async throws {
        guard isBusy else {
            isBusy = true
            return
        }
        guard waiting.count < AdministrationLimits.waitingCommands else {
            throw RelayStateError(description: "too many commands at once; try again", mayPass: true)
        }
        await withCheckedContinuation { waiting.append($0) }
    }

    /// The next one's turn.
    private func passTurn() {
        if waiting.isEmpty { isBusy = false } else { waiting.removeFirst().resume() }
    }

    /// The same of what may not be refused, and waits behind commands.
    func inOwnTurn(_ body: @Sendable (isolated Registrar) async -> Void) async {
        if isBusy { await withCheckedContinuation { waiting.append($0) } } else { isBusy = true }
        defer { passTurn() }
        await body(self)
    }

    /// Does something of several steps while no command does.
    func inTurn<T: Sendable>(_ body: @Sendable (isolated Registrar) async throws -> T) async throws -> T {
        try await takeTurn()
        defer { passTurn() }
        return try await body(self)
    }

    /// Reads or makes files of the state, which the loop of the program does not wait for.
    func withState<T: Sendable>(_ body: @Sendable (RelayState, Logger) throws -> T) throws -> T {
        try body(state, logger)
    }

    // MARK: Enrolment

    /// A client of the relay shows an invitation; called on the relay's loop.
    nonisolated func enrol(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {
        loop.execute { [weak self] in self?.assumeIsolated { $0.answer(connection, enrolment) } }
    }

    private func answer(_ connection: ConnectionID, _ enrolment: RelayEnrolment) {
        if isFollowing {
            Task {
                let verdict = await enrolElsewhere(enrolment)
                server?.enrolled(connection, enrolment, verdict)
            }
            return
        }
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
        // It changes nothing, so it waits for nobody.
        if request == .health { return await health() }
        do {
            return try await perform(request)
        } catch {
            return .failed("\(error)")
        }
    }

    /// The same, for who tells one reason of a refusal from another.
    func perform(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        if waitsForRecords {
            throw RelayStateError(
                description: Self.waiting + ": try again, or run the command on another relay", mayPass: true)
        }
        if isFollowing, request.changesRecords {
            switch try await ask(.command(request)) {
            case .command(let response): return response
            case .failed(let error): throw error
            case .member, .refused, .push, .presence, .status, .look:
                throw RelayStateError(description: "the answer cannot be read", mayPass: true)
            }
        }
        // A command that changes nothing needs no turn. For another one, other relays are asked before it: they may take their time, and
        // shares move in turns as well.
        guard request.changesRecords else { return try await carryOut(request, nil) }
        let present = await presence(neededBy: request)
        return try await inTurn { try await $0.carryOut(request, present) }
    }

    private static let waiting = "this relay waits for the records of its cluster"

    private func health() async -> AdministrationResponse {
        // A supervisor is not to start a relay again because NATS does not answer.
        if waitsForRecords { return .waits(Self.waiting) }
        let isServing = await server?.isServing ?? false
        return isServing ? .done : .failed("the relay accepts no members: it is starting or draining")
    }

    /// - Parameter present: Who is on the channel of the member that a change is about.
    private func carryOut(
        _ request: AdministrationRequest, _ present: ChannelPresence?
    ) async throws -> AdministrationResponse {
        switch request {
        case .invite(let channel, let terms, let key, let retry): try await invite(channel, terms, key, retry)
        case .invitations(let channel, let before, let limit): try invitations(channel, before, limit)
        case .invitation(let channel, let number): try invitation(channel, number)
        case .channels(let after, let limit): try await channels(after, limit)
        case .channel(let reference): try await channel(reference)
        case .addChannel(let name, let change, let isEndToEnd, let retry):
            try await addChannel(name, change, isEndToEnd: isEndToEnd, retry)
        case .changeChannel(let channel, let change, let tag): try await changeChannel(channel, change, tag)
        case .removeChannel(let channel, let tag): try await removeChannel(channel, tag)
        case .health: await health()
        case .status: try await status()
        case .members(let channel, let after, let limit): try await members(channel, after, limit)
        case .member(let channel, let text): try await member(channel, text)
        case .changeMember(let channel, let member, let change, let tag):
            try await changeMember(channel, member, change, tag, present)
        case .revoke(let channel, let member, let keeps, let tag):
            try await revoke(channel, member, keepingInvitation: keeps, tag, present)
        case .withdraw(let channel, let number): try withdraw(number, try record(channel))
        case .revokeInvited(let channel, let number): try await revokeInvited(channel, number)
        case .readmit(let channel, let member, let change): try await readmit(channel, member, change, present)
        }
    }
}

extension EnrolmentRefusal {
    /// The answer to the device.
    var verdict: RelayEnrolmentVerdict {
        switch self {
        case .unknown: .refused(.notInvited, "no such channel, or the invitation does not open it")
        case .withdrawn: .refused(.revoked, "the invitation was withdrawn; ask for another one")
        case .expired: .refused(.notInvited, "the invitation has expired; ask for another one")
        case .usedUp:
            .refused(.notInvited, "the invitation is used up; ask for another one")
        case .revoked: .refused(.revoked, "the member was removed from the channel")
        case .full: .refused(.channelFull, "the channel has reached its limit of members")
        }
    }
}
