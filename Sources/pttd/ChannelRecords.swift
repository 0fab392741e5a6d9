// What restores the channel after a restart, and when it goes to the disk.
import Bridge
import ChannelService
import FoundationEssentials
import Logging
import MonotonicTime
import PushToTalkCore
import Reactor

/// Keeps the restoration record of the active channel, and which of several configured channels is the active one. It
/// runs on the daemon's loop, and never waits for the disk.
actor ChannelRecords {
    /// What is to be kept now.
    struct Current {
        /// What restores the active channel; nil: it was not opened, or is none of those that are kept.
        var record: RestorationRecord?
        /// Somebody talks: the disk may be slow, so nothing is written meanwhile.
        var isTalking: Bool
    }

    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let store: RestorationStore
    private let choices: RestorationStore
    /// Where both are written.
    private let disk: EventLoop
    private let choiceWriter: LatestValueWriter<RestorationRecord>
    private let logger: Logger
    private var current: @Sendable () -> Current = { Current(record: nil, isTalking: false) }
    private var problemChanged: @Sendable () -> Void = {}
    /// Why the next start would find another channel than the active one, in words for the user; nil: it would not.
    private(set) var problem: String?
    private var upkeep = RecordUpkeep()
    private var timer: EventLoop.Timer?
    /// The last record is being kept, while somebody talks, too.
    private var isEnding = false
    /// No record is kept any more.
    private var hasEnded = false

    /// - Parameters:
    ///   - store: Keeps the restoration record.
    ///   - choices: Keeps which of several configured channels is the one.
    ///   - disk: The loop on which both are written. It may wait for the disk.
    init(store: RestorationStore, choices: RestorationStore, disk: EventLoop, loop: EventLoop, logger: Logger) {
        self.loop = loop
        self.store = store
        self.choices = choices
        self.disk = disk
        self.logger = logger
        choiceWriter = LatestValueWriter(on: disk) { record in
            do throws(RestorationStoreError) { try choices.save(record) } catch {
                logger.error("after a restart another channel may be the active one", metadata: ["why": "\(error)"])
            }
        }
    }

    /// What the last run left.
    ///
    /// - Parameters:
    ///   - hasChoice: Whether there are several configured channels.
    ///   - current: Called on the loop whenever a record is due.
    ///   - problemChanged: Called on the loop when `problem` is another one.
    func load(
        hasChoice: Bool, current: @escaping @Sendable () -> Current, problemChanged: @escaping @Sendable () -> Void
    ) -> (restored: RestorationRecord?, chosen: UUID?) {
        (self.current, self.problemChanged) = (current, problemChanged)
        let kept = store.load()
        let choice = hasChoice ? choices.load() : nil
        for problem in [kept.problem, choice?.problem] {
            if let problem { logger.error("\(problem)") }
        }
        return (kept.record, choice?.record?.channelUUID)
    }

    /// That configured channel is the active one.
    func choose(_ channel: ChannelMembership) {
        choiceWriter.put(RestorationRecord(channelUUID: channel.uuid, descriptor: channel.descriptor))
    }

    /// The active channel's record is another one, or there is none any more.
    func want(_ step: RecordUpkeep.Step) {
        upkeep.want(step)
        keep()
    }

    /// Somebody stopped talking. What is due is written in the next turn of the loop.
    func talkEnded() {
        guard upkeep.isPending else { return }
        loop.execute { [weak self] in self?.assumeIsolated { $0.keep() } }
    }

    /// Returns when what was handed to the disk is on it: a caller is not told of a change that a power failure takes
    /// back. A disk that does not answer delays the answer by a second at most.
    func untilKept() async { _ = await disk.drained(within: .seconds(1), countedBy: loop) }

    /// Has the disk do what waits for the end of a transmission, or for an earlier answer of the disk. One that refuses
    /// or hangs is left. From then on nothing is kept: a channel manager that shuts down has less to restore than it had.
    func end() async {
        isEnding = true
        keep()
        // The write that is under way, and the one after it.
        for _ in 0..<2 where upkeep.isPending && upkeep.nextDeadline == nil { await untilKept() }
        hasEnded = true
        timer?.cancel()
    }

    /// Has the disk do what is due with the record.
    private func keep() {
        guard !hasEnded else { return }
        let current = current()
        guard let step = upkeep.due(isTalking: current.isTalking && !isEnding, at: .now) else { return }
        let record = step == .save ? current.record : nil
        // Posted in this turn: whoever waits for the disk from now on waits for this.
        disk.execute { [store, loop, weak self] in
            let problem: RestorationStoreError?
            do throws(RestorationStoreError) {
                switch step {
                case .save: if let record { try store.save(record) }
                case .remove: try store.remove()
                }
                problem = nil
            } catch {
                problem = error
            }
            loop.execute { [weak self] in self?.assumeIsolated { $0.kept(step, problem) } }
        }
    }

    private func kept(_ step: RecordUpkeep.Step, _ error: RestorationStoreError?) {
        let before = problem
        problem = error.map { error in
            let what =
                switch step {
                case .save: "the channel will not be restored after a restart"
                case .remove: "a channel that was left may be joined again after a restart"
                }
            // Once is enough to be told of a disk that goes on refusing.
            logger.log(level: before == nil ? .error : .debug, "\(what)", metadata: ["why": "\(error)"])
            return "\(what): \(error)"
        }
        if problem != before { problemChanged() }
        upkeep.did(isOver: error?.isFinal ?? true, at: .now)
        timer?.cancel()
        guard !hasEnded else { return }
        timer = upkeep.nextDeadline.map { deadline in
            loop.schedule(at: deadline) { [weak self] in self?.assumeIsolated { $0.keep() } }
        }
        keep()
    }
}
