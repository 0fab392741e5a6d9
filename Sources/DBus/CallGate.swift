// Rate limits on calls, per caller, so that a caller in a loop does not delay the others. Pure.
import MonotonicTime

/// How many calls a service takes.
public struct DBusCallBound: Sendable {
    /// A rate limit: the calls allowed at once, and the calls allowed per second after that.
    public struct Rate: Sendable {
        /// Calls at once.
        public var burst: Int
        /// Calls a second after that.
        public var perSecond: Int

        /// A rate.
        public init(burst: Int, perSecond: Int) {
            self.burst = burst
            self.perSecond = perSecond
        }

        /// A full bucket of this rate.
        public func bucket(at now: Instant) -> TokenBucket { TokenBucket(depth: burst, perSecond: perSecond, at: now) }
    }

    /// Of one caller.
    public var caller: Rate
    /// Of all callers together.
    public var all: Rate
    /// Of each caller, however much the others call.
    public var share: Rate
    /// Methods that end something. The last such call of a caller is always accepted, perhaps later and however many
    /// calls are running, so that a dropped call never leaves something running.
    public var endings: Set<String>

    /// A bound.
    public init(caller: Rate, all: Rate, share: Rate, endings: Set<String> = []) {
        self.caller = caller
        self.all = all
        self.share = share
        self.endings = endings
    }
}

/// Decides about each call by its sender and member only: what is refused costs no more than its refusal.
struct CallGate<Kept> {
    /// What becomes of a call.
    enum Verdict {
        /// It is taken.
        case take
        /// It is answered with an error.
        case refuse
        /// It is taken when the caller's rate allows it. The one that was kept before, if any, is refused.
        case keep(replacing: Kept?)
    }

    /// Callers that are known. Beyond them those whose buckets are full are forgotten, then all.
    static var callersMax: Int { 1_024 }

    private struct Caller {
        var own: TokenBucket
        var share: TokenBucket
        /// Its ends that wait, by their members: one of each.
        var kept: [(member: String, call: Kept)] = []
    }

    let bound: DBusCallBound
    private var callers: [String: Caller] = [:]
    private var all: TokenBucket
    /// Callers with kept calls, in the order in which those are taken.
    private var waiting: [String] = []

    init(_ bound: DBusCallBound, at now: Instant) {
        self.bound = bound
        all = bound.all.bucket(at: now)
    }

    /// A call has come; `kept` makes what is kept of it.
    mutating func arrive(_ sender: String, _ member: String, at now: Instant, keeping kept: () -> Kept?) -> Verdict {
        var caller = callers[sender] ?? newCaller(at: now)
        defer { callers[sender] = caller }
        // Nothing overtakes an end of the same caller.
        if caller.kept.isEmpty, takes(&caller, at: now) { return .take }
        guard bound.endings.contains(member), let new = kept() else { return .refuse }
        if caller.kept.isEmpty { waiting.append(sender) }
        let earlier = caller.kept.firstIndex { $0.member == member }
        let replaced = earlier.map { caller.kept.remove(at: $0).call }
        caller.kept.append((member, new))
        return .keep(replacing: replaced)
    }

    /// When a kept call may be taken; nil: none is kept.
    mutating func nextDeadline(at now: Instant) -> Instant? {
        var next: Instant?
        for sender in waiting {
            guard let time = callers[sender]?.own.nextToken(at: now) else { continue }
            next = min(next ?? time, time)
        }
        return next
    }

    /// The kept calls that may be taken now, the one that has waited longest first.
    mutating func takeDue(at now: Instant) -> [Kept] {
        var due: [Kept] = []
        var left: [String] = []
        for sender in waiting {
            while callers[sender]?.kept.isEmpty == false, callers[sender]?.own.take(at: now) == true {
                if let kept = callers[sender]?.kept.removeFirst() { due.append(kept.call) }
            }
            if callers[sender]?.kept.isEmpty == false { left.append(sender) }
        }
        waiting = left
        return due
    }

    /// The bus is gone, and all callers with it.
    mutating func reset(at now: Instant) { self = CallGate(bound, at: now) }

    private mutating func newCaller(at now: Instant) -> Caller {
        if callers.count >= Self.callersMax {
            for (name, var caller) in callers where caller.kept.isEmpty && caller.own.isFull(at: now) {
                callers[name] = nil
            }
            // Beyond that the bound on all is what counts.
            if callers.count >= Self.callersMax { callers = callers.filter { !$0.value.kept.isEmpty } }
        }
        return Caller(own: bound.caller.bucket(at: now), share: bound.share.bucket(at: now))
    }

    private mutating func takes(_ caller: inout Caller, at now: Instant) -> Bool {
        guard caller.own.holds(1, at: now) else { return false }
        // A caller's share is its own, also while all callers together have used up theirs.
        guard caller.share.take(at: now) || all.take(at: now) else { return false }
        return caller.own.take(at: now)
    }
}
