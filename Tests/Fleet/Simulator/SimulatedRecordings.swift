// The recordings on the disk of one machine, and what must be true of each.
import Files
import Glibc
import MonotonicTime
import Vocabulary

@testable import Recordings

/// One burst as it was given to the recorder.
struct RecordedBurst {
    /// Where in its talker's burst each packet began, in samples.
    private(set) var positions: Set<UInt32> = []
    /// The first and the last of them.
    private(set) var span: (first: UInt32, last: UInt32)?
    /// The talker's burst; nil until its first packet.
    var key: BurstKey?
    var ended: Instant?
    var isDiscarded = false
    /// All of it must be found: neither pttd nor the disk had a trouble.
    var isHealthy = true
    /// pttd was killed before the thread of the disk can have heard that it is not to be kept.
    var isOrphan = false
    var isPublished = false

    mutating func took(_ position: UInt32) {
        positions.insert(position)
        span = (min(span?.first ?? position, position), max(span?.last ?? position, position))
    }
}

/// Keeps recordings for the shipped `RecordingWriter`. It outlives pttd.
final class SimulatedRecordings: RecordingStorage {
    /// A recording that is being written: hidden until it has its name.
    private final class Output: RecordingOutput {
        private unowned let storage: SimulatedRecordings
        let label: RecordingLabel
        private(set) var bytes: [UInt8] = []
        var byteCount: Int { bytes.count }
        var isNamed = false

        init(_ storage: SimulatedRecordings, _ label: RecordingLabel) {
            self.storage = storage
            self.label = label
        }

        func write(_ bytes: [UInt8]) throws(RecordingError) {
            if storage.disk.trouble == .full {
                self.bytes += bytes.prefix(bytes.count / 2)
                throw RecordingError("write", "recording", code: ENOSPC)
            }
            self.bytes += bytes
        }

        func synchronize() throws(RecordingError) {}

        func publish() throws(RecordingError) {
            if storage.disk.trouble == .readOnly { throw RecordingError("name", "recording", code: EROFS) }
            isNamed = true
            storage.hidden.removeAll { $0 === self }
            storage.published(label, bytes)
        }

        func discard() { if !isNamed { storage.hidden.removeAll { $0 === self } } }
    }

    /// So long may what is handed over wait for the disk.
    private static let backlogTime = Duration.seconds(3)

    private let device: String
    private unowned let world: World
    private unowned let disk: SimulatedDisk
    private var hidden: [Output] = []
    /// By the number in the label of each recording.
    private(set) var bursts: [Int: RecordedBurst] = [:]
    private var lastNumber = 0

    init(_ world: World, disk: SimulatedDisk, device: String) {
        self.world = world
        self.disk = disk
        self.device = device
    }

    // MARK: What the recorder is given

    /// A burst begins.
    ///
    /// - Returns: The label of its recording, by which it is found again.
    func began() -> RecordingLabel {
        lastNumber += 1
        bursts[lastNumber] = RecordedBurst()
        return RecordingLabel(talker: "\(lastNumber)", channel: "channel", secondsSince1970: 1_795_000_000)
    }

    func took(_ packet: ReceivedFrame, _ label: RecordingLabel) {
        guard let number = Int(label.talker), let speech = Speech(packet.payload) else { return }
        if bursts[number]?.key == nil { bursts[number]?.key = BurstKey(speech) }
        // A beginning that comes after all that is not waited for: it was not heard either.
        if let (first, last) = bursts[number]?.span, speech.position < first,
            last - first > UInt32(BurstTimeline.beginningSamples)
        {
            return
        }
        bursts[number]?.took(speech.position)
    }

    func ended(_ label: RecordingLabel, isDiscarded: Bool = false) {
        guard let number = Int(label.talker) else { return }
        bursts[number]?.ended = world.now
        bursts[number]?.isDiscarded = isDiscarded
    }

    /// pttd or the disk has a trouble: what goes on, and what is not written yet, may be lost.
    func hasTrouble() {
        for number in bursts.keys where bursts[number]?.isPublished == false { bursts[number]?.isHealthy = false }
    }

    /// pttd is killed, and with it what waited for the disk.
    func writerIsGone() {
        hasTrouble()
        for (number, burst) in bursts where burst.ended.map({ world.now < $0 + Self.backlogTime }) == true {
            bursts[number]?.isOrphan = true
        }
    }

    // MARK: RecordingStorage

    func make() throws(RecordingError) {}

    func begin(_ label: RecordingLabel) throws(RecordingError) -> any RecordingOutput {
        if disk.trouble == .readOnly { throw RecordingError("create", "recording", code: EROFS) }
        let output = Output(self, label)
        hidden.append(output)
        return output
    }

    func recover() throws(RecordingError) -> (saved: Int, removed: Int) {
        if disk.trouble == .readOnly { throw RecordingError("name", "recording", code: EROFS) }
        let left = hidden
        hidden = []
        var saved = 0
        for output in left {
            let whole = OggPages.whole(output.bytes)
            guard whole.pages > OggPages.headPages else { continue }
            saved += 1
            published(output.label, Array(output.bytes.prefix(whole.byteCount)))
        }
        return (saved, left.count - saved)
    }

    func rotate(now: Int, elapsed: Int) throws(RecordingError) -> Int { 0 }

    // MARK: What must be true

    private func published(_ label: RecordingLabel, _ bytes: [UInt8]) {
        guard let number = Int(label.talker), let burst = bursts[number] else { return }
        bursts[number]?.isPublished = true
        let packets = OggReader.packets(of: bytes).dropFirst(OggPages.headPages)
        let speech = packets.compactMap { Speech($0) }
        if burst.isDiscarded, !burst.isOrphan { fail("recording \(number) is kept, and nobody was to hear of it") }
        if speech.contains(where: { BurstKey($0) != burst.key }) { fail("recording \(number) has more than one burst") }
        if zip(speech, speech.dropFirst()).contains(where: { $0.position >= $1.position }) {
            fail("recording \(number) is out of order")
        }
        let kept = Set(speech.map(\.position))
        if !kept.isSubset(of: burst.positions) { fail("recording \(number) has what nobody said") }
        guard burst.isHealthy else { return }
        if kept != burst.positions { fail("recording \(number) has \(kept.count) of \(burst.positions.count) packets") }
        guard let first = speech.first, let last = speech.last else { return }
        // What is missing is as long as it was.
        let span = Int(last.position - first.position) / Speech.frameSamples + 1
        if packets.count != span { fail("recording \(number) lasts \(packets.count) frames, and its burst \(span)") }
    }

    /// What is missing; nil: nothing.
    ///
    /// - Parameter ended: What ended before must have its name by now.
    func missing(ended: Instant) -> String? {
        for (number, burst) in bursts.sorted(by: { $0.key < $1.key }) {
            guard let end = burst.ended, end < ended, burst.isHealthy, !burst.isDiscarded, !burst.isPublished,
                !burst.positions.isEmpty
            else { continue }
            return "recording \(number), which ended at \(World.text(end - World.start)), is not kept"
        }
        return nil
    }

    private func fail(_ text: String) { world.fail("I5", "\(device): \(text)") }
}

/// Reads the packets of an Ogg file (RFC 3533, section 6).
private enum OggReader {
    static func packets(of bytes: [UInt8]) -> [[UInt8]] {
        var (packets, rest, place) = ([[UInt8]](), [UInt8](), 0)
        while bytes.count >= place + 27 {
            let segments = Int(bytes[place + 26])
            let table = bytes[place + 27..<min(bytes.count, place + 27 + segments)]
            place += 27 + segments
            for length in table {
                let end = min(bytes.count, place + Int(length))
                rest += bytes[place..<end]
                place = end
                if length < 255 {
                    packets.append(rest)
                    rest = []
                }
            }
        }
        return packets
    }
}
