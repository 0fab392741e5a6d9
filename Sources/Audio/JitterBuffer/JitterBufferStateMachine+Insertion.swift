// Inserts packets into the jitter buffer: finds the burst of each, and whether it is in time.
import MonotonicTime
import Vocabulary

extension JitterBufferStateMachine {
    /// Takes a packet of `samples` (1…5760) and at most `opusPayloadMax` bytes.
    mutating func insert(
        sequence: UInt16, timestamp: UInt32, marker: Bool, samples: Int, payload: UnsafeRawBufferPointer,
        receivedAt now: Instant, isRepaired: Bool = false
    ) -> Insertion {
        guard !payload.isEmpty, payload.count <= opusPayloadMax, (1...OpusDecoder.samplesMax).contains(samples) else {
            statistics.malformed += 1
            return .full
        }
        if isStray(sequence, timestamp, at: now) { return late() }
        let packet = JitterBufferSlot(
            isRepaired: isRepaired, samples: samples, length: payload.count, receivedAt: now)
        if current.isActive, belongs(sequence, timestamp, marker, to: current) {
            return insert(packet, sequence, timestamp, marker, payload, into: current, isCurrent: true)
        }
        if !current.isActive {
            current.begin(takeNumber(), sequence, timestamp, at: now)
            prepareToPlay()
            return insert(packet, sequence, timestamp, marker, payload, into: current, isCurrent: true)
        }
        if !following.isActive {
            following.begin(takeNumber(), sequence, timestamp, at: now)
        } else if !belongs(sequence, timestamp, marker, to: following) {
            // A third burst cannot wait for the first: what was not played of that is dropped, and `next` ends it.
            empty(current)
            statistics.dropped += 1
            return .full
        }
        return insert(packet, sequence, timestamp, marker, payload, into: following, isCurrent: false)
    }

    /// Tells the estimator of a packet's coming.
    mutating func observe(_ timestamp: Int64, _ packet: JitterBufferSlot) {
        let (time, span) = (Self.nanoseconds(timestamp), Self.nanoseconds(Int64(packet.samples)))
        if packet.isRepaired {
            estimator.repaired(mediaTime: time, span: span, at: packet.receivedAt)
        } else {
            estimator.received(mediaTime: time, span: span, at: packet.receivedAt)
        }
    }

    private mutating func insert(
        _ packet: JitterBufferSlot, _ sequence: UInt16, _ timestamp: UInt32, _ marker: Bool,
        _ payload: UnsafeRawBufferPointer, into lane: JitterBufferLane, isCurrent: Bool
    ) -> Insertion {
        let place = lane.place(of: sequence)
        let time = lane.time(of: timestamp)
        if let first = lane.markerSequence, place < first { return late() }
        lane.lastReceivedAt = max(lane.lastReceivedAt, packet.receivedAt)
        if isCurrent {
            observe(time, packet)
            if playing, place < nextSequence {
                guard wasPlayed(place) else { return late() }
                statistics.duplicate += 1
                return .duplicate
            }
        }
        guard lane.hasPlace(for: place) else {
            statistics.dropped += 1
            return .full
        }
        if lane.slot(of: place) != nil {
            statistics.duplicate += 1
            return .duplicate
        }
        guard let slot = store.take(payload) else {
            statistics.dropped += 1
            return .full
        }
        if isCurrent, !packet.isRepaired, place > lane.newestSequence + 1, lane.newestSequence > 0 || lane.count > 0 {
            let span = Self.nanoseconds(Int64(packet.samples))
            estimator.lost(mediaTime: Self.nanoseconds(time) - span, span: span, at: packet.receivedAt)
        }
        var packet = packet
        packet.sequence = place
        packet.timestamp = time
        slots[slot] = packet
        lane.put(slot, place, time, marker: marker)
        statistics.received += 1
        if packet.isRepaired { statistics.repaired += 1 }
        return .stored
    }

    private mutating func late() -> Insertion {
        statistics.late += 1
        return .late
    }

    private mutating func takeNumber() -> UInt32 {
        defer { nextBurst &+= 1 }
        return nextBurst
    }

    private func belongs(_ sequence: UInt16, _ timestamp: UInt32, _ marker: Bool, to lane: JitterBufferLane) -> Bool {
        let place = lane.place(of: sequence)
        let steps = place - lane.newestSequence
        let time = lane.time(of: timestamp)
        guard abs(steps) < Self.sequenceReach, abs(time - lane.newestTimestamp) < Self.timeReach else { return false }
        // What comes behind a burst's last packet is the next burst's, whether its marker has come or not.
        if let end = lane.endSequence, place > end { return false }
        guard marker, lane.markerSequence != place else { return true }
        // A marker begins a burst, unless it is this burst's own first packet, come behind others.
        guard lane.markerSequence == nil, time <= lane.newestTimestamp else { return false }
        return lane.count > 0 ? place <= lane.lowest : place <= lane.newestSequence
    }

    /// Whether a packet is of a burst that is over.
    private func isStray(_ sequence: UInt16, _ timestamp: UInt32, at now: Instant) -> Bool {
        guard let ended = lastEnded, now - ended.at < Self.memoryOfEnd else { return false }
        let steps = sequence.sequenceDistance(from: ended.lastSequence)
        let time = timestamp.timestampDistance(from: ended.lastTimestamp)
        return steps <= 0 && steps > -Self.sequenceReach && abs(time) < Self.timeReach
    }

    // MARK: What was played

    /// A packet was played, those between it and the one before were not.
    mutating func markPlayed(_ sequence: Int64) {
        let reach = Int64(played.count)
        var passed = max(playedNewest + 1, sequence - reach + 1)
        while passed < sequence {
            played[Int(passed & (reach - 1))] = false
            passed += 1
        }
        played[Int(sequence & (reach - 1))] = true
        playedNewest = sequence
    }

    private func wasPlayed(_ sequence: Int64) -> Bool {
        sequence <= playedNewest && playedNewest - sequence < Int64(played.count)
            && played[Int(sequence & Int64(played.count - 1))]
    }
}
