// Work on a loop that may wait for a disk: its order, its bounds, and who waits for it.
import Glibc
import MonotonicTime
import Synchronization
import Testing

@testable import Reactor

/// A loop that stands still until it is released, as one whose disk does not answer.
private final class HeldLoop: Sendable {
    let loop: EventLoop
    private let gate: [Int32]

    init() throws {
        loop = try EventLoop(name: "held", mayWait: true)
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        gate = ends
        loop.execute { [ends] in
            var byte: UInt8 = 0
            _ = read(ends[0], &byte, 1)
        }
    }

    deinit { for descriptor in gate { close(descriptor) } }

    func release() { _ = write(gate[1], "x", 1) }
}

private struct Refused: Error, Equatable {}

@Suite struct DiskLoopTests {
    @Test func `work returns its result or its error`() async throws {
        let disk = try EventLoop(name: "disk", mayWait: true)
        defer { disk.stop() }
        #expect(await disk.perform { disk.isCurrent })
        await #expect(throws: Refused()) {
            try await disk.perform { () throws(Refused) in throw Refused() }
        }
    }

    @Test func `of the values that wait only the newest is written`() async throws {
        let held = try HeldLoop()
        let written = Mutex<[Int]>([])
        let writer = LatestValueWriter<Int>(on: held.loop) { value in written.withLock { $0.append(value) } }
        for value in 1...1_000 { writer.put(value) }
        held.release()
        await held.loop.perform {}
        #expect(written.withLock { $0 } == [1_000])
        writer.put(1_001)
        await held.loop.perform {}
        #expect(written.withLock { $0 } == [1_000, 1_001])
        held.loop.stop()
    }

    @Test func `a disk that does not answer delays nobody beyond the limit`() async throws {
        let clock = try EventLoop(name: "clock")
        defer { clock.stop() }
        let held = try HeldLoop()
        let began = Instant.now
        #expect(await !held.loop.drained(within: .milliseconds(30), countedBy: clock))
        #expect(Instant.now - began >= .milliseconds(30))
        held.release()
        #expect(await held.loop.drained(within: .seconds(60), countedBy: clock))
        held.loop.stop()
    }
}
