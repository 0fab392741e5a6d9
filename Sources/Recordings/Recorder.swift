// Records talk bursts as files, without any thread waiting for the disk.

import Logging
import MonotonicTime
import Reactor
import Synchronization
import Vocabulary

/// Keeps talk bursts as Ogg Opus files (RFC 7845), one a burst.
///
/// It lives on the loop of those who speak and hear; files are written by a thread of its own, which sleeps while nobody talks. When
/// the disk is slow the queue between the two fills and what does not fit is dropped, with one warning: speech is never disturbed.
public actor Recorder {
    /// How often what is too old is looked for while nobody speaks; it is looked for after each recording, too.
    private static let rotationPeriod = Duration.seconds(24 * 3_600)
    /// How long an end waits for the disk.
    public static let closeLimit = Duration.seconds(2)

    /// Whose burst it is: others' and own ones overlap in full duplex. Each is a file of its own.
    public enum Voice: Hashable, Sendable {
        /// Somebody else's, where one talks at a time.
        case other
        /// Somebody else's, known by a number, where several may talk at once.
        case beside(UInt32)
        /// This device's own.
        case own
    }

    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the executor of this actor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    /// Whether own bursts are wanted.
    public nonisolated let includesOwn: Bool

    private let disk: EventLoop
    private let writer: Confined
    private let logger: Logger
    private var queue = RecordingQueue()
    private var isClosed = false
    /// Events that were dropped because the disk did not follow.
    public var dropped: Int { queue.dropped }

    /// A recorder whose thread runs from now on; it makes the folder, and looks after what a crash has left there.
    ///
    /// - Throws: `SystemError` when the process has no thread left.
    public init(_ settings: RecordingSettings, loop: EventLoop, logger: Logger) throws(SystemError) {
        self.init(settings, disk: try EventLoop(name: "pttd-records", mayWait: true), loop: loop, logger: logger)
    }

    init(_ settings: RecordingSettings, disk: EventLoop, loop: EventLoop, logger: Logger) {
        self.loop = loop
        self.logger = logger
        includesOwn = settings.includesOwn
        self.disk = disk
        let writer = Confined(RecordingWriter(settings, logger: logger))
        self.writer = writer
        disk.execute { [weak disk] in
            writer.value.start()
            if let disk { Self.rotateDaily(writer, on: disk) }
        }
    }

    private nonisolated static func rotateDaily(_ writer: Confined, on disk: EventLoop) {
        disk.schedule(after: rotationPeriod) { [weak disk] in
            writer.value.keepWithinBounds()
            if let disk { rotateDaily(writer, on: disk) }
        }
    }

    /// A burst begins; what went on of this voice has ended.
    public func began(_ voice: Voice, _ label: RecordingLabel) {
        carryOut { $0.began(voice, label, waiting: $1) }
    }

    /// A packet of it; in any order, and once more does no harm. Outside of a burst it is nothing.
    public func packet(_ voice: Voice, _ packet: ReceivedFrame) {
        carryOut { $0.packet(voice, packet, waiting: $1) }
    }

    /// It has ended.
    public func ended(_ voice: Voice) { carryOut { $0.ended(voice, waiting: $1) } }

    /// Nobody else is heard any more.
    public func othersEnded() { carryOut { $0.othersEnded(waiting: $1) } }

    /// It is not to be kept.
    public func discarded(_ voice: Voice) { carryOut { $0.discarded(voice, waiting: $1) } }

    /// Ends what goes on and waits until it is on the disk, `closeLimit` at most.
    public func close() async {
        guard !isClosed else { return }
        carryOut { $0.close(waiting: $1) }
        isClosed = true
        disk.execute { [writer] in writer.value.close() }
        // A thread that hangs in a disk is left to the end of the process.
        if await disk.drained(within: Self.closeLimit, countedBy: loop) {
            disk.stop()
        } else {
            logger.warning("the disk for recordings does not answer; the last recording is lost")
        }
    }

    private func carryOut(_ body: (inout RecordingQueue, Int) -> RecordingQueue.Outcome) {
        guard !isClosed else { return }
        let outcome = body(&queue, writer.queued.load(ordering: .relaxed))
        if outcome.warns { logger.warning("the disk is too slow: some recordings have gaps") }
        let batch = outcome.batch
        guard !batch.isEmpty else { return }
        writer.queued.add(batch.count, ordering: .relaxed)
        disk.execute { [writer] in
            for event in batch {
                writer.value.handle(event)
                writer.queued.subtract(1, ordering: .relaxed)
            }
        }
    }
}

/// What only the disk's thread touches, and the events that wait for it.
private final class Confined: @unchecked Sendable {
    let value: RecordingWriter
    let queued = Atomic<Int>(0)

    init(_ value: sending RecordingWriter) { self.value = value }
}
