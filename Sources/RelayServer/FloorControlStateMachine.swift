// Who may talk on one channel: the floor after 3GPP TS 24.380. Pure rules; messages are made by `RelayCore`.
import MonotonicTime
import RelayProtocol

/// The floor of one half-duplex channel: idle, taken, or being released.
///
/// The states and timers are those of the floor control server of 3GPP TS 24.380 clause 6.3.4, without queue and
/// pre-emption. A participant is named by the SSRC the relay gave it. Invariant I4 (one holder at most) holds by the
/// shape of `State`; `RelayCore` checks it a second time from the outside.
public struct FloorControlStateMachine: Sendable {
    /// The timers of one channel.
    public struct Timers: Sendable, Equatable {
        /// T1: the floor is freed after this long without RTP from its holder.
        public var mediaTimeout: Duration = .seconds(5)
        /// T2: a burst may last this long from its first RTP packet.
        public var talkTimeLimit: Duration = .seconds(60)
        /// T3: media is accepted for at most this long after a release or a revocation.
        public var releaseGrace: Duration = .seconds(2)
        /// How long missing packets are waited for once the last one is there: the talker may have to send them again.
        public var reorderGrace: Duration = .seconds(1)
        /// The timers of the design: 5 s, 60 s, 2 s and 1 s.
        public init() {}
    }

    /// A wish to talk.
    public struct Request: Sendable, Hashable {
        /// Who asks.
        public var ssrc: SSRC
        /// The asker's number of this request; an answer repeats it.
        public var requestID: FloorRequestID
        /// The SFrame key id under which the burst will be sealed.
        public var keyID: UInt64

        /// A request of `ssrc`.
        public init(ssrc: SSRC, requestID: FloorRequestID, keyID: UInt64) {
            self.ssrc = ssrc
            self.requestID = requestID
            self.keyID = keyID
        }
    }

    /// What may happen to the floor, media aside.
    public enum Event: Sendable, Equatable {
        /// A member asks for the floor.
        case request(Request)
        /// A member gives the floor, or its wish for it, back. `lastSequence` is `nil` when no media was sent.
        case release(ssrc: SSRC, requestID: FloorRequestID, lastSequence: UInt16?)
        /// A member is gone.
        case left(ssrc: SSRC)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// Why the floor is taken back from its holder.
    public enum RevokeCause: Sendable, Equatable {
        /// T2: the burst reached the talk-time limit.
        case talkTimeLimit
        /// T1: the holder sent no media.
        case noMedia
    }

    /// How a burst ended.
    public enum EndReason: Sendable, Equatable {
        /// The holder released the floor.
        case released
        /// The floor was taken back.
        case revoked(RevokeCause)
        /// The holder left the channel or lost its connection.
        case left
        /// The holder asked anew without releasing.
        case restarted
    }

    /// What a burst came to.
    public struct Summary: Sendable, Equatable {
        /// Its request.
        public var request: Request
        /// When the floor was granted.
        public var grantedAt: Instant
        /// When its first packet came; `nil` when none did.
        public var firstMediaAt: Instant?
        /// The sequence numbers that came.
        public var sequences: SequenceRecord
        /// Why it ended.
        public var reason: EndReason
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Tell the asker it holds the floor and how long it may talk from its first packet on.
        case grant(Request, talkTime: Duration)
        /// Tell the asker that `holder` has the floor.
        case deny(Request, holder: SSRC)
        /// Tell the other members who talks.
        case taken(Request)
        /// Tell the holder that it no longer holds the floor.
        case revoke(Request, RevokeCause)
        /// Tell every member that the burst of `ssrc` is over. `lastSequence` is the last one forwarded; `nil` when
        /// none was.
        case idle(ssrc: SSRC, lastSequence: UInt16?, Summary)
    }

    /// What is to be done with an RTP packet.
    public enum MediaDecision: Sendable, Equatable {
        /// Pass it on. `isFirst`: the burst's first. `endsBurst`: deliver `.deadline` afterwards.
        case forward(isFirst: Bool, endsBurst: Bool)
        /// The sender does not hold the floor.
        case noFloor
        /// Sealed under a key id that is not bound to the floor.
        case wrongKeyID
        /// Seen before, or too old to tell.
        case duplicate
        /// After the last sequence that the release named.
        case afterRelease
    }

    private struct Burst: Sendable, Equatable {
        let request: Request
        let grantedAt: Instant
        var firstMediaAt: Instant?
        var lastMediaAt: Instant?
        var sequences = SequenceRecord()
    }

    private struct Releasing: Sendable, Equatable {
        var burst: Burst
        /// `nil` until the holder has named it (after a revocation).
        var lastSequence: UInt16?
        var deadline: Instant
        var reason: EndReason
        /// The first member that asked meanwhile: it is answered within the grace, with its audio held until then.
        var waiting: Request?
    }

    private enum State: Sendable, Equatable {
        case idle
        case taken(Burst)
        case releasing(Releasing)
    }

    /// The timers in force.
    public let timers: Timers
    private var state = State.idle

    /// An idle floor.
    public init(timers: Timers = Timers()) {
        self.timers = timers
    }

    /// The request that holds the floor or is releasing it.
    public var holder: Request? {
        switch state {
        case .idle: nil
        case .taken(let burst): burst.request
        case .releasing(let releasing): releasing.burst.request
        }
    }

    /// Whether `request` holds the floor, is releasing it, or waits for it.
    public func isUnderWay(_ request: Request) -> Bool {
        if holder == request { return true }
        if case .releasing(let releasing) = state { return releasing.waiting == request }
        return false
    }

    /// When `.deadline` must be delivered, at the latest; `nil` while idle.
    public var nextDeadline: Instant? {
        switch state {
        case .idle: nil
        case .taken(let burst):
            min(
                (burst.lastMediaAt ?? burst.grantedAt) + timers.mediaTimeout,
                burst.firstMediaAt.map { $0 + timers.talkTimeLimit } ?? Instant(nanoseconds: .max))
        case .releasing(let releasing): releasing.deadline
        }
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .request(let request): handle(request, at: now)
        case .release(let ssrc, let requestID, let lastSequence):
            release(ssrc: ssrc, requestID: requestID, lastSequence: lastSequence, at: now)
        case .left(let ssrc): left(ssrc, at: now)
        case .deadline: deadline(at: now)
        }
    }

    // MARK: Requests

    private mutating func handle(_ request: Request, at now: Instant) -> [Action] {
        switch state {
        case .idle:
            return grant(request, at: now)
        case .taken(let burst) where burst.request == request:
            // Asked again: the same answer, with what is left of the talk time.
            let used = burst.firstMediaAt.map { now - $0 } ?? .zero
            return [.grant(request, talkTime: max(.zero, timers.talkTimeLimit - used))]
        case .taken(let burst) where burst.request.ssrc == request.ssrc:
            return end(burst, reason: .restarted) + grant(request, at: now)
        case .taken(let burst):
            return [.deny(request, holder: burst.request.ssrc)]
        case .releasing(let releasing):
            return handle(request, while: releasing, at: now)
        }
    }

    private mutating func handle(_ request: Request, while releasing: Releasing, at now: Instant) -> [Action] {
        if releasing.burst.request == request { return [] }
        if releasing.burst.request.ssrc == request.ssrc {
            let actions = finish(releasing, at: now)
            return actions + handle(request, at: now)
        }
        var releasing = releasing
        guard let waiting = releasing.waiting else {
            releasing.waiting = request
            state = .releasing(releasing)
            return []
        }
        if waiting == request { return [] }
        guard waiting.ssrc == request.ssrc else { return [.deny(request, holder: releasing.burst.request.ssrc)] }
        releasing.waiting = request
        state = .releasing(releasing)
        return [.deny(waiting, holder: releasing.burst.request.ssrc)]
    }

    private mutating func grant(_ request: Request, at now: Instant) -> [Action] {
        assert(state == .idle, "the floor is granted only while nobody holds it")
        state = .taken(Burst(request: request, grantedAt: now))
        return [.grant(request, talkTime: timers.talkTimeLimit), .taken(request)]
    }

    // MARK: Release and end

    private mutating func release(
        ssrc: SSRC, requestID: FloorRequestID, lastSequence: UInt16?, at now: Instant
    ) -> [Action] {
        switch state {
        case .taken(let burst) where burst.request.ssrc == ssrc && burst.request.requestID == requestID:
            return settle(
                Releasing(
                    burst: burst, lastSequence: lastSequence, deadline: now + timers.releaseGrace, reason: .released),
                at: now)
        case .releasing(var releasing)
        where releasing.burst.request.ssrc == ssrc && releasing.burst.request.requestID == requestID:
            guard releasing.lastSequence == nil else { return [] }
            releasing.lastSequence = lastSequence
            return settle(releasing, at: now)
        case .releasing(var releasing)
        where releasing.waiting?.ssrc == ssrc && releasing.waiting?.requestID == requestID:
            releasing.waiting = nil
            state = .releasing(releasing)
            return []
        default:
            return []
        }
    }

    /// Ends the burst if nothing more is to come, else waits for the stragglers.
    private mutating func settle(_ releasing: Releasing, at now: Instant) -> [Action] {
        guard let last = releasing.lastSequence, !isOver(releasing.burst, last: last) else {
            return finish(releasing, at: now)
        }
        var releasing = releasing
        hasten(&releasing, at: now)
        state = .releasing(releasing)
        return []
    }

    /// With the last packet there, only reordered ones can still be on their way.
    private func hasten(_ releasing: inout Releasing, at now: Instant) {
        guard let last = releasing.lastSequence, releasing.burst.sequences.highest == last else { return }
        releasing.deadline = min(releasing.deadline, now + timers.reorderGrace)
    }

    private func isOver(_ burst: Burst, last: UInt16) -> Bool {
        if burst.sequences.isComplete(through: last) { return true }
        // A release that names a sequence already passed is honoured, not waited for.
        guard let highest = burst.sequences.highest else { return false }
        return SequenceRecord.isAfter(highest, last)
    }

    private mutating func finish(_ releasing: Releasing, at now: Instant) -> [Action] {
        var actions = end(releasing.burst, reason: releasing.reason)
        if let waiting = releasing.waiting { actions += grant(waiting, at: now) }
        return actions
    }

    private mutating func end(_ burst: Burst, reason: EndReason) -> [Action] {
        state = .idle
        let summary = Summary(
            request: burst.request, grantedAt: burst.grantedAt, firstMediaAt: burst.firstMediaAt,
            sequences: burst.sequences, reason: reason)
        return [.idle(ssrc: burst.request.ssrc, lastSequence: burst.sequences.highest, summary)]
    }

    private mutating func left(_ ssrc: SSRC, at now: Instant) -> [Action] {
        switch state {
        case .taken(let burst) where burst.request.ssrc == ssrc:
            return end(burst, reason: .left)
        case .releasing(var releasing) where releasing.burst.request.ssrc == ssrc:
            if releasing.reason == .released { return finish(releasing, at: now) }
            releasing.reason = .left
            return finish(releasing, at: now)
        case .releasing(var releasing) where releasing.waiting?.ssrc == ssrc:
            releasing.waiting = nil
            state = .releasing(releasing)
            return []
        default:
            return []
        }
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        guard let due = nextDeadline, due <= now else { return [] }
        switch state {
        case .idle:
            return []
        case .taken(let burst):
            if let first = burst.firstMediaAt, first + timers.talkTimeLimit <= now {
                state = .releasing(
                    Releasing(
                        burst: burst, lastSequence: nil, deadline: now + timers.releaseGrace,
                        reason: .revoked(.talkTimeLimit)))
                return [.revoke(burst.request, .talkTimeLimit)]
            }
            return [.revoke(burst.request, .noMedia)]
                + end(burst, reason: .revoked(.noMedia))
        case .releasing(let releasing):
            return finish(releasing, at: now)
        }
    }

    // MARK: Media

    /// Decides on an RTP packet of `ssrc` sealed under `keyID`. Allocates nothing.
    public mutating func media(ssrc: SSRC, keyID: UInt64, sequence: UInt16, at now: Instant) -> MediaDecision {
        switch state {
        case .idle:
            return .noFloor
        case .taken(var burst):
            guard burst.request.ssrc == ssrc else { return .noFloor }
            guard burst.request.keyID == keyID else { return .wrongKeyID }
            guard burst.sequences.insert(sequence) == .new else { return .duplicate }
            let isFirst = burst.firstMediaAt == nil
            if isFirst { burst.firstMediaAt = now }
            burst.lastMediaAt = now
            state = .taken(burst)
            return .forward(isFirst: isFirst, endsBurst: false)
        case .releasing(var releasing):
            guard releasing.burst.request.ssrc == ssrc else { return .noFloor }
            guard releasing.burst.request.keyID == keyID else { return .wrongKeyID }
            if let last = releasing.lastSequence, SequenceRecord.isAfter(sequence, last) { return .afterRelease }
            guard releasing.burst.sequences.insert(sequence) == .new else { return .duplicate }
            let isFirst = releasing.burst.firstMediaAt == nil
            if isFirst { releasing.burst.firstMediaAt = now }
            releasing.burst.lastMediaAt = now
            let ends = releasing.lastSequence.map { releasing.burst.sequences.isComplete(through: $0) } ?? false
            if ends { releasing.deadline = now } else { hasten(&releasing, at: now) }
            state = .releasing(releasing)
            return .forward(isFirst: isFirst, endsBurst: ends)
        }
    }
}
