// The running channel manager: the rules of `PushToTalkCore` on an event loop, with sound. It carries events in and
// actions out, in order, and knows neither D-Bus, accessories nor the relay.

import Audio
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import SpokenPrompts
import Vocabulary

/// The one channel manager of this machine, on an event loop.
///
/// Callers on the loop use `request` and the other plain methods by `assumeIsolated`; callers elsewhere `await` `perform`. Observers and
/// the frame handler are called on the loop, one at a time and in order; what they ask for in turn is done after the actions under way.
public actor ChannelService {
    /// Observers at the same time.
    public static let observersMax = 64
    /// Events that wait because they came from within a handler.
    public static let eventsQueuedMax = 256

    typealias Event = ChannelManagerStateMachine.Event

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the executor of this actor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    let logger: Logger
    let audio: any AudioSession
    var machine: ChannelManagerStateMachine
    var listening = ListeningStateMachine()
    var replays = ReplayMemory()
    /// Nil: nothing is spoken.
    var prompts: ChannelPrompts?
    var statistics = ChannelServiceStatistics()
    var soundProblems: [AudioDevice.Use: String] = [:]
    var inputLevel = OutgoingFrame.levelMin
    private var levelTold: Float?
    var wornHandler: (@Sendable (WornMicrophoneReport) -> Void)?
    private var levelHandler: (@Sendable (Float?) -> Void)?

    private var queue: [Event] = []
    private(set) var isHandling = false
    private var observers: [(token: ChannelObserverToken, handler: @Sendable (ChannelServiceEvent) -> Void)] = []
    var speechHandler: (@Sendable (SpeechEvent) -> Void)?
    private(set) var frameHandler: (@Sendable (OutgoingFrame) -> Void)?
    private var completions: [RequestIdentifier: @Sendable (PTChannelError?) -> Void] = [:]
    private var lastIdentifier: UInt64 = 0
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?
    var isFirstFrame = false
    private(set) var isClosed = false

    /// A channel manager without a channel, with the sound devices of `configuration`. The devices need not be there.
    public init(configuration: ChannelServiceConfiguration, loop: EventLoop, logger: Logger) {
        self.init(
            rules: configuration.rules,
            audio: DeviceAudioSession(configuration: configuration, loop: loop, logger: logger), loop: loop,
            logger: logger)
    }

    init(
        rules: ChannelManagerStateMachine.Configuration, audio: sending any AudioSession, loop: EventLoop,
        logger: Logger
    ) {
        self.loop = loop
        self.logger = logger
        self.audio = audio
        machine = ChannelManagerStateMachine(configuration: rules)
    }

    // MARK: Watching

    /// What the service is doing now.
    public var snapshot: ChannelServiceSnapshot {
        var statistics = statistics
        statistics.packetsDropped += listening.packetsDropped
        statistics.framesCut = audio.framesCut
        let (microphoneProblem, speakerProblem) = (soundProblems[.microphone], soundProblems[.speaker])
        return ChannelServiceSnapshot(
            channel: machine.channel, transmission: machine.transmission, waiting: machine.waiting,
            activeRemoteParticipant: machine.activeRemoteParticipant, remoteParticipants: listening.participants,
            audioSession: machine.audioSession, isCapturing: machine.isCapturing, calls: machine.calls,
            program: machine.pushes.program,
            pushToken: machine.pushes.token, audioProblem: speakerProblem ?? microphoneProblem,
            microphoneProblem: microphoneProblem, speakerProblem: speakerProblem,
            inputLevel: levelShown, statistics: statistics)
    }

    /// Calls `handler` on the loop with everything that happens from now on, in order.
    ///
    /// - Returns: What `removeObserver` takes; nil when there are `observersMax` already.
    public func addObserver(_ handler: @escaping @Sendable (ChannelServiceEvent) -> Void) -> ChannelObserverToken? {
        guard observers.count < Self.observersMax else {
            logger.warning("channel observer refused: there are \(Self.observersMax) already")
            return nil
        }
        lastIdentifier += 1
        let token = ChannelObserverToken(rawValue: lastIdentifier)
        observers.append((token, handler))
        return token
    }

    /// Ends an observing.
    public func removeObserver(_ token: ChannelObserverToken) {
        observers.removeAll { $0.token == token }
    }

    /// Sets the handler for the frames of own speech. It runs on the loop, for each frame from the encoder.
    ///
    /// After each `didBeginTransmitting` come its frames. There may be none, and the tail's frames come after
    /// `didEndTransmitting`. One notice `transmissionAudioFinished` follows, and only then may the next transmission
    /// begin.
    public func setFrameHandler(_ handler: (@Sendable (OutgoingFrame) -> Void)?) {
        frameHandler = handler
    }

    /// Sets the handler for the level of own speech (`ChannelServiceSnapshot.inputLevel`). It runs on the loop, at most
    /// ten times a second while recording, and once with nil when recording stops.
    public func setLevelHandler(_ handler: (@Sendable (Float?) -> Void)?) { levelHandler = handler }

    /// Sets the handler for reports on the worn microphone. It runs on the loop.
    public func setWornMicrophoneHandler(_ handler: (@Sendable (WornMicrophoneReport) -> Void)?) {
        wornHandler = handler
    }

    /// What is worn from now on: the next transmission uses its microphone, and sound its speaker. On the loop.
    public func use(_ sound: WornSound) {
        guard !isClosed else { return }
        connectAudio()
        audio.use(sound)
    }

    private var levelShown: Float? { machine.isCapturing ? inputLevel : nil }

    func tellLevel() {
        guard levelShown != levelTold else { return }
        levelTold = levelShown
        levelHandler?(levelTold)
    }

    // MARK: Asking

    /// Asks for something; callable on the loop by `assumeIsolated`, also from within handlers.
    ///
    /// - Parameters:
    ///   - request: What is wanted.
    ///   - completion: Called once on the loop: with nil when done, or with why not. A begin is done when the
    ///     microphone records (its `didBeginTransmitting` comes before, at once).
    public func request(
        _ request: ChannelManagerStateMachine.Request, completion: (@Sendable (PTChannelError?) -> Void)? = nil
    ) {
        guard !isClosed, queue.count < Self.eventsQueuedMax else {
            statistics.requestsDropped += 1
            let explanation =
                isClosed ? "the push-to-talk service has ended" : "too many requests at once; try again"
            completion?(PTChannelError(.unknown, explanation: explanation))
            return
        }
        var identifier: RequestIdentifier?
        if let completion {
            lastIdentifier += 1
            let request = RequestIdentifier(rawValue: lastIdentifier)
            completions[request] = completion
            identifier = request
        }
        if case .beginTransmitting(_, let source, _) = request {
            log("press handled", ["source": "\(source)"])
            // Who wants to speak has heard enough of it.
            if listening.isReplaying { receive(.replayStopped) }
        }
        handle(.request(request, identifier))
    }

    /// Asks for something and waits for the answer, for callers that are not on the loop; a begin is answered when the microphone records.
    ///
    /// - Throws: Why not.
    public func perform(_ request: ChannelManagerStateMachine.Request) async throws(PTChannelError) {
        let error: PTChannelError? = await withCheckedContinuation { continuation in
            self.request(request) { continuation.resume(returning: $0) }
        }
        if let error { throw error }
    }

    /// The relay did not grant the transmission: what was captured is erased, and it ends.
    public func transmissionRefused(_ error: PTChannelError) { handle(.transmissionRefused(error)) }

    /// The relay took the grant back: the transmission ends at once.
    public func transmissionRevoked(_ error: PTChannelError) { handle(.transmissionRevoked(error)) }

    /// The relay lets the transmission wait, at this place from 1: what was captured is erased, and others are heard meanwhile.
    public func floorQueued(position: Int) { handle(.floorQueued(position: position)) }

    /// What waited has got the floor.
    public func floorGranted() { handle(.floorGranted) }

    /// A call has the audio, by the word of `holder`; several may at the same time, and the last one's end frees it.
    ///
    /// - Parameters:
    ///   - holder: Names the call among all.
    ///   - description: What it is, for the user; nil: it is over.
    public func setCallActive(holder: String, description: String?) {
        guard let description else { return handle(.callEnded(holder: holder)) }
        handle(.callBegan(CallHold(holder: holder, description: description)))
        // From within a handler the event waits for its turn, and is looked at then.
        guard !isHandling, !isClosed, !machine.calls.contains(where: { $0.holder == holder }) else { return }
        logger.warning("call ignored: \(ChannelManagerStateMachine.callsMax) calls are known already")
    }

    /// Listeners lose `percent` (0…100) of the packets; own speech is encoded to tolerate that.
    public func setExpectedLoss(percent: Int) { audio.setExpectedLoss(percent: percent) }

    /// Something about pushes, or the program behind the channel came or left; callable on the loop by `assumeIsolated`.
    public func push(_ event: ChannelManagerStateMachine.PushEvent) { handle(.push(event)) }

    /// The first callbacks for a program that registers for its channel; see `ChannelManagerStateMachine`.
    public var restorationCallbacks: [DelegateCallback] { machine.restorationCallbacks }

    /// Something else than a call takes the audio; nil: it may be used again.
    public func setInterruption(_ reason: String?) {
        handle(reason.map { .audioSessionInterrupted(reason: $0) } ?? .audioSessionInterruptionEnded)
    }

    /// Sounds a tone as feedback to a control.
    public func signal(_ tone: Tone) { handle(.signal(tone)) }

    /// Ends the current activity, refuses new requests, and returns when the sound devices are released. The channel is not left.
    public func shutdown() async {
        guard !isClosed else { return }
        handle(.shutdown)
        isClosed = true
        prompts?.close()
        timer?.timer.cancel()
        timer = nil
        await withCheckedContinuation { continuation in audio.close { continuation.resume() } }
    }

    // MARK: The rules

    func handle(_ event: Event) {
        guard !isClosed else { return }
        connectAudio()
        // What comes from within a handler waits for its turn: callbacks are told one at a time.
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            for action in machine.handle(queue.removeFirst(), at: .now) { perform(action) }
        }
        isHandling = false
        followPrompts()
        tellLevel()
        schedule()
    }

    private func perform(_ action: ChannelManagerStateMachine.Action) {
        switch action {
        case .callback(let callback):
            note(callback)
            switch callback {
            case .didJoinChannel: audio.prepare(for: machine.channel?.media)
            case .didLeaveChannel:
                forgetSpeech()
                receive(.left)
                audio.prepare(for: nil)
            default: break
            }
            tell(.callback(callback))
            // Observers first: they are told of an end before of what begins with it.
            if case .didEndTransmitting = callback { receive(.transmissionEnded) }
        case .notice(let notice):
            note(notice)
            if case .transmissionAudioFinished(let erased) = notice {
                keepOwn(erased: erased)
                receive(.ownSpeechComplete)
            }
            // Whoever ended it (a channel left, a shutdown): the burst is not listened to any more.
            if notice == .activeRemoteParticipantChanged(nil) { receive(.cleared) }
            // A call is not to end in the middle of what was said before it.
            if case .audioSessionInterrupted = notice { receive(.replayStopped) }
            tell(.notice(notice))
        case .activateAudioSession: audio.activate()
        case .deactivateAudioSession(let playOut): audio.deactivate(playOut)
        case .startCapture(let start):
            isFirstFrame = true
            inputLevel = OutgoingFrame.levelMin
            audio.startCapture(start)
        case .stopCapture(let stop): audio.stopCapture(stop)
        case .playTone(let tone):
            audio.play(tone)
            if let prompt = SpokenPrompt(after: tone) { say(prompt) }
        case .complete(let request, let error): completions.removeValue(forKey: request)?(error)
        }
    }

    func tell(_ event: ChannelServiceEvent) {
        for observer in observers { observer.handler(event) }
    }

    /// Whether anything is going to wake the loop for this service.
    var hasTimer: Bool { timer?.timer.isPending ?? false }

    func schedule() {
        guard !isHandling, !isClosed else { return }
        let deadline = [machine.nextDeadline, listening.nextDeadline].compactMap { $0 }.min()
        // A deadline that has moved away is left to come, and to find nothing due: packets move it all the time.
        if let timer, timer.timer.isPending, let deadline, timer.deadline <= deadline { return }
        timer?.timer.cancel()
        timer = nil
        guard let deadline else { return }
        let next = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.deadlineReached() }
        }
        timer = (deadline, next)
    }

    private func deadlineReached() {
        timer = nil
        receive(.deadlineReached)
        handle(.deadlineReached)
    }
}
