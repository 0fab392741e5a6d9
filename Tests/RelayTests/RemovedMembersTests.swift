// Members that are removed, over real sockets: while they are away with a ticket in their hands, and while they talk.
import Cryptography
import MonotonicTime
import QUIC
import RelayProtocol
import Testing
import Vocabulary

@testable import RelayClient
@testable import RelayServer

extension RelayClient {
    /// Joins again at once; the connection of that attempt.
    fileprivate func joinAgain() -> QUICTransport? {
        join()
        return quic
    }

    /// The media key that it was given last.
    fileprivate var lastMediaKey: MediaKey? { core.keyring.latest.last }
}

extension RelayServer {
    /// The media key in force on the only channel.
    fileprivate var mediaKey: MediaKey? { engine?.workers[0].shard?.core.channels[0].keys.present }

    /// Which worker has the connection of a member of the only channel.
    fileprivate func worker(of member: MemberID) -> Int? {
        guard let engine, let id = engine.workers[0].shard?.core.channels[0].members.connections[member] else {
            return nil
        }
        return engine.exchange.numbers.carrier(of: id)
    }
}

@Suite(.serialized, .timeLimit(.minutes(2))) struct RemovedMembersTests {
    /// Talks until the task is cancelled.
    private func keepTalking(_ talker: TestClient, _ burst: Int) -> Task<Void, Never> {
        Task {
            await talker.client.beginBurst(priority: 0)
            var number = 0
            while !Task.isCancelled, number < 3_000 {
                await talker.client.send(
                    OutgoingFrame(payload: TestClient.payload(burst, number), samples: 960, capturedAt: .now))
                number += 1
                try? await Task.sleep(for: .milliseconds(20))
            }
            await talker.client.endBurst()
        }
    }

    private func untilFrame(_ listener: TestClient, from start: Int) async throws {
        try await listener.recorder.wait("sound", from: start) { if case .frame = $0 { true } else { nil } }
    }

    private func untilTicket(_ memory: ResumptionMemory, _ link: InvitationLink, _ pin: PublicKeyPin) async throws {
        let deadline = ContinuousClock.now + .seconds(10)
        while memory.state(of: link, for: pin) == nil {
            try #require(ContinuousClock.now < deadline, "no ticket came")
            try await Task.sleep(for: .milliseconds(2))
        }
    }

    /// Leaves, and the others are told.
    private func leave(_ member: TestClient, seenBy others: [TestClient]) async throws {
        let start = member.recorder.events.count
        let starts = others.map { $0.recorder.events.count }
        await member.client.leave()
        try await member.recorder.wait("the end", from: start) { $0 == .state(.stopped) ? true : nil }
        for (other, start) in zip(others, starts) {
            try await other.recorder.wait("the leave", from: start) {
                if case .memberLeft = $0 { true } else { nil }
            }
        }
    }

    @Test func `who was removed while away is refused for good, also in early data, hears nothing, and nobody is told`()
        async throws
    {
        let channel = RelayChannelConfiguration.yard()
        let identities = try ["Alice", "Bob", "Carol"].map { try Identity(generating: $0) }
        let memberships = identities.map { (MemberID($0.pin), RelayMembership()) }
        let roster = RelayRoster(memberships: [channel.id: Dictionary(uniqueKeysWithValues: memberships)])
        let relay = try await TestRelay(channel: channel) { $0.roster = roster }
        let (link, memory, pin) = (try await relay.invitation(), ResumptionMemory(), identities[0].pin)
        let alice = try await TestClient("Alice", link, identity: identities[0], resumption: memory)
        try await alice.untilReady()
        let bob = try await TestClient.joined("Bob", relay, identity: identities[1])
        let carol = try await TestClient.joined("Carol", relay, identity: identities[2])
        try await untilTicket(memory, link, pin)
        try await leave(alice, seenBy: [bob, carol])

        // As a member it comes back in the middle of a burst, which it hears, and the others are told.
        var (away, seen, heard) = (
            alice.recorder.events.count, bob.recorder.events.count, carol.recorder.events.count
        )
        var talking = keepTalking(bob, 1)
        try await untilFrame(carol, from: heard)
        let first = try #require(await alice.client.joinAgain())
        try await alice.untilReady(from: away)
        #expect(first.connection.earlyData == .accepted)
        try await untilFrame(alice, from: away)
        try await bob.recorder.wait("Alice", from: seen) { if case .memberJoined = $0 { true } else { nil } }
        talking.cancel()
        await talking.value
        try await carol.heardEnd(from: heard)
        try await untilTicket(memory, link, pin)
        try await leave(alice, seenBy: [bob, carol])

        // The same once more, but that it was removed meanwhile.
        await relay.server.revoke([MemberID(pin)], from: channel.id)
        (away, seen, heard) = (
            alice.recorder.events.count, bob.recorder.events.count, carol.recorder.events.count
        )
        talking = keepTalking(bob, 2)
        try await untilFrame(carol, from: heard)
        let second = try #require(await alice.client.joinAgain())
        let (refusal, _) = try await alice.recorder.wait("the refusal", from: away) {
            if case .state(.unavailable(let error, let again)) = $0 { (error, again) } else { nil }
        }
        #expect(second.connection.earlyData == .accepted)
        #expect(refusal.0 == .invitationRefused("the member was removed from the channel"))
        #expect(refusal.1 == nil)
        // Longer than the first pause between attempts.
        try await Task.sleep(for: .milliseconds(700))
        talking.cancel()
        await talking.value
        #expect(try await carol.heardEnd(from: heard).0 == .completed)
        let told = alice.recorder.events.dropFirst(away).filter {
            switch $0 {
            case .state(.ready), .members, .memberJoined, .floorTaken, .burstBegan, .frame: true
            default: false
            }
        }
        #expect(told.isEmpty)
        let attempts = alice.recorder.events.dropFirst(away).count { $0 == .state(.connecting) }
        #expect(attempts == 1)
        for (other, start) in [(bob, seen), (carol, heard)] {
            let news = other.recorder.events.dropFirst(start).filter {
                switch $0 {
                case .memberJoined, .memberLeft: true
                default: false
                }
            }
            #expect(news.isEmpty)
        }
        #expect(await relay.server.memberCount(of: channel.id) == 2)
        #expect(await relay.server.counters.joinsRefused == 1)
        await relay.server.stop()
    }

    @Test(arguments: [1, 3])
    func `who is removed in the middle of its burst is out at once, which ends it, and the key is another one`(
        workers: Int
    ) async throws {
        let relay = try await TestRelay { $0.workers = workers }
        var rest: [TestClient] = []
        for number in 0..<10 { rest.append(try await TestClient.joined("Member \(number)", relay)) }
        // One talker of each worker that has any members, which the ports decide.
        var talkers: [Int: TestClient] = [:]
        for client in rest {
            let member = MemberID(await client.client.identity.pin)
            let worker = try #require(await relay.server.worker(of: member))
            talkers[worker] = client
        }
        #expect(talkers.count >= min(workers, 2))
        for (burst, talker) in talkers.values.enumerated() {
            rest.removeAll { $0 === talker }
            let starts = rest.map { $0.recorder.events.count }
            let key = try #require(await relay.server.mediaKey)
            let said = talker.recorder.events.count
            let talking = keepTalking(talker, burst)
            for (listener, start) in zip(rest, starts) { try await untilFrame(listener, from: start) }
            let member = MemberID(await talker.client.identity.pin)
            let began = ContinuousClock.now
            await relay.server.revoke([member], from: relay.channel.id)
            let (error, _) = try await talker.recorder.wait("its end", from: said) {
                if case .state(.unavailable(let error, retryAfter: nil)) = $0 { error } else { nil }
            }
            // Less than T1 of 5 s, after which a silent burst ends anyway.
            #expect(ContinuousClock.now - began < .seconds(4))
            #expect(error == .invitationRefused("the member was removed from the channel"))
            #expect(try await talker.transmissionEnd(from: said).0 == .linkUnavailable)
            for (listener, start) in zip(rest, starts) {
                #expect(try await listener.heardEnd(from: start).0 == .completed)
            }
            talking.cancel()
            await talking.value
            let renewed = try #require(await relay.server.mediaKey)
            #expect(renewed.epoch != key.epoch && renewed.baseKey != key.baseKey)
            for listener in rest { try await relay.wait { await listener.client.lastMediaKey == renewed } }
            #expect(await talker.client.lastMediaKey == nil)
        }
        // Under the new key they hear each other.
        try await rest[0].isHeard(by: rest[1], burst: 9)
        await relay.server.stop()
    }
}
