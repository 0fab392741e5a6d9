// Bursts into files, on the thread that may wait for the disk.

import Files
import Glibc
import Logging
import MonotonicTime
import Vocabulary

/// What is to be recorded. Each burst has a number of its own, so that nothing of one gets into another when some of it is dropped.
enum RecordingEvent: Equatable, Sendable {
    /// `isInOrder`: its packets come in order.
    case began(burst: UInt64, RecordingLabel, isInOrder: Bool = false)
    case packet(burst: UInt64, ReceivedFrame)
    case ended(burst: UInt64)
    /// Nothing of it is to be kept.
    case discarded(burst: UInt64)
}

/// Writes bursts into files; confined to one thread. What fails is told once, until something works again.
final class RecordingWriter {
    /// Bursts at the same time: in full duplex four of others and an own one. More than these are an end that was not told.
    static let burstsMax = 5
    /// How often a burst that goes on is put on the disk. The kernel by itself does so after half a minute, and a power failure
    /// would leave nothing of most bursts.
    static let synchronizationPeriod = Duration.seconds(5)

    private final class Burst {
        let number: UInt64
        let file: any RecordingOutput
        let stream = OggOpusStream(serial: .random(in: .min ... .max))
        var timeline: BurstTimeline
        var hasSound = false
        var synchronizedAt: Instant

        init(number: UInt64, file: any RecordingOutput, isInOrder: Bool, at now: Instant) {
            timeline = BurstTimeline(isInOrder: isInOrder)
            synchronizedAt = now
            self.number = number
            self.file = file
        }
    }

    /// What the clocks show: the time of day in seconds since 1970, and the monotonic clock.
    typealias Clocks = () -> (now: Int, monotonic: Instant)

    private let folder: any RecordingStorage
    private let byteCountMax: Int
    private let logger: Logger
    private let clocks: Clocks
    /// When the folder was looked through last.
    private var rotatedAt: Instant?
    private var bursts: [Burst] = []
    private var hasFolder = false
    /// Bursts cannot be kept, and what is too old or too much cannot be removed: neither says anything of the other.
    private var isFailing = false, isOverfull = false
    /// Files that got their name.
    private(set) var recordings = 0

    /// - Parameter storage: Where the files go; nil: the folder of the settings.
    init(
        _ settings: RecordingSettings, storage: (any RecordingStorage)? = nil, logger: Logger,
        clocks: @escaping Clocks = { (Int(time(nil)), .now) }
    ) {
        self.clocks = clocks
        folder = storage ?? RecordingFolder(settings: settings)
        byteCountMax = settings.byteCountMax
        self.logger = logger
    }

    /// A burst that is longer is cut off. Less than all may be, by what its last pages take, or it would be removed itself.
    private var burstBytesMax: Int { byteCountMax - min(byteCountMax / 2, 150_000) }

    /// Makes the folder ready, so that what is wrong with it is told now and not with the first burst.
    func start() { attempt { () throws(RecordingError) in try prepare() } }

    func handle(_ event: RecordingEvent) {
        switch event {
        case .began(let number, let label, let isInOrder): begin(number, label, isInOrder)
        case .packet(let number, let packet):
            guard let burst = bursts.first(where: { $0.number == number }) else { return }
            write(burst.timeline.append(packet), to: burst)
        case .ended(let number):
            if let burst = take(number) { finish(burst) }
        case .discarded(let number): take(number)?.file.discard()
        }
    }

    /// Removes what has become too old, though nobody spoke.
    func keepWithinBounds() {
        guard hasFolder else { return }
        let (now, monotonic) = clocks()
        let elapsed = rotatedAt.map { Int((monotonic - $0).components.seconds) } ?? 0
        rotatedAt = monotonic
        do throws(RecordingError) {
            _ = try folder.rotate(now: now, elapsed: elapsed)
            if isOverfull { logger.notice("old recordings are removed again") }
            isOverfull = false
        } catch {
            if !isOverfull { logger.warning("old recordings are not removed: \(error)") }
            isOverfull = true
        }
    }

    /// Ends what goes on.
    func close() {
        let going = bursts
        bursts = []
        for burst in going { finish(burst) }
    }

    private func prepare() throws(RecordingError) {
        try folder.make()
        hasFolder = true
        // What cannot be saved keeps nothing from being recorded.
        attempt { () throws(RecordingError) in
            let (saved, removed) = try folder.recover()
            guard saved + removed > 0 else { return }
            logger.notice(
                "recordings recovered after a crash", metadata: ["saved": "\(saved)", "removed": "\(removed)"])
        }
        keepWithinBounds()
    }

    private func begin(_ number: UInt64, _ label: RecordingLabel, _ isInOrder: Bool) {
        while bursts.count >= Self.burstsMax { finish(bursts.removeFirst()) }
        attempt { () throws(RecordingError) in
            // The folder may have come, or gone, since the last one.
            if hasFolder { try folder.make() } else { try prepare() }
            let burst = Burst(
                number: number, file: try folder.begin(label), isInOrder: isInOrder, at: clocks().monotonic)
            try burst.file.write(
                burst.stream.head(tags: [
                    ("TITLE", "\(label.talker) on \(label.channel)"), ("ARTIST", label.talker),
                    ("ALBUM", label.channel), ("DATE", RecordingName.date(label.secondsSince1970)),
                ]))
            bursts.append(burst)
        }
    }

    private func write(_ items: [BurstTimeline.Item], to burst: Burst) {
        let worked = attempt { () throws(RecordingError) in
            try put(items, into: burst)
            let now = clocks().monotonic
            guard now - burst.synchronizedAt >= Self.synchronizationPeriod else { return }
            try burst.file.synchronize()
            // From its end on, or a slow disk would do nothing else.
            burst.synchronizedAt = clocks().monotonic
        }
        // Half a recording is none.
        if !worked { take(burst.number)?.file.discard() }
    }

    private func put(_ items: [BurstTimeline.Item], into burst: Burst) throws(RecordingError) {
        for item in items where burst.file.byteCount < burstBytesMax {
            burst.hasSound = true
            let bytes = burst.stream.append(item)
            if !bytes.isEmpty { try burst.file.write(bytes) }
        }
    }

    private func finish(_ burst: Burst) {
        let worked = attempt { () throws(RecordingError) in
            try put(burst.timeline.finish(), into: burst)
            guard burst.hasSound else { return burst.file.discard() }
            try burst.file.write(burst.stream.finish())
            try burst.file.publish()
            recordings += 1
            if isFailing { logger.notice("recording resumed") }
            isFailing = false
        }
        burst.file.discard()
        if worked { keepWithinBounds() }
    }

    private func take(_ number: UInt64) -> Burst? {
        guard let index = bursts.firstIndex(where: { $0.number == number }) else { return nil }
        return bursts.remove(at: index)
    }

    @discardableResult
    private func attempt(_ body: () throws(RecordingError) -> Void) -> Bool {
        do throws(RecordingError) {
            try body()
            return true
        } catch {
            if !isFailing { logger.warning("recording failed: \(error)") }
            isFailing = true
            return false
        }
    }
}
