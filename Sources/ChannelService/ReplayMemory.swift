// The last messages of others, kept to be heard again. Pure.

import Audio
import MonotonicTime
import PushToTalkCore

/// The messages that were received last, encoded as they came, within three bounds; the oldest go first. They are kept in memory
/// only, and no longer than the channel is joined.
struct ReplayMemory: Equatable, Sendable {
    /// The most messages.
    static let messagesMax = 3
    /// How long all of them may be together.
    static let durationMax = Duration.seconds(60)
    /// The most bytes of all of them together: a minute at 32 kbit/s, and as much for what is above that.
    static let byteCountMax = 480_000
    /// The most packets of all of them: a minute of packets of 20 ms.
    static let packetsMax = 3_000

    /// A kept message.
    struct Message: Equatable, Sendable {
        let participant: PTParticipant
        fileprivate(set) var packets: [ReceivedPacket] = []
        fileprivate(set) var duration = Duration.zero
        fileprivate(set) var byteCount = 0

        fileprivate init(_ participant: PTParticipant) { self.participant = participant }
    }

    /// The oldest first; the last one may be going on.
    private var messages: [Message] = []
    private var isGoingOn = false
    /// What comes of this message is not kept any more: it alone is longer than the bounds.
    private var isFull = false
    /// How many messages back the last replay was; nil: nothing was replayed since the last message.
    private var position: Int?
    /// Counts replays, so that no two of them have the same numbers.
    private var replays: UInt32 = 0

    /// How many messages there are to be heard again.
    var count: Int { messages.count { !$0.packets.isEmpty } }
    /// How long they are together.
    var duration: Duration { messages.reduce(.zero) { $0 + $1.duration } }
    /// How many bytes they are.
    var byteCount: Int { messages.reduce(0) { $0 + $1.byteCount } }

    /// A message begins.
    mutating func began(_ participant: PTParticipant) {
        ended()
        messages.append(Message(participant))
        if messages.count > Self.messagesMax { messages.removeFirst() }
        isGoingOn = true
        position = nil
    }

    /// A packet of it came.
    mutating func append(_ packet: ReceivedPacket) {
        guard isGoingOn, !isFull, let last = messages.indices.last else { return }
        let step = ReceivedBurst.step(from: messages[last].packets.last?.timestamp, to: packet.timestamp)
        while exceeds(adding: step, packet.payload.count) {
            guard messages.count > 1 else {
                // Its beginning is worth more than its end: who calls, and whom.
                isFull = true
                return
            }
            messages.removeFirst()
        }
        let index = messages.count - 1
        messages[index].packets.append(packet)
        messages[index].duration = messages[index].duration + step
        messages[index].byteCount += packet.payload.count
    }

    /// Nothing more of it comes.
    mutating func ended() {
        if isGoingOn, messages.last?.packets.isEmpty == true { messages.removeLast() }
        isGoingOn = false
        isFull = false
    }

    /// Forgets everything.
    mutating func erase() { self = ReplayMemory(replays: replays) }

    /// The message to be heard now: the last one, and each time that it is asked for during a replay the one before, in a circle.
    ///
    /// - Parameter again: A replay goes on.
    mutating func next(again: Bool, at now: Instant) -> ReceivedBurst? {
        ended()
        guard !messages.isEmpty else { return nil }
        position = again ? ((position ?? -1) + 1) % messages.count : 0
        let message = messages[messages.count - 1 - (position ?? 0)]
        replays &+= 1
        return ReceivedBurst(replaying: message.participant, renumbered(message.packets, at: now), at: now)
    }

    init() {}

    private init(replays: UInt32) { self.replays = replays }

    private func exceeds(adding step: Duration, _ bytes: Int) -> Bool {
        duration + step > Self.durationMax || byteCount + bytes > Self.byteCountMax
            || messages.reduce(1) { $0 + $1.packets.count } > Self.packetsMax
    }

    /// As if they came now, at an even pace: the speaker must take them neither for strays of the message that they were, nor for packets
    /// of the next one.
    private func renumbered(_ packets: [ReceivedPacket], at now: Instant) -> [ReceivedPacket] {
        guard let first = packets.first else { return [] }
        // Half of the range away from the real ones, and further away from the last replays than a message is long.
        let sequences = UInt16(truncatingIfNeeded: 0x8000 &+ replays &* 4_096)
        let timestamps = 0x8000_0000 &+ replays &* 0x0400_0000
        return packets.map { packet in
            let offset = Int32(bitPattern: packet.timestamp &- first.timestamp)
            return ReceivedPacket(
                sequence: packet.sequence &+ sequences, timestamp: packet.timestamp &+ timestamps,
                marker: packet.marker, payload: packet.payload,
                receivedAt: now + .nanoseconds(Int64(offset) * 1_000_000_000 / Int64(audioClockRate)))
        }
    }
}
