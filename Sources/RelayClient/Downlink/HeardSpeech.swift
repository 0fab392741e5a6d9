// What was heard of each talker, so that no part of a burst that continues over the next host is heard twice. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// How far the last bursts were heard, by the talkers' RTP clocks.
///
/// A talker whose relay is lost continues over the next one with the frames that the lost relay has not acknowledged,
/// with their original timestamps (docs/relay-protocol.md, section 20). A listener may have heard some of them already,
/// because acknowledgements get lost, too.
struct HeardSpeech: Sendable {
    /// How many talkers are remembered.
    static let talkersMaximum = 8
    /// How long it is known how far a talker was heard: longer than a talker waits for the next host.
    static let memory: Duration = .seconds(10)
    /// Samples at 48 kHz; speech that is further back is not taken for repeated. It is a whole burst of the usual limit,
    /// because a host that was cut off keeps the beginning of a burst that has continued on another host. A larger
    /// difference comes from a client that was restarted and has another clock.
    static let overlapMaximum = 60 * 48_000

    private struct Entry: Sendable {
        var talker: String
        var burst: BurstName
        /// The newest time stamp.
        var timestamp: UInt32
        var at: Instant
        /// The newest time stamp of the burst before: packets of the present one may overtake those that say it again.
        var before: UInt32?
    }

    private var entries: [Entry] = []

    /// A packet of that burst is heard.
    ///
    /// - Returns: Whether it was heard before, in an earlier burst of the same talker.
    mutating func hasHeard(_ timestamp: UInt32, of talker: RelayMember, in burst: BurstName, at now: Instant) -> Bool {
        guard let index = entries.firstIndex(where: { $0.talker == talker.id }) else {
            entries.append(Entry(talker: talker.id, burst: burst, timestamp: timestamp, at: now))
            entries.removeFirst(max(0, entries.count - Self.talkersMaximum))
            return false
        }
        let ahead = timestamp.timestampDistance(from: entries[index].timestamp)
        if entries[index].burst != burst, ahead <= 0, ahead > -Self.overlapMaximum,
            now - entries[index].at < Self.memory,
            !seededFault("what-was-heard-is-heard-again")
        {
            return true
        }
        if entries[index].burst == burst, let before = entries[index].before {
            let ahead = timestamp.timestampDistance(from: before)
            if ahead <= 0, ahead > -Self.overlapMaximum { return true }
        }
        // Packets of one burst overtake each other.
        if entries[index].burst == burst, ahead <= 0 { return false }
        let before = entries[index].burst == burst ? entries[index].before : entries[index].timestamp
        entries[index] = Entry(talker: talker.id, burst: burst, timestamp: timestamp, at: now, before: before)
        return false
    }
}
