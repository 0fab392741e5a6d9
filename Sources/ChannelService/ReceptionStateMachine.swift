// When a remote participant counts as speaking, from the first packet until the last one has been heard, and what becomes
// of messages that come while another one plays. No I/O.

import Audio
import MonotonicTime
import PushToTalkCore
import Vocabulary

/// One received talk burst after the other, as a state machine without I/O.
///
/// A burst ends for the listener not when the talker releases, but when the jitter buffer has played it out; and it
/// ends in any case, also when nobody ever says that it does. Bursts that begin before that wait, and are played whole, in
/// order.
///
/// Where several talk at once, somebody is heard behind their own last words, whoever came between. So a burst may wait
/// behind one that still comes.
struct ReceptionStateMachine: Sendable {
    enum State: Equatable, Sendable {
        case idle
        /// The burst continues unheard during an own transmission, and is kept: two members pressed at once, and the
        /// relay chose the other one.
        case waiting(ReceivedBurst)
        /// The burst is handed to the speaker, packet by packet.
        case receiving(ReceivedBurst)
        /// All of it has been handed over.
        case draining(PTParticipant, until: Instant, TalkBurst? = nil)
    }

    /// How long nothing may come of a burst before it counts as over (T1 of the relay is 5 s; this is behind it).
    static let silenceLimit = Duration.seconds(10)
    /// How long playing out may take after the end: two seconds of gap and one of speech that the talker held, hardly faster than
    /// they were said.
    static let drainLimit = Duration.seconds(6)
    /// Bursts that wait for the one that plays; a further one is dropped.
    static let burstsQueuedMax = 8
    /// Packets of bursts that wait or are being caught up with: a minute of 10 ms frames. Further ones are dropped.
    static let packetsQueuedMax = 6_000
    /// So many packets may wait at the speaker, which drops what is beyond twice of that; further ones wait here. It plays speech that it
    /// cannot shorten more slowly than a late one is handed over. 5 s of packets of 20 ms, which is less than `drainLimit`.
    static let speakerHoldsMax = 256

    /// The voice of the speaker that plays it.
    let voice: Int
    var state = State.idle
    /// Bursts that wait, the oldest first.
    private(set) var queue: [ReceivedBurst] = []
    /// A burst that found no place still comes.
    private(set) var isDropping = false
    /// Which one that is.
    private var droppedBurst: TalkBurst?
    /// Packets that were dropped: they came outside of a burst, behind an own transmission, or found no place.
    var packetsDropped = 0

    /// Packets that the speaker holds, as of a moment ago.
    var speakerHolds = 0
    /// When the first packet of the burst whose turn it is was handed to the speaker.
    var playedSince: Instant?
    /// Whether a message is being heard again.
    var isReplaying = false

    init(voice: Int = 0) { self.voice = voice }

    /// How many bursts wait for the one that plays.
    var burstsQueued: Int { queue.count }

    private var packetsQueued: Int {
        var count = queue.reduce(0) { $0 + $1.waitingCount }
        switch state {
        case .receiving(let burst), .waiting(let burst): count += burst.waitingCount
        case .idle, .draining: break
        }
        return count
    }

    /// When the machine wants `Event.deadlineReached`.
    var nextDeadline: Instant? {
        switch state {
        case .idle: nil
        case .waiting(let burst): burst.hasEnded ? nil : burst.lastHeard + Self.silenceLimit
        case .receiving(let burst): burst.nextDue ?? burst.lastHeard + Self.silenceLimit
        case .draining(_, let until, _): until
        }
    }

    mutating func handle(_ event: ReceptionEvent, at now: Instant) -> [ReceptionAction] {
        let actions = handled(event, at: now)
        for action in actions { follow(action, at: now) }
        return actions
    }

    private mutating func handled(_ event: ReceptionEvent, at now: Instant) -> [ReceptionAction] {
        if isReplaying, let actions = interruptReplay(event, at: now) { return actions }
        return switch event {
        case .replay(let burst): replay(burst, at: now)
        case .replayStopped: stopReplay()
        case .began(let participant, let talkBurst): began(participant, talkBurst, at: now)
        case .packet(let packet, let talkBurst): received(packet, of: talkBurst, at: now)
        case .ended(let lastSequence, let talkBurst): ended(talkBurst, lastSequence, at: now)
        case .played: if case .draining = state { finish(at: now) } else { [] }
        case .refused: refused(at: now)
        case .transmissionEnded: transmissionEnded(at: now)
        case .cleared: cleared()
        case .deadlineReached: deadlineReached(at: now)
        case .ownSpeechComplete, .left: []
        }
    }

    // MARK: What comes

    mutating func began(_ participant: PTParticipant, _ talkBurst: TalkBurst?, at now: Instant) -> [ReceptionAction] {
        let burst = ReceivedBurst(participant, talkBurst, at: now)
        if talkBurst != nil, isBehindOwn(participant), isComing {
            enqueue(burst)
            return []
        }
        isDropping = false
        switch state {
        case .waiting(var earlier) where earlier.waitingCount > 0:
            earlier.end(nil)
            state = .waiting(earlier)
            enqueue(burst)
            return []
        case .idle, .waiting:
            state = .receiving(burst)
            return [.setParticipant(participant)]
        case .receiving, .draining:
            // The end of the one before was not told: it has ended now.
            let actions = endNewest(at: now)
            // Nothing had come of it, so this one's turn is now.
            if case .idle = state { return actions + began(participant, talkBurst, at: now) }
            enqueue(burst)
            return actions
        }
    }

    private mutating func enqueue(_ burst: ReceivedBurst) {
        isDropping = queue.count >= Self.burstsQueuedMax
        if isDropping { droppedBurst = burst.talkBurst } else { queue.append(burst) }
    }

    private func isDropping(_ talkBurst: TalkBurst?) -> Bool { isDropping && talkBurst == droppedBurst }

    /// Where a burst waits; nil: it does not.
    private func place(of talkBurst: TalkBurst?) -> Int? { queue.lastIndex { $0.talkBurst == talkBurst } }

    private mutating func received(
        _ packet: ReceivedFrame, of talkBurst: TalkBurst?, at now: Instant
    ) -> [ReceptionAction] {
        let hasRoom = packetsQueued < Self.packetsQueuedMax
        if !isDropping(talkBurst), let place = place(of: talkBurst) {
            if hasRoom { queue[place].append(packet, at: now) } else { packetsDropped += 1 }
            return []
        }
        guard !isDropping(talkBurst), talkBurst == playing || state == .idle else {
            packetsDropped += 1
            return []
        }
        switch state {
        case .receiving(var burst):
            // It is not to be in two places while it grows: each packet would copy all that wait.
            state = .idle
            if packet.isLate { burst.beginLate(at: now) }
            let isDue = burst.waitingCount == 0 && !packet.isLate
            if isDue {
                burst.passed(packet, at: now)
            } else if hasRoom {
                burst.append(packet, at: now)
            } else {
                packetsDropped += 1
            }
            state = .receiving(burst)
            return isDue ? [.play(packet, voice: voice)] : packet.isLate ? catchUp(at: now) : []
        case .draining: return [.play(packet, voice: voice)]
        case .waiting(var burst):
            state = .idle
            if hasRoom { burst.append(packet, at: now) } else { packetsDropped += 1 }
            state = .waiting(burst)
            return []
        case .idle:
            packetsDropped += 1
            return []
        }
    }

    private mutating func ended(
        _ talkBurst: TalkBurst?, _ lastSequence: UInt16?, at now: Instant
    ) -> [ReceptionAction] {
        if isDropping(talkBurst) {
            isDropping = false
        } else if let place = place(of: talkBurst) {
            queue[place].end(lastSequence)
        } else if talkBurst == playing {
            return endPlaying(lastSequence, at: now)
        }
        return []
    }

    /// The end of the burst that came last was not told.
    private mutating func endNewest(at now: Instant) -> [ReceptionAction] {
        isDropping = false
        guard queue.isEmpty else {
            queue[queue.count - 1].end(nil)
            return []
        }
        return endPlaying(nil, at: now)
    }

    private mutating func endPlaying(_ lastSequence: UInt16?, at now: Instant) -> [ReceptionAction] {
        switch state {
        case .receiving(var burst):
            burst.end(lastSequence)
            state = .receiving(burst)
            return drainIfAllIsHandedOver(at: now)
        case .waiting(var burst):
            burst.end(lastSequence)
            state = burst.waitingCount == 0 ? .idle : .waiting(burst)
            return []
        case .idle, .draining: return []
        }
    }

    // MARK: One after the other

    private mutating func drainIfAllIsHandedOver(at now: Instant) -> [ReceptionAction] {
        guard case .receiving(let burst) = state, burst.hasEnded, burst.waitingCount == 0 else { return [] }
        // Of nothing there is nothing to wait for.
        guard let last = burst.lastSequence else { return finish(at: now) }
        state = .draining(burst.participant, until: now + Self.drainLimit, burst.talkBurst)
        return [.endPlayback(lastSequence: last, voice: voice)]
    }

    private mutating func finish(at now: Instant) -> [ReceptionAction] {
        if seededFault("heard-bursts-never-end") { return [] }
        isReplaying = false
        guard !queue.isEmpty else {
            state = .idle
            return [.setParticipant(nil)]
        }
        var burst = queue.removeFirst()
        burst.begin(at: now)
        state = .receiving(burst)
        return [.setParticipant(burst.participant)] + catchUp(at: now)
    }

    /// Hands over what is due of a burst that waited; the speaker holds only so much at once.
    mutating func catchUp(at now: Instant) -> [ReceptionAction] {
        guard case .receiving(var burst) = state else { return [] }
        state = .idle
        let due = burst.takeDue(at: now, room: Self.speakerHoldsMax - speakerHolds)
        state = .receiving(burst)
        return due.map { .play($0, voice: voice) } + drainIfAllIsHandedOver(at: now)
    }

    // MARK: The channel manager

    private mutating func refused(at now: Instant) -> [ReceptionAction] {
        guard case .receiving(let burst) = state else { return [] }
        isReplaying = false
        let isOver = burst.isReplay || (burst.hasEnded && burst.waitingCount == 0)
        state = isOver ? .idle : .waiting(burst)
        return []
    }

    private mutating func transmissionEnded(at now: Instant) -> [ReceptionAction] {
        guard case .waiting(var burst) = state else { return [] }
        burst.begin(at: now)
        state = .receiving(burst)
        // Its packets are due, but only when the channel manager has taken the participant.
        return [.setParticipant(burst.participant)]
    }

    private mutating func cleared() -> [ReceptionAction] {
        packetsDropped += isReplaying ? 0 : packetsQueued
        queue = []
        isReplaying = false
        defer { state = .idle }
        switch state {
        case .idle, .waiting: return []
        case .receiving, .draining: return [.dropPlayback(voice: voice)]
        }
    }

    private mutating func deadlineReached(at now: Instant) -> [ReceptionAction] {
        guard let nextDeadline, nextDeadline <= now else { return [] }
        switch state {
        case .idle: return []
        case .waiting: return endPlaying(nil, at: now)
        case .receiving(let burst) where burst.nextDue != nil: return catchUp(at: now)
        case .receiving, .draining: return [.dropPlayback(voice: voice)] + finish(at: now)
        }
    }
}
