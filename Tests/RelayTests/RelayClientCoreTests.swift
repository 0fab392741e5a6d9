// The client's rules put together: whose key it is, and when reception is reported.
import Cryptography
import MonotonicTime
import RelayProtocol
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct RelayClientCoreTests {
    private let now = Instant(nanoseconds: 1_000_000_000)

    private func link(_ key: MediaKey?) throws -> InvitationLink {
        try InvitationLink(
            host: "h", port: 1, channelName: DisplayName("c")!, channel: ChannelID(), token: InvitationToken(),
            pin: PublicKeyPin([UInt8](repeating: 0, count: 32))!, mediaKey: key)
    }

    private func joining(_ link: InvitationLink) -> RelayClientCore {
        var core = RelayClientCore(invitation: link, displayName: DisplayName("c")!, timestampAtZero: 7)
        _ = core.handle(.join, at: now)
        _ = core.handle(.connected, at: now)
        return core
    }

    private func welcome(_ key: MediaKey?, ssrc: UInt32 = 1) -> RelayClientCore.Event {
        .message(
            .welcome(
                .init(
                    ssrc: SSRC(rawValue: ssrc), downlinkKey: TrailerKey(), mediaKey: key,
                    channelName: DisplayName("c")!, members: [], floor: nil,
                    memberID: MemberID(PublicKeyPin([UInt8](repeating: 0, count: 32))!), talkTimeLimit: nil)))
    }

    private func violates(_ actions: [RelayClientCore.Action]) -> Bool {
        actions.contains { $0 == .close(.protocolViolation) }
    }

    @Test func `who waits for the answer to a join soon asks whether the relay is still there`() throws {
        var core = joining(try link(nil))
        #expect(core.keepAlive == RelayClientStateMachine.joinKeepAlive)
        #expect(core.keepAlive * 4 < RelayClientStateMachine.joinTimeout)
        _ = core.handle(welcome(MediaKey(epoch: 1)), at: now)
        #expect(core.isReady && core.keepAlive == RelayClientStateMachine.keepAlive)
    }

    @Test func `after a connection on which packets outside QUIC did not arrive, others send datagrams for a while`()
        throws
    {
        var core = RelayClientCore(invitation: try link(nil), displayName: DisplayName("c")!, timestampAtZero: 7)
        core.sendsOutsideQUIC = true
        var now = now
        func join() {
            // After a loss the next attempt has its time.
            while let due = core.nextDeadline, due <= now { _ = core.handle(.deadline, at: now) }
            _ = core.handle(.connected, at: now)
            guard case .message(.welcome(var welcome)) = welcome(MediaKey(epoch: 1)) else { return }
            welcome.uplinkKey = TrailerKey()
            _ = core.handle(.message(.welcome(welcome)), at: now)
        }
        /// How the packets of a burst of 3 s go, to a relay that answers by QUIC and reports nothing.
        func talk(_ request: UInt32) -> (outside: Int, datagrams: Int) {
            var (outside, datagrams) = (0, 0)
            func count(_ actions: [RelayClientCore.Action]) {
                for action in actions {
                    if case .sendOutsideQUIC = action { outside += 1 }
                    if case .sendMedia = action { datagrams += 1 }
                }
            }
            _ = core.handle(.begin(BurstID(number: request), priority: 0), at: now)
            let granted = ServerMessage.FloorGranted(
                requestID: FloorRequestID(rawValue: request), duration: .seconds(60))
            _ = core.handle(.message(.floorGranted(granted)), at: now)
            for _ in 0..<150 {
                let frame = OutgoingFrame(payload: [1, 2, 3], samples: 960, capturedAt: now)
                count(core.handle(.frame(frame), at: now))
                now = now + .milliseconds(20)
                core.lastHeard = now
                while let due = core.nextDeadline, due <= now { count(core.handle(.deadline, at: now)) }
            }
            return (outside, datagrams)
        }
        _ = core.handle(.join, at: now)
        join()
        let first = talk(1)
        #expect(first.outside > 30 && first.outside < 80 && first.datagrams == 150 - first.outside)
        _ = core.handle(.connectionEnded(.lost("")), at: now)
        now = now + .seconds(1)
        join()
        #expect(core.isReady && core.direct == nil)
        _ = core.handle(.connectionEnded(.lost("")), at: now)
        now = now + .seconds(601)
        join()
        #expect(core.isReady && core.direct != nil)
    }

    @Test func `on an end-to-end channel no key of the relay is taken`() throws {
        let link = try link(MediaKey(epoch: 0))
        var deceived = joining(link)
        #expect(violates(deceived.handle(welcome(MediaKey(epoch: 0)), at: now)))
        #expect(!deceived.isReady)

        var core = joining(link)
        #expect(!violates(core.handle(welcome(nil), at: now)))
        #expect(core.isReady)
        #expect(violates(core.handle(.message(.mediaKey(MediaKey(epoch: 1))), at: now)))
        #expect(!core.isReady)
    }

    @Test func `on other channels the relay's key is the one, and may be renewed`() throws {
        let link = try link(nil)
        var core = joining(link)
        #expect(violates(core.handle(welcome(nil), at: now)), "nobody has a key")
        core = joining(link)
        _ = core.handle(welcome(MediaKey(epoch: 3)), at: now)
        #expect(core.handle(.message(.mediaKey(MediaKey(epoch: 4))), at: now).isEmpty)
        #expect(core.isReady)
    }

    @Test func `who is removed or refused keeps no key of the channel, and who has lost the link keeps them`() throws {
        let link = try link(nil)
        var core = joining(link)
        _ = core.handle(welcome(MediaKey(epoch: 3)), at: now)
        var lost = core
        _ = lost.handle(.connectionEnded(.lost("gone")), at: now)
        #expect(lost.keyring.has(3))
        var removed = core
        _ = removed.handle(.connectionEnded(.invitationRefused("removed")), at: now)
        #expect(!removed.keyring.has(3))
        // Back after a loss, and not let in: removed meanwhile.
        let later = lost.nextDeadline ?? now
        _ = lost.handle(.deadline, at: later)
        _ = lost.handle(.connected, at: later)
        let refusal = ServerMessage.JoinRefused(cause: .revoked, phrase: "removed")
        _ = lost.handle(.message(.joinRefused(refusal)), at: later)
        #expect(!lost.keyring.has(3))
    }

    @Test func `listeners report at different times, each within two seconds`() throws {
        let link = try link(nil)
        let times = [0, 0x4000, 0xFFFF].map { number -> Duration in
            var core = joining(link)
            _ = core.handle(welcome(MediaKey(epoch: 3), ssrc: UInt32(number)), at: now)
            return core.downlink.firstReport
        }
        #expect(times[0] == .seconds(1) && times[1] == .milliseconds(1_250) && times[2] > .milliseconds(1_999))
        #expect(times[2] <= .seconds(2))
    }

    @Test func `kept bursts are told in the order of their beginnings, in whichever order they have ended`() throws {
        let link = try link(nil)
        var core = joining(link)
        _ = core.handle(welcome(MediaKey(epoch: 3)), at: now)
        core.downlink.offersLateEntry = true
        let question = BurstQueryID(number: 1)
        let asked = core.handle(.listBursts(question), at: now).compactMap { action -> BurstRequestID? in
            if case .send(.burstListRequest(let request)) = action { request } else { nil }
        }
        let request = try #require(asked.first)
        let bursts = [3, 9, 5, 7].map { seconds in
            ServerMessage.KeptBurst(
                burst: BurstName(ssrc: SSRC(rawValue: UInt32(seconds)), keyID: 1),
                talker: MemberID(PublicKeyPin([UInt8](repeating: 1, count: 32))!), name: DisplayName("t")!,
                age: .seconds(seconds), duration: .seconds(1), packets: 100, isGoingOn: false)
        }
        let actions = core.handle(.message(.burstList(.init(id: request, bursts: bursts))), at: now)
        guard case .answer(question, .list(let told))? = actions.first else {
            Issue.record("\(actions)")
            return
        }
        #expect(told.map(\.age) == [.seconds(3), .seconds(5), .seconds(7), .seconds(9)])
    }
}
