// Keeps the records of a relay and carries out the operator's commands, with or without a running relay.
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
    let state: RelayState
    var store: RelayStore { state.store }
    var pin: PublicKeyPin { state.identity.pin }
    let logger: Logger
    let clock: @Sendable () -> Int64
    private(set) var server: RelayServer?
    /// The settings of the configuration for the floors, by the channels' names.
    private(set) var floors = Floors()
    /// The name and port in links.
    private(set) var address: (host: String, port: UInt16)?
    /// Where links over TLS are taken, in links.
    private(set) var web: WebPlace?

    /// - Parameters:
    ///   - host: The name or address of the relay in links; nil: that of its last start.
    ///   - web: Where the relay takes links over TLS; nil: nowhere.
    ///   - clock: Seconds since 1970.
    init(
        state: RelayState, host: String? = nil, port: UInt16? = nil, web: WebPlace? = nil, logger: Logger,
        clock: @escaping @Sendable () -> Int64 = { Int64(time(nil)) }
    ) throws {
        self.state = state
        self.logger = logger
        self.web = web
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
    func connect(_ server: RelayServer, floors: Floors = Floors()) {
        self.server = server
        self.floors = floors
    }

    /// The relay listens there, and serves these channels.
    func started(host: String, port: UInt16, channels: [ChannelID]) throws {
        address = (host, port)
        do throws(RelayStoreError) {
            try store.setLastStart(host: host, port: port)
            try store.setServed(Set(channels))
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
            throw RelayStateError(description: "too many commands at once; try again")
        }
        await withCheckedContinuation { waiting.append($0) }
    }

    /// The next one's turn.
    private func passTurn() {
        if waiting.isEmpty { isBusy = false } else { waiting.removeFirst().resume() }
    }

    /// Does something of several steps while no command does.
    func inTurn<T: Sendable>(_ body: @Sendable (isolated Registrar) async throws -> T) async throws -> T {
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

    /// See `WebSettings.certificate`.
    func webCertificate(_ web: WebSettings) throws -> (pem: String, privateKeyPEM: String)? {
        try web.certificate(state, logger: logger)
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
        // It changes nothing, so it waits for nobody.
        if request == .health { return await health() }
        do {
            return try await inTurn { try await $0.carryOut(request) }
        } catch {
            return .failed("\(error)")
        }
    }

    private func health() async -> AdministrationResponse {
        let isServing = await server?.isServing ?? false
        return isServing ? .done : .failed("the relay accepts no members: it is starting or draining")
    }

    private func carryOut(_ request: AdministrationRequest) async throws -> AdministrationResponse {
        switch request {
        case .invite(let name, let terms, let key): try await invite(name, terms, key)
        case .invitations(let name): try invitations(name)
        case .channels: .channels(try await channels())
        case .health: await health()
        case .members(let name, let after): try await members(name, after)
        case .revoke(let name, let member, let keeps): try await revoke(name, member, keepingInvitation: keeps)
        case .withdraw(let name, let number):
            try withdraw(number, try store.channel(named: name))
        case .revokeInvited(let name, let number): try await revokeInvited(name, number)
        case .readmit(let name, let member, let priority, let isListenOnly):
            try await readmit(name, member, priority, isListenOnly)
        }
    }
}

extension ChannelRecord {
    /// As the relay serves it. Its own token is not what opens it: that is in the records.
    func configuration(token: InvitationToken?) -> RelayChannelConfiguration {
        RelayChannelConfiguration(id: id, name: name, token: token ?? InvitationToken(), isEndToEnd: isEndToEnd)
    }
}

extension EnrolmentRefusal {
    /// The answer to the device.
    fileprivate var verdict: RelayEnrolmentVerdict {
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
