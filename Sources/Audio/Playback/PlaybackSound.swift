// Renders received speech, tones and prompts, block by block, and reports and counts what is played.
import MonotonicTime
import Vocabulary

/// The sound of a speaker, without the speaker. Confined to the playback thread; allocates nothing after `init`.
final class PlaybackSound {
    private let rings: PlaybackRings
    private let voices: [SpeechRenderer]
    private let mixer = VoiceMixer(capacity: playbackBlock)
    private var tones: TonePlayer
    private var prompt = PromptPlayer()
    /// The speaker's clock against this machine's; it drives all voices.
    private var speakerClock = ClockSlope()
    private var samplesRendered: Int64 = 0
    /// What is counted here; voices count for themselves.
    private var counts = PlaybackStatistics()
    /// Nothing that comes will be heard: the device failed a moment ago.
    var isRefusing = false
    /// For each voice of which a packet came, and no end has been told since: the reason to tell when an end is named and nothing is left
    /// to be heard.
    private var endsOwed: [PlaybackEnd?]

    init(_ rings: PlaybackRings, speech: [SpeechRenderer], toneVolume: Float) {
        self.rings = rings
        voices = speech
        endsOwed = Array(repeating: nil, count: speech.count)
        tones = TonePlayer(volume: toneVolume)
    }

    /// Whether nothing is left to be heard.
    var isIdle: Bool {
        for number in voices.indices where !voices[number].isIdle { return false }
        return tones.isIdle && prompt.isIdle
    }

    // MARK: In

    /// Takes a packet.
    func insert(_ packet: PacketHeader, payload: UnsafeRawBufferPointer, voice: Int) {
        endsOwed[voice] = isRefusing ? .deviceFailed : .silence
        if isRefusing { counts.dropped += 1 } else if voices[voice].insert(packet, payload: payload) { return }
        publish()
    }

    /// The burst on a voice ends with this packet. Where nothing of it is left to be heard, it has ended.
    func end(voice: Int, lastSequence: UInt16) {
        voices[voice].end(lastSequence: lastSequence)
        guard voices[voice].isIdle, let reason = endsOwed[voice] else { return }
        tellEnd(reason, voice: voice, burst: voices[voice].jitter.burst, at: .now)
    }

    /// Begins a tone.
    func play(_ tone: Tone) {
        guard isRefusing || !tones.play(tone) else { return }
        counts.dropped += 1
        rings.put(.toneDropped(tone))
    }

    /// Begins a prompt.
    func play(prompt samples: UnsafePointer<Float>, count: Int, number: UInt32) {
        let ended = isRefusing ? number : prompt.play(samples, count: count, number: number)
        if let ended { rings.put(.promptEnded(number: ended)) }
    }

    /// Lets the prompt fade out.
    func stopPrompt() { prompt.stop() }

    /// Drops all sound that is waiting. The ends of its bursts and of its prompt are told, and not those of tones.
    func discard(_ reason: PlaybackEnd) {
        counts.dropped += tones.drop()
        if let ended = prompt.drop() { rings.put(.promptEnded(number: ended)) }
        for voice in voices.indices { discard(voice: voice, reason) }
    }

    /// Drops all that was to be heard on a voice.
    func discard(voice: Int, _ reason: PlaybackEnd) {
        let burst = voices[voice].jitter.burst
        let now = Instant.now
        let wasBurst = voices[voice].flush(at: now)
        publish()
        if wasBurst { tellEnd(reason, voice: voice, burst: burst, at: now) }
    }

    // MARK: Out

    /// The device begins to run: samples from now on are at other instants than those of before would have been.
    func deviceStarts() {
        speakerClock.restart()
        samplesRendered = 0
    }

    /// The device ran empty, or was away.
    func ranEmpty(_ times: Int) {
        counts.underruns += times
        speakerClock.restart()
    }

    /// Fills `block` (`playbackBlock` samples), which is heard `delay` after `now`. With the target length of the
    /// device's queue it would be heard `shortfall` later.
    func render(
        into block: UnsafeMutablePointer<Float>, delay: Duration, shortfall: Duration, at now: Instant
    ) {
        let heardAt = now + delay
        speakerClock.observe(
            heardAt.nanoseconds - CaptureStateMachine.duration(samplesRendered).nanoseconds, at: now.nanoseconds)
        let speakerPartsPerMillion = -speakerClock.partsPerMillion
        mixer.mix(voices.count, into: block, count: playbackBlock) { number, output in
            guard !voices[number].isIdle else { return false }
            voices[number].speakerPartsPerMillion = speakerPartsPerMillion
            // Speech is due by the clock of a queue that is full: a thread that is late has to write what was due before.
            render(voice: number, into: output, heardAt: heardAt, delay: delay, at: now - shortfall)
            return true
        }
        tones.mix(into: block, count: playbackBlock) { event in
            switch event {
            case .began(let tone): rings.put(.toneBegan(tone, firstSampleAt: heardAt))
            case .ended(let tone):
                let end = heardAt + CaptureStateMachine.duration(Int64(playbackBlock))
                rings.put(.toneEnded(tone, lastSampleAt: end))
            }
        }
        if let ended = prompt.mix(into: block, count: playbackBlock) { rings.put(.promptEnded(number: ended)) }
        samplesRendered += Int64(playbackBlock)
    }

    private func render(
        voice: Int, into output: UnsafeMutablePointer<Float>, heardAt: Instant, delay: Duration, at now: Instant
    ) {
        voices[voice].render(into: output, count: playbackBlock, at: now) { event in
            switch event {
            case .began(let burst, let receivedAt, let offset):
                let first = heardAt + CaptureStateMachine.duration(Int64(offset))
                rings.put(
                    .began(
                        voice: UInt8(voice), burst: burst, firstSampleAt: first, delay: delay, receivedAt: receivedAt))
            case .ended(let reason, let burst, let offset):
                tellEnd(
                    reason, voice: voice, burst: burst,
                    at: heardAt + CaptureStateMachine.duration(Int64(offset)))
            }
        }
    }

    /// Makes the counts known to the owner.
    func publish() {
        // What is no count is that of the first who is heard.
        var first = 0
        for number in voices.indices where !voices[number].isIdle {
            first = number
            break
        }
        var sum = voices[first].statistics
        for number in voices.indices where number != first { sum.add(voices[number].statistics) }
        sum.add(counts)
        rings.publish(sum)
    }

    private func tellEnd(_ reason: PlaybackEnd, voice: Int, burst: UInt32, at time: Instant) {
        endsOwed[voice] = nil
        let counts = voices[voice].countsOfBurst(counts)
        rings.put(.ended(voice: UInt8(voice), burst: burst, reason, counts, lastSampleAt: time))
    }
}
