// One answer for all who want to know the same.
import Synchronization
import Testing

@testable import pttrelay

@Suite(.timeLimit(.minutes(1))) struct SharedAnswerTests {
    /// Counts the questions; each gets the next answer once it is let through.
    private final class Source: Sendable {
        private let state: Mutex<(asked: Int, answers: [Int?])>
        private let gate: AsyncStream<Void>
        private let open: AsyncStream<Void>.Continuation

        init(_ answers: [Int?]) {
            state = Mutex((0, answers))
            (gate, open) = AsyncStream.makeStream()
        }

        var asked: Int { state.withLock { $0.asked } }
        func letThrough() { open.yield() }

        func ask() async -> Int? {
            state.withLock { $0.asked += 1 }
            for await _ in gate { break }
            return state.withLock { $0.answers.removeFirst() }
        }
    }

    private static func eventually(_ condition: () async -> Bool) async throws {
        let deadline = ContinuousClock.now + .seconds(20)
        while await !condition() {
            try #require(ContinuousClock.now < deadline)
            try await Task.sleep(for: .milliseconds(5))
        }
    }

    @Test func `many who want to know at once ask once, and again only after the interval`() async throws {
        let source = Source([1, 2])
        let shared = SharedAnswer(interval: .seconds(3)) { await source.ask() }
        let waiting = (0..<20).map { _ in Task { await shared.answer() } }
        try await Self.eventually { source.asked == 1 }
        source.letThrough()
        for task in waiting { #expect(await task.value == 1) }
        #expect(await shared.answer() == 1)
        #expect(source.asked == 1)
        try await Task.sleep(for: .milliseconds(3_020))
        source.letThrough()
        #expect(await shared.answer() == 2)
        #expect(source.asked == 2)
    }

    @Test func `who did not answer the last time keeps nobody waiting`() async throws {
        let source = Source([nil, 2, 2])
        let shared = SharedAnswer(interval: .zero) { await source.ask() }
        source.letThrough()
        #expect(await shared.answer() == nil)
        // The question is asked, and nobody waits for it.
        #expect(await shared.answer() == nil)
        #expect(await shared.answer() == nil)
        try await Self.eventually { source.asked == 2 }
        // Who asks after that waits for the next one.
        source.letThrough()
        source.letThrough()
        try await Self.eventually { await shared.answer() == 2 }
    }

    @Test func `the last answer is kept where it is still good`() async throws {
        let source = Source([1, nil])
        let shared = SharedAnswer(interval: .zero, keepsLast: true) { await source.ask() }
        source.letThrough()
        #expect(await shared.answer() == 1)
        source.letThrough()
        #expect(await shared.answer() == 1)
        #expect(source.asked == 2)
    }
}
