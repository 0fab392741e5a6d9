// Recordings as files: what other programs read in them, what a crash leaves, and the bounds.

import Audio
import Glibc
import Logging
import MonotonicTime
import Reactor
import TestSupport
import Testing
import Vocabulary

@testable import Recordings

@Suite struct RecordingFilesTests {
    private let label = RecordingLabel(talker: "Ann", channel: "Team", secondsSince1970: 1_795_278_378)
    private let logger = Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }

    /// Speech of the package's own encoder: frames of `milliseconds`.
    private func speech(_ frames: Int, milliseconds: Int = 20) throws -> [ReceivedFrame] {
        let samples = 48 * milliseconds
        let encoder = try #require(TestEncoder())
        return (0..<frames).map { index in
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: 65_500 + index),
                timestamp: UInt32(truncatingIfNeeded: 4_294_960_000 + index * samples),
                payload: encoder.tone(samples: samples, from: index * samples), receivedAt: .zero)
        }
    }

    private func record(_ packets: [ReceivedFrame], in folder: TemporaryFolder, keep: Int = 100_000_000) {
        let writer = RecordingWriter(settings(folder, keep: keep), logger: logger)
        writer.start()
        writer.handle(.began(burst: 1, label))
        for packet in packets { writer.handle(.packet(burst: 1, packet)) }
        writer.handle(.ended(burst: 1))
    }

    private func settings(_ folder: TemporaryFolder, keep: Int = 100_000_000, count: Int = 100) -> RecordingSettings {
        RecordingSettings(
            folder: folder.path + "/kept", age: .seconds(100 * 365 * 86_400), byteCountMax: keep, fileCountMax: count)
    }

    @Test(arguments: [10, 20])
    func `other programs read what was said`(milliseconds: Int) throws {
        let folder = try TemporaryFolder()
        let packets = try speech(5_000 / milliseconds, milliseconds: milliseconds)
        record(packets, in: folder)
        #expect(folder.names("kept") == ["20261121T162618Z-Ann.opus"])
        let file = folder.path + "/kept/20261121T162618Z-Ann.opus"
        let told = run("opusinfo", file)
        #expect(told.status == 0)
        #expect(!told.text.contains("WARNING") && !told.text.contains("ERROR"), "\(told.text)")
        #expect(told.text.contains("ARTIST=Ann") && told.text.contains("ALBUM=Team"))
        #expect(told.text.contains("DATE=2026-11-21T16:26:18Z"))
        #expect(told.text.contains("Pre-skip: 312"))
        #expect(told.text.contains("Playback length: 0m:04.99"), "\(told.text)")
        #expect(try folder.decodedSamples(file) == 5 * 48_000 - 312)
        var status = stat()
        #expect(stat(file, &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test func `a pause and a loss keep their time`() throws {
        let folder = try TemporaryFolder()
        var packets = try speech(200)
        packets.removeSubrange(50..<60)  // Lost.
        // A pause: no sequence number is missing.
        for index in 100..<packets.count { packets[index].timestamp &+= 2 * 48_000 }
        record(packets, in: folder)
        let file = folder.path + "/kept/20261121T162618Z-Ann.opus"
        let told = run("opusinfo", file)
        #expect(told.status == 0 && !told.text.contains("WARNING"), "\(told.text)")
        #expect(try folder.decodedSamples(file) == 6 * 48_000 - 312)
    }

    @Test func `nothing is kept of a burst without sound or of one that is discarded`() throws {
        let folder = try TemporaryFolder()
        let writer = RecordingWriter(settings(folder), logger: logger)
        writer.start()
        writer.handle(.began(burst: 1, label))
        writer.handle(.packet(burst: 1, ReceivedFrame(sequence: 1, timestamp: 0, payload: [], receivedAt: .zero)))
        writer.handle(.ended(burst: 1))
        writer.handle(.began(burst: 2, label))
        for packet in try speech(20) { writer.handle(.packet(burst: 2, packet)) }
        writer.handle(.discarded(burst: 2))
        #expect(folder.names("kept") == [])
    }

    /// A disk that remembers how much of a recording a power failure would have left.
    private final class CountingDisk: RecordingStorage, RecordingOutput {
        private var bytes: [UInt8] = []
        private(set) var synchronized: [[UInt8]] = []
        var byteCount: Int { bytes.count }

        func make() throws(RecordingError) {}
        func recover() throws(RecordingError) -> (saved: Int, removed: Int) { (0, 0) }
        func rotate(now: Int, elapsed: Int) throws(RecordingError) -> Int { 0 }
        func begin(_ label: RecordingLabel) throws(RecordingError) -> any RecordingOutput { self }
        func write(_ bytes: [UInt8]) throws(RecordingError) { self.bytes += bytes }
        func synchronize() throws(RecordingError) { synchronized.append(bytes) }
        func publish() throws(RecordingError) {}
        func discard() {}
    }

    @Test func `a burst that goes on is put on the disk every five seconds`() throws {
        let disk = CountingDisk()
        var now = Instant.zero
        let writer = RecordingWriter(
            RecordingSettings(folder: "/none"), storage: disk, logger: logger, clocks: { (0, now) })
        writer.start()
        writer.handle(.began(burst: 1, label))
        for packet in try speech(1_000) {
            writer.handle(.packet(burst: 1, packet))
            now = now + .milliseconds(20)
        }
        for (number, bytes) in disk.synchronized.enumerated() {
            // A page is a second at most.
            #expect(OggPages.whole(bytes).pages - OggPages.headPages >= 5 * (number + 1))
        }
        writer.handle(.ended(burst: 1))
        #expect(disk.synchronized.count == 3)
    }

    @Test func `recordings of one second are numbered`() throws {
        let folder = try TemporaryFolder()
        for _ in 0..<3 { record(try speech(20), in: folder) }
        #expect(
            folder.names("kept").sorted() == [
                "20261121T162618Z-Ann-2.opus", "20261121T162618Z-Ann-3.opus", "20261121T162618Z-Ann.opus",
            ])
    }

    @Test func `what a kill left behind is saved as far as it is whole`() throws {
        let folder = try TemporaryFolder()
        let packets = try speech(1_000)
        do {
            let writer = RecordingWriter(settings(folder), logger: logger)
            writer.start()
            writer.handle(.began(burst: 1, label))
            for packet in packets { writer.handle(.packet(burst: 1, packet)) }
            // What is on the disk now is what a kill leaves.
            let hidden = folder.names("kept")
            #expect(hidden == [".20261121T162618Z-Ann.opus.part"])
            let bytes = try folder.read("kept/" + hidden[0])
            let seed = SeededGenerator.seed()
            var random = SeededGenerator(seed: seed)
            let again = RecordingWriter(settings(folder), logger: logger)
            again.start()
            #expect(folder.names("kept") == hidden, "it is being written")
            for cut in [0, 20, 100, 300] + (0..<30).map({ _ in Int.random(in: 0...bytes.count, using: &random) }) {
                try folder.write(Array(bytes[..<cut]), to: "kept/.20200102T030405Z-Cut_\(cut).opus.part")
            }
            try folder.write(bytes + [1, 2, 3], to: "kept/.20200102T030405Z-Longer.opus.part")
            var damaged = bytes
            damaged[bytes.count / 2] ^= 1
            try folder.write(damaged, to: "kept/.20200102T030405Z-Damaged.opus.part")
            try folder.write([7], to: "kept/notes.txt")
        }
        RecordingWriter(settings(folder), logger: logger).start()
        let names = folder.names("kept")
        #expect(!names.contains { $0.hasSuffix(".part") }, "\(names)")
        #expect(names.contains("notes.txt") && names.contains("20200102T030405Z-Longer.opus"))
        #expect(names.contains("20200102T030405Z-Damaged.opus") && !names.contains("20200102T030405Z-Cut_20.opus"))
        let recordings = names.filter { $0.hasSuffix(".opus") }
        #expect(recordings.count > 5)
        let told = run("opusinfo", recordings.map { folder.path + "/kept/" + $0 })
        #expect(told.status == 0 && !told.text.contains("WARNING"), "\(told.text.suffix(2_000))")
        #expect(try folder.decodedSamples(folder.path + "/kept/20200102T030405Z-Longer.opus") > 14 * 48_000)
    }

    @Test func `the oldest go first and nothing else is touched`() throws {
        let folder = try TemporaryFolder()
        let names = [
            "20250101T000000Z-Old.opus", "20260601T000000Z-A.opus", "20260602T000000Z-B.opus",
            "20260603T000000Z-C.opus", "19700101T000100Z-No_clock.opus",
        ]
        var bounds = settings(folder, keep: 350)
        bounds.age = .seconds(60 * 86_400)
        let kept = RecordingFolder(settings: bounds)
        try kept.make()
        for name in names + ["20250101T000000Z.opus", "song.opus", "20250101T000000Z-Old.opus.bak"] {
            try folder.write([UInt8](repeating: 0, count: 100), to: "kept/" + name)
        }
        let june4 = try #require(RecordingName("20260604T000000Z-D.opus")).seconds
        #expect(try kept.rotate(now: june4) == 2, "the oldest for its bytes, the next for its age")
        #expect(try kept.rotate(now: june4) == 0)
        bounds.fileCountMax = 1
        #expect(try RecordingFolder(settings: bounds).rotate(now: june4) == 2)
        #expect(
            folder.names("kept").sorted() == [
                "20250101T000000Z-Old.opus.bak", "20250101T000000Z.opus", "20260603T000000Z-C.opus", "song.opus",
            ])
    }

    @Test func `a recording that cannot be removed keeps no other from being removed, and is told once`() throws {
        let folder = try TemporaryFolder()
        var month = settings(folder)
        month.age = .seconds(30 * 86_400)
        let stuck = "20210101T000000Z-Stuck.opus"
        var refusals = 0
        let kept = RecordingFolder(
            settings: month,
            unlinkFile: { path in
                guard path.hasSuffix(stuck), refusals < 3 else { return unlink(path) }
                refusals += 1
                errno = EPERM
                return -1
            })
        let log = KeptLog()
        let writer = RecordingWriter(month, storage: kept, logger: log.logger)
        writer.start()
        for name in [stuck, "20210102T000000Z-A.opus", "20210103T000000Z-B.opus"] {
            try folder.write([1], to: "kept/" + name)
        }
        writer.keepWithinBounds()
        #expect(folder.names("kept") == [stuck])
        for number in 1...3 as ClosedRange<UInt64> {
            let today = RecordingLabel(talker: "Ann", channel: "Team", secondsSince1970: Int(time(nil)))
            writer.handle(.began(burst: number, today))
            for packet in try speech(20) { writer.handle(.packet(burst: number, packet)) }
            writer.handle(.ended(burst: number))
            #expect(folder.names("kept").contains(stuck) == (number < 3))
            #expect(log.lines.count == (number < 3 ? 1 : 2) && log.warnings == 1, "\(log.lines)")
        }
        #expect(writer.recordings == 3 && folder.names("kept").count == 3)
    }

    @Test func `a burst that is longer than all may be is cut off`() throws {
        let folder = try TemporaryFolder()
        record(try speech(3_000), in: folder, keep: 60_000)
        let name = try #require(folder.names("kept").first)
        let count = try folder.read("kept/" + name).count
        #expect(count > 25_000 && count <= 60_000)
        #expect(run("opusinfo", folder.path + "/kept/" + name).status == 0)
    }

    @Test func `a folder that cannot be made is told once and disturbs nobody`() throws {
        let log = KeptLog()
        let writer = RecordingWriter(
            RecordingSettings(folder: "/dev/full/kept"), logger: log.logger)
        writer.start()
        for number in 1...5 as ClosedRange<UInt64> {
            writer.handle(.began(burst: number, label))
            for packet in try speech(3) { writer.handle(.packet(burst: number, packet)) }
            writer.handle(.ended(burst: number))
        }
        #expect(log.warnings == 1)
    }

    @Test func `a recording that cannot get its name keeps no other from it, and the bounds are kept`() throws {
        let folder = try TemporaryFolder()
        record(try speech(100), in: folder)
        let bytes = try folder.read("kept/20261121T162618Z-Ann.opus")
        let stuck = "20200102T030405Z-Stuck"
        for number in 1...RecordingFile.numbersMax {
            try folder.write([], to: "kept/\(stuck)\(number == 1 ? "" : "-\(number)").opus")
        }
        try folder.write(bytes, to: "kept/.\(stuck).opus.part")
        for number in 1...20 { try folder.write(bytes, to: "kept/.20210102T030405Z-Cut_\(number).opus.part") }
        let log = KeptLog()
        let writer = RecordingWriter(settings(folder, count: 500), logger: log.logger)
        writer.start()
        let names = folder.names("kept")
        #expect(names.filter { $0.hasSuffix(".part") } == [".\(stuck).opus.part"])
        #expect(names.count { $0.hasPrefix("20210102T030405Z-Cut_") } == 20)
        #expect(names.count { $0.hasSuffix(".opus") } == 500)
        #expect(log.warnings == 1)
    }

    /// The disk is full in the middle of a file: half a recording is none, the next one is whole, and both changes are told once.
    /// What a kill left behind is saved as soon as there is room.
    @Test func `a full disk leaves no half of a burst, and what a kill left behind is not lost`() throws {
        let killed = try TemporaryFolder()
        record(try speech(400), in: killed)
        let whole = "20261121T162618Z-Ann.opus"
        let left = ".\(whole).part"
        #expect(rename(killed.path + "/kept/" + whole, killed.path + "/kept/" + left) == 0)
        let folder = try TemporaryFolder()
        let log = KeptLog()
        let writer = RecordingWriter(settings(folder), logger: log.logger)
        writer.start()
        func burst(_ number: UInt64) throws {
            writer.handle(.began(burst: number, label, isInOrder: true))
            for packet in try speech(400) { writer.handle(.packet(burst: number, packet)) }
            writer.handle(.ended(burst: number))
        }
        // A file that may not grow any more fails as a full disk does: in write(2), after some of it.
        let handler = signal(SIGXFSZ, SIG_IGN)
        defer { signal(SIGXFSZ, handler) }
        #expect(run("prlimit", "--pid", "\(getpid())", "--fsize=6000:").status == 0)
        let attempts = Result {
            try burst(1)
            try burst(2)
        }
        let recovered = Result { try RecordingFolder(settings: settings(killed)).recover() }
        #expect(run("prlimit", "--pid", "\(getpid())", "--fsize=unlimited:").status == 0)
        try attempts.get()
        #expect(folder.names("kept") == [] && writer.recordings == 0 && log.warnings == 1, "\(folder.names("kept"))")
        try burst(3)
        #expect(folder.names("kept").count == 1 && writer.recordings == 1 && log.warnings == 1)
        #expect(throws: RecordingError.self) { try recovered.get() }
        #expect(killed.names("kept") == [left])
        #expect(try RecordingFolder(settings: settings(killed)).recover() == (1, 0))
        #expect(killed.names("kept") == [whole])
    }

    @Test func `a clock ten years ahead at a start deletes nothing`() throws {
        let folder = try TemporaryFolder()
        var month = settings(folder)
        month.age = .seconds(30 * 86_400)
        let now = 1_795_278_378
        var shown = now
        var uptime = 0
        func start() -> RecordingWriter {
            let writer = RecordingWriter(
                month, logger: logger, clocks: { (shown, Instant(nanoseconds: Int64(uptime) * 1_000_000_000)) })
            writer.start()
            return writer
        }
        try RecordingFolder(settings: month).make()
        let kept = "kept/20261120T000000Z-Ann.opus"
        try folder.write([1], to: kept)
        for hasHistory in [false, true] {
            if hasHistory { _ = start() }
            shown = now + 3_650 * 86_400
            let writer = start()
            #expect(folder.names("kept").count == 1, "a history of the clock: \(hasHistory)")
            // The clock stays wrong for a week, and is set right then.
            (shown, uptime) = (shown + 7 * 86_400, uptime + 7 * 86_400)
            writer.keepWithinBounds()
            #expect(folder.names("kept").count == 1)
            (shown, uptime) = (now + 7 * 86_400, uptime + 60)
            writer.keepWithinBounds()
            #expect(folder.names("kept").count == 1)
            shown = now
        }
        // What has become too old by days that were seen goes.
        let writer = start()
        for _ in 1...31 {
            (shown, uptime) = (shown + 86_400, uptime + 86_400)
            writer.keepWithinBounds()
        }
        #expect(folder.names("kept").isEmpty)
    }

    @Test func `what is too old goes though nobody speaks`() throws {
        let folder = try TemporaryFolder()
        var month = settings(folder)
        month.age = .seconds(30 * 86_400)
        let writer = RecordingWriter(month, logger: logger)
        writer.start()
        let old = folder.path + "/kept/20210101T000000Z-Ann-Team.opus"
        fclose(fopen(old, "w"))
        writer.keepWithinBounds()
        #expect(folder.names("kept") == [])
    }
}
