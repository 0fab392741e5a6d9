// What is to be heard: received speech and tones, block by block, and what is told and counted of it.
import MonotonicTime

/// The sound of a speaker, without the speaker. Confined to the playback thread; allocates nothing after `init`.
final class PlaybackSound {
    private let rings: PlaybackRings
    private let speech: SpeechRenderer
    private var tones: TonePlayer
    /// The speaker's clock against this machine's.
    private var speakerClock = ClockSlope()
    private var samplesRendered: Int64 = 0
    /// What is counted here; speech counts for itself.
    private var counts = PlaybackStatistics()
    private var countsAtBurst = PlaybackStatistics()

    init(_ rings: PlaybackRings, speech: SpeechRenderer, toneVolume: Float) {
        self.rings = rings
        self.speech = speech
        tones = TonePlayer(volume: toneVolume)
    }

    /// Whether nothing is left to be heard.
    var isIdle: Bool { speech.isIdle && tones.isIdle }

    // MARK: In

    /// Takes a packet.
    func insert(
        sequence: UInt16, timestamp: UInt32, marker: Bool, payload: UnsafeRawBufferPointer, receivedAt: Instant,
        isRepaired: Bool
    ) {
        let isOpus = speech.insert(
            sequence: sequence, timestamp: timestamp, marker: marker, payload: payload, receivedAt: receivedAt,
            isRepaired: isRepaired)
        guard !isOpus else { return }
        counts.malformed += 1
        publish()
    }

    /// The burst ends with this packet.
    func end(lastSequence: UInt16) { speech.end(lastSequence: lastSequence) }

    /// Begins a tone.
    func play(_ tone: Tone) {
        if !tones.play(tone) { counts.dropped += 1 }
    }

    /// Drops all that was to be heard; with a `reason` a burst among it is told to be over.
    func discard(_ reason: PlaybackEnd? = nil) {
        let burst = speech.jitter.burst
        counts.dropped += tones.drop()
        let wasBurst = speech.flush(at: .now)
        publish()
        if let reason, wasBurst { tellEnd(reason, burst: burst, at: .now) }
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

    /// Fills `block` (`playbackBlock` samples), which is heard `delay` after `now`; with the device's queue as full as it is to
    /// be, that would have been `shortfall` later.
    func render(
        into block: UnsafeMutablePointer<Float>, delay: Duration, shortfall: Duration, at now: Instant
    ) {
        let heardAt = now + delay
        speakerClock.observe(
            heardAt.nanoseconds - CaptureStateMachine.duration(samplesRendered).nanoseconds, at: now.nanoseconds)
        speech.speakerPartsPerMillion = -speakerClock.partsPerMillion
        // Speech is due by the clock of a queue that is full: a thread that is late has to write what was due before.
        speech.render(into: block, count: playbackBlock, at: now - shortfall) { event in
            switch event {
            case .began(let burst, let receivedAt, let offset):
                var slot = PlaybackSlot(kind: .began)
                slot.burst = burst
                slot.time = (heardAt + CaptureStateMachine.duration(Int64(offset))).nanoseconds
                slot.span = delay.nanoseconds
                slot.receivedAt = receivedAt.nanoseconds
                rings.put(slot)
            case .ended(let reason, let burst, let offset):
                tellEnd(reason, burst: burst, at: heardAt + CaptureStateMachine.duration(Int64(offset)))
            }
        }
        tones.mix(into: block, count: playbackBlock) { event in
            switch event {
            case .began(let tone): tell(.toneBegan, tone, at: heardAt)
            case .ended(let tone):
                tell(.toneEnded, tone, at: heardAt + CaptureStateMachine.duration(Int64(playbackBlock)))
            }
        }
        samplesRendered += Int64(playbackBlock)
    }

    /// Makes the counts known to the owner.
    func publish() { rings.publish(total) }

    private var total: PlaybackStatistics {
        var sum = speech.statistics
        sum.malformed += counts.malformed
        sum.dropped += counts.dropped
        sum.underruns = counts.underruns
        return sum
    }

    private func tell(_ kind: PlaybackSlot.Kind, _ tone: Tone, at time: Instant) {
        var slot = PlaybackSlot(kind: kind)
        slot.tone = tone
        slot.time = time.nanoseconds
        rings.put(slot)
    }

    private func tellEnd(_ reason: PlaybackEnd, burst: UInt32, at time: Instant) {
        var slot = PlaybackSlot(kind: .ended)
        slot.burst = burst
        slot.end = reason.rawValue
        slot.time = time.nanoseconds
        let counted = total
        slot.counts = counted.since(countsAtBurst)
        countsAtBurst = counted
        rings.put(slot)
    }
}
