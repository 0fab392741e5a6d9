// Carries out the actions of `ChannelDirectorStateMachine`: channels, links, programs and the restoration record.
import Bridge
import Calls
import ChannelService
import DBus
import DaemonAPI
import FoundationEssentials
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import RelayProtocol
import Vocabulary

/// The active channel of the device, and the program behind it. It handles the requests of `org.pttd`, and runs on the
/// daemon's loop.
actor ChannelDirector {
    /// The services of the daemon that it uses.
    struct Dependencies: Sendable {
        /// A link to a relay that is not started.
        var makeLink: @Sendable (InvitationLink, RelayClientMode) -> RelayClient
        /// The sound devices, as reported to programs.
        var audio: AudioSessionDescription
        /// Has the bus start the program of this name.
        var startProgram: @Sendable (String) async throws(DBusError) -> Void
        /// Publishes the current state on the bus, and returns when that is done.
        var publish: @Sendable () async -> Void
        /// Whether the program of this unique name is in the foreground.
        var isForeground: @Sendable (String) async -> Bool
        /// Shows the user an event that is not a state.
        var announce: @Sendable (String) -> Void
        /// Reports a refused press, which a tone has already signalled.
        var refused: @Sendable (PTChannelError) -> Void
        /// Runs the commands of controls; nil: this is not a user's own daemon, so it runs none.
        var commands: CommandRunner?
        /// Joins the next channel nearby, or reports why none is joined.
        var joinNextNearby: @Sendable (_ refused: @escaping @Sendable (PTChannelError) -> Void) -> Void
        /// Handles events for the user interface and controls, on the loop, in order.
        var handler: @Sendable (BridgeEvent) -> Void
    }

    /// The channel that is open now.
    struct Seat {
        let uuid: UUID
        let bridge: Bridge
        let client: RelayClient?
        let isPushOnly: Bool
        /// The program behind it, while it is registered.
        var owner: BusProgram?
        var token: PushToken?
        /// What pushes to it are addressed to.
        let topic: PushTopic
    }

    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let channel: ChannelService
    let logger: Logger
    let records: ChannelRecords
    var seat: Seat?
    var programs = ProgramCalls()
    private(set) var machine: ChannelDirectorStateMachine
    private(set) var dependencies: Dependencies?
    private var timer: EventLoop.Timer?
    private var isClosing = false
    private var openError: PTChannelError?
    private var isBusReady = false
    private var programsToStart: [String] = []
    var calls = CallHolders()
    var turns = CallerTurns()

    init(
        channels: [ChannelMembership], policy: JoinPolicy, relayCarriesPushes: Bool, isOpen: Bool,
        channel: ChannelService, records: ChannelRecords, logger: Logger
    ) {
        loop = channel.loop
        machine = ChannelDirectorStateMachine(
            channels: channels, policy: policy, relayCarriesPushes: relayCarriesPushes, isOpen: isOpen)
        self.channel = channel
        self.records = records
        self.logger = logger
    }

    /// What there is to show, the program that the channel belongs to, as `ChannelProperties.owner` has it, and how its relay is reached.
    var shown: (snapshot: ChannelServiceSnapshot, detail: String, owner: String, path: RelayPath?) {
        let owner = machine.active?.owner
        return (
            channel.assumeIsolated { $0.snapshot }, seat?.bridge.assumeIsolated { $0.serviceDetail } ?? "",
            owner.map { $0.name.isEmpty ? $0.busName ?? "" : $0.name } ?? "",
            seat?.client?.assumeIsolated { $0.path } ?? nil
        )
    }

    /// Why the next start would find another channel than the active one, in words; nil: it would not.
    var restorationProblem: String? { records.assumeIsolated { $0.problem } }

    /// The active channel, unless it is one of the configuration.
    var activeJoined: UUID? { machine.active.flatMap { $0.isConfigured ? nil : $0.uuid } }

    /// The names of the configured channels, in their order.
    var channelNames: [String] { machine.channelNames }

    // MARK: Start and end

    /// Joins the channel of the last run, or the configured one.
    ///
    /// - Parameter hosted: The invitations to channels nearby that this machine hosts, which take the place of those of the last run.
    func start(_ dependencies: Dependencies, hosted: [ChannelID: InvitationLink] = [:]) async {
        self.dependencies = dependencies
        _ = await channel.addObserver { [weak self] event in self?.assumeIsolated { $0.observed(event) } }
        let hasChoice = machine.channels.count > 1
        let kept = await records.load(hasChoice: hasChoice) { [weak self] in
            self?.assumeIsolated { $0.currentRecord } ?? .init(record: nil, isTalking: false)
        } problemChanged: { [weak self] in
            self?.assumeIsolated { $0.dependencies?.handler(.changed) }
        }
        var restored = kept.restored.map { ChannelMembership($0) }
        if let uuid = restored?.uuid, let link = hosted[ChannelID(uuid)] { restored?.link = link }
        step(.started(restoring: restored, chosen: kept.chosen))
    }

    /// `org.pttd` is served: programs that are started find it.
    func busIsReady() {
        isBusReady = true
        for name in programsToStart { startProgram(name) }
        programsToStart = []
    }

    /// Ends the current activity. The channel is not left, and is restored at the next start.
    func stop() async {
        timer?.cancel()
        await records.end()
        await channel.shutdown()
        guard let seat else { return }
        await seat.bridge.close(nil)
        if seat.isPushOnly { await seat.client?.leave() }
        self.seat = nil
    }

    /// The policy's hours began or ended.
    func hoursChanged(isOpen: Bool) { step(.hoursChanged(isOpen: isOpen)) }

    // MARK: The rules

    /// Takes an event in and carries out what follows.
    ///
    /// - Returns: Why it was not granted.
    @discardableResult
    func step(_ event: ChannelDirectorStateMachine.Event) -> PTChannelError? {
        var refusal: PTChannelError?
        for action in machine.handle(event, at: .now) {
            if case .refuse(let error) = action { refusal = error } else { perform(action) }
        }
        arm()
        dependencies?.handler(.changed)
        return refusal
    }

    private func arm() {
        timer?.cancel()
        timer = machine.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in
                self?.assumeIsolated { _ = $0.step(.deadlineReached) }
            }
        }
    }

    /// Joins a channel. Returns the error if that fails.
    func join(_ join: ChannelJoin) -> PTChannelError? {
        openError = nil
        return step(.join(join)) ?? openError
    }

    /// Changes to another configured channel. Returns the error if that fails.
    func change(_ step: ChannelStep) -> PTChannelError? {
        openError = nil
        return self.step(.change(step, isPress: false)) ?? openError
    }

    private func perform(_ action: ChannelDirectorStateMachine.Action) {
        switch action {
        case .open(let membership, let reason): open(membership, reason)
        case .close(let uuid, let reason): close(uuid, reason)
        case .remember: remember()
        case .forget: records.assumeIsolated { $0.want(.remove) }
        case .startProgram(let name): startProgram(name)
        case .hand(let program): hand(to: program)
        case .orphan:
            seat?.owner = nil
            channel.assumeIsolated { $0.push(.programLeft) }
        case .choose(let uuid):
            guard let chosen = machine.channels.first(where: { $0.uuid == uuid }) else { break }
            records.assumeIsolated { $0.choose(chosen) }
        case .announce(let position, let name):
            logger.notice("channel changed", metadata: ["channel": "\(name)", "position": "\(position)"])
            channel.assumeIsolated { $0.signal(.channel(position: position)) }
            dependencies?.announce("Channel \(position): \(name)")
        case .release(let busName): seat?.bridge.assumeIsolated { _ = $0.release(.program(busName)) }
        case .restorationFailed(let why): logger.error("the channel of the last run was not restored: \(why)")
        case .refuse: break
        }
    }

    // MARK: Channels

    private func open(_ membership: ChannelMembership, _ reason: PTChannelJoinReason) {
        guard let dependencies else { return }
        let isPushOnly = membership.hasApplicationMedia
        let client = machine.link(of: membership).map { dependencies.makeLink($0, isPushOnly ? .pushOnly : .member) }
        let bridge = Bridge(
            channelUUID: membership.uuid, channel: channel, link: isPushOnly ? nil : client,
            logger: Logger(label: "pttd.bridge"))
        seat = Seat(
            uuid: membership.uuid, bridge: bridge, client: client, isPushOnly: isPushOnly, owner: machine.owner,
            topic: PushTopic(program: membership.owner?.name ?? ""))
        client?.assumeIsolated { client in
            let handler = dependencies.handler
            client.setPathHandler { _ in handler(.changed) }
            client.setPushHandler { [weak self] event in self?.assumeIsolated { $0.pushed(event) } }
            if isPushOnly { client.join() }
        }
        bridge.assumeIsolated { bridge in
            bridge.open(membership.joining(reason), handler: dependencies.handler) { [weak self] error in
                guard let error else { return }
                self?.assumeIsolated { $0.notOpened(membership.uuid, error) }
            }
        }
    }

    private func notOpened(_ uuid: UUID, _ error: PTChannelError) {
        logger.error("the channel cannot be joined", metadata: ["channel": "\(uuid)", "why": "\(error)"])
        openError = error
        later { $0.step(.openFailed(uuid)) }
    }

    private func close(_ uuid: UUID, _ reason: PTChannelLeaveReason?) {
        guard let seat, seat.uuid == uuid else { return }
        isClosing = true
        seat.bridge.assumeIsolated { $0.close(reason) }
        isClosing = false
        if seat.isPushOnly { seat.client?.assumeIsolated { $0.leave() } }
        self.seat = nil
    }

    /// The channel manager has left the channel on its own. The call comes during its work.
    func left(_ uuid: UUID) {
        guard !isClosing else { return }
        later { $0.step(.left(uuid)) }
    }

    /// The channel's creator has deleted it. The call comes during the link's work.
    func channelEnded(_ words: String) {
        guard let seat else { return }
        let name = channel.assumeIsolated { $0.snapshot.channel?.descriptor.name } ?? ""
        logger.notice("channel ended", metadata: ["channel": "\(name)", "why": "\(words)"])
        dependencies?.announce("\(name): \(words)")
        later { [uuid = seat.uuid] in $0.step(.ended(uuid)) }
    }

    private func later(_ work: @escaping @Sendable (isolated ChannelDirector) -> Void) {
        loop.execute { [weak self] in self?.assumeIsolated { work($0) } }
    }

    // MARK: Programs

    private func startProgram(_ name: String) {
        guard isBusReady else { return programsToStart.append(name) }
        guard let dependencies else { return }
        logger.info("starting the channel's program", metadata: ["program": "\(name)"])
        Task {
            do throws(DBusError) {
                try await dependencies.startProgram(name)
            } catch {
                logger.warning(
                    "the channel's program did not start", metadata: ["program": "\(name)", "why": "\(error)"])
                await channel.push(.programNotStarted(reason: "\(error)"))
            }
        }
    }

    /// The program is needed for a push or a begin.
    func programWanted() {
        guard let name = machine.active?.owner?.name, !name.isEmpty else { return }
        startProgram(name)
    }

    private func hand(to program: BusProgram) {
        seat?.owner = program
        guard let restored = channel.assumeIsolated({ $0.snapshot.channel }) else { return }
        if restored.descriptor.name.isEmpty { askDescriptor(restored.uuid, program) }
        tellRestoration(channel.assumeIsolated { $0.restorationCallbacks }, to: program)
        channel.assumeIsolated { $0.push(.programCame) }
    }

    // MARK: The record

    /// Keeps what restores the channel: at once, or when nobody talks any more.
    func remember() {
        guard let active = machine.active, !active.isConfigured else { return }
        records.assumeIsolated { $0.want(.save) }
    }

    private var currentRecord: ChannelRecords.Current {
        let snapshot = channel.assumeIsolated { $0.snapshot }
        var current = ChannelRecords.Current(
            record: nil,
            isTalking: snapshot.transmission != nil || snapshot.activeRemoteParticipant != nil || snapshot.isCapturing)
        guard let active = machine.active, !active.isConfigured, let joined = snapshot.channel,
            joined.uuid == active.uuid
        else { return current }
        current.record = RestorationRecord(
            channel: joined, token: snapshot.pushToken, application: active.owner?.recordName ?? "",
            invitation: active.link?.text)
        return current
    }
}
