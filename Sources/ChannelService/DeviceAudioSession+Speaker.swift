// The speakers of the audio session: tones, spoken prompts and received speech.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import Vocabulary

extension DeviceAudioSession {
    /// How long a lost speaker is left alone before it is tried again, by the next activation.
    private static let speakerRetryAfter = Duration.seconds(2)

    func play(_ tone: Tone) {
        if tone == .microphoneOn, goAheadSounded {
            goAheadSounded = false
            return
        }
        guard configuration.playsTones, !speakerBlocked else {
            if tones.isEmpty { tonesFinished(heard: false) }
            return
        }
        guard let speaker = openedSpeaker() else { return tonesFinished(heard: false) }
        speaker.play(tone)
        tones.append(tone)
    }

    func play(_ prompt: PromptSound, number: UInt32) -> Bool {
        // A program that plays and records itself shares the devices with nobody.
        guard !isForProgram, !speakerBlocked, let speaker = openedSpeaker() else { return false }
        return speaker.play(prompt, number: number)
    }

    func stopPrompt() { speaker?.stopPrompt() }

    /// The last tone was heard, or will not be: a program may have the speaker.
    func tonesFinished(heard: Bool) {
        guard isForProgram else { return }
        // A file is nobody else's, and would begin anew.
        if case .alsa = speakerDevice { closeSpeaker() }
        activateWhenFree()
        closing.whenClosed { [weak self] in
            // A later tone ends later, and tells it then.
            guard let self, tones.isEmpty else { return }
            handler?(.tonesFinished(heard: heard))
        }
    }

    func play(_ packet: ReceivedFrame, voice: Int) -> Bool {
        guard !speakerBlocked, let speaker = openedSpeaker(), speaker.enqueue(packet, voice: voice) else {
            return false
        }
        voicesPlaying.insert(voice)
        if standInSpeaker != nil { recentSpeech.add(packet, voice: voice, at: .now) }
        return true
    }

    var packetsHeld: Int { speaker?.packetsHeld ?? 0 }

    func endReception(lastSequence: UInt16, voice: Int) {
        // A burst that fell silent has been played already, and its end says nothing new.
        guard voicesPlaying.contains(voice), let speaker else {
            handler?(.played(voice: voice))
            return
        }
        recentSpeech.end(voice, lastSequence: lastSequence)
        speaker.end(lastSequence: lastSequence, voice: voice)
    }

    func dropReception(voice: Int) {
        voicesPlaying.remove(voice)
        recentSpeech.remove(voice)
        if voicesPlaying.isEmpty {
            speaker?.flush()
            tones = []
        } else {
            speaker?.flush(voice: voice)
        }
        finishDeactivating()
    }

    /// The speaker that is meant to be used.
    private var mainSpeaker: AudioDevice { wornSound.speaker ?? configuration.speaker }

    /// What stands in for it; nil: nothing does.
    private var standInSpeaker: AudioDevice? {
        wornSound.speaker == nil ? configuration.fallbackSpeaker : configuration.speaker
    }

    /// The speaker that is used at present.
    var speakerDevice: AudioDevice { speakerLostAt == nil ? mainSpeaker : standInSpeaker ?? mainSpeaker }

    func openSpeaker() throws(AudioError) -> PlaybackEngine {
        closeOutdatedSpeaker()
        if let speaker { return speaker }
        var playback = configuration.playback
        let device = speakerDevice
        playback.played = device == configuration.speaker ? played : nil
        isKeptRunning = wantsRunning(device)
        playback.keepsRunning = isKeptRunning
        // A worn one that stays open keeps its link up.
        if !configuration.keepsDevicesOpen || (device == wornSound.speaker && !isKeptRunning) {
            playback.closeWhenIdle = true
        }
        let engine = try PlaybackEngine(
            device: device, configuration: playback, after: closing.end(of: device), logger: logger)
        speakerWatch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain {
                // One that was replaced has nothing more to say.
                if let self, let engine, engine === self.speaker { self.received($0) }
            }
        }
        speaker = engine
        return engine
    }

    /// The speaker; nil when it cannot be opened, which is told.
    private func openedSpeaker() -> PlaybackEngine? {
        do throws(AudioError) { return try openSpeaker() } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            return nil
        }
    }

    private func received(_ event: PlaybackEvent) {
        switch event {
        case .prepared: return
        case .toneBegan(let tone, let firstSampleAt):
            if tone == .microphoneOn { goAhead(from: firstSampleAt) }
            return
        case .promptEnded(let number):
            handler?(.promptEnded(number: number))
            return
        case .began(let voice, _, _, _, _):
            voicesPlaying.insert(voice)
            return
        case .ended(let voice, _, let reason, let counts, _):
            voicesPlaying.remove(voice)
            recentSpeech.remove(voice)
            // A burst that ends because the speaker failed says nothing good of it.
            if reason != .deviceFailed, counts.played > 0 { speakerWorks() }
            handler?(.played(voice: voice))
        case .toneEnded(_, let lastSampleAt):
            speakerWorks()
            if isForProgram, tones.count == 1 {
                // It is in the device still.
                loop.schedule(at: lastSampleAt) { [weak self, weak speaker] in
                    guard let self, let speaker, speaker === self.speaker else { return }
                    self.toneHeard()
                }
                return
            }
            tones = Array(tones.dropFirst())
        case .toneDropped(let tone):
            guard let index = tones.lastIndex(of: tone) else { return }
            tones.remove(at: index)
            if tone == .microphoneOn { goAhead(from: .now) }
            if tones.isEmpty { tonesFinished(heard: false) }
        case .lost(let error):
            _ = replaceSpeaker("\(error)")
            return
        case .failed(let error):
            guard !replaceSpeaker("\(error)") else { return }
            goAhead(from: .now)
            tones = []
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    private func toneHeard() {
        tones = Array(tones.dropFirst())
        if tones.isEmpty { tonesFinished(heard: true) }
        finishDeactivating()
    }

    private func speakerWorks() {
        if speakerLostAt == nil { handler?(.soundProblem(of: .speaker, nil)) }
    }

    // MARK: Another speaker

    /// The speaker is lost: the fallback says the last two seconds again, and what follows. Returns whether it does.
    private func replaceSpeaker(_ reason: String) -> Bool {
        guard standInSpeaker != nil, speakerLostAt == nil else { return false }
        speakerLostAt = .now
        moveSpeaker(reason: reason)
        return true
    }

    /// Another speaker says the last two seconds again, and what follows.
    func moveSpeaker(reason: String) {
        let (voices, unheard) = (voicesPlaying, tones)
        closeSpeaker()
        do throws(AudioError) {
            let speaker = try openSpeaker()
            for tone in unheard {
                speaker.play(tone)
                tones.append(tone)
            }
            for voice in voices.sorted() {
                let (packets, lastSequence) = recentSpeech.again(voice, at: .now)
                for packet in packets where speaker.enqueue(packet, voice: voice) { voicesPlaying.insert(voice) }
                if let lastSequence { speaker.end(lastSequence: lastSequence, voice: voice) }
            }
        } catch {
            // Said as if there were none: of the voices, too, which nothing plays any more.
            speakerBlocked = true
            goAhead(from: .now)
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
        for voice in voices.subtracting(voicesPlaying).sorted() {
            recentSpeech.remove(voice)
            handler?(.played(voice: voice))
        }
        handler?(.soundProblem(of: .speaker, "\(reason); \(speakerDevice) is used"))
    }

    /// Uses the lost speaker again, if that may be worth it; nothing may be playing.
    func tryMainSpeaker() {
        guard let lostAt = speakerLostAt, .now >= lostAt + Self.speakerRetryAfter, tones.isEmpty, voicesPlaying.isEmpty
        else { return }
        closeSpeaker()
        speakerLostAt = nil
    }
}
