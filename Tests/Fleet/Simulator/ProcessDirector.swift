// Which channel is the active one in one pttd: the shipped rules, with what `ChannelDirector` does around them.
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayProtocol

@testable import Accessories
@testable import Bridge
@testable import ChannelService

typealias ChannelUUID = UUID

final class ProcessDirector {
    private unowned let process: Process
    private var world: World { process.world }
    private var device: Device { process.device }
    private(set) var machine: ChannelDirectorStateMachine
    private let channel: ProcessChannel
    private(set) var bridge: ProcessBridge?
    private var isClosing = false
    private var saveIsDue = false
    private var wake: Instant?

    init(process: Process, channel: ProcessChannel) {
        self.process = process
        self.channel = channel
        machine = ChannelDirectorStateMachine(
            channels: process.device.configured, relayCarriesPushes: false, isOpen: process.device.isOpen)
    }

    func start() {
        channel.observers.append { [unowned self] event in observed(event) }
        step(.started(restoring: device.disk.record.map { ChannelMembership($0) }, chosen: device.disk.chosen))
    }

    @discardableResult
    func step(_ event: ChannelDirectorStateMachine.Event) -> PTChannelError? {
        guard process.isAlive else { return nil }
        var refusal: PTChannelError?
        device.fleet.coverage.record("director", state: stateName, event: event)
        for action in machine.handle(event, at: world.now) {
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

    private func arm() {
        guard let due = machine.nextDeadline, due < wake ?? Instant(nanoseconds: .max) else { return }
        wake = due
        world.at(due) { [self] in
            guard process.isAlive else { return }
            wake = nil
            step(.deadlineReached)
        }
    }

    private func perform(_ action: ChannelDirectorStateMachine.Action) {
        switch action {
        case .open(let membership, let reason): open(membership, reason)
        case .close(let uuid, let reason): close(uuid, reason)
        case .remember: remember()
        case .forget:
            saveIsDue = false
            device.disk.record = nil
        case .choose(let uuid): device.disk.chosen = uuid
        case .announce(let position, _): channel.handle(.signal(.channel(position: position)))
        case .restorationFailed(let why): world.note(process.name, "not restored: \(why)")
        case .startProgram, .hand, .orphan, .release, .refuse: break
        }
    }

    private func open(_ membership: ChannelMembership, _ reason: PTChannelJoinReason) {
        guard let invitation = machine.link(of: membership) else { return }
        world.note(process.name, "opens \(membership.descriptor.name)")
        process.ledger.joined()
        let link = SimulatedLink(invitation, device: device, process: process)
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
    }

    // MARK: What others want

    /// The channel's creator has deleted it.
    func channelEnded() {
        guard let bridge else { return }
        process.later { [self, uuid = bridge.uuid] in step(.ended(uuid)) }
    }

    func accessoryWants(_ intent: AccessoryIntent) {
        guard let bridge, intent.isEnd || channel.machine.channel?.accessoryButtonEventsEnabled == true else {
            if !intent.isEnd { process.accessories.handle(.transmissionEnded) }
            return
        }
        bridge.accessoryWants(intent)
    }

    private func observed(_ event: ChannelServiceEvent) {
        switch event {
        case .callback(.didLeaveChannel(let uuid, _)):
            guard !isClosing else { return }
            process.later { [self] in step(.left(uuid)) }
        case .notice(.transmissionAudioFinished), .notice(.activeRemoteParticipantChanged(nil)):
            if saveIsDue { process.later { [self] in remember() } }
        case .notice, .callback, .remoteParticipantsChanged, .soundProblemsChanged: break
        }
    }

    private func remember() {
        guard let active = machine.active, !active.isConfigured, let joined = channel.machine.channel,
            joined.uuid == active.uuid
        else { return }
        saveIsDue =
            channel.machine.transmission != nil || channel.machine.activeRemoteParticipant != nil
            || channel.machine.isCapturing
        guard !saveIsDue else { return }
        device.disk.record = RestorationRecord(
            channel: joined, token: nil, application: "", invitation: active.link?.text)
    }
}

extension AccessoryIntent {
    var isEnd: Bool { if case .transmitEnded = self { true } else { false } }
}

extension ChannelMembership {
    /// The membership that a record keeps.
    init(_ record: RestorationRecord) {
        self.init(
            uuid: record.channelUUID, descriptor: record.descriptor, owner: nil,
            link: record.invitation.flatMap { try? InvitationLink($0) })
        mode = record.mode
        accessoryButtonEventsEnabled = record.accessoryButtonEventsEnabled
    }

    /// The join of it with the channel service.
    func joining(_ reason: PTChannelJoinReason) -> ChannelJoining {
        ChannelJoining(
            descriptor: descriptor, reason: reason, mode: mode,
            options: .init(
                media: .daemon, accessoryButtonEventsEnabled: accessoryButtonEventsEnabled,
                talkTimeLimit: talkTimeLimit))
    }
}
