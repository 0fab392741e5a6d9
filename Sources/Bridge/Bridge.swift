// Passes events between the talk key, the channel service and the relay link, and carries out the actions of
// `BridgeStateMachine`.
import Accessories
import Audio
import ChannelService
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import RelayClient
import Vocabulary

/// The events that the bridge reports to the user interface and to controls.
public enum BridgeEvent: Sendable, Equatable {
    /// Something that `Bridge.serviceDetail` or the channel service's snapshot shows is different.
    case changed
    /// The transmission ended without those who hold the key: accessories need a fresh press.
    case endedBySystem
    /// A begin was refused, or a transmission ended by something else than a release.
    case failed(PTChannelError)
    /// The channel's creator has deleted it; in words.
    case channelEnded(String)
}

/// One joined channel: its talk key, the channel service and, if the daemon carries the media, its link. All of them
/// run on one loop, so a press does not cross threads.
public actor Bridge {
    /// Called once on the loop: with nil when it is done, or with why not.
    public typealias Answer = @Sendable (PTChannelError?) -> Void

    /// The loop it lives on, which is also the channel service's and the link's.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let channelUUID: UUID
    private let channel: ChannelService
    private let link: (any RelayLink)?
    private let logger: Logger
    private var machine: BridgeStateMachine
    private var queue: [BridgeStateMachine.Event] = []
    private var isHandling = false
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    private var begins: [TalkKey.Holder: Answer] = [:]
    private var stops: [Answer] = []
    private var handler: (@Sendable (BridgeEvent) -> Void)?
    private var observer: ChannelObserverToken?

    /// A bridge on the channel `channelUUID`. Nothing happens before `open`.
    ///
    /// - Parameter link: What carries speech; nil when a program does.
    public init(channelUUID: UUID, channel: ChannelService, link: (any RelayLink)?, logger: Logger) {
        loop = channel.loop
        self.channelUUID = channelUUID
        self.channel = channel
        self.link = link
        self.logger = logger
        machine = BridgeStateMachine(hasLink: link != nil)
    }

    /// Why the service is not ready, in words; empty when it is.
    public var serviceDetail: String { machine.serviceDetail }

    /// Joins the channel: with the channel service at once, with the relay as soon as it can be reached. On the loop.
    ///
    /// - Parameters:
    ///   - handler: Called on the loop, in order.
    ///   - completion: What the channel service answers.
    public func open(
        _ join: ChannelJoining, handler: @escaping @Sendable (BridgeEvent) -> Void, completion: @escaping Answer
    ) {
        self.handler = handler
        let request = ChannelManagerStateMachine.Request.join(
            channelUUID: channelUUID, join.descriptor, reason: join.reason, mode: join.mode,
            status: machine.serviceStatus, options: join.options)
        observer = channel.assumeIsolated { channel in
            channel.setFrameHandler { [weak self] frame in self?.assumeIsolated { $0.captured(frame) } }
            return channel.addObserver { [weak self] event in self?.assumeIsolated { $0.observed(event) } }
        }
        channel.assumeIsolated { $0.request(request, completion: completion) }
        link?.assumeIsolated { link in
            link.setEventHandler { [weak self] event in self?.assumeIsolated { $0.handle(.link(event)) } }
            link.join()
        }
    }

    /// Leaves the channel and the relay, and ends any transmission. On the loop, and not from within a handler.
    ///
    /// - Parameter reason: nil when the channel service has left it already, or is shut down.
    public func close(_ reason: PTChannelLeaveReason?) {
        channel.assumeIsolated { [channelUUID] channel in
            if let reason { channel.request(.leave(channelUUID: channelUUID, reason: reason)) }
        }
        handle(.closed)
        channel.assumeIsolated { [observer] channel in
            if let observer { channel.removeObserver(observer) }
            channel.setFrameHandler(nil)
        }
        observer = nil
        handler = nil
        timer?.timer.cancel()
        timer = nil
        // What the link tells of its own end is no news any more.
        link?.assumeIsolated { link in
            link.setEventHandler { _ in }
            link.leave()
        }
        let gone = PTChannelError(.channelNotFound, explanation: "the channel has been left")
        for answer in stops + begins.values { answer(gone) }
        (begins, stops) = ([:], [])
    }

    // MARK: The talk key

    /// `holder` presses the talk key.
    ///
    /// - Parameters:
    ///   - urgency: A refused emergency is retried for a while, as long as it is held.
    ///   - completion: Called with nil when the microphone records or another holder is already talking.
    public func press(
        _ holder: TalkKey.Holder, urgency: TransmitUrgency = .normal, completion: Answer? = nil
    ) {
        // Presses are answered in the order of their events, so a holder has at most one that waits here.
        if let completion { begins[holder] = completion }
        handle(.pressed(holder, urgency))
    }

    /// `holder` presses the talk key, and waits until the microphone records.
    ///
    /// - Throws: Why nothing is transmitted.
    public func press(_ holder: TalkKey.Holder) async throws(PTChannelError) {
        let error: PTChannelError? = await withCheckedContinuation { continuation in
            press(holder) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// `holder` lets go, or is gone.
    ///
    /// - Returns: Whether it pressed.
    @discardableResult
    public func release(_ holder: TalkKey.Holder) -> Bool {
        let pressed = machine.isPressed(by: holder)
        handle(.released(holder))
        return pressed
    }

    /// The accessories' controls, OR-ed by the module Accessories, begin or end.
    public func accessoryWants(_ intent: AccessoryIntent) {
        switch intent {
        case .transmitBegan(_, let urgency): press(.accessories, urgency: urgency)
        case .transmitEscalated: handle(.escalated)
        case .transmitEnded: release(.accessories)
        }
    }

    // MARK: The program behind the channel

    /// The program begins a transmission: refused while anybody transmits.
    ///
    /// - Throws: Why nothing is transmitted.
    public func requestBegin(program: String) async throws(PTChannelError) {
        let error: PTChannelError? = await withCheckedContinuation { continuation in
            begins[.program(program)] = { continuation.resume(returning: $0) }
            handle(.requestedBegin(program: program))
        }
        if let error { throw error }
    }

    /// Ends the transmission, regardless of who began it. Everyone who holds the talk key has to press again.
    ///
    /// - Throws: `transmissionNotFound`.
    public func requestStop(_ source: PTChannelTransmitRequestSource) async throws(PTChannelError) {
        let error: PTChannelError? = await withCheckedContinuation { continuation in
            stops.append { continuation.resume(returning: $0) }
            handle(.requestedStop(source))
        }
        if let error { throw error }
    }

    /// Ends the transmission, regardless of who began it, without an answer.
    public func stop(_ source: PTChannelTransmitRequestSource) { handle(.requestedStop(source)) }

    /// The program reports the status of its own service. The channel's status is never better than that.
    public func setProgramStatus(_ status: PTServiceStatus) { handle(.programStatus(status)) }

    // MARK: Events in

    private func observed(_ event: ChannelServiceEvent) {
        switch event {
        case .callback(let callback): handle(.callback(callback))
        case .notice(let notice): handle(.notice(notice))
        case .remoteParticipantsChanged, .soundProblemsChanged: handler?(.changed)
        }
    }

    private func captured(_ frame: OutgoingFrame) {
        // The straight line of every frame: no queue, no rule.
        link?.assumeIsolated { $0.send(frame) }
    }

    private func handle(_ event: BridgeStateMachine.Event) {
        // What comes while actions are carried out waits for its turn.
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            let event = queue.removeFirst()
            let actions = machine.handle(event, at: .now)
            for action in actions { perform(action) }
            if event.isVisible { handler?(.changed) }
        }
        isHandling = false
        schedule()
    }

    private func schedule() {
        guard machine.nextDeadline != timer?.deadline else { return }
        timer?.timer.cancel()
        timer = machine.nextDeadline.map { deadline in
            let timer = loop.schedule(at: deadline) { [weak self] in
                self?.assumeIsolated { bridge in
                    bridge.timer = nil
                    bridge.handle(.deadlineReached)
                }
            }
            return (deadline, timer)
        }
    }

    // MARK: Actions out

    private func perform(_ action: BridgeStateMachine.Action) {
        switch action {
        case .beginTransmitting(let source, let floor): begin(source, floor)
        case .refuseBegin(let holder): refuseBegin(holder)
        case .answer(let holder, let error): begins.removeValue(forKey: holder)?(error)
        case .stopTransmitting(let source):
            let answer = stops.isEmpty ? nil : stops.removeFirst()
            request(.stopTransmitting(channelUUID: channelUUID, source: source), answer: answer)
        case .setServiceStatus(let status): request(.setServiceStatus(status, channelUUID: channelUUID))
        case .transmissionRefused(let error): channel.assumeIsolated { $0.transmissionRefused(error) }
        case .transmissionRevoked(let error): channel.assumeIsolated { $0.transmissionRevoked(error) }
        case .floorQueued(let position): channel.assumeIsolated { $0.floorQueued(position: position) }
        case .floorGranted: channel.assumeIsolated { $0.floorGranted() }
        case .setExpectedLoss(let percent): channel.assumeIsolated { $0.setExpectedLoss(percent: percent) }
        case .beginReception(let participant, let burst):
            channel.assumeIsolated { $0.burstBegan(participant, burst) }
        case .play(let frame, let burst): channel.assumeIsolated { $0.received(frame, burst) }
        case .endReception(let burst): channel.assumeIsolated { $0.burstEnded(lastSequence: nil, burst) }
        case .beginBurst(let priority):
            guard let burst = link?.assumeIsolated({ $0.beginBurst(priority: priority) }) else { return }
            queue.insert(.burstBegun(burst), at: 0)
        case .endBurst: link?.assumeIsolated { $0.endBurst() }
        case .abortBurst: link?.assumeIsolated { $0.abortBurst() }
        case .endedBySystem: handler?(.endedBySystem)
        case .channelEnded(let words): handler?(.channelEnded(words))
        case .relayUnanswered(let words): logger.notice("\(words)")
        case .report(let error):
            logger.notice("not transmitted", metadata: ["why": "\(error.explanation)"])
            handler?(.failed(error))
        }
    }

    private func begin(_ source: PTChannelTransmitRequestSource, _ floor: FloorOutlook) {
        let waiting = begins
        begins = [:]
        channel.assumeIsolated { channel in
            let begin = ChannelManagerStateMachine.Request.beginTransmitting(
                channelUUID: channelUUID, source: source, floor: floor)
            channel.request(begin) { [weak self] error in
                if let error { self?.assumeIsolated { $0.handle(.beginRefused(error)) } }
                for answer in waiting.values { answer(error) }
            }
        }
    }

    private func refuseBegin(_ holder: TalkKey.Holder) {
        let answer = begins.removeValue(forKey: holder)
        channel.assumeIsolated { channel in
            let begin = ChannelManagerStateMachine.Request.beginTransmitting(
                channelUUID: channelUUID, source: holder.source)
            channel.request(begin) { [weak self] error in
                // What transmitted may have ended while the request waited for its turn.
                if error == nil { self?.assumeIsolated { $0.handle(.beganAfterAll(holder)) } }
                answer?(error)
            }
        }
    }

    private func request(_ request: ChannelManagerStateMachine.Request, answer: Answer? = nil) {
        channel.assumeIsolated { channel in
            channel.request(request) { [logger] error in
                answer?(error)
                // A release after the end of its transmission finds nothing to stop: no news.
                guard let error, error.code != .transmissionNotFound, answer == nil else { return }
                logger.warning("the channel refused a request", metadata: ["why": "\(error.explanation)"])
            }
        }
    }
}

extension BridgeStateMachine.Event {
    /// Whether it can change what is shown; frames cannot.
    fileprivate var isVisible: Bool {
        if case .link(.frame) = self { return false }
        return true
    }
}
