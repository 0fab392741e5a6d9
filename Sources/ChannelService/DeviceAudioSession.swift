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
    var framesCut = 0

    let configuration: ChannelServiceConfiguration
    let loop: EventLoop
    let logger: Logger
    /// By which the microphone learns what the speaker plays; nil: echoes are sent.
    let played: PlayedSound?
    var microphone: CaptureEngine?
    var microphoneWatch: EventLoop.Watch?
    var speaker: PlaybackEngine?
    var speakerWatch: EventLoop.Watch?
    /// The devices that are being closed, so that nothing waits for a driver.
    let closing: ClosingDevices

    /// The engine's number of the transmission that is being recorded; what comes of others is void.
    var captureBurst: UInt32?
    /// The transmission that was cut last: its encoder may still give a frame or two, which are counted and dropped.
    var cutBurst: UInt32?
    var microphoneFailure: String?
    /// The transmission that begins when the go-ahead tone sounds, and whether the tone is on its way.
    var goAheadBurst: UInt32?
    /// The tone has sounded already that the rules let sound when capture begins.
    var goAheadSounded = false
    var levelMeter = LevelMeter()
    var expectedLoss: Int?
    /// The microphone is to stop within this turn of the loop, unless the next transmission takes it over running.
    var abortPending = false
    var tonesPlaying = 0
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
    }

    func prepare(for media: MediaOwner?) {
        isForProgram = media == .application
        switch media {
        case .application: closeDevices()
        case nil: microphone?.unprepare()
        case .daemon:
            guard configuration.keepsDevicesOpen else { return }
            do throws(AudioError) { try openMicrophone().prepare() } catch {
                logger.warning("the microphone is not available; retrying at the next press: \(error)")
                handler?(.microphoneMissing(reason: "\(error)"))
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
        // A program gets the devices when the tone of what was before has been heard, and when they are closed.
        activating = isForProgram
        if isForProgram { activateWhenFree() } else { handler?(.activated) }
    }

    /// Tells a program that the devices are its own, as soon as they are.
    func activateWhenFree() {
        guard activating, tonesPlaying == 0 else { return }
        closing.whenClosed { [weak self] in
            guard let self, activating, tonesPlaying == 0 else { return }
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
            tonesPlaying = 0
            voicesPlaying = []
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    func finishDeactivating() {
        guard deactivating, tonesPlaying == 0, voicesPlaying.isEmpty else { return }
        deactivating = false
        if !configuration.keepsDevicesOpen { microphone?.unprepare() }
        handler?(.deactivated)
    }

    func close(_ closed: @escaping () -> Void) {
        handler = nil
        closeDevices()
        closing.whenClosed(closed)
    }

    /// Whether an engine holds a device, or may.
    var hasOpenDevices: Bool { microphone != nil || speaker != nil || !closing.isEmpty }

    func closeDevices() {
        microphoneWatch?.cancel()
        if let microphone { closing.add(microphone.end, of: microphone.device) }
        microphone?.close()
        microphone = nil
        captureBurst = nil
        cutBurst = nil
        closeSpeaker()
    }

    func closeSpeaker() {
        speakerWatch?.cancel()
        if let speaker { closing.add(speaker.end, of: speaker.device) }
        speaker?.close()
        speaker = nil
        tonesPlaying = 0
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
