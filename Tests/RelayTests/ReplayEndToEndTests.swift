// A burst heard from its start by who comes late, and bursts once more, over real sockets.
import Cryptography
import MonotonicTime
import Reactor
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

extension TestClient {
    /// Which bursts the relay keeps.
    fileprivate func keptBursts() async -> Result<[KeptBurst], KeptBurstError> {
        await withCheckedContinuation { continuation in
            loop.execute { [client] in
                client.assumeIsolated { $0.keptBursts { continuation.resume(returning: $0) } }
            }
        }
    }

    /// One of them.
    fileprivate func fetchBurst(_ id: String) async -> Result<[ReceivedFrame], KeptBurstError> {
        await withCheckedContinuation { continuation in
            loop.execute { [client] in
                client.assumeIsolated { $0.fetchBurst(id) { continuation.resume(returning: $0) } }
            }
        }
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct ReplayEndToEndTests {
    private func channel(keeping retention: BurstRetention = BurstRetention(bursts: 5, time: .seconds(600)))
        -> RelayChannelConfiguration
    {
        var channel = RelayChannelConfiguration.yard()
        channel.retention = retention
        return channel
    }

    private func said(_ burst: Int, _ count: Int) -> [[UInt8]] { (0..<count).map { TestClient.payload(burst, $0) } }

    private func untilForwarded(_ count: Int, by relay: TestRelay) async throws {
        for _ in 0..<5_000 {
            if await relay.server.counters.packetsForwarded >= count { return }
            try await Task.sleep(for: .milliseconds(2))
        }
        throw TimedOut(description: "the relay did not forward \(count) packets")
    }

    private func expectWhole(_ client: TestClient, _ burst: Int, frames: Int, late: Bool) async throws {
        let (end, report, index) = try await client.heardEnd()
        let heard = client.recorder.events[..<index].compactMap {
            if case .frame(let frame) = $0 { frame } else { nil }
        }
        #expect(end == .completed && report.received == frames && report.lost == 0)
        #expect(heard.map(\.payload) == said(burst, frames))
        let fetched = heard.count { $0.isLate }
        #expect(late ? fetched >= frames / 3 - 5 && fetched < frames : fetched == 0, "\(fetched) were fetched")
    }

    @Test func `who joins a second into a burst of three hears all of it, in order`() async throws {
        // Nothing is to be kept for longer: this needs no setting.
        let relay = try await TestRelay(channel: channel(keeping: .off))
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        let frames = 150
        let talk = Task { try await alice.talk(1, frames: frames, spacing: .milliseconds(20), from: .now) }
        try await untilForwarded(frames / 3, by: relay)
        let carol = try await TestClient.joined("Carol", relay)
        try await talk.value
        try await expectWhole(bob, 1, frames: frames, late: false)
        try await expectWhole(carol, 1, frames: frames, late: true)
        let began = carol.recorder.events.filter { if case .burstBegan = $0 { true } else { false } }
        #expect(began.count == 1)
        // What was fetched was not lost: nobody is to encode for that.
        #expect(
            !alice.recorder.events.contains { if case .listenerLoss(let percent) = $0 { percent > 5 } else { false } })
        #expect(await relay.server.counters.packetsReplayed >= frames / 3 - 5)
        await relay.server.stop()
    }

    @Test func `on an end-to-end channel the sealed packets are handed on, and opened by who has the link's key`()
        async throws
    {
        var configuration = channel()
        configuration.isEndToEnd = true
        let relay = try await TestRelay(channel: configuration)
        var link = try await relay.invitation()
        link.mediaKey = MediaKey(epoch: InvitationLink.mediaKeyEpoch)
        let alice = try await TestClient("Alice", link)
        try await alice.untilReady()
        let frames = 150
        let talk = Task { try await alice.talk(1, frames: frames, spacing: .milliseconds(20), from: .now) }
        try await untilForwarded(frames / 3, by: relay)
        let bob = try await TestClient("Bob", link)
        try await bob.untilReady()
        try await talk.value
        try await expectWhole(bob, 1, frames: frames, late: true)
        let kept = try #require(try await bob.keptBursts().get().first)
        #expect(kept.canBeOpened && !kept.isOwn && kept.talker.name == "Alice")
        #expect(try await bob.fetchBurst(kept.id).get().map(\.payload) == said(1, frames))
        await relay.server.stop()
    }

    @Test func `the last bursts are listed with talker and time, and each comes once more`() async throws {
        let relay = try await TestRelay(channel: channel())
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        #expect(await bob.keptBursts() == .success([]))
        try await alice.talk(1, frames: 40, from: .now)
        let (_, _, heard) = try await bob.heardEnd()
        try await bob.talk(2, frames: 10, from: .now)
        _ = try await alice.heardEnd()
        // Also to one who was not there.
        let carol = try await TestClient.joined("Carol", relay)
        let kept = try await carol.keptBursts().get()
        #expect(kept.map(\.talker.name) == ["Bob", "Alice"])
        #expect(kept.allSatisfy { $0.canBeOpened && !$0.isOwn && !$0.isGoingOn })
        #expect(kept[0].age < kept[1].age && kept[1].age < .seconds(60))
        // Frames of 20 ms that are said every 4 ms: what was said, not how long that took.
        #expect(kept.map(\.duration) == [.milliseconds(10 * 20), .milliseconds(40 * 20)])
        #expect(try await alice.keptBursts().get().map(\.isOwn) == [false, true])
        for (number, burst) in kept.enumerated() {
            let frames = try await carol.fetchBurst(burst.id).get()
            #expect(frames.map(\.payload) == (number == 0 ? said(2, 10) : said(1, 40)))
            #expect(frames.first?.marker == true)
        }
        // It is no burst that is heard.
        #expect(carol.heard().isEmpty && bob.heard(from: heard).isEmpty)
        // Over and over, nothing gets stuck.
        for _ in 0..<3 {
            let frames = try await bob.fetchBurst(kept[1].id).get()
            #expect(frames.count == 40)
        }
        await relay.server.stop()
    }

    @Test func `who may not have a burst is told why`() async throws {
        let relay = try await TestRelay(channel: channel())
        let alice = try await TestClient.joined("Alice", relay)
        let bob = try await TestClient.joined("Bob", relay)
        try await alice.talk(1, frames: 5)
        _ = try await bob.heardEnd()
        let kept = try #require(try await bob.keptBursts().get().first)
        let unknown = BurstName(ssrc: SSRC(rawValue: 1), keyID: BurstName(kept.id)!.keyID).description
        #expect(await bob.fetchBurst(unknown) == .failure(.notKept))
        #expect(await bob.fetchBurst("what?") == .failure(.notKept))
        // Who comes after a renewal of the key never had the old one; who was there before has.
        await relay.server.renewMediaKey(of: relay.channel.id)
        let carol = try await TestClient.joined("Carol", relay)
        #expect(try await carol.keptBursts().get().map(\.canBeOpened) == [false])
        #expect(await carol.fetchBurst(kept.id) == .failure(.noKey))
        #expect(try await bob.fetchBurst(kept.id).get().map(\.payload) == said(1, 5))
        await relay.server.setRetention(.off, of: relay.channel.id)
        #expect(await bob.keptBursts() == .failure(.off))
        await bob.client.leave()
        #expect(await bob.keptBursts() == .failure(.notConnected))
        #expect(await bob.fetchBurst(kept.id) == .failure(.notConnected))
        await relay.server.stop()
    }
}
