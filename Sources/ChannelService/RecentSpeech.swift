// What was handed to the speaker last, to be said once more on another one. Pure.
import MonotonicTime
import Vocabulary

/// The last two seconds of received speech, by voice, while it plays.
struct RecentSpeech {
    /// How much is repeated when a speaker is lost: what may have been in the lost device, and what led up to it.
    static let span = Duration.seconds(2)
    /// The most packets of a voice: those of 2.5 ms would be more, which nobody sends.
    static let packetsMax = 256

    private struct Voice {
        var packets: [ReceivedFrame] = []
        /// The number that the burst ends with, once it is known.
        var lastSequence: UInt16?

        /// In place: it happens with each packet.
        mutating func add(_ packet: ReceivedFrame, since begin: Instant) {
            packets.append(packet)
            let old = packets.firstIndex { $0.receivedAt >= begin } ?? packets.count
            packets.removeFirst(max(old, packets.count - packetsMax))
        }
    }

    private var voices: [Int: Voice] = [:]

    /// A packet was handed to the speaker at `now`.
    mutating func add(_ packet: ReceivedFrame, voice: Int, at now: Instant) {
        // It is here now, and whoever plays it again knows nothing of the network's delay.
        var kept = packet
        kept.receivedAt = now
        kept.isRepaired = true
        voices[voice, default: Voice()].add(kept, since: now - Self.span)
    }

    /// The voice's burst ends with this packet.
    mutating func end(_ voice: Int, lastSequence: UInt16) { voices[voice]?.lastSequence = lastSequence }

    /// The voice was heard to its end, or is not wanted.
    mutating func remove(_ voice: Int) { voices[voice] = nil }

    mutating func removeAll() { voices = [:] }

    /// What is to be said once more on a voice, as if it came at `now`, and the burst's last number where that is known.
    func again(_ voice: Int, at now: Instant) -> (packets: [ReceivedFrame], lastSequence: UInt16?) {
        guard let kept = voices[voice] else { return ([], nil) }
        let begin = now - Self.span
        var packets = kept.packets.filter { $0.receivedAt >= begin }
        for index in packets.indices { packets[index].receivedAt = now }
        // Nothing before it is to be waited for.
        if !packets.isEmpty { packets[0].marker = true }
        return (packets, kept.lastSequence)
    }
}
