// The channel manager of one pttd: the shipped rules, with what `ChannelService` and `DeviceAudioSession` do around them.
import MonotonicTime
import PushToTalkCore
import Vocabulary

@testable import Audio
@testable import ChannelService

final class ProcessChannel {
    typealias Answer = (PTChannelError?) -> Void

    private unowned let process: Process
    private let world: World
    private let clock: MachineClock
    private(set) var machine: ChannelManagerStateMachine
    private(set) var listening = ListeningStateMachine()
    let microphone: Microphone
    let speaker: Speaker
    private var queue: [ChannelManagerStateMachine.Event] = []
    private var isHandling = false
    private var completions: [RequestIdentifier: Answer] = [:]
    private var lastIdentifier: UInt64 = 0
    private lazy var alarm = Alarm(clock, of: self) { $0.deadlineReached() }
    private var isDeactivating = false
    private var audioProblem: String?
    private var order = CallbackOrder()
    /// Those who watch, in order.
    var observers: [(ChannelServiceEvent) -> Void] = []
    var frameHandler: ((OutgoingFrame) -> Void)?

    init(process: Process) {
        self.process = process
        world = process.world
        clock = process.device.clock
        machine = ChannelManagerStateMachine(
            configuration: .init(talkTimeLimit: Fleet.talkTimeLimit, talkTimeWarning: .seconds(3)),
            generator: process.world.random("tokens \(process.device.number) \(process.life)"))
        microphone = Microphone(process: process)
        speaker = Speaker(process: process)
        microphone.handler = { [unowned self] in heard($0) }
        speaker.played = { [unowned self] in receive(.played(voice: $0)) }
        speaker.rested = { [unowned self] in finishDeactivating() }
        speaker.failed = { [unowned self] reason in
            guard audioProblem != reason else { return }
            audioProblem = reason
            handle(.playbackFailed(reason: reason))
        }
    }

    // MARK: Asking

    func request(_ request: ChannelManagerStateMachine.Request, completion: Answer? = nil) {
        guard queue.count < ChannelService.eventsQueuedMax else {
            return world.fail("I8", "\(process.name): \(queue.count) requests wait for the channel manager")
        }
        var identifier: RequestIdentifier?
        if let completion {
            lastIdentifier += 1
            let made = RequestIdentifier(rawValue: lastIdentifier)
            completions[made] = completion
            identifier = made
        }
        if case .beginTransmitting = request, listening.isReplaying { receive(.replayStopped) }
        handle(.request(request, identifier))
    }

    func handle(_ event: ChannelManagerStateMachine.Event) {
        guard process.isAlive else { return }
        queue.append(event)
        guard !isHandling else { return }
        isHandling = true
        while !queue.isEmpty {
            let event = queue.removeFirst()
            process.device.fleet.coverage.record("channelManager", state: stateName, event: event)
            for action in machine.handle(event, at: clock.now) { perform(action) }
        }
        isHandling = false
        arm()
    }

    private var stateName: String {
        let session =
            switch machine.audioSession {
            case .inactive: "inactive"
            case .activating: "activating"
            case .active: "active"
            case .deactivating: "deactivating"
            }
        if machine.transmission != nil { return "transmitting/\(session)" }
        if machine.waiting != nil { return "waiting/\(session)" }
        if machine.isCapturing { return "tail/\(session)" }
        return (machine.activeRemoteParticipant == nil ? "idle" : "listening") + "/\(session)"
    }

    private func perform(_ action: ChannelManagerStateMachine.Action) {
        switch action {
        case .callback(let callback):
            world.note(process.name, "\(callback)")
            if let problem = order.accept(callback) { world.fail("I6", "\(process.name): \(callback) \(problem)") }
            switch callback {
            case .didJoinChannel: microphone.prepare()
            case .didLeaveChannel:
                process.recorder.take(.left)
                receive(.left)
            case .didBeginTransmitting(_, let source): process.began(source)
            default: break
            }
            tell(.callback(callback))
            if case .didEndTransmitting = callback { receive(.transmissionEnded) }
        case .notice(let notice):
            world.note(process.name, "\(notice)")
            if case .transmissionAudioFinished(let erased) = notice {
                process.recorder.take(.ownEnded(erased: erased))
                receive(.ownSpeechComplete)
            }
            if notice == .activeRemoteParticipantChanged(nil) { receive(.cleared) }
            if case .audioSessionInterrupted = notice { receive(.replayStopped) }
            tell(.notice(notice))
        case .activateAudioSession:
            isDeactivating = false
            handle(.audioSessionActivated)
        case .deactivateAudioSession(let playOut):
            isDeactivating = true
            if playOut == .drop { speaker.dropAll() }
            finishDeactivating()
        case .startCapture(let start): microphone.start(start)
        case .stopCapture(let stop): microphone.stop(stop)
        case .playTone: speaker.playTone()
        case .complete(let request, let error): completions.removeValue(forKey: request)?(error)
        }
    }

    private func tell(_ event: ChannelServiceEvent) { for observer in observers { observer(event) } }

    private func finishDeactivating() {
        guard isDeactivating, speaker.isResting else { return }
        isDeactivating = false
        handle(.audioSessionDeactivated)
    }

    private func arm() { alarm.set(machine.nextDeadline, listening.nextDeadline) }

    private func deadlineReached() {
        guard process.isAlive else { return }
        receive(.deadlineReached)
        handle(.deadlineReached)
    }

    // MARK: Listening

    func receive(_ event: ReceptionEvent) {
        guard process.isAlive else { return }
        keep(event)
        if !event.isPacket { process.device.fleet.coverage.record("listening", state: listeningState, event: event) }
        listening.hearsWhileRecording = machine.channel?.transmissionMode == .fullDuplex
        listening.speakerHolds = speaker.packetsHeld
        for action in listening.handle(event, at: clock.now) {
            switch action {
            case .setParticipant(let participant): setParticipant(participant)
            case .play(let packet, let voice): play(packet, voice)
            case .endPlayback(_, let voice): speaker.end(voice: voice)
            case .dropPlayback(let voice):
                world.note(process.name, "what is not heard yet is dropped")
                process.ledger.dropped()
                speaker.drop(voice: voice)
            }
        }
        if !isHandling { arm() }
    }

    /// What comes from the relay is kept, whether it is heard or not.
    private func keep(_ event: ReceptionEvent) {
        switch event {
        case .began(let participant, let burst): process.recorder.take(.began(participant, channel: "", burst))
        case .packet(let packet, let burst): process.recorder.take(.packet(packet, burst))
        case .ended(_, let burst): process.recorder.take(.ended(burst))
        default: break
        }
    }

    private var listeningState: String {
        listening.participants.isEmpty ? "idle" : "heard\(listening.participants.count)"
    }

    private func setParticipant(_ participant: PTParticipant?) {
        guard let channel = machine.channel else { return receive(.cleared) }
        request(.setActiveRemoteParticipant(participant, channelUUID: channel.uuid)) { [unowned self] error in
            guard let error, participant != nil else { return }
            receive(error.code == .transmissionInProgress ? .refused : .cleared)
        }
    }

    private func play(_ packet: ReceivedFrame, _ voice: Int) {
        switch machine.audioSession {
        case .active, .activating: _ = speaker.play(packet, voice: voice)
        case .inactive, .deactivating: break
        }
    }

    // MARK: Sound

    private func heard(_ event: MicrophoneEvent) {
        switch event {
        case .began:
            audioProblem = nil
            handle(.captureBegan)
        case .frame(let frame):
            process.recorder.take(.ownFrame(frame, channel: ""))
            frameHandler?(frame)
        case .ended: handle(.captureEnded)
        case .failed(let reason): handle(.captureFailed(reason: reason))
        }
    }
}
