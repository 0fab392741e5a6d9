// Pauses that grow while a program cannot start, and are short again once it has run.
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Files

@Suite struct FailedStartsTests {
    private func seconds(_ starts: FailedStarts, _ count: Int) -> [Int64] {
        (0..<count).map { _ in starts.failed().components.seconds }
    }

    @Test func `the pauses grow to half a minute over processes, and are small again after a start that worked`() throws
    {
        let folder = try TemporaryFolder()
        #expect(seconds(FailedStarts(directory: folder.path), 3) == [2, 4, 8])
        #expect(seconds(FailedStarts(directory: folder.path), 5) == [16, 30, 30, 30, 30])
        FailedStarts(directory: folder.path).succeeded()
        #expect(seconds(FailedStarts(directory: folder.path), 2) == [2, 4])
    }

    @Test(arguments: [
        "", "x", "-3", "99999999999999999999999", "9223372036854775807", String(repeating: "7", count: 100),
    ])
    func `whatever the file says, there is a pause of a bounded length`(text: String) throws {
        let folder = try TemporaryFolder()
        try AtomicFile.write(Array(text.utf8), to: folder.path + "/" + FailedStarts.fileName)
        for _ in 0..<8 {
            let pause = FailedStarts(directory: folder.path).failed()
            #expect(pause >= .seconds(2) && pause <= .seconds(30))
        }
        #expect(FailedStarts(directory: folder.path).failed() == .seconds(30))
    }

    @Test func `without a directory, or with one that is not there, each failure is the first`() {
        #expect(seconds(FailedStarts(directory: nil), 3) == [2, 2, 2])
        #expect(seconds(FailedStarts(directory: "/nonexistent"), 3) == [2, 2, 2])
        FailedStarts(directory: "/nonexistent").succeeded()
    }

    @Test func `a signal ends the pause`() {
        let begun = ContinuousClock.now
        // Pending before it waits: nothing depends on who is quicker.
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGUSR2)
        pthread_sigmask(SIG_BLOCK, &set, nil)
        pthread_kill(pthread_self(), SIGUSR2)
        FailedStarts.wait(.seconds(30), orUntil: [SIGUSR2])
        #expect(ContinuousClock.now - begun < .seconds(10))
        FailedStarts.wait(.milliseconds(1), orUntil: [SIGUSR2])
    }

    @Test func `a signal that a handler takes does not cut the pause short`() {
        signal(SIGUSR1) { _ in }
        defer { signal(SIGUSR1, SIG_DFL) }
        var set = sigset_t()
        sigemptyset(&set)
        sigaddset(&set, SIGUSR1)
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        let waiting = pthread_self()
        let isSent = Mutex(false)
        let began = ContinuousClock.now
        Task.detached {
            usleep(20_000)
            pthread_kill(waiting, SIGUSR1)
            isSent.withLock { $0 = true }
        }
        FailedStarts.wait(.milliseconds(200), orUntil: [SIGUSR2])
        #expect(ContinuousClock.now - began >= .milliseconds(200))
        // One that came without the handler would end all tests. Pending, it is taken within the next call.
        while !isSent.withLock({ $0 }) { usleep(1_000) }
        usleep(1_000)
    }
}
