// Where a relay's threads leave messages for each other, how each sees that another one follows, and which of them gets new connections.
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// What a worker's thread gets from another one.
enum RelayMail: Sendable {
    /// For the shard.
    case report(RelayWorkerReport)
    /// For the connections.
    case order(RelayWorkerOrder)
    /// Something to be asked of the shard, or done with it.
    case question(@Sendable (RelayShard) -> Void)
    /// For the relay itself, which lives on the first worker's thread.
    case front(RelayFrontReport)

    var mayBeLost: Bool {
        switch self {
        case .report(let report): report.mayBeLost
        case .order(let order): order.mayBeLost
        case .question, .front: false
        }
    }
}

/// What a shard tells the relay itself.
enum RelayFrontReport: Sendable {
    /// For the log.
    case note(RelayMilestone, Instant)
    /// The records are to say whether a client becomes a member.
    case enrol(ConnectionID, RelayEnrolment)
    /// Something about push tokens, of a connection of that shard.
    case pushes(PushEvent, shard: Int)
    /// The channel has gone to another relay.
    case moved(ChannelID)
    /// The shard drains, and nobody is left on its channels.
    case drained(shard: Int)
}

/// The mailboxes of a relay's workers, and what all its threads look up.
///
/// A worker has a share of the connections and, as its *shard*, a share of the channels. Mail from one thread to another
/// arrives in order. A relay with one worker and no links over TLS has no mailboxes.
final class RelayExchange: Sendable {
    let directory: ChannelDirectory
    let numbers: ConnectionNumbers
    let limits: RelayLimits
    let spread: ConnectionSpread
    let workers: Int
    /// Has the connections over TLS, as the carrier after the workers; nil where none are taken.
    let web: RelayWebWorker?
    private let inboxes: [Mailbox<RelayMail>]

    /// - Throws: `SystemError` when the process has no descriptor left.
    init(
        workers: Int, web: RelayWebWorker?, directory: ChannelDirectory, limits: RelayLimits, spreadFrom: Int
    ) throws(SystemError) {
        self.workers = workers
        self.web = web
        self.directory = directory
        self.limits = limits
        spread = ConnectionSpread(from: spreadFrom)
        numbers = ConnectionNumbers(carriers: workers + (web == nil ? 0 : 1))
        var inboxes: [Mailbox<RelayMail>] = []
        if workers > 1 || web != nil { for _ in 0..<workers { inboxes.append(try Mailbox()) } }
        self.inboxes = inboxes
    }

    /// How many carriers there are.
    var carriers: Int { workers + (web == nil ? 0 : 1) }

    /// Has `worker` take its mail. Called on its loop.
    func open(_ worker: RelayWorker, on loop: EventLoop, _ handler: @escaping (RelayMail) -> Void) throws(SystemError) {
        if inboxes.indices.contains(worker.number) { try inboxes[worker.number].open(on: loop, handler) }
    }

    /// A worker takes no mail any more. Called on its loop.
    func shut(_ number: Int) { if inboxes.indices.contains(number) { inboxes[number].shut() } }

    /// Hands mail to a worker; false when it was dropped, which `mayBeLost` allows.
    @discardableResult
    func post(_ mail: RelayMail, to worker: Int) -> Bool { inboxes[worker].post(mail, mayBeLost: mail.mayBeLost) }

    /// How much mail a worker got, and how much of it has been handled.
    func progress(of worker: Int) -> (posted: UInt64, handled: UInt64) {
        (inboxes[worker].postedCount, inboxes[worker].handledCount)
    }
}

/// The watchdogs of a carrier for the shards on other threads.
struct ShardWatches {
    private var watches: [RulesWatch]
    /// The shard of the carrier's own thread, which cannot hang while that runs.
    private let own: Int?

    init(shards: Int, own: Int?) {
        watches = Array(repeating: RulesWatch(), count: shards)
        self.own = own
    }

    mutating func reported(to shard: Int, _ exchange: RelayExchange, at now: Instant) {
        watches[shard].reported(exchange.progress(of: shard).posted, at: now)
    }

    /// Whether that thread leaves what it was told waiting for too long.
    mutating func isHanging(_ shard: Int, _ exchange: RelayExchange, at now: Instant) -> Bool {
        shard != own && watches[shard].isHanging(handled: exchange.progress(of: shard).handled, at: now)
    }

    /// Whether any shard leaves a report of this carrier waiting for too long.
    mutating func areHanging(_ exchange: RelayExchange, at now: Instant) -> Bool {
        for shard in watches.indices where shard != own {
            if watches[shard].isHanging(handled: exchange.progress(of: shard).handled, at: now) { return true }
        }
        return false
    }
}

/// A worker's watchdog for the thread that runs the relay's rules.
///
/// A worker acknowledges what it reads, and a talker concludes from that that it is heard (`HearingWatch`). So a worker
/// must stop reading while the rules stall, because nobody hears the talker then.
struct RulesWatch: Sendable {
    /// How long a report may wait. Together with the talker's timeout of 4 s it is less than the rules' T1 of 5 s, so
    /// the talker is informed first.
    static let timeout: Duration = .milliseconds(500)

    /// The oldest report that is not known to be taken, by its number, and when it was made.
    private var waiting: (number: UInt64, since: Instant)?
    /// The newest report, likewise: it may wait where the oldest one has been taken.
    private var newest: (number: UInt64, since: Instant)?

    /// A report was made; `number` have been until now, by this thread and others.
    mutating func reported(_ number: UInt64, at now: Instant) {
        newest = (number, now)
        if waiting == nil { waiting = newest }
    }

    /// Whether a report waits for too long; the rules are done with the first `handled`.
    mutating func isHanging(handled: UInt64, at now: Instant) -> Bool {
        if let oldest = waiting, handled >= oldest.number {
            waiting = newest.flatMap { handled < $0.number ? $0 : nil }
        }
        guard let waiting else { return false }
        return now - waiting.since >= Self.timeout
    }
}

/// Whether new connections are spread over the workers, or go to the first one.
///
/// A packet that changes threads costs a wake-up. While few are connected one thread serves them all, so they stay on it.
/// With many, the handshakes and the talkers' packets are worth spreading. It goes back at half the number, so that
/// a connection more or less does not switch it each time.
final class ConnectionSpread: Sendable {
    private let threshold: Int
    private let count = Atomic<Int>(0)
    private let isOn: Atomic<Bool>

    /// - Parameter threshold: The number of connections from which new ones are spread; 0: they always are.
    init(from threshold: Int) {
        self.threshold = threshold
        isOn = Atomic(threshold == 0)
    }

    /// Whether it is on at first.
    var isSpread: Bool { isOn.load(ordering: .relaxed) }

    /// A connection has come. Returns true when it is time to spread from now on; of several callers only one gets that.
    func opened() -> Bool {
        let now = count.add(1, ordering: .relaxed).newValue
        return now >= threshold && switchTo(true)
    }

    /// A connection has gone. Returns true when it is time to have new ones go to the first worker again.
    func closed() -> Bool {
        let now = count.subtract(1, ordering: .relaxed).newValue
        return now < threshold / 2 && switchTo(false)
    }

    private func switchTo(_ new: Bool) -> Bool {
        isOn.compareExchange(expected: !new, desired: new, ordering: .relaxed).exchanged
    }
}
