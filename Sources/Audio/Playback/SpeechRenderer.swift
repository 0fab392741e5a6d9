import Glibc
// Turns received packets into samples for the speaker, block by block: jitter buffer, decoder, time scaling, drift
// correction.
import MonotonicTime

/// What the playback thread does for the speech of one voice, without thread or device. Allocates in `init` only.
final class SpeechRenderer {
    /// What a block begins or ends, `offset` samples from its start.
    enum Event {
        /// A burst's first sample; its packet came at `receivedAt`.
        case began(burst: UInt32, receivedAt: Instant, offset: Int)
        case ended(PlaybackEnd, burst: UInt32, offset: Int)
    }

    /// Decisions taken for one block at most: more would be a fault of the machine, and silence is better then than none.
    private static let decisionsMax = 2_000

    private(set) var jitter: JitterBufferStateMachine
    private let decoder: OpusDecoder
    private let scaler = TimeScaler()
    private let drift: DriftCorrector
    /// How much faster than this machine's clock the speaker's runs, in parts per million.
    var speakerPartsPerMillion = 0.0
    private var countsAtBurst = PlaybackStatistics()

    init(_ settings: JitterBufferSettings, decoder: OpusDecoder) throws(AudioError) {
        jitter = JitterBufferStateMachine(settings)
        self.decoder = decoder
        drift = try DriftCorrector()
    }

    /// Whether nothing is left to play.
    var isIdle: Bool { jitter.isIdle && scaler.count == 0 }

    /// Counts since `init`.
    var statistics: PlaybackStatistics {
        var counts = jitter.statistics
        counts.targetMilliseconds = Int(jitter.target.milliseconds.rounded(.up))
        counts.driftPartsPerMillion = Int(drift.partsPerMillion.rounded())
        counts.held = jitter.heldCount
        return counts
    }

    /// What was counted since the burst before.
    ///
    /// - Parameter shared: What is counted for all voices together.
    func countsOfBurst(_ shared: PlaybackStatistics) -> PlaybackStatistics {
        var counted = statistics
        counted.add(shared)
        defer { countsAtBurst = counted }
        return counted.since(countsAtBurst)
    }

    /// Takes a packet; `false` when it is no Opus packet.
    func insert(_ packet: PacketHeader, payload: UnsafeRawBufferPointer) -> Bool {
        guard let samples = OpusDecoder.samples(in: payload) else {
            jitter.statistics.malformed += 1
            return false
        }
        _ = jitter.insert(
            sequence: packet.sequence, timestamp: packet.timestamp, marker: packet.marker, samples: samples,
            payload: payload, receivedAt: packet.receivedAt, isRepaired: packet.isRepaired)
        return true
    }

    /// The burst ends with this packet.
    func end(lastSequence: UInt16) { jitter.end(lastSequence: lastSequence) }

    /// Drops everything; returns whether a burst was going on.
    func flush(at now: Instant) -> Bool {
        scaler.drop()
        return jitter.flush(at: now)
    }

    /// Fills `block` with what is to be heard from `now` on.
    func render(into block: UnsafeMutablePointer<Float>, count: Int, at now: Instant, _ tell: (Event) -> Void) {
        drift.set(jitter.talkerPartsPerMillion - speakerPartsPerMillion)
        joinLatePacket(at: now)
        var filled = 0
        var decisions = 0
        while filled < count {
            if scaler.count > 0 {
                if drift.isWanted { drift.engage(scaler.lastPlayed(2 * drift.delay)) }
                let (taken, made) = drift.process(
                    scaler.next, count: scaler.count, into: block + filled, wanted: count - filled)
                scaler.played(taken)
                filled += made
                continue
            }
            decisions += 1
            guard decisions < Self.decisionsMax, !jitter.isIdle else { break }
            decide(filled, count - filled, at: now, tell)
        }
        if filled < count { memset(block + filled, 0, (count - filled) * MemoryLayout<Float>.stride) }
    }

    /// Gets the next samples into the scaler, or says what has ended.
    private func decide(_ filled: Int, _ wanted: Int, at now: Instant, _ tell: (Event) -> Void) {
        let time = now + CaptureStateMachine.duration(Int64(filled))
        let burst = jitter.burst
        switch jitter.next(at: time) {
        case .idle: break
        case .wait(let samples): silence(min(samples, wanted))
        case .decode(let slot, let isFirst, let pace):
            if isFirst {
                decoder.reset()
                scaler.reset()
                drift.begin()
                tell(.began(burst: burst, receivedAt: jitter.slots[slot].receivedAt, offset: filled))
            }
            decode(slot)
            keepPace(pace, at: time)
        case .conceal(let samples): commit(decoder.conceal(samples, into: scaler.room()), of: samples)
        case .recover(let slot, let samples):
            let room = scaler.room()
            commit(jitter.withPayload(slot) { decoder.recover(samples, from: $0, into: room) }, of: samples)
        case .ended(let reason): tell(.ended(reason, burst: burst, offset: filled))
        }
    }

    /// Goes over to a packet that has come while sound is played that was invented for it.
    private func joinLatePacket(at now: Instant) {
        let unplayed = scaler.count
        guard let late = jitter.latePacket(unplayed: unplayed, at: now) else { return }
        decode(late.slot)
        scaler.join(invented: unplayed, skipped: late.skipped)
    }

    private func keepPace(_ pace: JitterBufferStateMachine.Pace, at time: Instant) {
        switch pace {
        case .steady: break
        case .lengthen(let most): jitter.rescaled(by: -scaler.lengthen(by: most))
        case .shorten(let most):
            // A period to take out is longer than a short frame: decode what is there already, too.
            while scaler.count < TimeScaler.wanted, jitter.nextIsThere {
                let offset = CaptureStateMachine.duration(Int64(scaler.count))
                guard case .decode(let slot, _, _) = jitter.next(at: time + offset) else { break }
                decode(slot)
            }
            jitter.rescaled(by: scaler.shorten(by: most))
        }
    }

    private func decode(_ slot: Int) {
        let room = scaler.room()
        let count = jitter.withPayload(slot) { decoder.decode($0, into: room) }
        let samples = jitter.slots[slot].samples
        jitter.release(slot, decoded: count > 0)
        commit(count > 0 ? count : decoder.conceal(samples / 120 * 120, into: scaler.room()), of: samples)
    }

    /// Makes `count` decoded samples the next to be played; silence of `samples` where the decoder could not.
    private func commit(_ count: Int, of samples: Int) {
        if count > 0 { scaler.commit(count) } else { silence(samples) }
    }

    private func silence(_ samples: Int) {
        memset(scaler.room(), 0, samples * MemoryLayout<Float>.stride)
        scaler.commit(samples)
    }
}
