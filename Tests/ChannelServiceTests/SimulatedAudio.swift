// A sound system that does what the test says, and a channel service around it.

import Audio
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import Synchronization
import Vocabulary

@testable import ChannelService

/// Records its commands; tells what the test makes it tell. Confined to the service's loop.
final class SimulatedAudio: AudioSession {
    enum Command: Hashable {
        case prepared(MediaOwner?)
        case use(WornSound)
        case activate
        case deactivate(ChannelManagerStateMachine.PlayOut)
        case startCapture(CaptureStart)
        case expectedLoss(Int)
        case stopCapture(ChannelManagerStateMachine.CaptureStop)
        case tone(Tone)
        case prompt(UInt32)
        case stopPrompt
        case packet(UInt16)
        case endReception(UInt16)
        case dropReception
        /// On another voice than the first.
        case packetBeside(UInt16, voice: Int)
        case endReceptionBeside(UInt16, voice: Int)
        case dropReceptionBeside(voice: Int)
        case close
    }

    var handler: ((AudioSessionEvent) -> Void)?
    let framesCut = 0
    var packetsHeld = 0
    var commands: [Command] = []
    /// Whether it answers activation, start of capture and deactivation by itself, from within the command.
    var answers = true
    /// What is delivered from within `stopCapture(.immediately)`.
    var framesLeft: [OutgoingFrame] = []

    private var isForProgram = false

    func prepare(for media: MediaOwner?) {
        commands.append(.prepared(media))
        isForProgram = media == .application
    }

    func use(_ sound: WornSound) { commands.append(.use(sound)) }

    func activate() {
        commands.append(.activate)
        if answers { handler?(.activated) }
    }

    func deactivate(_ playOut: ChannelManagerStateMachine.PlayOut) {
        commands.append(.deactivate(playOut))
        if answers { handler?(.deactivated) }
    }

    func setExpectedLoss(percent: Int) { commands.append(.expectedLoss(percent)) }

    func startCapture(_ start: CaptureStart) {
        commands.append(.startCapture(start))
        if answers { handler?(.captureBegan(firstSampleAt: .now)) }
    }

    func stopCapture(_ stop: ChannelManagerStateMachine.CaptureStop) {
        commands.append(.stopCapture(stop))
        if stop == .immediately {
            for frame in framesLeft { handler?(.frame(frame)) }
            framesLeft = []
        }
    }

    func play(_ tone: Tone) {
        commands.append(.tone(tone))
        if answers, isForProgram { handler?(.tonesFinished(heard: true)) }
    }

    func play(_ prompt: PromptSound, number: UInt32) -> Bool {
        commands.append(.prompt(number))
        return true
    }

    func stopPrompt() { commands.append(.stopPrompt) }

    func play(_ packet: ReceivedFrame, voice: Int) -> Bool {
        commands.append(voice == 0 ? .packet(packet.sequence) : .packetBeside(packet.sequence, voice: voice))
        return true
    }

    func endReception(lastSequence: UInt16, voice: Int) {
        commands.append(voice == 0 ? .endReception(lastSequence) : .endReceptionBeside(lastSequence, voice: voice))
    }

    func dropReception(voice: Int) {
        commands.append(voice == 0 ? .dropReception : .dropReceptionBeside(voice: voice))
    }

    func close(_ closed: @escaping () -> Void) {
        commands.append(.close)
        handler = nil
        closed()
    }
}

extension ChannelServiceConfiguration {
    init(
        microphone: AudioDevice, speaker: AudioDevice, tail: Duration = CaptureEngine.tailDefault,
        playback: PlaybackConfiguration = .init(), playsTones: Bool = true, cancelsEcho: Bool = false
    ) {
        self.init(microphone: microphone, speaker: speaker)
        (self.tail, self.playback, self.playsTones, self.cancelsEcho) = (tail, playback, playsTones, cancelsEcho)
    }
}

/// A channel service on a loop of its own, with a log of what it tells.
final class ServiceUnderTest: Sendable {
    static let channel = UUID()
    static let descriptor = PTChannelDescriptor(name: "Crew", image: nil)

    let loop: EventLoop
    let service: ChannelService
    private let log = Mutex<[ChannelServiceEvent]>([])
    private let frameLog = Mutex<[OutgoingFrame]>([])
    private let token = Mutex<ChannelObserverToken?>(nil)

    init(rules: ChannelManagerStateMachine.Configuration = .init()) throws {
        loop = try EventLoop(name: "test")
        service = ChannelService(rules: rules, audio: SimulatedAudio(), loop: loop, logger: quietLogger)
    }

    init(_ configuration: ChannelServiceConfiguration) throws {
        loop = try EventLoop(name: "test")
        service = ChannelService(configuration: configuration, loop: loop, logger: quietLogger)
    }

    deinit { loop.stop() }

    /// Watches, and joins the channel.
    func start(
        mode: PTTransmissionMode = .halfDuplex, options: ChannelManagerStateMachine.JoinOptions = .init()
    ) async throws {
        let token = await service.addObserver { [self] event in keep(event) }
        self.token.withLock { $0 = token }
        await service.setFrameHandler { [self] frame in keep(frame) }
        try await service.join(channelUUID: Self.channel, descriptor: Self.descriptor, mode: mode, options: options)
    }

    var events: [ChannelServiceEvent] { log.withLock { $0 } }
    var frames: [OutgoingFrame] { frameLog.withLock { $0 } }
    var callbacks: [DelegateCallback] {
        events.compactMap { if case .callback(let callback) = $0 { callback } else { nil } }
    }

    func keep(_ event: ChannelServiceEvent) { log.withLock { $0.append(event) } }
    func keep(_ frame: OutgoingFrame) { frameLog.withLock { $0.append(frame) } }

    func begin(_ source: PTChannelTransmitRequestSource = .userRequest) async throws(PTChannelError) {
        try await service.perform(.beginTransmitting(channelUUID: Self.channel, source: source))
    }

    func stop(_ source: PTChannelTransmitRequestSource = .userRequest) async throws(PTChannelError) {
        try await service.perform(.stopTransmitting(channelUUID: Self.channel, source: source))
    }

    /// Waits until something has been told, for ten seconds at most.
    func waitFor(_ wanted: @escaping @Sendable (ChannelServiceEvent) -> Bool) async -> Bool {
        await eventually { self.events.contains(where: wanted) }
    }

    func finish() async {
        await service.shutdown()
        // They hold this object.
        await service.setFrameHandler(nil)
        if let token = token.withLock({ $0 }) { await service.removeObserver(token) }
    }
}

/// A value that several closures write.
final class Shared<Value: Sendable>: Sendable {
    private let value: Mutex<Value>
    init(_ value: Value) { self.value = Mutex(value) }
    func withLock<Result: Sendable>(_ body: (inout Value) -> Result) -> Result {
        value.withLock { value in
            var copy = value
            let result = body(&copy)
            value = copy
            return result
        }
    }
}

/// Whether `condition` becomes true within ten seconds.
func eventually(_ condition: @Sendable () async -> Bool) async -> Bool {
    let limit = Instant.now + .seconds(10)
    while await !condition() {
        guard Instant.now < limit else { return false }
        try? await Task.sleep(for: .milliseconds(5))
    }
    return true
}

let quietLogger: Logger = {
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    return logger
}()

extension ChannelService {
    /// Runs `body` on the loop, inside the service.
    func run<T: Sendable>(_ body: @Sendable (isolated ChannelService) throws -> T) rethrows -> T {
        try body(self)
    }

    /// Makes a channel the active one.
    func join(
        channelUUID: UUID, descriptor: PTChannelDescriptor, mode: PTTransmissionMode = .halfDuplex,
        options: ChannelManagerStateMachine.JoinOptions = .init()
    ) async throws(PTChannelError) {
        try await perform(
            .join(
                channelUUID: channelUUID, descriptor, reason: .developerRequest, mode: mode, status: .ready,
                options: options))
    }

    /// The sound system of a service under test.
    var simulatedAudio: SimulatedAudio {
        guard let audio = audio as? SimulatedAudio else { preconditionFailure("not a simulated sound system") }
        return audio
    }
}

/// What one reception does, on the first voice.
extension ReceptionAction {
    static func play(_ frame: ReceivedFrame) -> ReceptionAction { .play(frame, voice: 0) }
    static func endPlayback(lastSequence: UInt16) -> ReceptionAction {
        .endPlayback(lastSequence: lastSequence, voice: 0)
    }
    static func dropPlayback() -> ReceptionAction { .dropPlayback(voice: 0) }
}

func frame(_ position: UInt32, last: Bool = false) -> OutgoingFrame {
    OutgoingFrame(
        payload: [0xF8], samples: 960, capturedAt: .zero, position: position, burst: 1, isFirst: position == 0,
        isLast: last)
}

func packet(_ sequence: UInt16, _ payload: [UInt8] = [0xF8, 0xFF, 0xFE]) -> ReceivedFrame {
    ReceivedFrame(
        sequence: sequence, timestamp: UInt32(sequence) &* 960, marker: false, payload: payload, receivedAt: .now)
}
