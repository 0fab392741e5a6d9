// Carries events between talk key, channel service and relay link, and does what `BridgeStateMachine` says.
import Accessories
import Audio
import ChannelService
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import RelayClient

/// What the bridge tells those who show or press things.
public enum BridgeEvent: Sendable, Equatable {
    /// Something that `Bridge.serviceDetail` or the channel service's snapshot shows is different.
    case changed
    /// The transmission ended without those who hold the key: accessories need a fresh press.
    case endedBySystem
    /// A begin was refused, or a transmission ended by something else than a release.
    case failed(PTChannelError)
}

/// One channel: its talk key, its channel service and its link. All of them live on one loop, so a press crosses no thread.
public actor Bridge {
    /// The loop it lives on, which is also the channel service's and the link's.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let channelUUID: UUID
    private let channel: ChannelService
    private let link: any RelayLink
    private let logger: Logger
    private var machine = BridgeStateMachine()
    private var queue: [BridgeStateMachine.Event] = []
    private var isHandling = false
    private var begins: [TalkKey.Holder: @Sendable (PTChannelError?) -> Void] = [:]
    private var handler: (@Sendable (BridgeEvent) -> Void)?
    private var observer: ChannelObserverToken?

    /// A bridge on the channel `channelUUID`. Nothing happens before `start`.
    public init(channelUUID: UUID, channel: ChannelService, link: any RelayLink, logger: Logger) {
        loop = channel.loop
        self.channelUUID = channelUUID
        self.channel = channel
        self.link = link
        self.logger = logger
    }

    /// Why the service is not ready, in words; empty when it is.
    public var serviceDetail: String { machine.serviceDetail }

    /// Joins the channel: with the channel service at once, with the relay as soon as it can be reached.
    ///
    /// - Parameter handler: Called on the loop, in order.
    public func start(
        descriptor: PTChannelDescriptor, handler: @escaping @Sendable (BridgeEvent) -> Void
    ) async throws(PTChannelError) {
        self.handler = handler
        await channel.setFrameHandler { [weak self] frame in self?.assumeIsolated { $0.captured(frame) } }
        observer = await channel.addObserver { [weak self] event in self?.assumeIsolated { $0.observed(event) } }
        await link.setEventHandler { [weak self] event in self?.assumeIsolated { $0.handle(.link(event)) } }
        try await channel.join(channelUUID: channelUUID, descriptor: descriptor, status: .connecting)
        await link.join()
    }

    /// Ends what goes on and leaves the relay.
    public func stop() async {
        await channel.shutdown()
        // What the link tells of its own end is no news any more.
        await link.setEventHandler { _ in }
        await link.leave()
        if let observer { await channel.removeObserver(observer) }
        observer = nil
    }

    // MARK: The talk key

    /// `holder` presses the talk key.
    ///
    /// - Parameter completion: Called once on the loop: with nil when the microphone records or another holder talks
    ///   already, or with why not.
    public func press(_ holder: TalkKey.Holder, completion: (@Sendable (PTChannelError?) -> Void)? = nil) {
        // Presses are answered in the order of their events, so a holder has at most one that waits here.
        if let completion { begins[holder] = completion }
        handle(.pressed(holder))
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

    /// The accessories' controls, OR-ed by their own room, begin or end.
    public func accessoryWants(_ intent: AccessoryIntent) {
        switch intent {
        case .transmitBegan: press(.accessories)
        case .transmitEnded: release(.accessories)
        }
    }

    // MARK: Events in

    private func observed(_ event: ChannelServiceEvent) {
        switch event {
        case .callback(let callback): handle(.callback(callback))
        case .notice(let notice): handle(.notice(notice))
        }
    }

    private func captured(_ frame: EncodedFrame) {
        // The straight line of every 20 ms: no queue, no rule.
        let outgoing = OutgoingFrame(
            payload: frame.payload, samples: UInt32(clamping: frame.samplesPerFrame), capturedAt: frame.captureTime)
        link.assumeIsolated { $0.send(outgoing) }
    }

    private func handle(_ event: BridgeStateMachine.Event) {
        // What comes while actions are carried out waits for its turn.
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            let event = queue.removeFirst()
            let actions = machine.handle(event)
            for action in actions { perform(action) }
            if event.isVisible { handler?(.changed) }
        }
        isHandling = false
    }

    // MARK: Actions out

    private func perform(_ action: BridgeStateMachine.Action) {
        switch action {
        case .beginTransmitting(let source): begin(source)
        case .answer(let holder, let error): begins.removeValue(forKey: holder)?(error)
        case .stopTransmitting(let source):
            request(.stopTransmitting(channelUUID: channelUUID, source: source))
        case .setServiceStatus(let status): request(.setServiceStatus(status, channelUUID: channelUUID))
        case .transmissionRefused(let error): channel.assumeIsolated { $0.transmissionRefused(error) }
        case .transmissionRevoked(let error): channel.assumeIsolated { $0.transmissionRevoked(error) }
        case .beginReception(let participant): channel.assumeIsolated { $0.burstBegan(participant) }
        case .play(let frame): play(frame)
        case .endReception: channel.assumeIsolated { $0.burstEnded(lastSequence: nil) }
        case .beginBurst:
            let burst = link.assumeIsolated { $0.beginBurst(priority: 0) }
            queue.insert(.burstBegun(burst), at: 0)
        case .endBurst: link.assumeIsolated { $0.endBurst() }
        case .abortBurst: link.assumeIsolated { $0.abortBurst() }
        case .endedBySystem: handler?(.endedBySystem)
        case .report(let error):
            logger.notice("not transmitted", metadata: ["code": "\(error.code)", "why": "\(error.explanation)"])
            handler?(.failed(error))
        }
    }

    private func begin(_ source: PTChannelTransmitRequestSource) {
        let waiting = begins
        begins = [:]
        channel.assumeIsolated { channel in
            channel.request(.beginTransmitting(channelUUID: channelUUID, source: source)) { [weak self] error in
                if let error { self?.assumeIsolated { $0.handle(.beginRefused(error)) } }
                for answer in waiting.values { answer(error) }
            }
        }
    }

    private func request(_ request: ChannelManagerStateMachine.Request) {
        channel.assumeIsolated { channel in
            channel.request(request) { [logger] error in
                // A release after the end of its transmission finds nothing to stop: no news.
                guard let error, error.code != .transmissionNotFound else { return }
                logger.warning(
                    "the channel manager refused", metadata: ["request": "\(request)", "why": "\(error.explanation)"])
            }
        }
    }

    private func play(_ frame: ReceivedFrame) {
        let packet = ReceivedPacket(
            sequence: frame.sequence, timestamp: frame.timestamp, marker: frame.marker, payload: frame.payload,
            receivedAt: frame.receivedAt)
        channel.assumeIsolated { $0.received(packet) }
    }
}

extension BridgeStateMachine.Event {
    /// Whether it can change what is shown; frames cannot.
    fileprivate var isVisible: Bool {
        if case .link(.frame) = self { return false }
        return true
    }
}
