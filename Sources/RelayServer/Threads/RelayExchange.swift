// Where a relay's threads leave messages for each other.
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

    /// Whether any shard leaves a report of this carrier waiting for too long.
    mutating func areHanging(_ exchange: RelayExchange, at now: Instant) -> Bool {
        for shard in watches.indices where shard != own {
            if watches[shard].isHanging(handled: exchange.progress(of: shard).handled, at: now) { return true }
        }
        return false
    }
}
