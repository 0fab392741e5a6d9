import CLinux
import Glibc
import MonotonicTime
import Synchronization
import Testing

@testable import Reactor

private actor Resident {
    let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    var count = 0

    init(_ loop: EventLoop) { self.loop = loop }

    func isOnLoop() -> Bool { loop.isCurrent }
    func increment() { count += 1 }

    private(set) var order: [Int] = []
    func postWork(_ number: Int) {
        loop.execute { self.assumeIsolated { $0.order.append(number) } }
    }
    /// The task begins as a job of this actor.
    func postJob(_ number: Int) {
        Task { order.append(number) }
    }
}

@Suite struct EventLoopTests {
    @Test func actorsOnALoopRunOnItsThread() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let resident = Resident(loop)
        #expect(await resident.isOnLoop())
        #expect(!loop.isCurrent)
        // What the loop calls may enter the actor without a hop.
        try await loop.run { resident.assumeIsolated { $0.count += 5 } }
        #expect(await resident.count == 5)
    }

    @Test func jobsFromManyThreadsAllRun() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let resident = Resident(loop)
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<1_000 { group.addTask { await resident.increment() } }
        }
        #expect(await resident.count == 1_000)
    }

    @Test func deadlinesRunInOrderAndCancelledOnesDoNot() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let order = Mutex<[Int]>([])
        let elapsed: Duration = try await withCheckedThrowingContinuation { continuation in
            loop.execute {
                let start = Instant.now
                loop.schedule(at: start + .milliseconds(30)) {
                    order.withLock { $0.append(3) }
                    continuation.resume(returning: .now - start)
                }
                loop.schedule(at: start + .milliseconds(10)) { order.withLock { $0.append(1) } }
                loop.schedule(at: start + .milliseconds(10)) { order.withLock { $0.append(2) } }
                loop.schedule(at: start + .milliseconds(15)) { order.withLock { $0.append(99) } }.cancel()
                loop.schedule(at: start - .seconds(1)) { order.withLock { $0.append(0) } }
            }
        }
        #expect(order.withLock { $0 } == [0, 1, 2, 3])
        #expect(elapsed >= .milliseconds(30))
    }

    @Test func `an alarm rings once at the time that was set last`() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let rings = Mutex<[String]>([])
        let elapsed: Duration = try await withCheckedThrowingContinuation { continuation in
            loop.execute {
                let start = Instant.now
                let off = EventLoop.Alarm { rings.withLock { $0.append("off") } }
                let earlier = EventLoop.Alarm { rings.withLock { $0.append("earlier") } }
                // It takes back another one that is due in the same turn.
                let later = EventLoop.Alarm {
                    rings.withLock { $0.append("later") }
                    loop.set(off, at: nil)
                }
                for milliseconds in 1...50 { loop.set(later, at: start + .milliseconds(milliseconds)) }
                loop.set(off, at: start + .milliseconds(50))
                loop.set(earlier, at: start + .seconds(3_600))
                loop.set(earlier, at: start + .milliseconds(10))
                loop.schedule(at: start + .milliseconds(60)) {
                    #expect(loop.scheduledCount == 0)
                    // It may be set again.
                    loop.set(earlier, at: .now)
                    loop.schedule(after: .milliseconds(10)) { continuation.resume(returning: .now - start) }
                }
            }
        }
        #expect(rings.withLock { $0 } == ["earlier", "later", "earlier"])
        #expect(elapsed >= .milliseconds(60))
    }

    @Test func jobsAndWorkRunInTheOrderInWhichTheyWerePosted() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let resident = Resident(loop)
        try await loop.run {
            resident.assumeIsolated { resident in
                for number in stride(from: 0, to: 20, by: 2) {
                    resident.postWork(number)
                    resident.postJob(number + 1)
                }
            }
        }
        // Posted last, so it runs when all others have.
        let order = try await loop.run { resident.assumeIsolated { $0.order } }
        #expect(order == Array(0..<20))
    }

    @Test func cancelledDeadlinesLeaveNothingBehind() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let isForgotten = try await loop.run {
            final class Kept {}
            weak var kept: Kept?
            do {
                let object = Kept()
                kept = object
                loop.schedule(after: .seconds(3_600)) { withExtendedLifetime(object) {} }.cancel()
            }
            return kept == nil && loop.scheduledCount == 0
        }
        #expect(isForgotten)
    }

    @Test func aJobQueuedByATimerOnTheLoopIsNotLeftWaiting() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let resident = Resident(loop)
        await withCheckedContinuation { continuation in
            loop.execute {
                loop.schedule(after: .milliseconds(5)) {
                    Task {
                        await resident.increment()
                        continuation.resume()
                    }
                    loop.execute {}
                }
            }
        }
        #expect(await resident.count == 1)
    }

    @Test func descriptorsAreReportedUntilTheWatchIsCancelled() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        let (reader, writer) = (ends[0], ends[1])
        defer {
            close(reader)
            close(writer)
        }
        let (bytes, feed) = AsyncStream.makeStream(of: UInt8.self)
        try await loop.run {
            nonisolated(unsafe) var watch: EventLoop.Watch?
            watch = try loop.watch(reader, for: .readable) { readiness in
                #expect(readiness.contains(.readable))
                var byte: UInt8 = 0
                read(reader, &byte, 1)
                feed.yield(byte)
                if byte == 2 {
                    watch?.cancel()
                    feed.finish()
                }
            }
        }
        var data: [UInt8] = [1, 2, 3]
        write(writer, &data, 3)
        var seen: [UInt8] = []
        for await byte in bytes { seen.append(byte) }
        #expect(seen == [1, 2])
    }

    @Test func anIdleLoopDoesNotWakeUp() async throws {
        let loop = try EventLoop(name: "test")
        defer { loop.stop() }
        let task = try await loop.run { ptt_thread_id() }
        func switches() throws -> String {
            let path = "/proc/self/task/\(task)/status"
            guard let file = fopen(path, "r") else { throw SystemError("fopen") }
            defer { fclose(file) }
            var line = [CChar](repeating: 0, count: 256)
            while fgets(&line, 256, file) != nil {
                let text = String(decoding: line.prefix { $0 != 0 }.map(UInt8.init), as: UTF8.self)
                if text.hasPrefix("voluntary_ctxt_switches") { return text }
            }
            return ""
        }
        try await Task.sleep(for: .milliseconds(50))
        let before = try switches()
        try await Task.sleep(for: .milliseconds(500))
        #expect(!before.isEmpty)
        #expect(try switches() == before)
    }
}
