// Which channel is the active one in one pttd: the shipped rules, with what `ChannelDirector` does around them.
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol
import RelayServer
import Vocabulary

@testable import Accessories
@testable import Bridge
@testable import ChannelService

typealias ChannelUUID = UUID

final class ProcessDirector {
    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    private var device: Device { process.device }
    private(set) var machine: ChannelDirectorStateMachine
    private let channel: ProcessChannel
    private(set) var bridge: ProcessBridge?
    private var isClosing = false
    /// The program behind the channel that is open.
    private var seatOwner: BusProgram?
    private var upkeep = RecordUpkeep()
    private lazy var alarm = Alarm(clock, of: self) { $0.deadlineReached() }

    init(process: Process, channel: ProcessChannel) {
        self.process = process
        world = process.world
        clock = process.device.clock
        self.channel = channel
        machine = ChannelDirectorStateMachine(
            channels: process.device.configured, relayCarriesPushes: false, isOpen: process.device.isOpen)
    }

    /// - Parameter hosted: The invitation to the channel that this machine hosts, which takes the place of that of the last run.
    /// - Returns: What the disk had to restore.
    func start(hosted: InvitationLink?) -> RestorationRecord? {
        channel.observers.append { [unowned self] event in observed(event) }
        let kept = device.disk.record.load()
        if let problem = kept.problem { world.note(process.name, "\(problem)") }
        let chosen = device.disk.choice.load().record?.channelUUID
        var restored = kept.record.map { ChannelMembership($0) }
        if let hosted, restored?.uuid == hosted.channel.uuid { restored?.link = hosted }
        step(.started(restoring: restored, chosen: chosen))
        return kept.record
    }

    @discardableResult
    func step(_ event: ChannelDirectorStateMachine.Event) -> PTChannelError? {
        guard process.isAlive else { return nil }
        var refusal: PTChannelError?
        device.fleet.coverage.record("director", state: stateName, event: event)
        for action in machine.handle(event, at: clock.now) {
            if case .refuse(let error) = action { refusal = error } else { perform(action) }
        }
        if let refusal { world.note(process.name, "director refuses: \(refusal.explanation)") }
        arm()
        return refusal
    }

    private var stateName: String {
        guard let active = machine.active else { return "none" }
        return active.isConfigured ? "configured" : "joined"
    }

    private func arm() { alarm.set(machine.nextDeadline, upkeep.nextDeadline) }

    private func deadlineReached() {
        guard process.isAlive else { return }
        keepRecord()
        step(.deadlineReached)
    }

    private func perform(_ action: ChannelDirectorStateMachine.Action) {
        switch action {
        case .open(let membership, let reason): open(membership, reason)
        case .close(let uuid, let reason): close(uuid, reason)
        case .remember: remember()
        case .forget:
            upkeep.want(.remove)
            keepRecord()
        case .choose(let uuid): choose(uuid)
        case .announce(let position, _): channel.handle(.signal(.channel(position: position)))
        case .restorationFailed(let why): world.note(process.name, "not restored: \(why)")
        case .startProgram(let name): startProgram(name)
        case .hand(let program):
            seatOwner = program
            channel.handle(.push(.programCame))
        case .orphan:
            seatOwner = nil
            channel.handle(.push(.programLeft))
        case .release(let busName): bridge?.release(.program(busName))
        case .refuse: break
        }
    }

    private func open(_ membership: ChannelMembership, _ reason: PTChannelJoinReason) {
        guard let invitation = machine.link(of: membership) else { return }
        world.note(process.name, "opens \(membership.descriptor.name)")
        process.ledger.joined()
        seatOwner = machine.owner
        let link = SimulatedLink(invitation, device: device, process: process)
        if invitation.channel == device.fleet.site?.channel.id { process.nearby?.linkMade(link) }
        let made = ProcessBridge(process: process, uuid: membership.uuid, channel: channel, link: link)
        bridge = made
        made.open(membership.joining(reason)) { [unowned self] error in
            guard let error else { return }
            world.note(process.name, "not opened: \(error.explanation)")
            process.later { [self] in step(.openFailed(membership.uuid)) }
        }
    }

    private func close(_ uuid: UUID, _ reason: PTChannelLeaveReason?) {
        guard let bridge, bridge.uuid == uuid else { return }
        isClosing = true
        bridge.close(reason)
        isClosing = false
        self.bridge = nil
        seatOwner = nil
    }

    // MARK: What others want

    /// The channel's creator has deleted it.
    func channelEnded() {
        guard let bridge else { return }
        process.later { [self, uuid = bridge.uuid] in step(.ended(uuid)) }
    }

    func accessoryWants(_ intent: AccessoryIntent) {
        guard let bridge, !intent.isBegin || channel.machine.channel?.accessoryButtonEventsEnabled == true else {
            if !intent.isEnd { process.accessories.handle(.transmissionEnded) }
            return
        }
        bridge.accessoryWants(intent)
    }

    private func observed(_ event: ChannelServiceEvent) {
        switch event {
        case .callback(let callback):
            tellProgram(callback)
            guard case .didLeaveChannel(let uuid, _) = callback, !isClosing else { return }
            process.later { [self] in step(.left(uuid)) }
        case .notice(.programWanted): if let name = machine.active?.owner?.name { startProgram(name) }
        case .notice(.pushSettled(let push, _)):
            if process.pushes.remove(push.identifier) == nil {
                world.fail("I5", "\(process.name): it is told twice what became of a push")
            }
        case .notice(.channelDescriptorChanged): remember()
        case .notice(.transmissionAudioFinished), .notice(.activeRemoteParticipantChanged(nil)):
            if upkeep.isPending { process.later { [self] in keepRecord() } }
        case .notice, .remoteParticipantsChanged, .soundProblemsChanged: break
        }
    }

    // MARK: Programs

    private func startProgram(_ name: String) {
        for program in device.programs where program.name == name { program.startByName() }
    }

    /// To the delegate of the program behind the channel.
    private func tellProgram(_ callback: DelegateCallback) {
        if let seatOwner, let program = device.programs.first(where: { $0.busName == seatOwner.busName }) {
            return program.told(callback)
        }
        switch callback {
        case .incomingPush(_, let delivery), .incomingServiceUpdatePush(_, let delivery, _, _):
            let gone = ChannelManagerStateMachine.PushEvent.notAnswered(
                delivery.identifier, reason: "the program is gone")
            channel.handle(.push(gone))
        default: break
        }
    }

    /// The program says that whom it named speaks no longer.
    func heardEnough() {
        guard let uuid = channel.machine.channel?.uuid else { return }
        clock.after(.milliseconds(300)) { [self] in
            guard process.isAlive, bridge?.uuid == uuid, bridge?.machine.speakers.isEmpty == true else { return }
            channel.request(.setActiveRemoteParticipant(nil, channelUUID: uuid)) { _ in }
        }
    }

    // MARK: The disk

    private func remember() {
        guard let active = machine.active, !active.isConfigured else { return }
        upkeep.want(.save)
        keepRecord()
    }

    private func keepRecord() {
        let rules = channel.machine
        let isTalking = rules.transmission != nil || rules.activeRemoteParticipant != nil || rules.isCapturing
        guard process.isAlive, let step = upkeep.due(isTalking: isTalking, at: clock.now) else { return }
        let record = step == .save ? recordOfNow : nil
        // The disk has a loop of its own, which answers in a later turn.
        process.later { [self] in ask(step, record) }
    }

    private func ask(_ step: RecordUpkeep.Step, _ record: RestorationRecord?) {
        let disk = device.disk
        do throws(RestorationStoreError) {
            switch step {
            case .save: if let record { try disk.record.save(record) }
            case .remove: try disk.record.remove()
            }
            if step == .remove || record != nil { disk.kept(record) }
            upkeep.did(isOver: true, at: clock.now)
        } catch {
            world.note(process.name, "the record is not kept: \(error)")
            upkeep.did(isOver: error.isFinal, at: clock.now)
        }
        arm()
        keepRecord()
    }

    private var recordOfNow: RestorationRecord? {
        guard let active = machine.active, !active.isConfigured, let joined = channel.machine.channel,
            joined.uuid == active.uuid
        else { return nil }
        return RestorationRecord(
            channel: joined, token: channel.machine.pushes.token, application: active.owner?.recordName ?? "",
            invitation: active.link?.text)
    }

    private func choose(_ uuid: UUID) {
        guard let channel = machine.channels.first(where: { $0.uuid == uuid }) else { return }
        do throws(RestorationStoreError) {
            try device.disk.choice.save(RestorationRecord(channelUUID: uuid, descriptor: channel.descriptor))
        } catch { world.note(process.name, "the choice is not kept: \(error)") }
    }
}

extension AccessoryIntent {
    var isBegin: Bool { if case .transmitBegan = self { true } else { false } }

    var isEnd: Bool { if case .transmitEnded = self { true } else { false } }
}
