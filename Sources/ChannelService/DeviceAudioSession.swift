// The microphone and the speaker of this machine as the channel service's audio session. It holds no rule of who may
// talk, only how the engines of `Audio` are driven.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import Vocabulary

/// The sound devices of this machine, on an event loop.
///
/// An engine that cannot be made, or whose device fails, is tried again with the next use.
final class DeviceAudioSession: AudioSession {
    /// The transmission that is recorded, or was recorded last.
    struct Transmission {
        let start: CaptureStart
        var firstSampleAt: Instant?
        /// Where its next frame is, in samples of 48 kHz; nil before the first one.
        var nextPosition: Int64?
        /// It was told to stop: nothing new begins for it.
        var isStopping = false
    }

    var handler: ((AudioSessionEvent) -> Void)?
    var framesCut = 0

    let configuration: ChannelServiceConfiguration
    let loop: EventLoop
    let logger: Logger
    /// By which the microphone learns what the speaker plays; nil: echoes are sent.
    let played: PlayedSound?
    let configured: SessionMicrophone
    let configuredFallback: SessionMicrophone?
    /// What is worn, and its microphone once that has been used.
    var wornSound = WornSound.none
    var worn: SessionMicrophone?
    /// The microphone that the transmission is meant for, and what stands in for it.
    var main: SessionMicrophone
    var fallback: SessionMicrophone?
    /// The microphone whose sound is sent, or was sent last.
    var current: SessionMicrophone
    var configuredChoice: MicrophoneChoice
    var wornChoice = MicrophoneChoice(hasFallback: true)
    /// Why the main microphone was of no use when it was used last.
    var doubtReason: String?
    /// The worn microphone that the transmission is meant for is not there; why.
    var missingReason: String?
    /// A transmission that waits for the worn microphone to appear.
    var awaited: CaptureStart?
    /// The media of the channel that is joined; nil: none is.
    var media: MediaOwner?
    var transmission: Transmission?
    var speaker: PlaybackEngine?
    var speakerWatch: EventLoop.Watch?
    /// The speaker plays silence between sounds.
    var isKeptRunning = false
    /// The devices that are being closed, so that nothing waits for a driver.
    let closing: ClosingDevices

    /// The burst that begins when the go-ahead tone sounds, and whether the tone is on its way.
    var goAheadBurst: UInt32?
    /// The tone has sounded already that the rules let sound when capture begins.
    var goAheadSounded = false
    var levelMeter = LevelMeter()
    var expectedLoss: Int?
    /// The microphone is to stop within this turn of the loop, unless the next transmission takes it over running.
    var abortPending = false
    /// The tones that were handed to the speaker and are not over.
    var tones: [Tone] = []
    /// Speech that plays, where another speaker can say it again.
    var recentSpeech = RecentSpeech()
    /// When the speaker was lost, while the fallback is used in its place.
    var speakerLostAt: Instant?
    /// The voices on which speech plays.
    var voicesPlaying: Set<Int> = []
    var deactivating = false
    /// The media are a program's, which waits for tones to be heard before it gets the devices.
    var isForProgram = false
    var activating = false
    /// The speaker could not be made: it is tried again with the next activation, not with each packet.
    var speakerBlocked = false

    init(configuration: ChannelServiceConfiguration, loop: EventLoop, logger: Logger) {
        self.configuration = configuration
        self.loop = loop
        self.logger = logger
        played = configuration.cancelsEcho ? PlayedSound() : nil
        closing = ClosingDevices(on: loop, logger: logger)
        configured = SessionMicrophone(configuration.microphone)
        configuredFallback = configuration.fallbackMicrophone.map { SessionMicrophone($0) }
        main = configured
        fallback = configuredFallback
        current = configured
        configuredChoice = MicrophoneChoice(hasFallback: configuredFallback != nil)
    }

    func prepare(for media: MediaOwner?) {
        self.media = media
        isForProgram = media == .application
        // The rules let no tone sound after a begin that waited for the floor, nor after one that was ended before capture began.
        goAheadSounded = false
        switch media {
        case .application: closeDevices()
        case nil: unprepareMicrophones()
        case .daemon:
            guard configuration.keepsDevicesOpen else { return }
            do throws(AudioError) { try open(configured).prepare() } catch {
                logger.warning("the microphone is not available; retrying at the next press: \(error)")
                handler?(.soundProblem(of: .microphone, "\(error)"))
            }
            do throws(AudioError) { try openSpeaker().prepare() } catch {
                logger.warning("the speaker is not available; retrying with the next sound: \(error)")
                handler?(.playbackFailed(reason: "\(error)"))
            }
        }
    }

    // MARK: Session

    func activate() {
        deactivating = false
        speakerBlocked = false
        adoptSpeaker()
        tryMainSpeaker()
        // A program gets the devices when the tone of what was before has been heard, and when they are closed.
        activating = isForProgram
        if isForProgram { activateWhenFree() } else { handler?(.activated) }
    }

    /// Tells a program that the devices are its own, as soon as they are.
    func activateWhenFree() {
        guard activating, tones.isEmpty else { return }
        closing.whenClosed { [weak self] in
            guard let self, activating, tones.isEmpty else { return }
            activating = false
            handler?(.activated)
        }
    }

    func deactivate(_ playOut: ChannelManagerStateMachine.PlayOut) {
        deactivating = true
        activating = false
        abortIfPending()
        if playOut == .drop {
            speaker?.flush()
            tones = []
            voicesPlaying = []
            recentSpeech.removeAll()
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    func finishDeactivating() {
        if !isPlaying { adoptSpeaker() }
        guard deactivating, !isPlaying else { return }
        deactivating = false
        if !configuration.keepsDevicesOpen { unprepareMicrophones() }
        handler?(.deactivated)
    }

    func close(_ closed: @escaping () -> Void) {
        handler = nil
        closeDevices()
        closing.whenClosed(closed)
    }

    /// Whether an engine holds a device, or may.
    var hasOpenDevices: Bool {
        microphones.contains { $0.engine != nil } || speaker != nil || !closing.isEmpty
    }

    private func unprepareMicrophones() { for microphone in microphones { microphone.engine?.unprepare() } }

    func closeDevices() {
        awaited = nil
        for microphone in microphones { close(microphone) }
        closeSpeaker()
    }

    func close(_ microphone: SessionMicrophone) {
        microphone.watch?.cancel()
        if let engine = microphone.engine { closing.add(engine.end, of: engine.device) }
        microphone.engine?.close()
        microphone.engine = nil
        microphone.burst = nil
        microphone.cutBurst = nil
    }

    func closeSpeaker() {
        speakerWatch?.cancel()
        if let speaker { closing.add(speaker.end, of: speaker.device) }
        speaker?.close()
        speaker = nil
        tones = []
        voicesPlaying = []
    }

    func watch(
        _ descriptor: Int32, of device: AudioDevice, _ drain: @escaping () -> Void
    ) throws(AudioError) -> EventLoop.Watch {
        do throws(SystemError) {
            return try loop.watch(descriptor, for: .readable) { _ in drain() }
        } catch {
            throw .device(device.description, operation: "watch its events", code: error.code)
        }
    }
}
