// The last messages of others, kept to be heard again. Pure.

import Audio
import MonotonicTime
import PushToTalkCore
import Vocabulary

/// The messages that were received last, encoded as they came, within three bounds; the oldest go first. They are kept in memory
/// only, and no longer than the channel is joined.
struct ReplayMemory: Equatable, Sendable {
    /// The most messages.
    static let messagesMax = 3
    /// How long all of them may be together.
    static let durationMax = Duration.seconds(60)
    /// The most bytes of all of them together: a minute at 32 kbit/s, and as much for what is above that.
    static let byteCountMax = 480_000
    /// The most packets of all of them: a minute of packets of 10 ms.
    static let packetsMax = 6_000
    /// A message that a press cut off is replayed from this much earlier, since the speaker may have stopped for a gap
    /// in the network.
    static let repeatedBeforeCut = Duration.seconds(2)
    /// Less than that is not missed by who answers a little early: they ask for the whole.
    static let missedMin = Duration.seconds(1)

    /// A kept message.
    struct Message: Equatable, Sendable {
        let participant: PTParticipant
        /// Tells it from others at the same time.
        fileprivate let burst: TalkBurst?
        fileprivate var isGoingOn = true
        /// What comes of it is not kept any more: it alone is longer than the bounds.
        fileprivate var isFull = false
        fileprivate(set) var packets: [ReceivedFrame] = []
        fileprivate(set) var duration = Duration.zero
        fileprivate(set) var byteCount = 0
        /// How much of it was heard when a press cut it off; nil: it was not, or what was cut off has been heard since.
        fileprivate(set) var heard: Duration?

        fileprivate init(_ participant: PTParticipant, _ burst: TalkBurst?) {
            self.participant = participant
            self.burst = burst
        }
    }

    /// The oldest first; the last one may be going on, and where several talk at once others too.
    private var messages: [Message] = []
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

    /// A message begins. It has a number if several may talk at once.
    mutating func began(_ participant: PTParticipant, _ burst: TalkBurst? = nil) {
        ended(burst)
        messages.append(Message(participant, burst))
        if messages.count > Self.messagesMax { messages.removeFirst() }
        position = nil
    }

    /// A packet of it came: it gets its place by its number, for one that was asked for again comes late. One that is there already is
    /// nothing.
    mutating func append(_ packet: ReceivedFrame, _ burst: TalkBurst? = nil) {
        guard var index = going(burst), !messages[index].isFull else { return }
        // Looked at where they are: with a second name for them, each packet would copy all of them.
        let place = messages[index].packets.placeBySequence(of: packet)
        let before = place > 0 ? messages[index].packets[place - 1] : nil
        guard before?.sequence != packet.sequence else { return }
        let after = place < messages[index].packets.count ? messages[index].packets[place] : nil
        let step = Self.added(by: packet, between: before, and: after)
        while exceeds(adding: step, packet.payload.count) {
            guard index > 0 else {
                // Its beginning is worth more than its end: who calls, and whom.
                messages[index].isFull = true
                return
            }
            messages.removeFirst()
            index -= 1
        }
        messages[index].packets.insert(packet, at: place)
        messages[index].duration = messages[index].duration + step
        messages[index].byteCount += packet.payload.count
    }

    /// Nothing more of it comes.
    mutating func ended(_ burst: TalkBurst? = nil) {
        guard let index = going(burst) else { return }
        messages[index].isGoingOn = false
        if messages[index].packets.isEmpty { messages.remove(at: index) }
    }

    private func going(_ burst: TalkBurst?) -> Int? {
        messages.lastIndex { $0.isGoingOn && $0.burst == burst }
    }

    /// A press has ended the listening: what was not heard is what is asked for first.
    ///
    /// - Parameter unheard: What the speaker was at; nil: everything was heard.
    mutating func cutOff(_ unheard: UnheardSpeech?) {
        guard let unheard else { return }
        if unheard.burst != nil { return cutOff(beside: unheard) }
        for (age, index) in messages.indices.reversed().enumerated() {
            if age < unheard.burstsWaiting {
                messages[index].heard = .zero
            } else {
                // Some had been cut off before.
                if age == unheard.burstsWaiting, unheard.heard + Self.missedMin <= messages[index].duration {
                    messages[index].heard = unheard.heard
                }
                break
            }
        }
    }

    /// Where several talk at once, what was not heard is known by its number.
    private mutating func cutOff(beside unheard: UnheardSpeech) {
        for index in messages.indices {
            guard let burst = messages[index].burst else { continue }
            if unheard.waiting.contains(burst) { messages[index].heard = .zero }
            guard burst == unheard.burst, unheard.heard + Self.missedMin <= messages[index].duration else { continue }
            messages[index].heard = unheard.heard
        }
    }

    /// Forgets everything.
    mutating func erase() { (messages, position) = ([], nil) }

    /// The message to play now. Messages that a press cut off come first, the oldest first and each once. Then comes
    /// the last message. Each request during a replay goes back to the previous message, in a circle.
    ///
    /// - Parameter again: A replay goes on.
    mutating func next(again: Bool, at now: Instant) -> ReceivedBurst? {
        endAll()
        guard !messages.isEmpty else { return nil }
        if let index = messages.firstIndex(where: { $0.heard != nil }) {
            let message = messages[index]
            messages[index].heard = nil
            // Asked for once more, it is heard whole.
            position = nil
            return replay(message, from: (message.heard ?? .zero) - Self.repeatedBeforeCut, at: now)
        }
        position = again ? ((position ?? -1) + 1) % messages.count : 0
        let message = messages[messages.count - 1 - (position ?? 0)]
        return replay(message, from: .zero, at: now)
    }

    /// A message that was kept elsewhere, to be heard again.
    mutating func replay(_ participant: PTParticipant, _ packets: [ReceivedFrame], at now: Instant) -> ReceivedBurst {
        replays &+= 1
        return ReceivedBurst(replaying: participant, renumbered(packets, at: now), at: now)
    }

    private mutating func endAll() {
        for index in messages.indices { messages[index].isGoingOn = false }
        messages.removeAll { $0.packets.isEmpty }
    }

    private mutating func replay(_ message: Message, from start: Duration, at now: Instant) -> ReceivedBurst {
        replay(message.participant, message.packets(from: start), at: now)
    }

    /// How much longer a message is with this packet between two others.
    private static func added(
        by packet: ReceivedFrame, between before: ReceivedFrame?, and after: ReceivedFrame?
    ) -> Duration {
        let step = ReceivedBurst.step(from: before?.timestamp, to: packet.timestamp)
        guard let after else { return step }
        let without = before.map { ReceivedBurst.step(from: $0.timestamp, to: after.timestamp) } ?? .zero
        return step + ReceivedBurst.step(from: packet.timestamp, to: after.timestamp) - without
    }

    private func exceeds(adding step: Duration, _ bytes: Int) -> Bool {
        duration + step > Self.durationMax || byteCount + bytes > Self.byteCountMax
            || messages.reduce(1) { $0 + $1.packets.count } > Self.packetsMax
    }

    /// As if they came now, at an even pace: the speaker must take them neither for strays of the message that they were, nor for packets
    /// of the next one.
    private func renumbered(_ packets: [ReceivedFrame], at now: Instant) -> [ReceivedFrame] {
        guard let first = packets.first else { return [] }
        // Far from the real ones, and further from the last replays than a message is long.
        let sequences = UInt16(0x6000 + replays % 3 * 0x2000)
        let timestamps = 0x6000_0000 + replays % 16 * 0x0400_0000
        return packets.map { packet in
            let offset = packet.timestamp.timestampDistance(from: first.timestamp)
            return ReceivedFrame(
                sequence: packet.sequence &+ sequences, timestamp: packet.timestamp &+ timestamps,
                marker: packet.sequence == first.sequence, payload: packet.payload,
                receivedAt: now + .nanoseconds(Int64(offset) * 1_000_000_000 / Int64(audioClockRate)))
        }
    }
}

extension ReplayMemory.Message {
    /// Its packets from that time of it on.
    fileprivate func packets(from start: Duration) -> [ReceivedFrame] {
        var position = Duration.zero
        var last: UInt32?
        let index = packets.firstIndex { packet in
            position = position + ReceivedBurst.step(from: last, to: packet.timestamp)
            last = packet.timestamp
            return position >= start
        }
        return Array(packets[(index ?? 0)...])
    }
}

/// What the speaker was at when a press ended the listening.
struct UnheardSpeech: Equatable, Sendable {
    /// For how long the burst had been heard.
    var heard: Duration
    /// How many bursts waited for their turn.
    var burstsWaiting: Int
    /// The burst, and those that waited for it, where several are heard at once.
    var burst: TalkBurst?
    var waiting: [TalkBurst?] = []
}
