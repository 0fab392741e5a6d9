// The end of an audio thread, which a driver may delay: nobody waits for it, and the next thread follows it.
import Glibc
import MonotonicTime
import Synchronization
import Testing

@testable import Audio

@Suite struct ThreadEndTests {
    @Test func `a thread begins its work when its predecessor has ended`() throws {
        let gate = try WakeDescriptor()
        let order = Mutex<[Int]>([])
        let first = try RealTimeThread(name: "first") {
            gate.wait()
            order.withLock { $0.append(1) }
        }
        let second = try RealTimeThread(name: "second", after: first.end) { order.withLock { $0.append(2) } }
        usleep(20_000)
        #expect(order.withLock { $0 } == [])
        gate.signal()
        #expect(second.end.wait())
        #expect(order.withLock { $0 } == [1, 2])
    }

    @Test func `an end is told once, before and after it`() throws {
        let gate = try WakeDescriptor()
        let told = Atomic<Int>(0)
        let thread = try RealTimeThread(name: "told") { gate.wait() }
        thread.end.then { told.add(1, ordering: .relaxed) }
        #expect(told.load(ordering: .relaxed) == 0)
        gate.signal()
        #expect(thread.end.wait())
        thread.end.then { told.add(1, ordering: .relaxed) }
        // Whoever waits is told after those who came first.
        #expect(told.load(ordering: .relaxed) == 2)
    }

    @Test func `an engine whose driver hangs is closed without waiting`() throws {
        let hung = try WakeDescriptor()
        let thread = try RealTimeThread(name: "hung") { hung.wait() }
        let began = Instant.now
        let next = try RealTimeThread(name: "next", after: thread.end) {}
        #expect(Instant.now - began < .seconds(1))
        // The next one does not wait for ever either.
        let over = try WakeDescriptor()
        next.end.then { over.signal() }
        #expect(!over.wait(until: .now + AudioThreadEnd.limit + .seconds(30)))
        #expect(Instant.now - began >= AudioThreadEnd.limit)
        hung.signal()
    }
}
