// The order of one caller's requests: how many wait, and that an end is among them.
import BusTestSupport
import PushToTalkCore
import Testing

@testable import pttd

/// A caller's requests, none of which is over before `end`.
private actor Requests {
    private var turns = CallerTurns()
    private(set) var waiting = 0

    func begin(isEnd: Bool) async throws(PTChannelError) {
        guard try turns.begin("a", isEnd: isEnd) else { return }
        waiting += 1
        await withCheckedContinuation { turns.wait("a", $0) }
    }

    func end() { turns.end("a") }
}

@Suite(.timeLimit(.minutes(1))) struct CallerTurnsTests {
    @Test func `a stop has its turn behind as many requests as may wait`() async throws {
        let requests = Requests()
        try await requests.begin(isEnd: false)
        var tasks: [Task<Void, any Error>] = []
        for _ in 0..<CallerTurns.waitingMax { tasks.append(Task { try await requests.begin(isEnd: false) }) }
        #expect(try await eventually { await requests.waiting == CallerTurns.waitingMax })
        await #expect(throws: PTChannelError.self) { try await requests.begin(isEnd: false) }
        tasks.append(Task { try await requests.begin(isEnd: true) })
        #expect(try await eventually { await requests.waiting == CallerTurns.waitingMax + 1 })
        for _ in tasks { await requests.end() }
        for task in tasks { try await task.value }
    }
}
