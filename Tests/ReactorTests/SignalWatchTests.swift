// Signals that wait for a loop to look at them.
import CLinux
import Glibc
import Reactor
import Synchronization
import Testing

@Suite struct SignalWatchTests {
    /// Signals of the loop's own thread: those of the process would go to another one, which does not hold them.
    @Test func heldSignalsAreToldAlsoThoseThatCameBefore() async throws {
        let loop = try EventLoop(name: "signals")
        defer { loop.stop() }
        let (told, tell) = AsyncStream.makeStream(of: Int32.self)
        let watch = try await loop.run {
            SignalWatch.hold([SIGUSR1, SIGUSR2])
            pthread_kill(pthread_self(), SIGUSR2)
            return try SignalWatch([SIGUSR1, SIGUSR2], on: loop) { tell.yield($0) }
        }
        var signals = told.makeAsyncIterator()
        #expect(await signals.next() == SIGUSR2)
        for _ in 0..<3 {
            loop.execute { pthread_kill(pthread_self(), SIGUSR1) }
            #expect(await signals.next() == SIGUSR1)
        }
        try await loop.run {
            watch.cancel()
            // Held, and nobody is told.
            pthread_kill(pthread_self(), SIGUSR1)
        }
        tell.finish()
        #expect(await signals.next() == nil)
    }
}
