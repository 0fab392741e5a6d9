// One received talk burst: what of it waits, and when that is due at the speaker.

import Audio
import MonotonicTime
import PushToTalkCore
import Vocabulary

/// A talk burst and those of its packets that have not been handed to the speaker.
struct ReceivedBurst: Equatable, Sendable {
    /// How far ahead of its playing a burst that waited is handed to the speaker. More than its jitter buffer wants, so it
    /// catches up with the talker a little; less than it holds.
    static let lead = Duration.milliseconds(1500)
    /// One that this end came late to is handed over by so much faster than it was said: about as fast as speech is shortened.
    static let catchUpPace = (said: 6, heard: 5)
    /// The same for one that is replayed, which has nothing to catch up with.
    static let replayLead = Duration.milliseconds(200)
    /// How long to wait after the speaker's queue was full before the next attempt…
    static let roomInterval = Duration.milliseconds(20)
    /// …and how long the queue may stay full. After that it gets the due packets anyway: the speaker has stopped, and
    /// reports what it drops.
    static let holdBackMax = Duration.seconds(10)
    /// The longest packet of Opus (RFC 6716): a later one counts as that long after the one before, whatever it says.
    private static let packetMax = Duration.milliseconds(120)

    let participant: PTParticipant
    /// Tells it from others at the same time.
    let talkBurst: TalkBurst?
    /// It was heard before.
    let isReplay: Bool
    /// Packets that were handed over and are kept all the same, for they are taken away many at a time.
    static let handedOverMax = 512
    /// When the last packet came, or it became this burst's turn.
    private(set) var lastHeard: Instant
    private(set) var hasEnded = false
    /// The last packet's sequence number: as announced, else the newest one; nil: nothing came.
    var lastSequence: UInt16? { newest == nil ? nil : announcedLast ?? newest }
    /// How many packets wait.
    var waitingCount: Int { waiting.count - handedOver }

    private var announcedLast: UInt16?
    private var newest: UInt16?
    private var waiting: [ReceivedFrame] = []
    private var handedOver = 0
    /// When its turn came.
    private var begunAt: Instant?
    /// Since when the speaker's queue is full, and when to try again.
    private struct HeldBack: Equatable, Sendable {
        let since: Instant
        let until: Instant
    }

    private var heldBack: HeldBack?
    /// Whether its beginning was fetched, so that the listener is behind the talker.
    private(set) var isLate = false
    /// The place of the next packet in the burst, and the timestamp of the one before.
    private var position = Duration.zero
    private var lastTimestamp: UInt32?

    init(_ participant: PTParticipant, _ talkBurst: TalkBurst? = nil, at now: Instant) {
        self.participant = participant
        self.talkBurst = talkBurst
        isReplay = false
        lastHeard = now
    }

    /// A complete message that is replayed now.
    init(replaying participant: PTParticipant, _ packets: [ReceivedFrame], at now: Instant) {
        // Nobody is to take it for somebody who speaks now.
        self.participant = PTParticipant(name: "\(participant.name) (again)", image: participant.image)
        talkBurst = nil
        isReplay = true
        lastHeard = now
        for packet in packets { append(packet, at: now) }
        end(nil)
        begin(at: now)
    }

    /// A packet came and waits: in its place, when it was asked for again.
    mutating func append(_ packet: ReceivedFrame, at now: Instant) {
        passed(packet, at: now)
        if packet.isLate { isLate = true }
        waiting.insert(
            packet, at: packet.isRepaired ? waiting[handedOver...].placeBySequence(of: packet) : waiting.count)
    }

    /// A packet came and was handed over.
    mutating func passed(_ packet: ReceivedFrame, at now: Instant) {
        lastHeard = now
        // RFC 1982 order: the wrap of 16 bits is no step back.
        if newest.map({ packet.sequence.sequenceDistance(from: $0) > 0 }) ?? true { newest = packet.sequence }
    }

    /// Nothing more will come; `lastSequence` as announced.
    mutating func end(_ lastSequence: UInt16?) {
        guard !hasEnded else { return }
        hasEnded = true
        announcedLast = lastSequence
    }

    /// Its turn has come.
    mutating func begin(at now: Instant) {
        begunAt = now
        lastHeard = now
    }

    /// Its beginning comes though its turn is now: it waits from here on, to be handed over as fast as it can be heard.
    mutating func beginLate(at now: Instant) {
        if begunAt == nil { begin(at: now) }
    }

    /// When `takeDue` has something to give; nil: nothing waits.
    var nextDue: Instant? {
        guard let begunAt, waitingCount > 0 else { return nil }
        let due = begunAt + time(nextPosition) - ahead
        return heldBack.map { max(due, $0.until) } ?? due
    }

    /// How long after its turn came the place of a packet is heard.
    private func time(_ position: Duration) -> Duration {
        isLate ? position * Self.catchUpPace.heard / Self.catchUpPace.said : position
    }

    private var ahead: Duration { isReplay ? Self.replayLead : Self.lead }

    /// The packets that are due at the speaker, at most `room` of them.
    mutating func takeDue(at now: Instant, room: Int = .max) -> [ReceivedFrame] {
        var due: [ReceivedFrame] = []
        while let nextDue, nextDue <= now {
            if due.count >= max(0, room), !holdsBackTooLong(at: now) {
                // Whether there is some again is not known before the speaker has played.
                let since = due.isEmpty ? heldBack?.since ?? now : now
                heldBack = HeldBack(since: since, until: now + Self.roomInterval)
                break
            }
            var packet = waiting[handedOver]
            position = nextPosition
            // It comes to the speaker only now. As late as it really was, the jitter buffer would hurry after a talker whom it cannot
            // catch up with.
            if let begunAt { packet.receivedAt = max(packet.receivedAt, begunAt + time(position) - ahead) }
            // A repaired packet may be late even so: the next one's time is not counted from it.
            if !packet.isRepaired || isLater(packet) { lastTimestamp = packet.timestamp }
            // It comes to the speaker like any other, by which that knows how far behind it is.
            if packet.isLate { packet.isRepaired = false }
            handedOver += 1
            due.append(packet)
        }
        if heldBack.map({ $0.until <= now }) ?? false { heldBack = nil }
        if handedOver == waiting.count {
            waiting = []
            handedOver = 0
        } else if handedOver >= Self.handedOverMax {
            waiting.removeFirst(handedOver)
            handedOver = 0
        }
        return due
    }

    private func holdsBackTooLong(at now: Instant) -> Bool {
        heldBack.map { now - $0.since >= Self.holdBackMax } ?? false
    }

    private func isLater(_ packet: ReceivedFrame) -> Bool {
        lastTimestamp.map { packet.timestamp.timestampDistance(from: $0) > 0 } ?? true
    }

    private var nextPosition: Duration {
        position + Self.step(from: lastTimestamp, to: waiting[handedOver].timestamp)
    }

    /// How much later a packet is to be heard than the one that came before it; nil: it is the first.
    static func step(from last: UInt32?, to timestamp: UInt32) -> Duration {
        guard let last else { return .zero }
        let step = timestamp.timestampDistance(from: last)
        let duration = Duration.nanoseconds(Int64(step) * 1_000_000_000 / Int64(audioClockRate))
        return min(max(.zero, duration), packetMax)
    }
}

extension RandomAccessCollection<ReceivedFrame> {
    /// Where a packet belongs among packets in the order of their sequence numbers. Found from the end, near which nearly all belong.
    func placeBySequence(of packet: ReceivedFrame) -> Index {
        var place = endIndex
        while place > startIndex, self[index(before: place)].sequence.sequenceDistance(from: packet.sequence) > 0 {
            place = index(before: place)
        }
        return place
    }
}
