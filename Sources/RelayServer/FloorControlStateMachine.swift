// Who may talk on one channel: the floor after 3GPP TS 24.380. Pure rules; messages are made by `RelayCore`.
import MonotonicTime
import RelayProtocol

/// The floor of one half-duplex channel: idle, taken, or being released; and, where the channel has one, the queue for it.
///
/// The states and timers are those of the floor control server of 3GPP TS 24.380 clause 6.3.4, without pre-emption. A
/// participant is named by the SSRC the relay gave it. Invariant I4 (one holder at most) holds by the shape of `State`;
/// `RelayCore` checks it a second time from the outside. Nobody waits for an idle floor.
public struct FloorControlStateMachine: Sendable {
    struct Burst: Sendable, Equatable {
        let request: Request
        let grantedAt: Instant
        var firstMediaAt: Instant?
        var lastMediaAt: Instant?
        var sequences = SequenceRecord()
        /// Of the packet with the marker, once it has come: those before the lowest that came may still be on their way.
        var firstSequence: UInt16?

        /// Whether everything from the first packet to `last` has come.
        func isComplete(through last: UInt16) -> Bool {
            guard let firstSequence, let lowest = sequences.first else { return false }
            return !SequenceRecord.isAfter(lowest, firstSequence) && sequences.isComplete(through: last)
        }
    }

    struct Releasing: Sendable, Equatable {
        var burst: Burst
        /// `nil` until the holder has named it (after a revocation).
        var lastSequence: UInt16?
        var deadline: Instant
        var reason: EndReason
    }

    enum State: Sendable, Equatable {
        case idle
        case taken(Burst)
        case releasing(Releasing)
    }

    /// The timers in force.
    public let timers: Timers
    /// Whether requests may wait for as long as somebody talks.
    public let hasQueue: Bool
    var state = State.idle
    /// Those who asked and are to be granted: at a channel without a queue at most one, while the floor is being released.
    private var queue = FloorQueue()

    /// An idle floor.
    public init(timers: Timers = Timers(), hasQueue: Bool = false) {
        self.timers = timers
        self.hasQueue = hasQueue
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
    public func isUnderWay(_ request: Request) -> Bool { holder == request || queue.contains(request) }

    /// When `.deadline` must be delivered, at the latest; `nil` while idle. Those who wait do so without a limit of their own.
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
        let actions =
            switch event {
            case .request(let request): handle(request, at: now)
            case .release(let ssrc, let requestID, let lastSequence):
                release(ssrc: ssrc, requestID: requestID, lastSequence: lastSequence, at: now)
            case .left(let ssrc): left(ssrc, at: now)
            case .deadline: deadline(at: now)
            }
        assert(state != .idle || queue.isEmpty, "somebody waits for a floor that nobody holds")
        return actions
    }

    // MARK: Requests

    private mutating func handle(_ request: Request, at now: Instant) -> [Action] {
        if isUnderWay(request) { return answerAgain(request, at: now) }
        var actions: [Action] = []
        // One request for each member: a newer one takes the place of the older.
        if let older = queue.remove(where: { $0.ssrc == request.ssrc }), let holder {
            actions.append(.deny(older, holder: holder.ssrc))
        }
        if case .taken(let burst) = state, burst.request.ssrc == request.ssrc {
            actions += end(burst, reason: .restarted)
        }
        queue.insert(request)
        return actions + advance(at: now)
    }

    /// Asked again: the same answer, with what is left of the talk time.
    private func answerAgain(_ request: Request, at now: Instant) -> [Action] {
        if case .taken(let burst) = state, burst.request == request {
            let used = burst.firstMediaAt.map { now - $0 } ?? .zero
            return [.grant(request, talkTime: max(.zero, timers.talkTimeLimit - used))]
        }
        return queue.toldPosition(of: request).map { [.queued(request, position: $0)] } ?? []
    }

    /// Gives an idle floor to who is first, and tells the others what is new for them.
    private mutating func advance(at now: Instant) -> [Action] {
        var actions: [Action] = []
        if state == .idle, let next = queue.popFirst() {
            state = .taken(Burst(request: next, grantedAt: now))
            actions += [.grant(next, talkTime: timers.talkTimeLimit), .taken(next)]
        }
        guard let holder else { return actions }
        let isReleasing = if case .releasing = state { true } else { false }
        for outcome in queue.settle(holdsFirst: isReleasing, isOpen: hasQueue) {
            switch outcome {
            case .moved(let request, let position): actions.append(.queued(request, position: position))
            case .refused(let request): actions.append(.deny(request, holder: holder.ssrc))
            case .full(let request): actions.append(.queueFull(request))
            }
        }
        return actions
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
        default:
            guard queue.remove(where: { $0.ssrc == ssrc && $0.requestID == requestID }) != nil else { return [] }
            return advance(at: now)
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
    func hasten(_ releasing: inout Releasing, at now: Instant) {
        guard let last = releasing.lastSequence, releasing.burst.sequences.highest == last else { return }
        releasing.deadline = min(releasing.deadline, now + timers.reorderGrace)
    }

    private func isOver(_ burst: Burst, last: UInt16) -> Bool {
        if burst.isComplete(through: last) { return true }
        // A release that names a sequence already passed is honoured, not waited for.
        guard let highest = burst.sequences.highest else { return false }
        return SequenceRecord.isAfter(highest, last)
    }

    private mutating func finish(_ releasing: Releasing, at now: Instant) -> [Action] {
        end(releasing.burst, reason: releasing.reason) + advance(at: now)
    }

    /// The floor is idle; `advance` must follow.
    private mutating func end(_ burst: Burst, reason: EndReason) -> [Action] {
        state = .idle
        let summary = Summary(
            request: burst.request, grantedAt: burst.grantedAt, firstMediaAt: burst.firstMediaAt,
            sequences: burst.sequences, reason: reason)
        return [.idle(ssrc: burst.request.ssrc, lastSequence: burst.sequences.highest, summary)]
    }

    private mutating func left(_ ssrc: SSRC, at now: Instant) -> [Action] {
        let waited = queue.remove(where: { $0.ssrc == ssrc }) != nil
        switch state {
        case .taken(let burst) where burst.request.ssrc == ssrc:
            return end(burst, reason: .left) + advance(at: now)
        case .releasing(var releasing) where releasing.burst.request.ssrc == ssrc:
            if releasing.reason != .released { releasing.reason = .left }
            return finish(releasing, at: now)
        default:
            return waited ? advance(at: now) : []
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
            return [.revoke(burst.request, .noMedia)] + end(burst, reason: .revoked(.noMedia)) + advance(at: now)
        case .releasing(let releasing):
            return finish(releasing, at: now)
        }
    }
}
