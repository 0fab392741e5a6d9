// What is said on a terminal or into a pipe, all of it.
import Glibc
import Reactor
import Synchronization
import Testing

@testable import Terminal

@Suite struct ConsoleTests {
    /// Far more than a pipe holds.
    static let text = (0..<60_000).map { "line \($0)\n" }.joined()

    @Test(arguments: [false, true])
    func `all of a text arrives at a reader that is slow`(blocking: Bool) throws {
        let (reading, writing) = try pipeEnds(blocking: blocking)
        defer { close(reading) }
        // A thread of its own, for it waits for the reader.
        let writer = try EventLoop(name: "writer", mayWait: true)
        defer { writer.stop() }
        writer.execute {
            Console.write(Self.text, to: writing)
            close(writing)
        }
        let arrived = read(reading, pause: { usleep(200) })
        #expect(arrived == Array(Self.text.utf8))
    }

    @Test func `signals do not cut a text`() throws {
        let (reading, writing) = try pipeEnds(blocking: true)
        defer { close(reading) }
        // Without SA_RESTART: a write that waits ends early, with what it has written or with EINTR.
        var action = sigaction()
        action.__sigaction_handler.sa_handler = { _ in }
        var before = sigaction()
        #expect(sigaction(SIGURG, &action, &before) == 0)
        defer { sigaction(SIGURG, &before, nil) }
        let thread = Mutex<pthread_t?>(nil)
        let writer = try EventLoop(name: "writer", mayWait: true)
        defer { writer.stop() }
        writer.execute {
            thread.withLock { $0 = pthread_self() }
            Console.write(Self.text, to: writing)
            thread.withLock { $0 = nil }
            close(writing)
        }
        let arrived = read(
            reading,
            pause: {
                usleep(200)
                _ = thread.withLock { $0.map { pthread_kill($0, SIGURG) } }
            })
        #expect(arrived == Array(Self.text.utf8))
    }

    @Test func `a reader that is gone ends the writing`() throws {
        signal(SIGPIPE, SIG_IGN)
        let (reading, writing) = try pipeEnds(blocking: true)
        close(reading)
        Console.write(Self.text, to: writing)
        close(writing)
        Console.write("to nobody\n", to: -1)
    }

    private func pipeEnds(blocking: Bool) throws -> (reading: Int32, writing: Int32) {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        if !blocking { try #require(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0) }
        return (ends[0], ends[1])
    }

    /// Reads to the end, in pieces.
    private func read(_ descriptor: Int32, pause: () -> Void) -> [UInt8] {
        var all: [UInt8] = []
        var piece = [UInt8](repeating: 0, count: 5_000)
        while true {
            let count = Glibc.read(descriptor, &piece, piece.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { return all }
            all += piece.prefix(count)
            pause()
        }
    }
}
