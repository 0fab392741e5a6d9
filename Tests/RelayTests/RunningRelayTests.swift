// A running relay whose channels come and go: who asks for one that it does not serve, and links to those that it does.
import Cryptography
import MonotonicTime
import RelayProtocol
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite(.serialized, .timeLimit(.minutes(2))) struct RunningRelayTests {
    /// What the relay asks of its records.
    private struct Question: Sendable {
        let connection: ConnectionID
        let enrolment: RelayEnrolment
    }

    private let questions = Recorder<Question>()

    /// A relay as in a cluster, whose records the test has: any channel may be there soon.
    private func relay(workers: Int) async throws -> TestRelay {
        try await TestRelay {
            $0.workers = workers
            $0.roster = RelayRoster(memberships: [:])
            $0.places = ChannelPlaces(shares: Array(repeating: .here, count: ChannelID.shareCount))
            $0.limits.enrolments = 1
            // What is not answered is not refused while the test waits for it.
            $0.limits.joinTime = .seconds(60)
            $0.enrol = { [questions] in questions.record(Question(connection: $0, enrolment: $1)) }
        }
    }

    /// A new device that asks to join, and what the records say to it.
    private func newcomer(
        _ name: String, to channel: RelayChannelConfiguration, of relay: TestRelay, _ verdict: RelayEnrolmentVerdict
    ) async throws -> RawPeer {
        let asked = questions.events.count
        let port = try #require(await relay.server.port)
        let peer = try await RawPeer(name, port: port, pin: TestRelay.identity.pin)
        try await peer.send(channel.joinMessage(name))
        let (question, _) = try await questions.wait("the enrolment", from: asked) { $0 }
        #expect(question.enrolment.channel == channel.id)
        relay.server.enrolled(question.connection, question.enrolment, verdict)
        return peer
    }

    private func refusal(of peer: RawPeer) async throws -> JoinRefusal {
        try await peer.recorder.wait("the refusal") {
            if case .message(.joinRefused(let refusal)) = $0 { refusal.cause } else { nil }
        }.0
    }

    @Test(arguments: [1, 3])
    func `who asks for a channel that the records do not have is refused at once, and holds up no newcomer`(
        workers: Int
    ) async throws {
        let relay = try await relay(workers: workers)
        // The connections are on any worker, by chance.
        for number in 0..<4 {
            let stranger = try await newcomer(
                "Stranger \(number)", to: .yard(), of: relay, .refused(.notInvited, "no such channel"))
            #expect(try await refusal(of: stranger) == .notInvited)
        }
        // Of a channel that the records have before the relay serves it.
        let gate = RelayChannelConfiguration.yard()
        let early = try await newcomer("Early", to: gate, of: relay, .admitted(.init()))
        #expect(try await refusal(of: early) == .relayBusy)
        let guest = try await newcomer("Guest", to: relay.channel, of: relay, .admitted(.init()))
        try await guest.recorder.wait("the welcome") { if case .message(.welcome) = $0 { true } else { nil } }
        await relay.server.stop()
    }

    @Test func `there are links to the channels that the relay serves now, by the names that they have now`()
        async throws
    {
        let relay = try await TestRelay()
        let (server, first) = (relay.server, relay.channel)
        var gate = RelayChannelConfiguration.yard()
        gate.name = DisplayName("Gate")!
        #expect(await server.serve(gate))
        let link = try await server.invitation(for: gate.id, host: "127.0.0.1")
        #expect(link.channelName.text == "Gate" && link.channel == gate.id && link.token == gate.token)
        await server.rename(gate.id, to: DisplayName("Square")!)
        #expect(try await server.invitation(for: gate.id, host: "127.0.0.1").channelName.text == "Square")
        await server.remove(first.id, "removed")
        await #expect(throws: RelayServerError.unknownChannel(first.id)) {
            try await server.invitation(for: first.id, host: "127.0.0.1")
        }
        // It is the same for one that has stopped, and will begin again.
        await server.stop()
        #expect(try await server.invitation(for: gate.id, host: "a", port: 1).channelName.text == "Square")
        await #expect(throws: RelayServerError.unknownChannel(first.id)) {
            try await server.invitation(for: first.id, host: "a", port: 1)
        }
    }
}
