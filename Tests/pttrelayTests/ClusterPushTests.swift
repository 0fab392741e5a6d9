// What the relays of a cluster together say to a push.
import MonotonicTime
import RelayProtocol
import RelayServer
import Testing
import Vocabulary

@testable import pttrelay

@Suite struct ClusterPushTests {
    private let now = Instant.zero + .seconds(100)

    @Test func `the relay that has the connection of the token decides`() {
        let verdicts: [ClusterPushVerdict] = [
            .sent, .tooMany, .otherTopic, .unregistered(millisecondsAgo: 5), .kept, .dropped, .unavailable, .shutDown,
            .unknownToken,
        ]
        for (index, best) in verdicts.enumerated() {
            let rest = Array(verdicts.suffix(from: index))
            #expect(ClusterPushVerdict.together(rest.reversed(), isSettled: true) == best)
            #expect(ClusterPushVerdict.together(rest, isSettled: true) == best)
        }
        #expect(ClusterPushVerdict.together([], isSettled: true) == .shutDown)
    }

    @Test func `a token that nobody knows may be on its way to another relay`() {
        #expect(ClusterPushVerdict.together([.unknownToken, .unknownToken], isSettled: true) == .unknownToken)
        #expect(ClusterPushVerdict.together([.unknownToken, .unknownToken], isSettled: false) == .unavailable)
        #expect(ClusterPushVerdict.together([.unknownToken, .sent], isSettled: false) == .sent)
    }

    @Test func `a push and what is said to it are passed on as they are`() throws {
        let token = try #require(PushToken((0..<32).map { UInt8($0) }))
        let topic = try #require(PushTopic("org.example.Radio.voip-ptt"))
        let push = try #require(
            PushRequest(token: token, topic: topic, payload: Array("{}".utf8), priority: 10, lifetime: .seconds(60)))
        guard case .push(let read)? = ClusterRequest(bytes: ClusterRequest.push(ClusterPush(push)).bytes) else {
            Issue.record("not read")
            return
        }
        #expect(read.request == push)
        let verdicts: [PushVerdict] = [
            .accepted(.sent), .accepted(.kept), .accepted(.dropped), .unknownToken,
            .unregistered(at: now - .seconds(7)),
            .otherTopic, .tooMany, .unavailable, .shutDown,
        ]
        for verdict in verdicts {
            let response = ClusterResponse.push(ClusterPushVerdict(verdict, at: now))
            guard case .push(let read)? = ClusterResponse(bytes: response.bytes) else {
                Issue.record("not read")
                continue
            }
            #expect(read.verdict(at: now) == verdict)
        }
        var bad = ClusterPush(push)
        bad.payload = []
        #expect(bad.request == nil)
        #expect(ClusterRequest(bytes: Array("{}".utf8)) == nil)
    }
}
