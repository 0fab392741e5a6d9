// Random messages of every kind, with values at their limits.
import Cryptography
import RelayProtocol
import TestSupport
import Vocabulary

extension SeededGenerator {
    mutating func oneIn(_ count: Int = 2) -> Bool { Int.random(in: 0..<count, using: &self) == 0 }

    mutating func number<T: FixedWidthInteger>(_ type: T.Type = T.self) -> T {
        switch Int.random(in: 0..<6, using: &self) {
        case 0: .min
        case 1: .max
        default: T.random(in: .min ... .max, using: &self)
        }
    }

    mutating func name() -> DisplayName {
        let alphabet = Array("abcXYZ 019-_%&?#/äß無線📻\u{301}")
        let length = Int.random(in: 1...200, using: &self)
        let text = String((0..<length).map { _ in alphabet.randomElement(using: &self) ?? "a" })
        return DisplayName(cleaning: text, fallback: "nobody")
    }

    mutating func phrase() -> String { oneIn() ? "" : name().text }

    mutating func memberID() -> MemberID {
        MemberID(bytes: bytes(16)) ?? MemberID(PublicKeyPin(subjectPublicKeyInfo: []))
    }

    mutating func requestID() -> FloorRequestID { FloorRequestID(rawValue: max(1, number())) }

    mutating func mediaKey() -> MediaKey? {
        MediaKey(epoch: number(), baseKey: bytes(Int.random(in: MediaKey.byteCounts, using: &self)))
    }

    mutating func token() -> InvitationToken {
        InvitationToken(bytes(Int.random(in: InvitationToken.byteCounts, using: &self))) ?? InvitationToken()
    }

    mutating func channel() -> ChannelID { ChannelID(bytes: bytes(16)) ?? ChannelID() }

    mutating func member() -> ServerMessage.Member {
        .init(id: memberID(), displayName: name(), ssrc: SSRC(rawValue: number()))
    }

    mutating func pushToken() -> PushToken {
        PushToken(bytes(Int.random(in: PushToken.byteCounts, using: &self)))!
    }

    mutating func topic() -> PushTopic {
        let count = oneIn(4) ? PushTopic.byteCountMaximum : Int.random(in: 1...40, using: &self)
        return PushTopic(
            String(decoding: (0..<count).map { _ in UInt8.random(in: 33...126, using: &self) }, as: UTF8.self))!
    }

    mutating func taken() -> ServerMessage.FloorTaken {
        .init(talker: memberID(), ssrc: SSRC(rawValue: number()), keyID: number(), priority: number())
    }

    mutating func place() -> RelayPlace {
        let hosts = ["relay.example", "192.0.2.1", "2001:db8::1", String(repeating: "a", count: 253)]
        return RelayPlace(host: hosts.randomElement(using: &self)!, port: max(1, number()))!
    }

    /// With every field that tells of the floor.
    mutating func welcome(_ members: Int) -> ServerMessage.Welcome {
        var welcome = ServerMessage.Welcome(
            ssrc: SSRC(rawValue: number()), downlinkKey: TrailerKey(), mediaKey: oneIn() ? nil : mediaKey(),
            channelName: name(), members: (0..<members).map { _ in member() }, floor: oneIn() ? nil : taken(),
            memberID: memberID(), talkTimeLimit: oneIn() ? nil : max(.milliseconds(1), milliseconds()))
        welcome.hasFloorQueue = oneIn()
        welcome.floorMode = FloorMode.allCases.randomElement(using: &self) ?? .unspecified
        welcome.isListenOnly = oneIn()
        welcome.floorPriority = number()
        welcome.preemptionStep = number()
        let more = Int.random(in: 0..<RelayProtocolLimits.talkersMaximum, using: &self)
        welcome.moreFloors = (0..<more).map { _ in taken() }
        welcome.offersLateEntry = oneIn()
        welcome.retention = BurstRetention(
            bursts: Int.random(in: 0...RelayProtocolLimits.keptBurstsMaximum, using: &self), time: milliseconds())
        let places: [String?] = [nil, "443", place().description]
        welcome.web = places.randomElement(using: &self)!.flatMap { WebPlace($0) }
        return welcome
    }

    mutating func milliseconds() -> Duration { .milliseconds(number(UInt32.self)) }

    mutating func clientMessages() -> [ClientMessage] {
        [
            .join(
                .init(
                    channel: channel(), token: token(), displayName: name(), protocolVersion: number(),
                    isPushOnly: oneIn())),
            .leave,
            .floorRequest(.init(requestID: requestID(), priority: number(), keyID: number(), mayQueue: oneIn())),
            .floorRelease(.init(requestID: requestID(), lastSequence: oneIn() ? nil : number())),
            .receptionReport(
                .init(
                    ssrc: SSRC(rawValue: number()), received: number(), lost: number(), highestSequence: number(),
                    jitter: number())),
            .pushRegister(.init(token: pushToken(), topic: topic())),
            .pushUnregister(pushToken()),
            .pushReceipt(
                .init(
                    id: PushID(rawValue: number()),
                    outcome: PushOutcome.allCases.randomElement(using: &self) ?? .other)),
            .mediaRepair(bytes(Int.random(in: RelayProtocolLimits.repairPacketByteCounts, using: &self))),
            .repairRequest(
                .init(id: max(1, number()), ssrc: SSRC(rawValue: number()), keyID: number(), ranges: repairRanges())),
            .burstListRequest(burstRequest()),
            .burstRequest(.init(id: burstRequest(), burst: burst(), first: oneIn() ? nil : number())),
            .invitationRequest(
                .init(
                    channel: channel(), protocolVersion: number(), codeShare: oneIn() ? nil : bytes(32),
                    name: oneIn() ? nil : name())),
            .invitationProof(.init(tag: bytes(32))),
            .successionOffer,
        ]
    }

    mutating func burstRequest() -> BurstRequestID { BurstRequestID(rawValue: max(1, number())) }

    mutating func burst() -> BurstName { BurstName(ssrc: SSRC(rawValue: number()), keyID: number()) }

    mutating func keptBurst() -> ServerMessage.KeptBurst {
        .init(
            burst: burst(), talker: memberID(), name: name(), age: milliseconds(), duration: milliseconds(),
            packets: number(), isGoingOn: oneIn())
    }

    /// As many ranges, with as many packets, as one request may have.
    mutating func repairRanges() -> [SequenceRange] {
        let count = oneIn(4) ? RelayProtocolLimits.repairRangesMaximum : Int.random(in: 1...10, using: &self)
        let most = RelayProtocolLimits.repairPacketsMaximum / count
        return (0..<count).map { _ in
            let first: UInt16 = number()
            let length = oneIn() ? most : Int.random(in: 1...most, using: &self)
            return SequenceRange(first: first, last: first &+ UInt16(length - 1))
        }
    }

    mutating func serverMessages() -> [ServerMessage] {
        let limit = RelayProtocolLimits.welcomeMembersMaximum
        let count = oneIn(4) ? limit : Int.random(in: 0...limit, using: &self)
        let bursts = Int.random(in: 0...RelayProtocolLimits.keptBurstsMaximum, using: &self)
        return [
            .welcome(welcome(count)),
            .joinRefused(
                .init(
                    cause: JoinRefusal.allCases.randomElement(using: &self) ?? .other, phrase: phrase(),
                    retryAfter: milliseconds())),
            .memberJoined(member()),
            .memberLeft(memberID()),
            .floorGranted(.init(requestID: requestID(), duration: milliseconds(), priority: number())),
            .floorDeny(
                .init(
                    requestID: requestID(), cause: FloorDenyCause.allCases.randomElement(using: &self) ?? .other,
                    phrase: phrase(), retryAfter: milliseconds())),
            .floorTaken(taken()),
            .floorIdle(.init(ssrc: SSRC(rawValue: number()), lastSequence: oneIn() ? nil : number())),
            .floorRevoke(
                .init(
                    requestID: requestID(), cause: FloorRevokeCause.allCases.randomElement(using: &self) ?? .other,
                    phrase: phrase())),
            .mediaKey(mediaKey() ?? MediaKey(epoch: 0)),
            .pushWelcome(.init(channelName: name(), memberID: memberID())),
            .pushRegistered(pushToken()),
            .pushRefused(
                .init(
                    token: pushToken(), cause: PushRefusal.allCases.randomElement(using: &self) ?? .other,
                    phrase: phrase())),
            .push(
                .init(
                    id: PushID(rawValue: number()), token: pushToken(),
                    payload: bytes(oneIn() ? 4_096 : Int.random(in: 1...4_096, using: &self)),
                    priority: UInt8.random(in: 1...10, using: &self), lifetime: milliseconds())),
            .floorQueuePosition(
                .init(requestID: requestID(), position: Int.random(in: 1...Int(UInt32.max), using: &self))),
            .listenerLoss(percent: Int.random(in: 0...100, using: &self)),
            .burstList(.init(id: burstRequest(), bursts: (0..<bursts).map { _ in keptBurst() })),
            .burstRefused(
                .init(
                    id: burstRequest(), cause: BurstRefusal.allCases.randomElement(using: &self) ?? .other,
                    phrase: phrase(), retryAfter: milliseconds())),
            .successor(place()),
            .floorRules(welcome(0).floorRules),
            .invitation(
                .init(
                    token: token(), channelName: name(),
                    mediaKey: oneIn() ? nil : MediaKey(epoch: InvitationLink.mediaKeyEpoch),
                    codeTag: oneIn() ? nil : bytes(32))),
            .invitationChallenge(.init(codeShare: bytes(32))),
            .invitationPending(.init(time: milliseconds())),
            .invitationRefused(
                .init(
                    cause: InvitationRefusal.allCases.randomElement(using: &self) ?? .other, phrase: phrase(),
                    retryAfter: milliseconds())),
            .succession(
                .init(
                    generation: number(), host: HostID(bytes: bytes(HostID.byteCount)) ?? HostID(),
                    order: (0..<Int.random(in: 0...8, using: &self)).map { _ in memberID() }, identity: phrase(),
                    transportKeys: bytes(Int.random(in: 0...1_024, using: &self)), creator: name(),
                    admission: [.open, .ask, .code(InvitationCode("271828")!)].randomElement(using: &self) ?? .open)),
        ]
    }
}
