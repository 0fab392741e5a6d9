// Floor messages that come when they should not, to a client: nobody makes it speak, and nobody ends what it says or hears.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct ForgedFloorTests {
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var core: RelayClientCore
    private static let talker = MemberID(PublicKeyPin(subjectPublicKeyInfo: [2]))

    init() throws {
        let link = try InvitationLink(
            host: "h", port: 1, channelName: DisplayName("Yard")!, channel: ChannelID(), token: InvitationToken(),
            pin: PublicKeyPin(subjectPublicKeyInfo: [1]))
        core = RelayClientCore(invitation: link, displayName: DisplayName("Ann")!, timestampAtZero: 7)
        _ = core.handle(.join, at: now)
        _ = core.handle(.connected, at: now)
    }

    private mutating func say(_ message: ServerMessage) -> [RelayClientCore.Action] {
        core.handle(.message(message), at: now)
    }

    private mutating func welcome(downlink: TrailerKey = TrailerKey(), key: MediaKey = MediaKey(epoch: 3)) {
        _ = say(
            .welcome(
                .init(
                    ssrc: SSRC(rawValue: 1), downlinkKey: downlink, mediaKey: key, channelName: DisplayName("Yard")!,
                    members: [], floor: nil, memberID: MemberID(PublicKeyPin(subjectPublicKeyInfo: [3])),
                    talkTimeLimit: nil)))
        #expect(core.isReady)
    }

    private mutating func frame() -> [RelayClientCore.Action] {
        core.handle(.frame(OutgoingFrame(payload: [1], samples: 480, capturedAt: now)), at: now)
    }

    private func sends(_ actions: [RelayClientCore.Action]) -> Bool {
        actions.contains { if case .sendMedia = $0 { true } else { false } }
    }

    private func asked(_ actions: [RelayClientCore.Action]) -> FloorRequestID? {
        for case .send(.floorRequest(let request)) in actions { return request.requestID }
        return nil
    }

    @Test mutating func `a grant that nobody asked for sends nothing and tells nobody to speak`() throws {
        welcome()
        #expect(say(.floorGranted(.init(requestID: .first, duration: .seconds(60)))).isEmpty)
        #expect(frame().isEmpty)
        let begun = core.handle(.begin(BurstID(number: 1), priority: 0), at: now)
        let request = try #require(asked(begun))
        #expect(say(.floorGranted(.init(requestID: request.next, duration: .seconds(60)))).isEmpty)
        #expect(!sends(frame()))
        #expect(sends(say(.floorGranted(.init(requestID: request, duration: .seconds(60))))))
        _ = core.handle(.end, at: now)
        // The same grant once more, after the button came up.
        #expect(say(.floorGranted(.init(requestID: request, duration: .seconds(60)))).isEmpty)
        #expect(!sends(frame()))
    }

    @Test mutating func `an answer to another request ends no burst`() throws {
        welcome()
        let begun = core.handle(.begin(BurstID(number: 1), priority: 0), at: now)
        let request = try #require(asked(begun))
        let other = request.next
        #expect(say(.floorDeny(.init(requestID: other, cause: .queueFull))).isEmpty)
        #expect(say(.floorQueuePosition(.init(requestID: other, position: 1))).isEmpty)
        // Nothing is revoked that was not granted.
        #expect(say(.floorRevoke(.init(requestID: request, cause: .preempted))).isEmpty)
        _ = say(.floorGranted(.init(requestID: request, duration: .seconds(60))))
        #expect(say(.floorRevoke(.init(requestID: other, cause: .preempted))).isEmpty)
        #expect(say(.floorDeny(.init(requestID: other, cause: .other))).isEmpty)
        #expect(sends(frame()))
    }

    @Test func `floor messages before the welcome break the protocol`() {
        let messages: [ServerMessage] = [
            .floorGranted(.init(requestID: .first, duration: .seconds(60))),
            .floorTaken(.init(talker: Self.talker, ssrc: SSRC(rawValue: 2), keyID: 3 << 48 | 9)),
            .floorIdle(.init(ssrc: SSRC(rawValue: 2), lastSequence: nil)),
            .floorRevoke(.init(requestID: .first, cause: .preempted)), .mediaKey(MediaKey(epoch: 4)),
        ]
        for message in messages {
            var core = core
            let actions = core.handle(.message(message), at: now)
            #expect(actions.contains(.close(.protocolViolation)), "\(message)")
            #expect(!core.isReady)
        }
    }

    /// The request waited for the floor for a minute, and the relay renewed its key meanwhile.
    @Test mutating func `a burst under the key of before a renewal is heard whenever its floor is taken`() throws {
        let key = MediaKey(epoch: 3)
        let downlink = TrailerKey()
        _ = say(
            .welcome(
                .init(
                    ssrc: SSRC(rawValue: 1), downlinkKey: downlink, mediaKey: key, channelName: DisplayName("Yard")!,
                    members: [], floor: nil, memberID: MemberID(PublicKeyPin(subjectPublicKeyInfo: [3])),
                    talkTimeLimit: nil)))
        _ = say(.mediaKey(MediaKey(epoch: 4)))
        now = now + .seconds(60)
        var sealer = try TrailerSealer(key: downlink)
        let frames = try SFrameSealer(baseKey: key.baseKey, keyID: KeyID(rawValue: 3 << 48 | 9))
        _ = say(.floorTaken(.init(talker: Self.talker, ssrc: SSRC(rawValue: 2), keyID: 3 << 48 | 9)))
        let header = RTPHeader(marker: true, sequence: 1, timestamp: 0, ssrc: SSRC(rawValue: 2)).bytes
        let datagram = try sealer.seal(header + (try frames.seal([1, 2, 3], metadata: header)))
        let heard = datagram.withUnsafeBytes { core.receive($0, at: now) }
        #expect(heard.contains { if case .tell(.frame(let frame)) = $0 { frame.payload == [1, 2, 3] } else { false } })
    }

    @Test mutating func `the end of another's burst ends nothing that is heard`() throws {
        let key = MediaKey(epoch: 3)
        let downlink = TrailerKey()
        welcome(downlink: downlink, key: key)
        var sealer = try TrailerSealer(key: downlink)
        let frames = try SFrameSealer(baseKey: key.baseKey, keyID: KeyID(rawValue: 3 << 48 | 9))
        func hear(_ sequence: UInt16) throws -> [RelayClientCore.Action] {
            let header = RTPHeader(
                marker: sequence == 1, sequence: sequence, timestamp: 0, ssrc: SSRC(rawValue: 2)
            ).bytes
            let datagram = try sealer.seal(header + (try frames.seal([1, 2, 3], metadata: header)))
            return datagram.withUnsafeBytes { core.receive($0, at: now) }
        }
        _ = say(.floorTaken(.init(talker: Self.talker, ssrc: SSRC(rawValue: 2), keyID: 3 << 48 | 9)))
        let first = try hear(1)
        #expect(!first.isEmpty)
        let ended = say(.floorIdle(.init(ssrc: SSRC(rawValue: 7), lastSequence: 1)))
        #expect(!ended.contains { if case .tell(.burstEnded) = $0 { true } else { false } })
        let second = try hear(2)
        #expect(second.contains { if case .tell(.frame(let frame)) = $0 { frame.sequence == 2 } else { false } })
    }
}
