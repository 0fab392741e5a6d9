// A relay that is killed: members that have nothing to say hear of it from the next start.
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct KilledRelayTests {
    /// What a relay keeps of where its connections are.
    private final class Kept: Sendable {
        private let texts = Mutex<[String]>([])
        var count: Int { texts.withLock { $0.count } }
        var last: String { texts.withLock { $0.last ?? "" } }
        var lines: Int { last.split(separator: "\n").count }
        func keep(_ text: String) { texts.withLock { $0.append(text) } }

        func wait(for lines: Int) async throws {
            let deadline = ContinuousClock.now + .seconds(10)
            while self.lines != lines {
                guard ContinuousClock.now < deadline else { throw TimedOut(description: "\(lines) lines: \(last)") }
                try await Task.sleep(for: .milliseconds(5))
            }
        }
    }

    private func relay(
        _ kept: Kept, after earlier: TestRelay? = nil, former: String = "", workers: Int = 1
    ) async throws -> TestRelay {
        try await TestRelay(
            channel: earlier?.channel, keys: earlier?.configuration.transportKeys ?? .generate()
        ) {
            $0.workers = workers
            $0.keepPlaces = { kept.keep($0()) }
            $0.placesInterval = .milliseconds(50)
            $0.formerPlaces = former
        }
    }

    /// A network leads clients to a relay that is never heard of again, and then to its next start: nothing tells them but that.
    @Test(arguments: [1, 3])
    func `members that say nothing come back when the next start calls them, long before their keep-alive`(workers: Int)
        async throws
    {
        let kept = Kept()
        let first = try await relay(kept, workers: workers)
        var link = try await first.invitation()
        let network = try await TestNetwork(to: link.port)
        link.port = network.port
        var members: [TestClient] = []
        for number in 0..<12 {
            let member = try await TestClient("Member \(number)", link)
            try await member.untilReady()
            members.append(member)
        }
        try await kept.wait(for: members.count)
        let counts = members.map(\.recorder.events.count)
        let later = Kept()
        let second = try await relay(later, after: first, former: kept.last, workers: workers)
        let started = Instant.now
        // The first packets went while the network still led to the relay before: those of the second round arrive.
        try await network.redirect(to: try await second.invitation().port)
        var longest = Duration.zero
        for (member, count) in zip(members, counts) {
            let index = try await member.untilReady(from: count)
            longest = max(longest, member.recorder.timed[index - 1].at - started)
        }
        print("\(workers) workers: all are back after \(longest)")
        #expect(longest < RelayClientStateMachine.keepAlive / 2)
        try await later.wait(for: members.count)
        await first.server.stop()
        await second.server.stop()
    }

    @Test func `a relay with other keys, or that is told nonsense, disturbs nobody`() async throws {
        let kept = Kept()
        let first = try await relay(kept)
        let member = try await TestClient.joined("Alice", first)
        try await kept.wait(for: 1)
        let count = member.recorder.events.count
        var nonsense = "\n- - - -\n\(kept.last)\(kept.last.dropFirst(2))x\n\u{0}"
        nonsense += String(repeating: "0", count: 36) + " 127.0.0.1 0 -\n"
        let other = try await TestRelay {
            $0.formerPlaces = nonsense
            $0.keepPlaces = { _ in }
        }
        try await Task.sleep(for: .seconds(1))
        #expect(member.recorder.events.count == count)
        #expect(await first.server.memberCount(of: first.channel.id) == 1)
        await other.server.stop()
        await first.server.stop()
    }

    @Test func `where connections are is told a moment after it has changed, and not while it stays`() async throws {
        let kept = Kept()
        let relay = try await relay(kept)
        var link = try await relay.invitation()
        let network = try await TestNetwork(to: link.port)
        link.port = network.port
        let alice = try await TestClient("Alice", link)
        try await alice.untilReady()
        let bob = try await TestClient.joined("Bob", relay)
        try await kept.wait(for: 2)
        let (count, before) = (kept.count, kept.last)
        try await alice.talk(1, frames: 20)
        _ = try await bob.heardEnd()
        try await Task.sleep(for: .milliseconds(200))
        #expect(kept.count == count, "it stayed")
        // A NAT on the way gives another port.
        try await network.rebind()
        try await alice.talk(2, frames: 20)
        let deadline = ContinuousClock.now + .seconds(10)
        while kept.last == before, ContinuousClock.now < deadline { try await Task.sleep(for: .milliseconds(5)) }
        #expect(kept.last != before && kept.lines == 2)
        await bob.client.leave()
        try await kept.wait(for: 1)
        await relay.server.stop()
    }

    @Test func `the first changes are kept at once, and only those of a crowd wait for the interval`() async throws {
        let kept = Kept()
        let relay = try await TestRelay {
            $0.keepPlaces = { kept.keep($0()) }
            $0.placesInterval = .seconds(60)
        }
        var members: [TestClient] = []
        for number in 1...5 {
            members.append(try await TestClient.joined("Member \(number)", relay))
            try await kept.wait(for: number)
        }
        #expect(members.count == kept.count)
        members.append(try await TestClient.joined("Member 6", relay))
        try await Task.sleep(for: .milliseconds(500))
        #expect(kept.count == 5, "the sixth one waits")
        await relay.server.stop()
    }

    @Test func `the text for the file is made and written by the thread that may wait`() async throws {
        let folder = try TemporaryFolder()
        let disk = try EventLoop(name: "disk")
        defer { disk.stop() }
        let file = PlacesFile(
            folder.path + "/places", on: disk, logger: Logger(label: "places") { _ in SwiftLogNoOpLogHandler() })
        let relay = try await TestRelay {
            $0.placesInterval = .milliseconds(20)
            $0.keepPlaces = { text in
                #expect(!disk.isCurrent)
                file.keep {
                    #expect(disk.isCurrent)
                    return text()
                }
            }
        }
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await relay.wait { file.read().split(separator: "\n").compactMap { QUICPeerPlace(text: $0) }.count == 2 }
        await bob.client.leave()
        try await relay.wait { file.read().split(separator: "\n").count == 1 }
        await alice.client.leave()
        await relay.server.stop()
    }

    @Test func `a place is read as it was written, and nothing else is one`() throws {
        let id = String(repeating: "0fa9", count: 9)
        for text in ["\(id) 192.0.2.7 4433 -", "\(id) 2001:db8::1 1 2001:db8::2", "\(id) 192.0.2.7 65535 192.0.2.1"] {
            #expect(QUICPeerPlace(text: text[...])?.text == text)
        }
        for text in [
            "", id, "\(id) 192.0.2.7 0 -", "\(id) 192.0.2.7 65536 -", "\(id) :: 4433 -", "\(id)0 192.0.2.7 4433 -",
            "\(id.dropLast(2)) 192.0.2.7 4433 -", "\(id) name 4433 -", "\(id) 192.0.2.7 4433 -  ",
            "\(id.dropLast(2))+1 192.0.2.7 4433 -", "\(id) 192.0.2.7 4433 x",
        ] {
            #expect(QUICPeerPlace(text: text[...]) == nil, "\(text)")
        }
    }
}
