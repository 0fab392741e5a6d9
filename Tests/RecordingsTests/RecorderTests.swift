// The recorder between speech and a disk that takes its time.

import Glibc
import MonotonicTime
import Reactor
import Synchronization
import TestSupport
import Testing
import Vocabulary

@testable import Recordings

@Suite struct RecorderTests {
    private let label = RecordingLabel(talker: "Ann", channel: "Team", secondsSince1970: 1_795_278_378)
    private let log = KeptLog()

    /// A disk that does nothing until it is let go.
    private final class Gate: Sendable {
        private let isOpen = Mutex(false)

        func open() { isOpen.withLock { $0 = true } }
        func wait() { while !isOpen.withLock({ $0 }) { usleep(1_000) } }
    }

    private func packets(_ count: Int) -> [ReceivedFrame] {
        (0..<count).map {
            ReceivedFrame(
                sequence: UInt16(truncatingIfNeeded: $0), timestamp: UInt32(truncatingIfNeeded: $0 * 480),
                payload: [30 << 3, 0, 0], receivedAt: .zero)
        }
    }

    @Test func `bursts of both voices are kept and an end is waited for`() async throws {
        let folder = try TemporaryFolder()
        let loop = try EventLoop(name: "test")
        let recorder = try Recorder(
            RecordingSettings(folder: folder.path + "/deep/kept", age: .seconds(36_500 * 86_400)), loop: loop,
            logger: log.logger)
        await recorder.began(.other, label)
        await recorder.began(.own, RecordingLabel(talker: "Me", channel: "Team", secondsSince1970: 1_795_278_379))
        for packet in packets(30) {
            await recorder.packet(.other, packet)
            await recorder.packet(.own, packet)
        }
        await recorder.ended(.own)
        await recorder.packet(.own, packets(1)[0])
        await recorder.close()
        #expect(
            folder.names("deep/kept").sorted() == ["20261121T162618Z-Ann.opus", "20261121T162619Z-Me.opus"])
        await recorder.began(.other, label)
        await recorder.close()
        #expect(log.warnings == 0)
        loop.stop()
    }

    @Test func `who talks at the same time gets a file each`() async throws {
        let folder = try TemporaryFolder()
        let loop = try EventLoop(name: "test")
        let recorder = try Recorder(
            RecordingSettings(folder: folder.path + "/kept", age: .seconds(36_500 * 86_400)), loop: loop,
            logger: log.logger)
        let names = ["Ann", "Bob", "Cleo", "Dan"]
        for (number, name) in names.enumerated() {
            await recorder.began(
                .beside(UInt32(number)),
                RecordingLabel(talker: name, channel: "Team", secondsSince1970: 1_795_278_378))
        }
        await recorder.began(.own, RecordingLabel(talker: "Me", channel: "Team", secondsSince1970: 1_795_278_378))
        for packet in packets(30) {
            for number in names.indices { await recorder.packet(.beside(UInt32(number)), packet) }
            await recorder.packet(.own, packet)
        }
        await recorder.ended(.beside(1))
        await recorder.packet(.beside(1), packets(1)[0])
        await recorder.othersEnded()
        await recorder.packet(.own, packets(31)[30])
        await recorder.close()
        #expect(
            folder.names("kept").sorted() == (names + ["Me"]).map { "20261121T162618Z-\($0).opus" })
        #expect(log.warnings == 0)
        loop.stop()
    }

    @Test func `a disk that hangs costs nobody anything but the recording`() async throws {
        let folder = try TemporaryFolder()
        let loop = try EventLoop(name: "test")
        let disk = try EventLoop(name: "test-disk", mayWait: true)
        let gate = Gate()
        disk.execute { gate.wait() }
        let recorder = Recorder(
            RecordingSettings(folder: folder.path + "/kept"), disk: disk, loop: loop,
            logger: log.logger)
        for _ in 0..<3 {
            await recorder.began(.other, label)
            for packet in packets(2_000) { await recorder.packet(.other, packet) }
            await recorder.ended(.other)
        }
        #expect(await recorder.dropped == 3 * 2_002 - RecordingQueue.eventsMax)
        #expect(log.warnings == 1)
        await recorder.close()
        #expect(log.warnings == 2, "the end does not wait for ever")
        gate.open()
        disk.stop()
        // The first whole, of the second what found a place.
        #expect(folder.names("kept").filter { $0.hasSuffix(".opus") }.count == 2)
        let told = run("opusinfo", folder.names("kept").map { folder.path + "/kept/" + $0 })
        #expect(told.status == 0 && !told.text.contains("WARNING"), "\(told.text)")
        loop.stop()
    }
}
