// Carries out the requests of callers on the bus, and the actions of accessories' controls.
import Accessories
import Bridge
import Calls
import ChannelService
import DaemonAPI
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore
import RelayProtocol
import SystemUI
import Vocabulary

extension ChannelDirector: DaemonControls {
    // MARK: The talk key

    func pressTalkKey(_ channel: UUID, caller: String) async throws(PTChannelError) {
        try await bridge(channel).press(.caller(caller))
    }

    func releaseTalkKey(caller: String) async -> Bool {
        guard let seat else { return false }
        return await seat.bridge.release(.caller(caller))
    }

    /// The first talk control of the accessories was pressed, an emergency control joined it, or the last one was released. Runs on
    /// the loop.
    func accessoryWants(_ intent: AccessoryIntent) {
        // Switched off, they begin nothing. What they hold already goes on, and may become urgent.
        guard let seat, !intent.isBegin || areAccessoriesEnabled else {
            // Nothing to talk on: what is held is used up.
            if !intent.isEnd { dependencies?.handler(.endedBySystem) }
            return
        }
        seat.bridge.assumeIsolated { $0.accessoryWants(intent) }
    }

    /// The user clicked on the desktop. On the loop.
    func desktopWants(_ event: SystemUIEvent) {
        guard let seat else { return }
        switch event {
        case .talkPressed: seat.bridge.assumeIsolated { $0.press(.userInterface) }
        case .talkReleased: seat.bridge.assumeIsolated { $0.stop(.userRequest) }
        case .leave: step(.leave(seat.uuid, caller: ""))
        case .browseNearby, .joinNearby, .createNearby, .decideNewcomer: break
        }
    }

    private var areAccessoriesEnabled: Bool {
        channel.assumeIsolated { $0.snapshot.channel?.accessoryButtonEventsEnabled } ?? false
    }

    static var noChannel: PTChannelError {
        PTChannelError(.channelNotFound, explanation: "no channel is joined; join one first")
    }

    func bridge(_ uuid: UUID) throws(PTChannelError) -> Bridge {
        guard let seat, seat.uuid == uuid else { throw PTChannelError(.channelNotFound) }
        return seat.bridge
    }

    // MARK: Programs

    func register(_ application: Application) async throws(PTInstantiationError) -> UUID? {
        let program = BusProgram(busName: application.id.busName, name: application.id.name)
        programs[program.busName] = application.delegate
        if let refusal = step(.registered(program)) {
            programs[program.busName] = nil
            throw PTInstantiationError(.unknown, explanation: refusal.explanation)
        }
        guard let seat, seat.owner == program else { return nil }
        await restorationTold(to: program.busName)
        return seat.uuid
    }

    func applicationLeft(_ application: ApplicationID) async {
        guard programs[application.busName] != nil else { return }
        programs[application.busName] = nil
        step(.gone(busName: application.busName))
    }

    // MARK: The order of requests

    /// Waits for the caller's earlier requests; without a pause when there are none.
    ///
    /// - Parameters:
    ///   - asks: Whether it matters if the caller, when it is a registered program, is in the foreground.
    ///   - isEnd: Whether the request ends something.
    /// - Returns: Whether it is, or true where it does not matter.
    /// - Throws: When too many wait, or when a begin or a join was asked for by a program that is not registered any more.
    private func inTurn(
        _ caller: BusCaller, asks: Bool, isEnd: Bool = false
    ) async throws(PTChannelError) -> Bool {
        let name = caller.busName
        let delegate = programs[name]
        if try turns.begin(name, isEnd: isEnd) { await withCheckedContinuation { turns.wait(name, $0) } }
        var isForeground = true
        if asks, caller.application != nil, let dependencies { isForeground = await dependencies.isForeground(name) }
        turns.end(name)
        guard asks, caller.application != nil else { return isForeground }
        guard let delegate, programs[name] === delegate else {
            throw PTChannelError(.unknown, explanation: "the program has unregistered or left the bus")
        }
        return isForeground
    }

    // MARK: Joining and leaving

    func join(_ request: JoinRequest) async throws(PTChannelError) -> UUID {
        var channel = request.channel
        do throws(PTChannelError) {
            let link = try Self.invitation(request.link)
            channel = channel ?? link?.channel.uuid
            return try await admit(request, link)
        } catch {
            // A request that names no channel is answered only.
            if let channel { fail(request.caller) { .failedToJoinChannel(channel, error) } }
            throw error
        }
    }

    private static func invitation(_ text: String?) throws(PTChannelError) -> InvitationLink? {
        guard let text else { return nil }
        do throws(InvitationLinkError) { return try InvitationLink(text) } catch {
            throw PTChannelError(.unknown, explanation: "\(error)")
        }
    }

    private func admit(_ request: JoinRequest, _ link: InvitationLink?) async throws(PTChannelError) -> UUID {
        let isForeground = try await inTurn(request.caller, asks: true)
        try await whileJoining {
            join(
                ChannelJoin(
                    caller: request.caller.busName, isForeground: isForeground, uuid: request.channel,
                    descriptor: request.descriptor, link: link,
                    wantsApplicationMedia: request.media.map { $0 == .application }, replacing: request.replacing))
        }
        guard let uuid = request.channel ?? link?.channel.uuid else { throw Self.noChannel }
        return uuid
    }

    /// Carries out a join. Returns when the channel is on the bus and on the disk.
    private func whileJoining(_ join: () -> PTChannelError?) async throws(PTChannelError) {
        programs.joinBegins()
        let error = join()
        // A program that is told of its channel finds it on the bus.
        if error == nil { await dependencies?.publish() }
        joinIsOver()
        if let error { throw error }
        await untilKept()
    }

    /// Returns when the disk has taken what was changed, and what it says is on the bus.
    private func untilKept() async {
        await records.untilKept()
        if restorationProblem != nil { await dependencies?.publish() }
    }

    func changeChannel(_ choice: ChannelChoice, by caller: BusCaller) async throws(PTChannelError) -> UUID {
        _ = try await inTurn(caller, asks: false)
        try await whileJoining { change(ChannelStep(choice)) }
        guard let uuid = machine.active?.uuid else { throw Self.noChannel }
        return uuid
    }

    func replayLast(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        try await self.channel.replayLast(channelUUID: channel)
    }

    func leave(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        _ = try await inTurn(caller, asks: false, isEnd: true)
        if let error = step(.leave(channel, caller: caller.busName)) {
            fail(caller) { .failedToLeaveChannel(channel, error) }
            throw error
        }
        await untilKept()
    }

    /// Reports a request that was refused before the channel manager was asked to the program's delegate.
    private func fail(_ caller: BusCaller, _ callback: () -> DelegateCallback) {
        guard let application = caller.application else { return }
        tell(callback(), to: BusProgram(busName: application.busName, name: application.name))
    }

    // MARK: Transmissions of programs

    func requestBeginTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        let isForeground = try await inTurn(caller, asks: true)
        let bridge: Bridge
        do throws(PTChannelError) {
            guard isForeground else { throw PTChannelError(.appNotForeground) }
            bridge = try self.bridge(channel)
        } catch {
            fail(caller) { .failedToBeginTransmitting(channel, error) }
            throw error
        }
        try await bridge.requestBegin(program: caller.busName)
    }

    func requestStopTransmitting(_ channel: UUID, by caller: BusCaller) async throws(PTChannelError) {
        _ = try await inTurn(caller, asks: false, isEnd: true)
        let bridge: Bridge
        do throws(PTChannelError) { bridge = try self.bridge(channel) } catch {
            fail(caller) { .failedToStopTransmitting(channel, error) }
            throw error
        }
        try await bridge.requestStop(.developerRequest)
    }

    func requestingCallerLeft(_ caller: BusCaller) async {
        await seat?.bridge.release(.program(caller.busName))
    }

    // MARK: Settings

    func setDescriptor(
        _ descriptor: PTChannelDescriptor, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.perform(.setChannelDescriptor(descriptor, channelUUID: channel))
    }

    func setServiceStatus(
        _ status: PTServiceStatus, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        await (try bridge(channel)).setProgramStatus(status)
    }

    func setTransmissionMode(
        _ mode: PTTransmissionMode, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.perform(.setTransmissionMode(mode, channelUUID: channel))
    }

    func setActiveRemoteParticipant(
        _ participant: PTParticipant?, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.perform(.setActiveRemoteParticipant(participant, channelUUID: channel))
    }

    func setAccessoryButtonEventsEnabled(
        _ enabled: Bool, of channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        try await self.channel.perform(.setAccessoryButtonEventsEnabled(enabled, channelUUID: channel))
    }

    // MARK: Pushes and calls

    func reportPushToTalkMessage(
        _ payload: String, to channel: UUID, by caller: BusCaller
    ) async throws(PTChannelError) {
        _ = try bridge(channel)
        guard machine.active?.owner != nil else {
            throw PTChannelError(
                .unknown, explanation: "no program has joined this channel, so no program would receive the push")
        }
        let checked: PushPayload
        do throws(PushPayload.Invalid) { checked = try PushPayload(validating: payload) } catch {
            throw PTChannelError(.unknown, explanation: "\(error)")
        }
        await self.channel.push(
            .received(Push(identifier: "reported by \(caller.busName)", token: nil, payload: checked)))
    }

    func callsChanged(inhibitors: [Inhibitor]) async { hold(calls.update(inhibitors)) }

    /// Telephone services tell of these calls. On the loop.
    func callsChanged(_ active: [ActiveCall]) { hold(calls.update(active)) }

    private func hold(_ changes: [CallHolders.Change]) {
        for change in changes {
            channel.assumeIsolated { $0.setCallActive(holder: change.holder, description: change.description) }
        }
    }

    // MARK: Actions of controls, other than talking

    /// Carries out a control's action other than talking. A tone reports a failure. Runs on the loop.
    func controlWants(_ action: ControlAction, _ source: AccessorySource) {
        switch action {
        case .channelUp: changeByPress(.up)
        case .channelDown: changeByPress(.down)
        case .nearbyNext: joinNextNearby()
        case .replayLast: replayByPress()
        case .command(let words): run(words, source)
        case .none, .transmit, .emergency: break
        }
    }

    private func changeByPress(_ step: ChannelStep) {
        if let refusal = self.step(.change(step, isPress: true)) { refuse(refusal) }
    }

    private func joinNextNearby() {
        dependencies?.joinNextNearby { [weak self] refusal in self?.assumeIsolated { $0.refuse(refusal) } }
    }

    private func replayByPress() {
        guard let seat else { return refuse(Self.noChannel) }
        let refusal: PTChannelError? = channel.assumeIsolated { service in
            do throws(PTChannelError) { try service.replayLast(channelUUID: seat.uuid) } catch { return error }
            return nil
        }
        // The service has sounded the tone.
        if let refusal { dependencies?.refused(refusal) }
    }

    private func run(_ words: [String], _ source: AccessorySource) {
        guard let commands = dependencies?.commands else {
            let explanation =
                "\(source) is bound to a command, and only a user's own pttd, on the session bus, runs commands; bind it to another action"
            logger.warning("command not run", metadata: ["why": "\(explanation)"])
            return refuse(PTChannelError(.deviceManagementRestriction, explanation: explanation))
        }
        let failure: CommandError? = commands.assumeIsolated { runner in
            do throws(CommandError) { try runner.run(words, for: source) } catch { return error }
            return nil
        }
        if let failure {
            logger.warning("command not run", metadata: ["source": "\(source)", "why": "\(failure)"])
            refuse(PTChannelError(.unknown, explanation: "\(failure)"))
        }
    }

    private func refuse(_ error: PTChannelError) {
        channel.assumeIsolated { $0.signal(.denied) }
        dependencies?.refused(error)
    }
}

extension ChannelStep {
    /// The step that a caller on the bus asks for.
    init(_ choice: ChannelChoice) {
        self =
            switch choice {
            case .up: .up
            case .down: .down
            case .name(let name): .name(name)
            }
    }
}

extension AccessoryIntent {
    /// Whether nothing was held before it.
    var isBegin: Bool { if case .transmitBegan = self { true } else { false } }

    /// Whether nothing is held after it. A release is never lost.
    var isEnd: Bool { if case .transmitEnded = self { true } else { false } }
}
