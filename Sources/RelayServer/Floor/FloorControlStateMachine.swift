// Who may talk on one channel: the floor after 3GPP TS 24.380. Pure rules; messages are made by `ChannelFloor`.
import MonotonicTime
import RelayProtocol

/// The floor of one channel: who has it, whose bursts are ending, and who waits for it.
///
/// The states and timers are those of the floor control server of 3GPP TS 24.380, clauses 6.3.4 and 6.3.5; docs/floor-control.md has
/// the table. A participant is named by the SSRC the relay gave it. Invariant I4: at most `rules.talkersMaximum` bursts are on the
/// floor; `ChannelFloor` checks it a second time from the outside. Whoever waits does so for a floor that is full, or for the end of
/// its own burst before.
public struct FloorControlStateMachine: Sendable {
    /// A deadline that is handled this much too late shows that the relay itself stalled: it was stopped, or got no
    /// processor time.
    static let lateness: Duration = .milliseconds(250)

    /// The timers in force.
    public let timers: Timers
    /// The channel's rules.
    public private(set) var rules: FloorRules
    /// Those that are to hold as soon as nobody talks.
    private var comingRules: FloorRules?
    /// Those who have the floor, the longest there first; those whose bursts are ending among them.
    var talkers: [Talker] = []
    /// Those who asked and are to be granted: without a queue only until bursts have ended that are ending.
    private var queue = FloorQueue()
    /// T9: those who talked to the limit, and may not ask yet.
    private var barred = TalkTimeRecord<Void>()
    /// T2: what was said of bursts that a lost connection cut off; what their talkers say in time is the same burst.
    private var interrupted = TalkTimeRecord<Duration>()

    /// An idle floor.
    public init(timers: Timers = Timers(), rules: FloorRules = FloorRules()) {
        self.timers = timers
        self.rules = rules
    }

    /// The requests that are on the floor, or whose bursts are ending; the longest there first.
    public var holders: [Request] { talkers.map(\.request) }

    /// The request that has been on the floor for longest.
    public var holder: Request? { talkers.first?.request }

    /// Those who wait, in the order in which they will be granted.
    public var waiting: [Request] { queue.requests }

    /// Whether `request` is on the floor, or waits for it.
    public func isUnderWay(_ request: Request) -> Bool {
        talkers.contains { $0.request == request } || queue.contains(request)
    }

    /// The request of that number and key id that is on the floor, or waits for it.
    public func request(_ id: FloorRequestID, keyID: UInt64, of ssrc: SSRC) -> Request? {
        (holders + waiting).first { $0.ssrc == ssrc && $0.requestID == id && $0.keyID == keyID }
    }

    /// When `.deadline` must be delivered, at the latest; `nil` while idle. Those who wait do so without a limit of their own.
    public var nextDeadline: Instant? {
        // A closure would hold a copy of the whole floor, and this is asked for each packet.
        var next: Instant?
        for talker in talkers { next = earlier(next, talker.deadline(timers)) }
        return next
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        // Where the relay was held up its timers are late: what is due is over before anything else is looked at.
        let overdue = event == .deadline ? [] : deadline(at: now)
        let actions =
            switch event {
            case .request(let request): handle(request, at: now)
            case .release(let ssrc, let requestID, let lastSequence):
                release(ssrc: ssrc, requestID: requestID, lastSequence: lastSequence, at: now)
            case .left(let ssrc): left(ssrc, at: now)
            case .withdrawn(let ssrc):
                queue.remove(where: { $0.ssrc == ssrc }) == nil ? [] : advance(at: now)
            case .silenced(let ssrc): silenced(ssrc, at: now)
            case .rules(let rules): change(to: rules, at: now)
            case .deadline: deadline(at: now)
            }
        assert(talkers.count <= rules.talkersMaximum, "too many hold the floor")
        assert(!talkers.isEmpty || queue.isEmpty, "somebody waits for a floor that nobody holds")
        return overdue + actions
    }

    /// Decides on an RTP packet of `ssrc` sealed under `keyID`, once `.deadline` was delivered if that was due. Allocates nothing.
    ///
    /// - Parameter marker: The RTP marker: whether it is the burst's first packet, which may come behind others.
    public mutating func media(
        ssrc: SSRC, keyID: UInt64, sequence: UInt16, marker: Bool, at now: Instant
    ) -> MediaDecision {
        guard let index = talkers.firstIndex(where: { $0.request.ssrc == ssrc }) else {
            return seededFault("media-without-the-floor-are-handed-on")
                ? .forward(isFirst: false, endsBurst: false) : .drop(.noFloor)
        }
        return talkers[index].media(keyID: keyID, sequence: sequence, marker: marker, timers, at: now)
    }

    // MARK: Requests

    private mutating func handle(_ request: Request, at now: Instant) -> [Action] {
        if isUnderWay(request) { return answerAgain(request, at: now) }
        if queue.renew(request) { return advance(at: now) }
        if let until = barred.until(request.member, at: now), !request.isEmergency {
            return [.retryLater(request, after: until - now)]
        }
        var actions: [Action] = []
        // One request for each member: a newer one takes the place of the older.
        if let older = queue.remove(where: { $0.ssrc == request.ssrc }), let holder {
            actions.append(.deny(older, holder: holder.ssrc))
        }
        if let index = talkers.firstIndex(where: { $0.request.ssrc == request.ssrc }), talkers[index].ending == nil {
            // Renewed while the grant was on its way, it loses nothing.
            let isRenewed = talkers[index].firstMediaAt == nil && request.renews(talkers[index].request)
            actions.append(end(index, .restarted))
            if isRenewed {
                queue.insertFirst(request)
                return actions + advance(at: now)
            }
        }
        queue.insert(request, rules: rules)
        return actions + advance(at: now)
    }

    /// Asked again: the same answer, with what is left of the talk time.
    private func answerAgain(_ request: Request, at now: Instant) -> [Action] {
        if let talker = talkers.first(where: { $0.request == request }) {
            guard talker.ending == nil else { return [] }
            let used = talker.firstMediaAt.map { now - $0 } ?? .zero
            return [.grant(request, talkTime: max(.zero, talker.talkTime - used))]
        }
        return queue.toldPosition(of: request).map { [.queued(request, position: $0)] } ?? []
    }

    /// Grants the free floor to the first request, preempts talkers of lower priority, and reports changes to the
    /// others.
    private mutating func advance(at now: Instant) -> [Action] {
        let adopted = adoptRules()
        var actions = adopted.actions
        while talkers.count < rules.talkersMaximum + (seededFault("the-floor-is-granted-twice") ? 1 : 0),
            let next = nextToGrant()
        {
            let used = next.isEmergency ? .zero : interrupted.take(next.member, at: now) ?? .zero
            let talker = Talker(next, talkTime: max(.zero, timers.talkTimeLimit - used), at: now)
            talkers.append(talker)
            actions += [.grant(next, talkTime: talker.talkTime), .taken(next)]
        }
        actions += preempt(at: now)
        guard let holder else { return actions }
        actions += adopted.late.map { .deny($0, holder: holder.ssrc) }
        let held = talkers.count { $0.ending != nil }
        for outcome in queue.settle(held: held, isOpen: rules.queues) {
            switch outcome {
            case .moved(let request, let position): actions.append(.queued(request, position: position))
            case .refused(let request): actions.append(.deny(request, holder: holder.ssrc))
            case .full(let request): actions.append(.queueFull(request))
            }
        }
        return actions
    }

    private mutating func change(to new: FloorRules, at now: Instant) -> [Action] {
        comingRules = new == rules ? nil : new
        return talkers.isEmpty ? advance(at: now) : []
    }

    /// New rules begin to hold between two bursts.
    ///
    /// - Returns: What to tell of them, and who waits in vain: without a queue those who can be granted are, and no others.
    private mutating func adoptRules() -> (actions: [Action], late: [Request]) {
        guard talkers.isEmpty, let new = comingRules else { return ([], []) }
        rules = new
        comingRules = nil
        return ([.rules(new)], new.queues ? [] : queue.cut(to: new.talkersMaximum))
    }

    /// The first one who waits, but for those whose own burst is ending.
    private mutating func nextToGrant() -> Request? {
        let talkers = talkers
        return queue.remove { request in !talkers.contains { $0.request.ssrc == request.ssrc } }
    }

    /// Takes the floor from those whom somebody in the queue overrides.
    private mutating func preempt(at now: Instant) -> [Action] {
        var actions: [Action] = []
        var place = 0
        while let request = queue.request(at: place) {
            // Each burst that is ending leaves space for one.
            let ending = talkers.indices.filter { talkers[$0].ending != nil }
            if place < ending.count {
                hasten(ending, for: request, at: now)
                place += 1
                continue
            }
            let overridden = talkers.indices.filter {
                talkers[$0].ending == nil && rules.preempts(request.priority, talkers[$0].request.priority)
            }
            // Who matters least, and of those who has had it for longest.
            guard let index = overridden.min(by: { talkers[$0].request.priority < talkers[$1].request.priority })
            else { return actions }
            actions.append(revoke(index, .preempted, grace: timers.preemptionGrace, at: now))
        }
        return actions
    }

    /// Somebody more important does not wait for all of the grace of a burst that is over.
    private mutating func hasten(_ ending: [Int], for request: Request, at now: Instant) {
        for index in ending where rules.preempts(request.priority, talkers[index].request.priority) {
            talkers[index].ending?.hasten(to: now + timers.preemptionGrace)
        }
    }

    // MARK: Release and end

    private mutating func release(
        ssrc: SSRC, requestID: FloorRequestID, lastSequence: UInt16?, at now: Instant
    ) -> [Action] {
        guard
            let index = talkers.firstIndex(where: { $0.request.ssrc == ssrc && $0.request.requestID == requestID })
        else {
            guard queue.remove(where: { $0.ssrc == ssrc && $0.requestID == requestID }) != nil else { return [] }
            return advance(at: now)
        }
        if talkers[index].ending == nil {
            talkers[index].ending = Talker.Ending(latest: now + timers.releaseGrace, reason: .released)
        } else if talkers[index].ending?.lastSequence != nil {
            return []
        }
        // Ends the burst if nothing more is to come, else waits for the stragglers.
        guard let last = lastSequence, !talkers[index].isOver(last: last) else { return finish(index, at: now) }
        talkers[index].ending?.lastSequence = last
        talkers[index].ending?.wait(timers.repairGrace, at: now)
        return advance(at: now)
    }

    /// The burst is over for its talker; what is on its way is still taken.
    private mutating func revoke(_ index: Int, _ cause: RevokeCause, grace: Duration, at now: Instant) -> Action {
        talkers[index].ending = Talker.Ending(latest: now + grace, reason: .revoked(cause))
        return .revoke(talkers[index].request, cause)
    }

    private mutating func finish(_ index: Int, at now: Instant) -> [Action] {
        [end(index, talkers[index].ending?.reason ?? .released)]
            + (seededFault("a-free-floor-is-given-to-nobody") ? [] : advance(at: now))
    }

    /// Takes a burst off the floor; `advance` must follow.
    private mutating func end(_ index: Int, _ reason: EndReason) -> Action {
        let talker = talkers.remove(at: index)
        return .idle(ssrc: talker.request.ssrc, lastSequence: talker.sequences.highest, talker.summary(reason))
    }

    private mutating func left(_ ssrc: SSRC, at now: Instant) -> [Action] {
        if seededFault("a-member-that-is-gone-keeps-the-floor") { return [] }
        let waited = queue.remove(where: { $0.ssrc == ssrc }) != nil
        guard let index = talkers.firstIndex(where: { $0.request.ssrc == ssrc }) else {
            return waited ? advance(at: now) : []
        }
        let reason = talkers[index].ending?.reason
        if reason == nil { noteInterruption(of: talkers[index], at: now) }
        return [end(index, reason == .released ? .released : .left)] + advance(at: now)
    }

    /// A talker that reconnects at once continues the same burst: T2 is not restarted, and T9 applies if T2 had ended.
    /// An emergency does not use up talk time.
    private mutating func noteInterruption(of talker: Talker, at now: Instant) {
        guard !talker.request.isEmergency else { return }
        let used = timers.talkTimeLimit - talker.talkTime + (talker.firstMediaAt.map { now - $0 } ?? .zero)
        if used >= timers.talkTimeLimit {
            talkedTooLong(talker.request.member, at: now)
        } else if used > .zero {
            interrupted.set(used, for: talker.request.member, until: now + timers.mediaTimeout, at: now)
        }
    }

    private mutating func talkedTooLong(_ member: MemberID, at now: Instant) {
        guard timers.retryAfter > .zero else { return }
        barred.set((), for: member, until: now + timers.retryAfter, at: now)
    }

    private mutating func silenced(_ ssrc: SSRC, at now: Instant) -> [Action] {
        var actions: [Action] = []
        if let request = queue.remove(where: { $0.ssrc == ssrc }) { actions.append(.notPermitted(request)) }
        if let index = talkers.firstIndex(where: { $0.request.ssrc == ssrc }) {
            if talkers[index].ending == nil { actions.append(.revoke(talkers[index].request, .noPermission)) }
            actions.append(end(index, .revoked(.noPermission)))
        }
        return actions.isEmpty ? [] : actions + advance(at: now)
    }

    private mutating func deadline(at now: Instant) -> [Action] {
        if seededFault("a-floor-timer-does-nothing") { return [] }
        var actions: [Action] = []
        for index in talkers.indices.reversed() {
            let due = talkers[index].deadline(timers)
            guard due <= now else { continue }
            let isLate = now - due > Self.lateness
            if let ending = talkers[index].ending {
                // What came in time may still wait to be read.
                if isLate, talkers[index].excuse(timers, at: now) { continue }
                actions.append(end(index, ending.reason))
            } else if let talkTimeEnd = talkers[index].talkTimeEnd, talkTimeEnd == due {
                actions.append(revoke(index, .talkTimeLimit, grace: timers.releaseGrace, at: now))
                talkedTooLong(talkers[index].request.member, at: now)
                // Nobody listens any more to a burst that was silent for so long.
                if isLate, talkers[index].silenceEnd(timers) <= now {
                    actions.append(end(index, .revoked(.talkTimeLimit)))
                }
            } else {
                let cause = isLate ? RevokeCause.heldUp : .noMedia
                actions.append(.revoke(talkers[index].request, cause))
                actions.append(end(index, .revoked(cause)))
            }
        }
        return actions.isEmpty ? [] : actions + advance(at: now)
    }
}
