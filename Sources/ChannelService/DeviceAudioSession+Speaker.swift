// The speaker of the audio session: tones and received speech.

import Audio
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor
import Vocabulary

extension DeviceAudioSession {
    func play(_ tone: Tone) {
        if tone == .microphoneOn, goAheadSounded {
            goAheadSounded = false
            return
        }
        guard configuration.playsTones, !speakerBlocked else {
            if tonesPlaying == 0 { tonesFinished(heard: false) }
            return
        }
        do throws(AudioError) {
            try openSpeaker().play(tone)
            tonesPlaying += 1
        } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
    }

    /// The last tone was heard, or will not be: a program may have the speaker.
    func tonesFinished(heard: Bool) {
        guard isForProgram else { return }
        // A file is nobody else's, and would begin anew.
        if case .alsa = configuration.speaker { closeSpeaker() }
        activateWhenFree()
        closing.whenClosed { [weak self] in
            // A later tone ends later, and tells it then.
            guard let self, tonesPlaying == 0 else { return }
            handler?(.tonesFinished(heard: heard))
        }
    }

    func play(_ packet: ReceivedFrame, voice: Int) -> Bool {
        guard !speakerBlocked else { return false }
        do throws(AudioError) {
            guard try openSpeaker().enqueue(packet, voice: voice) else { return false }
            voicesPlaying.insert(voice)
            return true
        } catch {
            speakerBlocked = true
            handler?(.playbackFailed(reason: "\(error)"))
            return false
        }
    }

    var packetsHeld: Int { speaker?.packetsHeld ?? 0 }

    func endReception(lastSequence: UInt16, voice: Int) {
        // A burst that fell silent has been played already, and its end says nothing new.
        guard voicesPlaying.contains(voice), let speaker else {
            handler?(.played(voice: voice))
            return
        }
        speaker.end(lastSequence: lastSequence, voice: voice)
    }

    func dropReception(voice: Int) {
        voicesPlaying.remove(voice)
        if voicesPlaying.isEmpty {
            speaker?.flush()
            tonesPlaying = 0
        } else {
            speaker?.flush(voice: voice)
        }
        finishDeactivating()
    }

    func openSpeaker() throws(AudioError) -> PlaybackEngine {
        if let speaker { return speaker }
        var playback = configuration.playback
        playback.played = played
        if !configuration.keepsDevicesOpen { playback.closeWhenIdle = true }
        let engine = try PlaybackEngine(
            device: configuration.speaker, configuration: playback, after: closing.end(of: configuration.speaker),
            logger: logger)
        speakerWatch = try watch(engine.descriptor, of: engine.device) { [weak self, weak engine] in
            engine?.drain { self?.received($0) }
        }
        speaker = engine
        return engine
    }

    func received(_ event: PlaybackEvent) {
        switch event {
        case .prepared: return
        case .toneBegan(let tone, let firstSampleAt):
            if tone == .microphoneOn { goAhead(from: firstSampleAt) }
            return
        case .began(let voice, _, _, _, _):
            voicesPlaying.insert(voice)
            return
        case .ended(let voice, _, let reason, let counts, _):
            voicesPlaying.remove(voice)
            // A burst that ends because the speaker failed says nothing good of it.
            if reason != .deviceFailed, counts.played > 0 { handler?(.speakerWorks) }
            handler?(.played(voice: voice))
        case .toneEnded(_, let lastSampleAt):
            handler?(.speakerWorks)
            if isForProgram, tonesPlaying == 1 {
                // It is in the device still.
                loop.schedule(at: lastSampleAt) { [weak self, weak speaker] in
                    guard let self, let speaker, speaker === self.speaker else { return }
                    self.toneHeard()
                }
                return
            }
            tonesPlaying = max(0, tonesPlaying - 1)
        case .failed(let error):
            goAhead(from: .now)
            tonesPlaying = 0
            handler?(.playbackFailed(reason: "\(error)"))
            tonesFinished(heard: false)
        }
        finishDeactivating()
    }

    func toneHeard() {
        tonesPlaying = max(0, tonesPlaying - 1)
        if tonesPlaying == 0 { tonesFinished(heard: true) }
        finishDeactivating()
    }
}
