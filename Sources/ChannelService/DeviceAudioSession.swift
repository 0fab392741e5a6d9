// The microphone and the speaker of this machine as the channel service's audio session. It holds no rule of who may
// talk, only how the engines of `Audio` are driven.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor

/// The sound devices of this machine, on an event loop.
///
/// An engine that cannot be made, or whose device fails, is tried again with the next use.
final class DeviceAudioSession: AudioSession {
    var handler: ((AudioSessionEvent) -> Void)?
    private(set) var framesCut = 0

    private let configuration: ChannelServiceConfiguration
    private let loop: EventLoop
    private let logger: Logger
    private var microphone: CaptureEngine?
    private var microphoneWatch: EventLoop.Watch?
    private var speaker: PlaybackEngine?
    private var speakerWatch: EventLoop.Watch?

    /// The engine's number of the transmission that is being recorded; what comes of others is void.
    private var captureBurst: UInt32?
    /// The transmission that was cut last: its encoder may still give a frame or two, which are counted and dropped.
    private var cutBurst: UInt32?
    private var microphoneFailure: String?
    /// The microphone is to stop within this turn of the loop, unless the next transmission takes it over running.
    private var abortPending = false
    private var tonesPlaying = 0
    /// Sounds that wait for the one that plays: tones of several sounds are heard one after the other.
    private var soundsQueued: [Tone] = []
    private var speechPlaying = false
    private var deactivating = false
    /// The media are a program's, which waits for tones to be heard before it gets the devices.
    private var isForProgram = false
    private var activating = false
    /// The speaker could not be made: it is tried again with the next activation, not with each packet.
    private var speakerBlocked = false

    init(configuration: ChannelServiceConfiguration, loop: EventLoop, logger: Logger) {
        self.configuration = configuration
        self.loop = loop
        self.logger = logger
    }

    func prepare(for media: MediaOwner?) {
        isForProgram = media == .application
        switch media {
        case .application: closeDevices()
        case nil: microphone?.unprepare()
        case .daemon:
            guard configuration.keepsDevicesOpen else { return }
            do throws(AudioError) { try openMicrophone().prepare() } catch {
                logger.warning("no microphone for now, it is tried again at the next press: \(error)")
            }
            do throws(AudioError) { try openSpeaker().prepare() } catch {
                logger.warning("no speaker for now, it is tried again with the next sound: \(error)")
            }
        }
    }

    // MARK: Session

    func activate() {
        deactivating = false
        speakerBlocked = false
        // A program gets the devices when the tone of what was before has been heard.
        activating = isForProgram && tonesPlaying > 0
        if !activating { handler?(.activated) }
    }

    func deactivate(_ playOut: ChannelManagerStateMachine.PlayOut) {
        deactivating = true
        activating = false
        abortIfPending()
        if playOut == .drop {
            speaker?.flush()
            tonesPlaying = 0
            soundsQueued = []
            speechPlaying = false
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    private func finishDeactivating() {
        guard deactivating, tonesPlaying == 0, !speechPlaying else { return }
        deactivating = false
        if !configuration.keepsDevicesOpen { microphone?.unprepare() }
        handler?(.deactivated)
    }

    func close() {
        handler = nil
        closeDevices()
    }

    /// Whether an engine holds a device, or may.
    var hasOpenDevices: Bool { microphone != nil || speaker != nil }

    private func closeDevices() {
        microphoneWatch?.cancel()
        microphone?.close()
        microphone = nil
        captureBurst = nil
        cutBurst = nil
        closeSpeaker()
    }

    private func closeSpeaker() {
        speakerWatch?.cancel()
        speaker?.close()
        speaker = nil
        tonesPlaying = 0
        soundsQueued = []
        speechPlaying = false
    }

    // MARK: Microphone

    func startCapture(_ start: ChannelManagerStateMachine.CaptureStart) {
        do throws(AudioError) {
            microphoneFailure = nil
            captureBurst = try openMicrophone().start()
            abortPending = false
        } catch {
            handler?(.captureFailed(reason: "\(error)"))
        }
    }

    func stopCapture(_ stop: ChannelManagerStateMachine.CaptureStop) {
        guard let microphone else { return }
        switch stop {
        case .afterTail:
            microphone.stop(tail: configuration.tail)
        case .immediately:
            deliverFrames(of: microphone)
            abortPending = true
            loop.schedule(at: .now) { [weak self] in self?.abortIfPending() }
        case .discarding:
            captureBurst = nil
            cutBurst = nil
            microphone.abort()
        }
    }

    /// Delivers what has been recorded of the transmission that is cut, and nothing else that waits beside it: news of
    /// its beginning or end would be taken for news of the next one.
    private func deliverFrames(of microphone: CaptureEngine) {
        cutBurst = captureBurst
        captureBurst = nil
        microphone.drain { output in
            if case .frame(let frame) = output, frame.burst == cutBurst {
                handler?(.frame(frame))
            } else {
                received(output)
            }
        }
    }

    private func abortIfPending() {
        guard abortPending else { return }
        abortPending = false
        microphone?.abort()
    }

    private func openMicrophone() throws(AudioError) -> CaptureEngine {
        if let microphone { return microphone }
        let engine = try CaptureEngine(
            device: configuration.microphone, configuration: configuration.capture, logger: logger)
        microphoneWatch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain { self?.received($0) }
        }
        microphone = engine
        return engine
    }

    private func received(_ output: CaptureOutput) {
        switch output {
        case .prepared: break
        case .began(let burst, let firstSampleAt, _):
            guard burst == captureBurst else { return }
            handler?(.captureBegan(firstSampleAt: firstSampleAt))
        case .frame(let frame):
            if frame.burst == captureBurst {
                handler?(.frame(frame))
            } else if frame.burst == cutBurst {
                framesCut += 1
            }
        case .failed(let error):
            microphoneFailure = "\(error)"
        case .ended(let burst, let reason):
            guard burst == captureBurst else { return }
            captureBurst = nil
            if reason == .stopped {
                handler?(.captureEnded)
            } else {
                handler?(.captureFailed(reason: microphoneFailure ?? "the microphone stopped (\(reason))"))
            }
        }
    }

    // MARK: Speaker

    func play(_ tone: ChannelTone) {
        guard configuration.playsTones, !speakerBlocked else {
            if tonesPlaying == 0 { tonesFinished(heard: false) }
            return
        }
        do throws(AudioError) {
            let sounds = Tone.sounds(of: tone)
            try openSpeaker().play(sounds[0])
            tonesPlaying += sounds.count
            // The newer of two that count is right.
            tonesPlaying -= soundsQueued.count
            soundsQueued = Array(sounds.dropFirst())
        } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
    }

    /// The last tone was heard, or will not be: a program may have the speaker.
    private func tonesFinished(heard: Bool) {
        guard isForProgram else { return }
        // A file is nobody else's, and would begin anew.
        if case .alsa = configuration.speaker { closeSpeaker() }
        if activating {
            activating = false
            handler?(.activated)
        }
        handler?(.tonesFinished(heard: heard))
    }

    func play(_ packet: ReceivedPacket) -> Bool {
        guard !speakerBlocked else { return false }
        do throws(AudioError) {
            guard try openSpeaker().enqueue(packet) else { return false }
            speechPlaying = true
            return true
        } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            return false
        }
    }

    func endReception(lastSequence: UInt16) {
        // A burst that fell silent has been played already, and its end says nothing new.
        guard speechPlaying, let speaker else {
            handler?(.played)
            return
        }
        speaker.end(lastSequence: lastSequence)
    }

    func dropReception() {
        speaker?.flush()
        tonesPlaying = 0
        soundsQueued = []
        speechPlaying = false
        finishDeactivating()
    }

    private func openSpeaker() throws(AudioError) -> PlaybackEngine {
        if let speaker { return speaker }
        var playback = configuration.playback
        if !configuration.keepsDevicesOpen { playback.closeWhenIdle = true }
        let engine = try PlaybackEngine(device: configuration.speaker, configuration: playback, logger: logger)
        speakerWatch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain { self?.received($0) }
        }
        speaker = engine
        return engine
    }

    private func received(_ event: PlaybackEvent) {
        switch event {
        case .prepared, .toneBegan: return
        case .began:
            speechPlaying = true
            return
        case .ended:
            speechPlaying = false
            handler?(.played)
        case .toneEnded(_, let lastSampleAt):
            if isForProgram, tonesPlaying == 1 {
                // It is in the device still.
                loop.schedule(at: lastSampleAt) { [weak self, weak speaker] in
                    guard let self, let speaker, speaker === self.speaker else { return }
                    self.toneHeard()
                }
                return
            }
            tonesPlaying = max(0, tonesPlaying - 1)
            playNextSound()
        case .failed(let error):
            tonesPlaying = 0
            soundsQueued = []
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    private func playNextSound() {
        guard !soundsQueued.isEmpty else { return }
        speaker?.play(soundsQueued.removeFirst())
    }

    private func toneHeard() {
        tonesPlaying = max(0, tonesPlaying - 1)
        if tonesPlaying == 0 { tonesFinished(heard: true) }
        finishDeactivating()
    }

    private func watch(
        _ descriptor: Int32, of device: AudioDevice, _ drain: @escaping () -> Void
    ) throws(AudioError) -> EventLoop.Watch {
        do throws(SystemError) {
            return try loop.watch(descriptor, for: .readable) { _ in drain() }
        } catch {
            throw .device(device.description, operation: "watch its events", code: error.code)
        }
    }
}
