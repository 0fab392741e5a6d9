// When a relay of a cluster serves, stands by or ends. Pure.
import MonotonicTime

/// One node's view of the lease (`ClusterLease`).
///
/// A standby takes the lease when it is free: when its holder has released it; when the holder's port is closed, so that its process has
/// ended; when it is of an earlier run of this node's own program, which holds the lock on the state directory no more; or when it was not
/// renewed for the time that it lasts, counted from when the last renewal was seen here. The holder counts from when it sent its last successful
/// renewal, and ends `Timers.margin` earlier. So no two nodes serve at a time, as long as their clocks run equally fast to a twentieth.
/// One that was frozen meanwhile (a suspended machine) is refused at its next renewal, and can write no record before
/// (`ClusterLog`).
public struct ClusterStateMachine: Sendable {
    /// How long things take.
    public struct Timers: Equatable, Sendable {
        /// A standby reads the lease this often.
        public var poll: Duration = .milliseconds(250)
        /// The holder renews it this often.
        public var renewal: Duration = .seconds(1)
        /// What has failed is tried again after this time.
        public var retry: Duration = .milliseconds(250)
        /// How long a lease is good for. Nobody can renew it while JetStream looks for a leader: 5.7 s when one was killed, and 11 s
        /// when a server came back that had been cut off (measured).
        public var lease: Duration = .seconds(20)
        /// How much earlier its holder ends.
        public var margin: Duration = .seconds(1)
        /// A holder that goes looks for the next one this often.
        public var handoverPoll: Duration = .milliseconds(50)
        /// How long a holder that goes waits for the next one.
        public var handover: Duration = .seconds(3)

        /// The usual times.
        public init() {}
    }

    /// What has happened.
    public enum Event: Equatable, Sendable {
        /// The node begins.
        case start
        /// `nextDeadline` has come.
        case deadline
        /// The lease as it is, and its revision; nil and 0: there has been none.
        case read(ClusterLease?, revision: UInt64)
        /// The lease cannot be read.
        case readFailed
        /// The lease is written, and has this revision now.
        case written(revision: UInt64)
        /// It has another revision than was expected.
        case refused
        /// It cannot be written; or it was, and nobody knows.
        case writeFailed
        /// No process has the port of that epoch's holder.
        case portClosed(epoch: UInt64)
        /// Whether this node can follow the log: one that cannot leaves the lease to others.
        case follows(Bool)
        /// All records are here, and the log has been told of the new epoch.
        case caughtUp
        /// The records cannot be had, whatever is tried.
        case cannotCatchUp(String)
        /// Another node has written to the log.
        case fenced
        /// This node is to go, and to hand the lease over.
        case release
    }

    /// Why a node serves no longer.
    public enum End: Equatable, Sendable {
        /// Another node has the lease.
        case deposed(by: ClusterLease?)
        /// The lease could not be renewed.
        case leaseLost
        /// The records are not those of the cluster.
        case records(String)
    }

    /// What is to be done.
    public enum Action: Equatable, Sendable {
        /// Read the lease.
        case read
        /// Write the lease over that revision; 0: if there is none.
        case write(ClusterLease, over: UInt64)
        /// Watch the port of the holder of that epoch.
        case watch(place: String, epoch: UInt64)
        /// Say which node serves; nil: none.
        case standBy(ClusterLease?)
        /// Apply the records to the last one, and tell the log of this epoch.
        case catchUp(epoch: UInt64)
        /// Serve.
        case serve
        /// This node has released the lease; members go to that place, if there is one.
        case released(to: String?)
        /// Serve no longer, at once.
        case end(End)
    }

    private enum Role: Equatable {
        case standby
        case claiming
        case catchingUp
        case serving
        case releasing(until: Instant)
        case ended

        var isHolding: Bool { self == .catchingUp || self == .serving }
    }

    private let own: ClusterMember
    private let timers: Timers
    private var role = Role.standby
    /// The lease as it was read or written last, and when it was first seen.
    private var seen: (lease: ClusterLease?, revision: UInt64, at: Instant)?
    private var follows = false
    /// The epoch whose holder's port is closed.
    private var closed: UInt64?
    /// When the lease was written last, as far as is known, counted from when that was asked for.
    private var heldAt = Instant.zero
    /// When the answer that is awaited was asked for; nil: none is.
    private var askedAt: Instant?
    /// The lease that is being written.
    private var asked: ClusterLease?
    private var askAt = Instant.zero
    /// What is there has to be read before it is written.
    private var mustRead = true

    /// A node that begins.
    public init(_ own: ClusterMember, timers: Timers = Timers()) {
        self.own = own
        self.timers = timers
    }

    /// Whether this node is to serve.
    public var isServing: Bool {
        switch role {
        case .serving, .releasing: true
        case .standby, .claiming, .catchingUp, .ended: false
        }
    }

    /// Whether it has given the lease up, and lets its bursts end.
    var isReleasing: Bool {
        if case .releasing = role { true } else { false }
    }

    /// When `.deadline` is due; nil: never.
    public var nextDeadline: Instant? {
        if role == .ended { return nil }
        let ask = askedAt == nil ? askAt : nil
        return [ask, expiry].compactMap(\.self).min()
    }

    /// When the holder ends, or stops waiting for the next one.
    private var expiry: Instant? {
        switch role {
        case .catchingUp, .serving:
            seededFault("a-lease-is-held-for-ever") ? nil : heldAt + timers.lease - timers.margin
        case .releasing(let until): until
        case .standby, .claiming, .ended: nil
        }
    }

    /// What is to be done about an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        if role == .ended { return [] }
        if let expiry, now >= expiry, event != .release {
            if case .releasing = role { return go(to: nil) }
            return end(.leaseLost)
        }
        switch event {
        case .start, .deadline: return ask(at: now)
        case .read(let lease, let revision):
            askedAt = nil
            return read(lease, revision, at: now)
        case .written(let revision): return written(revision, at: now)
        case .readFailed, .writeFailed:
            askedAt = nil
            askAt = now + timers.retry
            // Of a claim nobody knows whether it was made.
            if role == .claiming { mustRead = true }
            return []
        case .refused:
            askedAt = nil
            mustRead = true
            return askNow(at: now)
        case .portClosed(let epoch):
            closed = epoch
            return role == .standby ? askNow(at: now) : []
        case .follows(let follows):
            self.follows = follows
            return follows && role == .standby && seen != nil ? askNow(at: now) : []
        case .caughtUp:
            guard role == .catchingUp else { return [] }
            role = .serving
            return [.serve] + askNow(at: now)
        case .cannotCatchUp(let why): return end(.records(why))
        case .fenced: return role.isHolding ? end(.deposed(by: nil)) : []
        case .release: return release(at: now)
        }
    }

    private mutating func askNow(at now: Instant) -> [Action] {
        askAt = now
        return ask(at: now)
    }

    /// Asks for what is due, if it is time and nothing else is asked for.
    private mutating func ask(at now: Instant) -> [Action] {
        guard askedAt == nil, now >= askAt else { return [] }
        askedAt = now
        asked = mustRead ? nil : wanted
        guard let asked else { return [.read] }
        return [.write(asked, over: seen?.revision ?? 0)]
    }

    /// What the lease is to say; nil: that is for others to write.
    private var wanted: ClusterLease? {
        switch role {
        case .claiming: own.lease(epoch: epoch + 1, .starting, lasts: timers.lease)
        case .catchingUp: own.lease(epoch: epoch, .starting, lasts: timers.lease)
        case .serving: own.lease(epoch: epoch, .serving, lasts: timers.lease)
        case .releasing where isOwn(seen?.lease) && seen?.lease?.state != .released:
            own.lease(epoch: epoch, .released, lasts: timers.lease)
        case .releasing, .standby, .ended: nil
        }
    }

    private var epoch: UInt64 { seen?.lease?.epoch ?? 0 }

    private func isOwn(_ lease: ClusterLease?) -> Bool { lease?.incarnation == own.incarnation }

    private mutating func read(_ lease: ClusterLease?, _ revision: UInt64, at now: Instant) -> [Action] {
        mustRead = false
        let before = seen
        if before?.revision != revision { seen = (lease, revision, now) }
        askAt = now + timers.poll
        switch role {
        case .standby, .claiming:
            // A claim whose answer was lost: it was asked for before this was read.
            if isOwn(lease), lease?.state == .starting { return claimed(at: heldAt) }
            role = .standby
            guard mayClaim(at: now) else { return news(since: before?.lease) }
            role = .claiming
            heldAt = now
            return news(since: before?.lease) + askNow(at: now)
        case .catchingUp, .serving:
            // A renewal whose answer was lost. How long it holds is known only of the next one.
            return isOwn(lease) ? askNow(at: now) : end(.deposed(by: lease))
        case .releasing:
            askAt = now + timers.handoverPoll
            if isOwn(lease) { return lease?.state == .released ? [] : askNow(at: now) }
            return lease?.state == .serving ? go(to: lease?.place) : []
        case .ended: return []
        }
    }

    /// What a standby says and watches, where another node has the lease than before.
    private func news(since before: ClusterLease?) -> [Action] {
        guard let lease = seen?.lease else { return before == nil ? [] : [.standBy(nil)] }
        guard lease.epoch != before?.epoch || lease.state != before?.state else { return [] }
        return [.standBy(lease.state == .released ? nil : lease)]
            + (lease.state == .serving ? [.watch(place: lease.place, epoch: lease.epoch)] : [])
    }

    private func mayClaim(at now: Instant) -> Bool {
        guard let seen, follows else { return false }
        guard let lease = seen.lease else { return true }
        return lease.state == .released || lease.identifier == own.identifier || lease.epoch == closed
            || now - seen.at >= .milliseconds(lease.milliseconds) || seededFault("a-lease-is-taken-while-it-lasts")
    }

    private mutating func written(_ revision: UInt64, at now: Instant) -> [Action] {
        guard let sent = askedAt, let lease = asked else { return [] }
        askedAt = nil
        seen = (lease, revision, now)
        heldAt = sent
        switch role {
        case .claiming: return claimed(at: sent)
        case .catchingUp, .serving:
            askAt = sent + timers.renewal
            return []
        case .releasing:
            askAt = lease.state == .released ? now + timers.handoverPoll : now
            return ask(at: now)
        case .standby, .ended: return []
        }
    }

    private mutating func claimed(at sent: Instant) -> [Action] {
        role = .catchingUp
        heldAt = sent
        askAt = sent + timers.renewal
        return [.catchUp(epoch: epoch)]
    }

    private mutating func release(at now: Instant) -> [Action] {
        switch role {
        case .serving:
            role = .releasing(until: now + timers.handover)
            return askNow(at: now)
        case .releasing: return []
        case .standby, .claiming, .catchingUp, .ended:
            role = .ended
            return [.released(to: nil)]
        }
    }

    private mutating func go(to place: String?) -> [Action] {
        role = .ended
        return [.released(to: place)]
    }

    private mutating func end(_ reason: End) -> [Action] {
        role = .ended
        return [.end(reason)]
    }
}
