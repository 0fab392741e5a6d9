// The sound of what is worn, in place of the configured devices.
import Audio
import Logging
import PushToTalkCore
import Vocabulary

extension DeviceAudioSession {
    func use(_ sound: WornSound) {
        let earlier = wornSound
        wornSound = sound
        if let start = awaited, sound.microphone != .awaited {
            awaited = nil
            choose(start)
        }
        if case .missing(let reason) = sound.microphone {
            // The sound server may go on with another source, unasked.
            if let worn, worn.burst != nil {
                if current === worn { lost(worn, reason) } else { worn.abort() }
            }
            // What comes back has been connected anew, and is doubted no more.
            wornChoice.forget()
        }
        guard sound.speaker != earlier.speaker || sound.keepsLink != earlier.keepsLink else { return }
        let isInUse = speaker != nil && speakerLostAt == nil && speaker?.device == earlier.speaker
        if isInUse, sound.speaker == nil, isPlaying {
            // It has gone with its device: what it was saying is said again.
            moveSpeaker(reason: "the worn speaker has gone")
        } else {
            adoptSpeaker()
        }
    }

    /// Begins a transmission with the microphone that it is meant for, or waits for that to appear.
    func choose(_ start: CaptureStart) {
        missingReason = nil
        switch wornSound.microphone {
        case .configured: (main, fallback) = (configured, configuredFallback)
        case .device(let device): (main, fallback) = (wornMicrophone(device), configured)
        case .missing(let reason):
            (main, fallback) = (configured, configuredFallback)
            missingReason = reason
        case .awaited:
            awaited = start
            // What was cut in this turn is not wanted again before the worn one is there.
            abortIfPending()
            return
        }
        begin(start)
    }

    private func wornMicrophone(_ device: AudioDevice) -> SessionMicrophone {
        if let worn, worn.device == device { return worn }
        if let worn { close(worn) }
        let microphone = SessionMicrophone(device)
        worn = microphone
        wornChoice = MicrophoneChoice(hasFallback: true)
        return microphone
    }

    // MARK: Speaker

    /// Tones or speech are in the speaker.
    var isPlaying: Bool { !tones.isEmpty || !voicesPlaying.isEmpty }

    /// Closes a speaker that is not the one that is wanted now, if nothing plays on it.
    func closeOutdatedSpeaker() {
        guard let speaker, !isPlaying else { return }
        guard speaker.device != speakerDevice || isKeptRunning != wantsRunning(speaker.device) else { return }
        closeSpeaker()
        speakerLostAt = nil
    }

    /// Whether the speaker plays silence between sounds, so that its link stays up.
    func wantsRunning(_ device: AudioDevice) -> Bool { device == wornSound.speaker && wornSound.keepsLink }

    /// Uses the speaker that is wanted now, as soon as nothing plays on another one.
    func adoptSpeaker() {
        closeOutdatedSpeaker()
        guard speaker == nil, !speakerBlocked, configuration.keepsDevicesOpen, media == .daemon else { return }
        // A worn one is opened with the first sound, or its link would be up for nothing.
        guard wornSound.speaker == nil || wornSound.keepsLink else { return }
        do throws(AudioError) { try openSpeaker().prepare() } catch {
            logger.warning("the speaker is not available; retrying with the next sound: \(error)")
        }
    }
}
