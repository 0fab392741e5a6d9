// The records of a node: follows the cluster's log, and looks after it while this node writes to it.
import Logging
import MonotonicTime
import NATS
import Reactor
import RelayStore

/// Keeps a node's records up with the log.
actor ClusterRecords: LoopActor {
    /// What the node has to know.
    enum Event: Sendable {
        /// Whether it follows the log to its end.
        case follows(Bool)
        /// All records are here, and the log has been told of the new epoch.
        case caughtUp
        /// The records cannot be had, whatever is tried.
        case cannotCatchUp(String)
        /// Another node has written to the log.
        case fenced
    }

    nonisolated let loop: EventLoop
    /// Reads and applies the log.
    private let recordsLoop: EventLoop
    /// The loop that this actor lives on: its node's.
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let store: RelayStore
    private let log: ClusterLog
    private let follower: ClusterFollower
    private let keeper: ClusterLogKeeper
    private let limits: ClusterLogLimits
    private let logger: Logger
    private let tell: @Sendable (Event) -> Void
    private var problems: ClusterProblems
    /// The last position of the log that is here.
    private(set) var position: UInt64 = 0
    /// The epoch of the last node that has written, as far as is known here.
    private(set) var epoch: UInt64 = 0
    /// The one in which this node is to write.
    private var ownEpoch: UInt64 = 0
    private var role = Role.following
    private var isFollowing = false
    private var isCurrent = false
    private var timer: EventLoop.Timer?
    private var onChange: (@Sendable (RecordChanges) -> Void)?

    private enum Role { case following, catchingUp, writing, ended }

    private static let followInterval: Duration = .milliseconds(250)
    private static let retry: Duration = .seconds(1)
    /// How long a request waits for what it has changed to be here, and how often it looks.
    private static let awaitTime: Duration = .seconds(2)
    private static let awaitInterval: Duration = .milliseconds(5)

    /// - Parameter tell: Called on `loop`.
    init(
        _ connection: NATSConnection, _ configuration: ClusterConfiguration, _ description: ClusterDescription,
        store: RelayStore, relay: ClusterIdentity, limits: ClusterLogLimits, on loop: EventLoop, logger: Logger,
        tell: @escaping @Sendable (Event) -> Void
    ) throws {
        self.store = store
        self.limits = limits
        self.loop = loop
        self.logger = logger
        self.tell = tell
        problems = ClusterProblems(logger: logger)
        log = ClusterLog(connection, configuration.log, of: relay) { why in
            loop.execute { tell(why.map { .cannotCatchUp($0) } ?? .fenced) }
        }
        follower = ClusterFollower(
            connection: connection, configuration: configuration, description: description, store: store, relay: relay)
        keeper = ClusterLogKeeper(
            connection: connection, configuration: configuration, store: store, relay: relay, log: log, limits: limits)
        recordsLoop = try EventLoop(name: "cluster-log", mayWait: true)
    }

    deinit { recordsLoop.stop() }

    /// Begins to follow; what is written is in the log first.
    func begin() {
        store.share(with: log)
        follow()
    }

    /// `handler` is told, on a thread that may wait, what other nodes have changed.
    func onChange(_ handler: @escaping @Sendable (RecordChanges) -> Void) { onChange = handler }

    /// Neither follows nor writes any more.
    func end() {
        role = .ended
        timer?.cancel()
    }

    // MARK: Following

    /// Applies what is new, as long as it does not write itself.
    private func follow() {
        guard role == .following, !isFollowing else { return }
        isFollowing = true
        timer?.cancel()
        let (follower, onChange) = (follower, onChange)
        inBackground(recordsLoop) {
            let (place, isEnd, changes) = try follower.follow()
            if !changes.isEmpty { onChange?(changes) }
            return (place, isEnd)
        } then: { records, result in
            records.isFollowing = false
            switch result {
            case .success(let (place, isEnd)):
                records.problems.note(nil, about: "the records")
                (records.position, records.epoch) = (place.position, place.epoch)
                if isEnd { records.note(follows: true) }
                records.follow(after: isEnd ? Self.followInterval : .zero)
            case .failure(let error):
                records.problems.note(error, about: "the records")
                // Without NATS no relay follows, and none can write the table of shares.
                if !(error is NATSError) { records.note(follows: false) }
                records.follow(after: Self.retry)
            }
        }
    }

    private func follow(after delay: Duration) {
        timer = again(after: delay) { $0.follow() }
    }

    private func note(follows: Bool) {
        guard follows != isCurrent else { return }
        isCurrent = follows
        tell(.follows(follows))
    }

    /// Waits until the records up to that position are here, or for `awaitTime`.
    func followed(to position: UInt64) async {
        let deadline = Instant.now + Self.awaitTime
        while self.position < position, .now < deadline, role == .following {
            follow()
            await withCheckedContinuation { continuation in
                _ = loop.schedule(after: Self.awaitInterval) { continuation.resume() }
            }
        }
    }

    // MARK: Writing

    /// Applies the records to the last one, and tells the log of this epoch.
    func catchUp(_ epoch: UInt64) {
        guard role != .ended else { return }
        (role, ownEpoch) = (.catchingUp, epoch)
        let (follower, log, onChange) = (follower, log, onChange)
        inBackground(recordsLoop) { () throws -> UInt64 in
            let (position, changes) = try follower.take(epoch: epoch)
            if !changes.isEmpty { onChange?(changes) }
            log.begin(epoch, at: position)
            return position
        } then: { records, result in
            guard records.role == .catchingUp, records.ownEpoch == epoch else { return records.log.end(epoch) }
            switch result {
            case .success(let position):
                records.problems.note(nil, about: "the records")
                records.position = position
                records.tell(.caughtUp)
            case .failure(let error):
                records.problems.note(error, about: "the records")
                switch error {
                case ClusterError.fenced: records.tell(.fenced)
                case is NATSError:
                    records.again(after: Self.followInterval) { records in
                        if records.role == .catchingUp, records.ownEpoch == epoch { records.catchUp(epoch) }
                    }
                default: records.tell(.cannotCatchUp("\(error)"))
                }
            }
        }
    }

    /// Another node writes now: this one follows again.
    func followAgain() {
        guard role == .writing || role == .catchingUp else { return }
        log.end()
        role = .following
        follow()
    }

    /// This node writes: it looks after the log's length.
    func write() {
        guard role != .ended else { return }
        role = .writing
        keepLogShort(needed: 0, in: ownEpoch)
    }

    private func keepLogShort(needed: Int, in epoch: UInt64) {
        // Another epoch looks for itself.
        guard role == .writing, ownEpoch == epoch else { return }
        inBackground(recordsLoop) { [keeper] in
            try keeper.look(needed: needed)
        } then: { records, result in
            var needed = needed
            switch result {
            case .success(.isShort): records.problems.note(nil, about: "the length of the log")
            case .success(.isAllNeeded(let bytes)): needed = bytes
            case .success(.shortened(let before, let after)):
                records.problems.note(nil, about: "the length of the log")
                records.logger.notice(
                    "the cluster's log begins anew with all records as they are",
                    metadata: ["bytes": "\(after)", "before": "\(before)"])
            case .failure(let error): records.problems.note(error, about: "the length of the log")
            }
            records.again(after: records.limits.interval) { [needed] in $0.keepLogShort(needed: needed, in: epoch) }
        }
    }
}
