// One talker's speech on its way to the speaker, with its statistics.
import MonotonicTime

/// A voice of the speaker: a jitter buffer, a decoder and their counts. Confined to the playback thread; allocates nothing after `init`.
final class PlaybackVoice {
    let speech: SpeechRenderer
    private var malformed = 0
    private var countsAtBurst = PlaybackStatistics()

    init(_ speech: SpeechRenderer) { self.speech = speech }

    /// Whether nothing is left to be heard of it.
    var isIdle: Bool { speech.isIdle }

    /// Counts since `init`.
    var statistics: PlaybackStatistics {
        var counts = speech.statistics
        counts.malformed += malformed
        return counts
    }

    /// Takes a packet; false when it is no Opus packet.
    func insert(
        sequence: UInt16, timestamp: UInt32, marker: Bool, payload: UnsafeRawBufferPointer, receivedAt: Instant,
        isRepaired: Bool
    ) -> Bool {
        let isOpus = speech.insert(
            sequence: sequence, timestamp: timestamp, marker: marker, payload: payload, receivedAt: receivedAt,
            isRepaired: isRepaired)
        if !isOpus { malformed += 1 }
        return isOpus
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
}
