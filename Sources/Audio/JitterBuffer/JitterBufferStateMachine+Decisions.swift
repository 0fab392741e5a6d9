// What the jitter buffer plays next: the due packet, what stands in for one, or silence.
import MonotonicTime

extension JitterBufferStateMachine {
    /// A run of missing packets with later ones behind it, as it was met first.
    struct Gap {
        /// The first packet behind it.
        var end: Int64 = .min
        /// Since when it is waited for; nil when it is not.
        var waitingSince: Instant?
        var metAt = Instant.zero
    }

    /// What to play from `now` on. Every answer but `idle` moves the machine on, so it is to be done.
    mutating func next(at now: Instant) -> Decision {
        // A loop, not recursion: as many packets may be passed over in one call as numbers are missing.
        while true {
            guard current.isActive else { return .idle }
            guard playing else { return begin(at: now) }
            if let end = current.endSequence, nextSequence > end { return finish(.complete, at: now) }
            guard let found = current.lowestSlot else { return runDry(at: now) }
            if slots[found].sequence == nextSequence { return play(found, at: now) }
            if isAwaited(found, at: now) { return standIn() }
            if let decision = passOver(found) { return decision }
        }
    }

    /// The burst that plays next, if any, has not begun.
    mutating func prepareToPlay() {
        playing = false
        concealed = 0
        filled = 0
        lateAt = nil
        gap = Gap()
        waitsInVain = 0
        correction = PaceRule()
        playedNewest = -1
        estimator.beginBurst()
    }

    // MARK: Beginning and end

    private mutating func begin(at now: Instant) -> Decision {
        guard let found = current.lowestSlot else { return finish(.superseded, at: now) }
        let first = slots[found]
        // When half of the slots are used, or all has come, waiting gains nothing.
        let isFull = current.count > Self.slotCount / 2
        let isWhole = current.endSequence.map { Int64(current.count) >= $0 - first.sequence + 1 } ?? false
        var wait = due(first.timestamp) - now
        if current.markerSequence == nil { wait = max(wait, current.beganAt + Self.headWait - now) }
        if wait > .zero, !isFull, !isWhole { return .wait(samples: Self.samples(wait)) }
        playing = true
        nextSequence = first.sequence
        nextTimestamp = first.timestamp
        playedNewest = first.sequence - 1 - Int64(played.count)
        return decode(found, isFirst: true, at: now)
    }

    private mutating func finish(_ end: PlaybackEnd, at now: Instant) -> Decision {
        remember(current, at: now)
        discard(current)
        swap(&current, &following)
        prepareToPlay()
        guard current.isActive else { return .ended(end) }
        // It was not watched while it was not its turn.
        var sequence = current.lowest
        while current.count > 0, sequence <= current.newestSequence {
            if let slot = current.slot(of: sequence) { observe(slots[slot].timestamp, slots[slot]) }
            sequence += 1
        }
        return .ended(end)
    }

    // MARK: What is there

    private mutating func play(_ slot: Int, at now: Instant) -> Decision {
        let packet = slots[slot]
        // The talker left out time (an overrun, or a pause): it passes here, too, unless that has happened already.
        let wait = due(packet.timestamp) - now
        let left = packet.timestamp - nextTimestamp
        if left > 0, wait > .milliseconds(2) {
            let samples = min(min(Self.samples(wait), Self.concealStep), max(1, Int(clamping: left)))
            nextTimestamp += Int64(samples)
            return concealed < Self.concealMax && samples == Self.concealStep ? conceal(samples) : silence(samples)
        }
        return decode(slot, isFirst: false, at: now)
    }

    private mutating func decode(_ slot: Int, isFirst: Bool, at now: Instant) -> Decision {
        let packet = slots[slot]
        nextSequence = packet.sequence + 1
        nextTimestamp = packet.timestamp + Int64(packet.samples)
        frameSamples = packet.samples
        if filled > 0 { lateAt = now }
        concealed = 0
        filled = 0
        markPlayed(packet.sequence)
        if packet.isRepaired {
            waitsInVain = 0
            // Repair is on its way: the rest of the gap may take as long again.
            if gap.waitingSince != nil { gap.waitingSince = now }
        }
        // The packet itself is held until it is released. Toward a gap there is no hurry: it may be closed yet.
        let nextIsThere = current.slot(of: nextSequence) != nil
        let waited = nextIsThere || current.count < 2 ? now - packet.receivedAt : .zero
        let pace = correction.pace(
            excess: now - due(packet.timestamp), waited: waited, nextIsThere: nextIsThere)
        return .decode(slot: slot, isFirst: isFirst, pace: pace)
    }

    // MARK: What is missing

    /// Whether the gap before `found` is worth waiting for.
    private mutating func isAwaited(_ found: Int, at now: Instant) -> Bool {
        let packet = slots[found]
        if nextSequence >= gap.end {
            let missing = packet.timestamp - nextTimestamp
            let isLong =
                missing > Int64(Self.concealAtOnceMax) && missing < Int64(Self.timeReach)
                && settings.repairWait > .zero && waitsInVain < Self.waitsInVainMax
            gap = Gap(end: packet.sequence, waitingSince: isLong ? now : nil, metAt: now)
            if isLong { statistics.awaitedGaps += 1 }
        }
        guard let since = gap.waitingSince else { return false }
        if now - since < settings.repairWait, now - gap.metAt < settings.silenceEnd,
            store.freeCount > Self.slotReserve
        {
            return true
        }
        gap.waitingSince = nil
        waitsInVain += 1
        return false
    }

    /// Later packets are there: the one that is next is lost. Nil: nothing has to stand in for it.
    private mutating func passOver(_ slot: Int) -> Decision? {
        let missing = slots[slot].sequence - nextSequence
        let span = slots[slot].timestamp - nextTimestamp
        guard span > 0, concealed < Self.concealMax else {
            statistics.lost += Int(missing)
            nextSequence = slots[slot].sequence
            return nil
        }
        nextSequence += 1
        statistics.lost += 1
        let isLastMissing = missing == 1
        let samples = Int(min(span, Int64(isLastMissing ? OpusDecoder.samplesMax : frameSamples))) / 120 * 120
        nextTimestamp += Int64(samples)
        guard samples > 0 else { return nil }
        if !isLastMissing, samples <= filled {
            // Its time has passed already, while nothing was there.
            filled -= samples
            return nil
        }
        // Only a copy of a whole frame can be in the next packet; longer gaps are more than one frame.
        if isLastMissing, samples <= 2 * frameSamples {
            concealed += samples
            statistics.recovered += 1
            return .recover(slot: slot, samples: samples)
        }
        return conceal(samples)
    }

    /// Nothing is there: wait for it by invented sound, and after that in silence, but not for ever.
    private mutating func runDry(at now: Instant) -> Decision {
        if following.isActive { return finish(.superseded, at: now) }
        let waited = CaptureStateMachine.duration(Int64(concealed))
        if let end = current.endSequence, waited >= settings.missingEnd {
            statistics.lost += Int(clamping: min(end - nextSequence + 1, Int64(Self.sequenceReach)))
            return finish(.silence, at: now)
        }
        if now - current.lastReceivedAt >= settings.silenceEnd { return finish(.silence, at: now) }
        let decision = standIn()
        if case .conceal(let samples) = decision { filled += samples }
        return decision
    }

    /// A packet that has come while the first sound that was invented for it is played, `unplayed` samples of which are left. The player
    /// drops those and goes over to the packet, which takes the place that it would have had: the delay stays as it was.
    ///
    /// Nil where packets come late more often, or later: then the packet is played whole, behind the invented sound. That makes the delay
    /// longer, which keeps the next ones from coming late.
    mutating func latePacket(unplayed: Int, at now: Instant) -> LatePacket? {
        let played = filled - unplayed
        // Nothing else was invented since the last packet.
        guard unplayed > 0, played >= 0, filled == Self.concealStep, concealed == filled, nextIsThere,
            let slot = current.slot(of: nextSequence), played + TimeScaler.fadeMax <= slots[slot].samples
        else { return nil }
        // Not `Optional.map`, which allocates when not optimised.
        if let lateAt, now - lateAt < Self.lateRarely { return nil }
        statistics.concealedSamples -= unplayed
        _ = decode(slot, isFirst: false, at: now - CaptureStateMachine.duration(Int64(played)))
        return LatePacket(slot: slot, skipped: played)
    }

    private mutating func standIn() -> Decision {
        concealed < Self.concealMax ? conceal(Self.concealStep) : silence(Self.silenceStep)
    }

    private mutating func conceal(_ samples: Int) -> Decision {
        concealed += samples
        statistics.concealedSamples += samples
        return .conceal(samples: samples)
    }

    private mutating func silence(_ samples: Int) -> Decision {
        concealed += samples
        return .wait(samples: samples)
    }

    /// When audio of the talker's time `timestamp` is to be played.
    private func due(_ timestamp: Int64) -> Instant {
        Instant(nanoseconds: (estimator.base ?? 0) &+ Self.nanoseconds(timestamp)) + estimator.target
    }
}

/// Keeps the playing near its target: small deviations are left alone, larger ones corrected until they are gone. To be
/// early costs packets, to be late only time; so early is corrected sooner.
struct PaceRule {
    /// A delay beyond the target from which on it is corrected: a period of a deep voice.
    static let shortenFrom = Duration.milliseconds(6)
    /// A delay short of the target from which on it is corrected.
    static let lengthenFrom = Duration.milliseconds(1)
    /// A delay beyond the target at which shortening stops; lengthening stops at the target.
    static let shortenUntil = Duration.milliseconds(1)

    private enum State { case steady, shortening, lengthening }
    private var state = State.steady

    /// How to play a packet that is `excess` later than it should be (below zero: earlier) and `waited` in the buffer, and
    /// whether the one behind it is there already.
    mutating func pace(excess: Duration, waited: Duration, nextIsThere: Bool) -> JitterBufferStateMachine.Pace {
        switch state {
        case .steady:
            if excess > Self.shortenFrom { state = .shortening }
            if excess < .zero - Self.lengthenFrom { state = .lengthening }
        case .shortening: if excess < Self.shortenUntil { state = .steady }
        case .lengthening: if excess >= .zero { state = .steady }
        }
        switch state {
        case .steady: return .steady
        case .shortening:
            // Nothing is gained by hurrying toward what is not there, and will not be in time.
            let most = nextIsThere ? excess : min(excess, waited - Self.shortenFrom)
            return most > .zero ? .shorten(by: Int(CaptureStateMachine.samples(most))) : .steady
        case .lengthening: return .lengthen(by: Int(CaptureStateMachine.samples(.zero - excess)))
        }
    }
}
