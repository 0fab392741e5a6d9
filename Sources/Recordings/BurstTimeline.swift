// The packets of a burst in order, with the pauses and losses between them. Pure.
import MonotonicTime
import Vocabulary

/// Puts the packets of a burst in order and fills its gaps.
///
/// Packets that were asked for again come late: those behind a gap wait until they are a while ahead of it. What is missing by then is
/// lost, and becomes packets that ask for concealment; pauses, in which nothing was sent, likewise.
struct BurstTimeline {
    /// How far the newest packet may be ahead of a gap that still waits, in samples. A packet is asked for until it is 10 s old, and the
    /// answer may take 3 s more (docs/relay-protocol.md, section 17).
    static let repairSamples = 13 * 48_000
    /// The same for the beginning of the burst, before which nothing is known to be missing.
    static let beginningSamples = 4 * 48_000
    /// The most packets that wait: 14 s of 10 ms.
    static let packetsMax = 1_400
    /// The longest gap that is kept as it was; a longer one becomes `gapInstead`.
    static let gapMax: Int64 = 10 * 48_000
    /// What a longer gap becomes.
    static let gapInstead: Int64 = 48_000
    /// The most packets of filling that one packet may ask for, beyond what the packets before it left over of theirs: a talker's
    /// clock that jumps with every packet would make a disk's work of it.
    static let fillersEach = 8
    /// The most that may be left over: `gapMax` in packets of 10 ms.
    static let fillersMax = 1_000

    /// A packet of the file and what it lasts, in samples.
    struct Item: Equatable {
        var payload: [UInt8]
        var samples: Int
    }

    /// Packets may come in another order than they were sent.
    private let mayBeLate: Bool
    /// What waits, in the order of the sequence numbers.
    private var waiting: [ReceivedFrame] = []
    /// The last that was handed on.
    private var last: ReceivedFrame?
    /// How far ahead of the file's samples the talker's clock is; what is less than a frame stays here until the next gap.
    private var owed: Int64 = 0
    private var lastSamples = 0
    private var fillersLeft = fillersMax
    /// Packets that were no Opus, came twice or too late.
    private(set) var dropped = 0

    /// - Parameter isInOrder: The packets come in order, and nothing waits.
    init(isInOrder: Bool = false) { mayBeLate = !isInOrder }

    /// A packet came.
    ///
    /// - Returns: What is to be written now.
    mutating func append(_ packet: ReceivedFrame) -> [Item] {
        guard OpusPacketLength.samples(of: packet.payload) != nil, isNews(packet) else {
            dropped += 1
            return []
        }
        // From the end: nearly all come in order. RFC 1982 order, as RTP wraps.
        var place = waiting.count
        while !seededFault("a-late-packet-is-recorded-late"), place > 0,
            packet.sequence.sequenceDistance(from: waiting[place - 1].sequence) < 0
        { place -= 1 }
        waiting.insert(packet, at: place)
        var items: [Item] = []
        while let first = waiting.first, let newest = waiting.last, isDue(first, newest: newest) { items += handOn() }
        return items
    }

    private func isDue(_ first: ReceivedFrame, newest: ReceivedFrame) -> Bool {
        if waiting.count > Self.packetsMax { return true }
        if mayBeLate, last.map({ first.sequence.sequenceDistance(from: $0.sequence) == 1 }) == true { return true }
        let window = !mayBeLate ? 0 : last == nil ? Self.beginningSamples : Self.repairSamples
        return newest.timestamp.timestampDistance(from: first.timestamp) > window
    }

    /// Nothing more comes.
    ///
    /// - Returns: What is left to be written.
    mutating func finish() -> [Item] {
        var items: [Item] = []
        while !waiting.isEmpty { items += handOn() }
        return items
    }

    private func isNews(_ packet: ReceivedFrame) -> Bool {
        if let last, packet.sequence.sequenceDistance(from: last.sequence) <= 0 { return false }
        return !waiting.contains { $0.sequence == packet.sequence }
    }

    private mutating func handOn() -> [Item] {
        let packet = waiting.removeFirst()
        let samples = OpusPacketLength.samples(of: packet.payload) ?? 0
        var items: [Item] = []
        if let last {
            owed += Int64(packet.timestamp.timestampDistance(from: last.timestamp) - lastSamples)
            // A clock that goes back says nothing: the packets follow one another.
            owed = max(0, owed)
            if owed > Self.gapMax { owed = Self.gapInstead }
            if seededFault("a-gap-is-not-recorded") { owed = 0 }
            let filler = OpusPacketLength.missing(after: last.payload)
            while owed >= Int64(filler.samples) {
                guard fillersLeft > 0 else {
                    owed = 0
                    break
                }
                fillersLeft -= 1
                items.append(Item(payload: filler.packet, samples: filler.samples))
                owed -= Int64(filler.samples)
            }
            fillersLeft = min(Self.fillersMax, fillersLeft + Self.fillersEach)
        }
        last = packet
        lastSamples = samples
        items.append(Item(payload: packet.payload, samples: samples))
        return items
    }
}
