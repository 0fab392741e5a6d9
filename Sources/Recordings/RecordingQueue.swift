// What is recorded on its way to the disk. Pure.
import MonotonicTime
import Vocabulary

/// The bursts that go on, and the events of them that are handed to the disk together.
struct RecordingQueue {
    /// Events that wait for the disk: 15 s of two voices in packets of 10 ms, 6 s of five; 4 MB at most.
    static let eventsMax = 3_000
    /// Packets that are handed over together: half a second of 10 ms.
    static let batchMax = 50

    /// What follows from an event.
    struct Outcome: Equatable {
        /// To be handed over now, in this order.
        var batch: [RecordingEvent] = []
        /// The disk does not follow, which is to be said once.
        var warns = false
    }

    private var current: [Recorder.Voice: UInt64] = [:]
    private var lastBurst: UInt64 = 0
    /// What is handed over together: the other thread need not wake up for each packet.
    private var gathered: [RecordingEvent] = []
    private var hasWarned = false
    /// Events that were dropped because the disk did not follow.
    private(set) var dropped = 0

    /// A burst begins; what went on of this voice has ended.
    ///
    /// - Parameter waiting: Events that were handed over, and that the disk has not taken yet.
    mutating func began(_ voice: Recorder.Voice, _ label: RecordingLabel, waiting: Int) -> Outcome {
        var outcome = ended(voice, waiting: waiting)
        lastBurst += 1
        current[voice] = lastBurst
        post(.began(burst: lastBurst, label, isInOrder: voice == .own), &outcome, waiting)
        return outcome
    }

    /// A packet of it; in any order, and once more does no harm. Outside of a burst it is nothing.
    mutating func packet(_ voice: Recorder.Voice, _ packet: ReceivedFrame, waiting: Int) -> Outcome {
        var outcome = Outcome()
        if let burst = current[voice] { post(.packet(burst: burst, packet), &outcome, waiting) }
        return outcome
    }

    /// It has ended.
    mutating func ended(_ voice: Recorder.Voice, waiting: Int) -> Outcome {
        if seededFault("the-end-of-a-recording-is-lost") { return Outcome() }
        return end(voice, waiting) { .ended(burst: $0) }
    }

    private mutating func end(_ voice: Recorder.Voice, _ waiting: Int, _ event: (UInt64) -> RecordingEvent) -> Outcome {
        var outcome = Outcome()
        if let burst = current.removeValue(forKey: voice) { post(event(burst), &outcome, waiting) }
        return outcome
    }

    /// Nobody else is heard any more.
    mutating func othersEnded(waiting: Int) -> Outcome {
        var outcome = Outcome()
        for (voice, burst) in current.sorted(by: { $0.value < $1.value }) where voice != .own {
            current[voice] = nil
            post(.ended(burst: burst), &outcome, waiting)
        }
        return outcome
    }

    /// It is not to be kept.
    mutating func discarded(_ voice: Recorder.Voice, waiting: Int) -> Outcome {
        if seededFault("what-was-erased-is-recorded") { return ended(voice, waiting: waiting) }
        return end(voice, waiting) { .discarded(burst: $0) }
    }

    /// Ends all that goes on.
    mutating func close(waiting: Int) -> Outcome {
        var outcome = othersEnded(waiting: waiting)
        let own = ended(.own, waiting: waiting + outcome.batch.count)
        outcome.batch += own.batch + gathered
        outcome.warns = outcome.warns || own.warns
        gathered = []
        return outcome
    }

    private mutating func post(_ event: RecordingEvent, _ outcome: inout Outcome, _ waiting: Int) {
        let waiting = waiting + outcome.batch.count + gathered.count
        guard waiting < Self.eventsMax else {
            dropped += 1
            outcome.warns = outcome.warns || !hasWarned
            hasWarned = true
            return
        }
        if waiting == 0 { hasWarned = false }
        gathered.append(event)
        if case .packet = event, gathered.count < Self.batchMax { return }
        outcome.batch += gathered
        gathered = []
    }
}

extension ReceivedFrame {
    /// A frame of own speech, as it is recorded. Positions jump where the microphone lost samples; so do the numbers.
    public init(own frame: OutgoingFrame) {
        self.init(
            sequence: UInt16(truncatingIfNeeded: frame.position / max(1, frame.samples)), timestamp: frame.position,
            payload: frame.payload, receivedAt: frame.capturedAt)
    }
}
