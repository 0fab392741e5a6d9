// One channel of one pttd for as long as it is joined: the shipped rules, with what `Bridge` does around them.
import MonotonicTime
import PushToTalkCore
import RelayClient
import Vocabulary

@testable import Accessories
@testable import Audio
@testable import Bridge
@testable import ChannelService

final class ProcessBridge {
    typealias Answer = (PTChannelError?) -> Void

    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    let uuid: ChannelUUID
    private let channel: ProcessChannel
    let link: SimulatedLink
    private(set) var machine = BridgeStateMachine(hasLink: true)
    private var queue: [BridgeStateMachine.Event] = []
    private var isHandling = false
    private lazy var alarm = Alarm(clock, of: self) { $0.handle(.deadlineReached) }
    private var begins: [TalkKey.Holder: Answer] = [:]
    private var isClosed = false

    init(process: Process, uuid: ChannelUUID, channel: ProcessChannel, link: SimulatedLink) {
        self.process = process
        world = process.world
        clock = process.device.clock
        self.uuid = uuid
        self.channel = channel
        self.link = link
    }

    func open(_ join: ChannelJoining, completion: @escaping Answer) {
        let request = ChannelManagerStateMachine.Request.join(
            channelUUID: uuid, join.descriptor, reason: join.reason, mode: join.mode, status: machine.serviceStatus,
            options: join.options)
        channel.frameHandler = { [unowned self] frame in captured(frame) }
        channel.observers.append { [weak self] event in self?.observed(event) }
        channel.request(request, completion: completion)
        link.handler = { [weak self] event in self?.handle(.link(event)) }
        link.join()
    }

    func close(_ reason: PTChannelLeaveReason?) {
        if let reason { channel.request(.leave(channelUUID: uuid, reason: reason)) }
        handle(.closed)
        isClosed = true
        channel.frameHandler = nil
        link.handler = { _ in }
        link.leave()
        let gone = PTChannelError(.channelNotFound, explanation: "the channel has been left")
        for answer in begins.values { answer(gone) }
        begins = [:]
    }

    // MARK: The talk key

    func press(_ holder: TalkKey.Holder, urgency: TransmitUrgency = .normal, completion: Answer? = nil) {
        if let completion { begins[holder] = completion }
        handle(.pressed(holder, urgency))
    }

    func requestBegin(program: String, completion: @escaping Answer) {
        begins[.program(program)] = completion
        handle(.requestedBegin(program: program))
    }

    func requestStop() { handle(.requestedStop(.developerRequest)) }

    func release(_ holder: TalkKey.Holder) { handle(.released(holder)) }

    func accessoryWants(_ intent: AccessoryIntent) {
        switch intent {
        case .transmitBegan(_, let urgency): press(.accessories, urgency: urgency)
        case .transmitEscalated: handle(.escalated)
        case .transmitEnded: release(.accessories)
        }
    }

    // MARK: Events in

    private func observed(_ event: ChannelServiceEvent) {
        guard !isClosed else { return }
        switch event {
        case .callback(let callback): handle(.callback(callback))
        case .notice(let notice): handle(.notice(notice))
        case .remoteParticipantsChanged, .soundProblemsChanged: break
        }
    }

    private func captured(_ frame: OutgoingFrame) {
        link.send(frame)
    }

    private func handle(_ event: BridgeStateMachine.Event) {
        guard process.isAlive, !isClosed else { return }
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            let event = queue.removeFirst()
            if event.isRecorded { process.device.fleet.coverage.record("bridge", state: stateName, event: event) }
            for action in machine.handle(event, at: clock.now) { perform(action) }
        }
        isHandling = false
        alarm.set(machine.nextDeadline)
    }

    private var stateName: String {
        if machine.emergencyRetry != nil { return "insisting" }
        if machine.isWaiting { return machine.hasFloor ? "granted" : "waiting" }
        if machine.key.isHeld { return machine.burst == nil ? "held" : "talking" }
        return machine.speakers.isEmpty ? "idle" : "listening"
    }

    // MARK: Actions out

    private func perform(_ action: BridgeStateMachine.Action) {
        switch action {
        case .beginTransmitting(let source, let floor): begin(source, floor)
        case .refuseBegin(let holder): refuseBegin(holder)
        case .answer(let holder, let error): begins.removeValue(forKey: holder)?(error)
        case .stopTransmitting(let source):
            channel.request(.stopTransmitting(channelUUID: uuid, source: source)) { _ in }
        case .setServiceStatus(let status):
            channel.request(.setServiceStatus(status, channelUUID: uuid)) { _ in }
        case .transmissionRefused(let error): channel.handle(.transmissionRefused(error))
        case .transmissionRevoked(let error): channel.handle(.transmissionRevoked(error))
        case .floorQueued(let position): channel.handle(.floorQueued(position: position))
        case .floorGranted: channel.handle(.floorGranted)
        case .setExpectedLoss: break
        case .beginReception(let participant, let burst): channel.receive(.began(participant, burst))
        case .play(let frame, let burst): channel.receive(.packet(frame, burst))
        case .endReception(let burst): channel.receive(.ended(lastSequence: nil, burst))
        case .beginBurst(let priority): queue.insert(.burstBegun(link.beginBurst(priority: priority)), at: 0)
        case .endBurst: link.endBurst()
        case .abortBurst: link.abortBurst()
        case .endedBySystem: process.accessories.handle(.transmissionEnded)
        case .channelEnded: process.director.channelEnded()
        case .relayUnanswered: break
        case .report(let error): world.note(process.name, "reports: \(error.code) \(error.explanation)")
        }
    }

    private func begin(_ source: PTChannelTransmitRequestSource, _ floor: FloorOutlook) {
        let waiting = begins
        begins = [:]
        let begin = ChannelManagerStateMachine.Request.beginTransmitting(
            channelUUID: uuid, source: source, floor: floor)
        channel.request(begin) { [weak self] error in
            if let error { self?.handle(.beginRefused(error)) }
            for answer in waiting.values { answer(error) }
        }
    }

    private func refuseBegin(_ holder: TalkKey.Holder) {
        let answer = begins.removeValue(forKey: holder)
        let begin = ChannelManagerStateMachine.Request.beginTransmitting(channelUUID: uuid, source: holder.source)
        channel.request(begin) { [weak self] error in
            if error == nil { self?.handle(.beganAfterAll(holder)) }
            answer?(error)
        }
    }

}

extension BridgeStateMachine.Event {
    fileprivate var isRecorded: Bool { if case .link(.frame) = self { false } else { true } }
}
