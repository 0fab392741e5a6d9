// Outgoing bursts: requests the floor, holds frames until it is granted, and then sends them. Pure rules.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// The bursts of this end, in the order begun; one at a time is on the floor.
///
/// A burst that ended before its grant is still sent whole once the grant comes, and the next press may begin
/// meanwhile: it holds its frames until the one before it is done. A press that finds no link, or loses it, waits for
/// the next one as long as for an answer. So does one that comes too soon after many others (`FloorRequestPacer`).
/// Whatever happens, each burst ends with exactly one `transmissionEnded` (invariant I2), and each of its frames is
/// sent, erased or dropped, and counted (I5).
public struct UplinkStateMachine: Sendable {
    /// The most audio held for a burst that waits for the floor: 1 s at 48 kHz.
    public static let heldSamplesMaximum: UInt32 = 48_000
    /// The most frames held, whatever their length.
    public static let heldFramesMaximum = 400
    /// So many times more is held of a burst that waits, or waited, for the link, the 2 s of a gap besides the second; and of one
    /// that has the floor, whose frames come all at once when this machine was held up.
    public static let heldFactorMaximum = 3
    /// How long an answer to a floor request is awaited, and how long the link.
    public static let answerTimeout: Duration = .seconds(2)
    /// How long an answer is awaited at least when waiting for the link has taken most of `answerTimeout`.
    public static let answerTimeoutAfterLink: Duration = .seconds(1)
    /// The most bursts on their way at one time.
    public static let burstsMaximum = 4
    /// Held frames are sent this much at a time: 40 ms of audio at 48 kHz…
    public static let catchUpSamples: UInt32 = 1_920
    /// …and then so much later the next: 8 times faster than real time, whatever their length.
    public static let catchUpInterval: Duration = .milliseconds(5)

    /// How long a burst that had the floor waits for the next connection.
    public static let resumptionTimeout: Duration = .seconds(3)

    /// Two frames of one burst that are so much further apart than the first is long have lost what was between them.
    static let gapMinimum: Duration = .milliseconds(5)

    private enum Link: Sendable, Equatable {
        /// There is none, and none comes by itself, or not soon.
        case closed
        /// There is none now; it is being made.
        case coming
        case ready
    }

    private var link = Link.closed
    private var bursts: [Burst] = []
    private var lastRequestID = FloorRequestID(rawValue: 0)
    private var nextSequence: UInt16
    private var nextTimestamp: UInt32
    private var pacer = FloorRequestPacer()
    /// The time stamp of the microphone's clock at its origin.
    private let timestampAtZero: UInt32
    private var lastFrameAt = Instant.zero
    /// What was sent of the burst on the floor, and is not acknowledged; only while bursts are resumed.
    private var unheard = UnacknowledgedFrames()
    /// Whether a burst that has the floor continues over the next connection, from the last acknowledged frame.
    /// Otherwise it ends with its connection.
    var resumesBursts = false
    /// Frames that came without a burst to belong to.
    public private(set) var strayFrames = 0

    /// Nothing to send yet.
    ///
    /// - Parameters:
    ///   - firstSequence: Where RTP sequence numbers start; random (RFC 3550).
    ///   - timestampAtZero: The RTP time stamp at the origin of `Instant`; random, and the same after a restart. A clock that began
    ///     anywhere at each start could begin shortly before where it was, and listeners would take what is said for something that
    ///     they have heard (docs/relay-protocol.md, section 20).
    public init(firstSequence: UInt16, timestampAtZero: UInt32) {
        nextSequence = firstSequence
        self.timestampAtZero = timestampAtZero
        nextTimestamp = timestampAtZero
    }

    /// Whether nothing is on its way.
    public var isIdle: Bool { bursts.isEmpty }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? {
        guard let burst = bursts.first else { return nil }
        switch burst.phase {
        case .pending:
            let due = burst.waitingSince + burst.linkTimeout
            return pacer.retryAt.map { min($0, due) } ?? due
        case .asked: return burst.answerIsDue
        case .waiting: return nil
        case .granted: return burst.held.isEmpty ? nil : burst.windowStart + Self.catchUpInterval
        }
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .linkReady:
            link = .ready
            return askForNext(at: now)
        case .linkComing:
            if link == .closed { link = .coming }
            return []
        case .linkMoving:
            if link == .ready { link = .coming }
            return []
        case .linkLost: return linkLost(at: now)
        case .linkClosed: return linkClosed()
        case .begin(let id, let priority): return begin(id, priority: priority, at: now)
        case .frame(let frame): return take(frame, at: now)
        case .end: return end(at: now)
        case .abort: return abort(at: now)
        case .granted, .queued, .denied, .revoked, .floorIdle:
            pacer.answered()
            return answered(event, at: now) + askForNext(at: now)
        case .deadline: return deadline(at: now)
        case .keyRenewed: return askUnderNewKey(at: now)
        }
    }

    // MARK: The user's side

    private mutating func begin(_ id: BurstID, priority: UInt8, at now: Instant) -> [Action] {
        let actions = end(at: now)
        guard link != .closed else {
            return actions + [.tell(.transmissionEnded(id, .linkUnavailable, TransmissionReport()))]
        }
        guard bursts.count < Self.burstsMaximum else {
            return actions + [.tell(.transmissionEnded(id, .tooManyBursts, TransmissionReport()))]
        }
        var burst = Burst(id: id, priority: priority)
        if link == .coming { burst.missLink(at: now) }
        bursts.append(burst)
        return actions + askForNext(at: now)
    }

    private mutating func take(_ frame: OutgoingFrame, at now: Instant) -> [Action] {
        guard let last = bursts.indices.last, !bursts[last].hasEnded else {
            strayFrames += 1
            return []
        }
        guard !frame.payload.isEmpty, frame.payload.count <= OutgoingFrame.payloadMax,
            frame.samples > 0, frame.samples <= Self.heldSamplesMaximum
        else {
            bursts[last].report.dropped += 1
            return []
        }
        if bursts[last].hasWaited, bursts[last].phase != .granted || frame.capturedAt < bursts[last].capturedFrom {
            bursts[last].report.erased += 1
            return []
        }
        bursts[last].held.append(frame)
        bursts[last].heldSamples += frame.samples
        if bursts[last].isHeldTooMuch { return overflow(last, at: now) }
        return last == 0 ? sendHeld(at: now) : []
    }

    /// More is held than the design allows: nobody should hear a second of speech that late.
    private mutating func overflow(_ index: Int, at now: Instant) -> [Action] {
        guard index == 0 else {
            let burst = bursts.remove(at: index)
            return [ended(burst, link == .ready ? .notAnswered : .linkUnavailable)]
        }
        switch bursts[0].phase {
        case .pending where bursts[0].isResumed, .asked where bursts[0].isResumed:
            // The talker goes on, and is heard from where it can be.
            bursts[0].dropOldest()
            return []
        case .pending: return finishCurrent(link == .ready ? .notAnswered : .linkUnavailable, at: now)
        case .asked, .waiting: return [release(0)] + finishCurrent(.notAnswered, at: now)
        case .granted: return [release(0)] + finishCurrent(.revoked(.other("this machine stalled")), at: now)
        }
    }

    private mutating func end(at now: Instant) -> [Action] {
        guard let last = bursts.indices.last, !bursts[last].hasEnded else { return [] }
        bursts[last].hasEnded = true
        guard last == 0 else {
            guard bursts[last].held.isEmpty else { return [] }
            return [ended(bursts.removeLast(), .completed)]
        }
        guard bursts[0].held.isEmpty else { return sendHeld(at: now) }
        switch bursts[0].phase {
        case .pending: return finishCurrent(.completed, at: now)
        case .asked: return [release(0)] + finishCurrent(.completed, at: now)
        case .waiting: return [release(0)] + finishCurrent(.aborted, at: now)
        case .granted: return sendHeld(at: now)
        }
    }

    private mutating func abort(at now: Instant) -> [Action] {
        guard let last = bursts.indices.last, !bursts[last].hasEnded else { return [] }
        guard last == 0 else { return [ended(bursts.removeLast(), .aborted)] }
        let release = bursts[0].phase == .pending ? [] : [release(0)]
        return release + finishCurrent(.aborted, at: now)
    }

    // MARK: The relay's side

    private mutating func answered(_ answer: Event, at now: Instant) -> [Action] {
        switch answer {
        case .granted(let requestID, let duration): return granted(requestID, duration, at: now)
        case .queued(let requestID, let position): return queued(requestID, position, at: now)
        case .denied(let requestID, let denial):
            guard isCurrent(requestID) else { return [] }
            return finishCurrent(.denied(denial), at: now)
        case .revoked(let requestID, let revocation):
            guard isCurrent(requestID), bursts[0].phase == .granted else { return [] }
            return [release(0)] + finishCurrent(.revoked(revocation), at: now)
        default: return []
        }
    }

    private func isCurrent(_ requestID: FloorRequestID) -> Bool {
        guard let burst = bursts.first, burst.phase != .pending else { return false }
        return burst.requestID == requestID
    }

    private mutating func granted(_ requestID: FloorRequestID, _ duration: Duration, at now: Instant) -> [Action] {
        guard isCurrent(requestID), bursts[0].phase != .granted else { return [] }
        bursts[0].phase = .granted
        if seededFault("what-was-said-before-the-grant-is-not-sent") {
            (bursts[0].held, bursts[0].heldSamples) = ([], 0)
        }
        if bursts[0].hasWaited { bursts[0].capturedFrom = now }
        return [.tell(.floorGranted(bursts[0].id, limit: duration))] + sendHeld(at: now)
    }

    /// What was said until now was said to a floor that another has: it is erased, and the microphone to be stopped.
    private mutating func queued(_ requestID: FloorRequestID, _ position: Int, at now: Instant) -> [Action] {
        guard isCurrent(requestID), bursts[0].phase != .granted else { return [] }
        // Whoever let go has said all of it already, and is not there for the grant.
        guard !bursts[0].hasEnded else { return [release(0)] + finishCurrent(.denied(.taken), at: now) }
        bursts[0].phase = .waiting
        bursts[0].hasWaited = true
        bursts[0].report.erased += bursts[0].held.count
        bursts[0].held = []
        bursts[0].heldSamples = 0
        return [.tell(.floorQueued(bursts[0].id, position: position))]
    }

    /// Requests the floor again under the new key. A request may wait for minutes, and its speech is not for members
    /// that lost the key meanwhile. The position in the queue stays.
    private mutating func askUnderNewKey(at now: Instant) -> [Action] {
        guard let burst = bursts.first, burst.phase == .waiting else { return [] }
        pacer.note(at: now)
        lastRequestID = lastRequestID.next
        bursts[0].requestID = lastRequestID
        return [.requestFloor(lastRequestID, priority: burst.priority)]
    }

    private mutating func linkLost(at now: Instant) -> [Action] {
        if seededFault("a-lost-link-ends-no-burst") { return [] }
        link = .coming
        // What was not answered will not be.
        pacer.answered()
        pacer.relax()
        guard let burst = bursts.first else { return [] }
        for index in bursts.indices { bursts[index].missLink(at: now) }
        switch burst.phase {
        case .pending: return []
        case .asked:
            bursts[0].phase = .pending
            return []
        case .waiting:
            // Asked again over the next connection, for which it has the time of a press.
            bursts[0].phase = .pending
            bursts[0].waitingSince = now
            return []
        case .granted where resumesBursts && !seededFault("a-burst-ends-with-its-host"):
            // Under the time stamps that they had, by which a listener knows what it has heard.
            if let first = unheard.first, !seededFault("what-is-said-again-has-new-time-stamps") {
                (nextTimestamp, lastFrameAt) = (first.timestamp, first.frame.capturedAt)
            }
            let frames = unheard.take()
            bursts[0].resume(with: seededFault("what-was-not-heard-is-forgotten") ? [] : frames, at: now)
            return []
        case .granted: return finishCurrent(.linkUnavailable, at: now)
        }
    }

    /// The transport took the packet of that RTP sequence number under this number.
    mutating func noteSent(datagram: UInt64, sequence: UInt16) { unheard.sent(datagram, sequence: sequence) }

    /// The relay has that datagram.
    mutating func noteAcknowledged(datagram: UInt64) { unheard.acknowledged(datagram) }

    private mutating func linkClosed() -> [Action] {
        link = .closed
        pacer.answered()
        pacer.relax()
        defer { bursts = [] }
        return bursts.map { ended($0, .linkUnavailable) }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        guard let due = nextDeadline, due <= now, let burst = bursts.first else { return [] }
        switch burst.phase {
        case .pending:
            guard now >= burst.waitingSince + burst.linkTimeout else { return askForNext(at: now) }
            return finishCurrent(link == .ready ? .notAnswered : .linkUnavailable, at: now)
        case .asked: return [release(0)] + finishCurrent(.notAnswered, at: now)
        case .waiting: return []
        case .granted: return sendHeld(at: now)
        }
    }

    // MARK: Sending

    private mutating func askForNext(at now: Instant) -> [Action] {
        guard let burst = bursts.first, burst.phase == .pending else { return [] }
        if burst.waitingSince == .zero { bursts[0].waitingSince = now }
        guard link == .ready, pacer.allows(emergency: burst.priority == FloorPriority.emergency, at: now) else {
            return []
        }
        lastRequestID = lastRequestID.next
        bursts[0].requestID = lastRequestID
        bursts[0].askedAt = now
        bursts[0].phase = .asked
        return seededFault("a-request-is-not-sent") ? [] : [.requestFloor(lastRequestID, priority: burst.priority)]
    }

    private mutating func sendHeld(at now: Instant) -> [Action] {
        guard let first = bursts.first, first.phase == .granted else { return [] }
        var actions: [Action] = []
        if now - bursts[0].windowStart >= Self.catchUpInterval {
            bursts[0].windowStart = now
            bursts[0].sentInWindow = 0
        }
        while !bursts[0].held.isEmpty, bursts[0].sentInWindow < Self.catchUpSamples {
            let frame = bursts[0].held.removeFirst()
            bursts[0].heldSamples -= frame.samples
            bursts[0].sentInWindow += frame.samples
            bursts[0].report.sent += 1
            let isFirst = bursts[0].lastSequence == nil
            bursts[0].lastSequence = nextSequence
            let placed = place(frame, isFirst: isFirst)
            if resumesBursts { unheard.add(frame, sequence: placed.sequence, timestamp: placed.timestamp) }
            actions.append(.sendMedia(first.requestID, placed))
            if isFirst { actions.append(.tell(.firstPacketSent(first.id, at: now))) }
        }
        if bursts[0].held.isEmpty, bursts[0].hasEnded {
            if !seededFault("a-release-is-not-sent") { actions.append(release(0)) }
            actions += finishCurrent(.completed, at: now)
        }
        return actions
    }

    /// Gives the frame its sequence number and time stamp. Between bursts, and across samples that the microphone lost,
    /// the RTP clock follows the microphone's clock.
    private mutating func place(_ frame: OutgoingFrame, isFirst: Bool) -> MediaFrame {
        if frame.capturedAt > lastFrameAt + (isFirst ? .zero : Self.gapMinimum) {
            let pause = Self.samples(frame.capturedAt - lastFrameAt)
            let following = nextTimestamp &+ UInt32(truncatingIfNeeded: pause)
            // By how much the time stamps are ahead of the clock: what a sound card counts too fast must not add up over bursts.
            let clock = timestampAtZero &+ UInt32(truncatingIfNeeded: Self.samples(frame.capturedAt - .zero))
            let excess = isFirst ? min(following.timestampDistance(from: clock), pause) : 0
            nextTimestamp = following &- UInt32(truncatingIfNeeded: excess)
        }
        defer {
            if !seededFault("a-packet-has-the-number-of-the-one-before") { nextSequence &+= 1 }
            nextTimestamp &+= frame.samples
            lastFrameAt = frame.capturedAt + .nanoseconds(Int64(frame.samples) * 1_000_000 / 48)
        }
        return MediaFrame(
            sequence: nextSequence, timestamp: nextTimestamp, marker: isFirst, payload: frame.payload)
    }

    private static func samples(_ time: Duration) -> Int { Int(time.nanoseconds / 1_000 * 48 / 1_000) }

    private func release(_ index: Int) -> Action {
        .releaseFloor(bursts[index].requestID, lastSequence: bursts[index].lastSequence)
    }

    private mutating func finishCurrent(_ end: TransmissionEnd, at now: Instant) -> [Action] {
        let burst = bursts.removeFirst()
        unheard = UnacknowledgedFrames()
        pacer.relax()
        return [ended(burst, end)] + askForNext(at: now)
    }

    private func ended(_ burst: Burst, _ end: TransmissionEnd) -> Action {
        var report = burst.report
        report.erased += burst.held.count
        return .tell(.transmissionEnded(burst.id, end, report))
    }
}
