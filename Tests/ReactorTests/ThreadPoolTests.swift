// Work that several threads do together: all of it, once, and nobody comes back before it is done.
import CLinux
import Glibc
import Reactor
import Synchronization
import Testing

@Suite(.timeLimit(.minutes(1))) struct ThreadPoolTests {
    @Test(arguments: [0, 1, 2, 7, 64]) func `every share is done once, whatever their number`(shares: Int) throws {
        let team = try ThreadPool(name: "team", size: 3)
        defer { team.stop() }
        for _ in 0..<500 {
            let done = (0..<max(1, shares)).map { _ in Counter() }
            team.perform(shares) { share, _ in done[share].add() }
            #expect(done.map(\.value) == (0..<max(1, shares)).map { $0 < shares ? 1 : 0 })
        }
    }

    @Test func `a thread of the team takes part, has a number of its own, and is waited for`() throws {
        let team = try ThreadPool(name: "team", size: 1)
        defer { team.stop() }
        let (began, done) = (Counter(), Counter())
        let threads = Mutex<[Int: Set<Int32>]>([:])
        team.perform(2) { _, thread in
            threads.withLock { _ = $0[thread, default: []].insert(ptt_thread_id()) }
            began.add()
            // Each share begins before the other is done, which only two threads can do.
            let deadline = ContinuousClock.now + .seconds(20)
            while began.value < 2, ContinuousClock.now < deadline { sched_yield() }
            if thread == 1 { usleep(50_000) }
            done.add()
        }
        #expect(done.value == 2)
        let (own, others) = threads.withLock { ($0[0], $0[1]) }
        #expect(own == [ptt_thread_id()])
        #expect(others?.count == 1 && others != own)
    }

    @Test func `who comes while the team is at another thread's work does all itself`() async throws {
        let team = try ThreadPool(name: "team", size: 1)
        let loops = try [EventLoop(name: "one"), EventLoop(name: "two")]
        let (began, mayEnd) = (Counter(), Counter())
        async let first: Void = loops[0].run {
            team.perform(2) { _, _ in
                began.add()
                while mayEnd.value == 0 { sched_yield() }
            }
        }
        let threads = try await loops[1].run {
            let deadline = ContinuousClock.now + .seconds(20)
            while began.value < 2, ContinuousClock.now < deadline { sched_yield() }
            let threads = Mutex<[Int]>([])
            team.perform(5) { _, thread in threads.withLock { $0.append(thread) } }
            return threads.withLock(\.self)
        }
        #expect(threads == [0, 0, 0, 0, 0])
        mayEnd.add()
        try await first
        for loop in loops { loop.stop() }
        team.stop()
    }

    @Test func `two threads that share their work by turns get all of theirs, and only theirs`() async throws {
        let team = try ThreadPool(name: "team", size: 2)
        let loops = try [EventLoop(name: "one"), EventLoop(name: "two")]
        let sums = try await withThrowingTaskGroup(of: Int.self) { group in
            for (number, loop) in loops.enumerated() {
                group.addTask {
                    try await loop.run {
                        let sum = Counter()
                        for _ in 0..<2_000 { team.perform(4) { share, _ in sum.add(share + number) } }
                        return sum.value
                    }
                }
            }
            return try await group.reduce(into: Set()) { $0.insert($1) }
        }
        #expect(sums == [2_000 * 6, 2_000 * 10])
        for loop in loops { loop.stop() }
        team.stop()
    }

    @Test func `a team that has been stopped leaves all to whom it is`() throws {
        let team = try ThreadPool(name: "team", size: 2)
        team.stop()
        let done = Counter()
        team.perform(3) { _, thread in if thread == 0 { done.add() } }
        #expect(done.value == 3)
        // Again is no mistake.
        team.stop()
    }

    private final class Counter: Sendable {
        private let count = Atomic<Int>(0)
        var value: Int { count.load(ordering: .sequentiallyConsistent) }
        func add(_ number: Int = 1) { count.add(number, ordering: .sequentiallyConsistent) }
    }
}
