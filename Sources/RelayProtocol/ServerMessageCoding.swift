// Server messages to and from protobuf.
import FoundationEssentials
import SwiftProtobuf
import Vocabulary

extension ServerMessage {
    typealias Wire = Pttd_Relay_V1_ServerMessage

    init(_ wire: Wire) throws(RelayMessageError) {
        switch wire.kind {
        case .welcome(let welcome): self = .welcome(try Welcome(welcome))
        case .joinRefused(let refused):
            self = .joinRefused(
                JoinRefused(
                    cause: JoinRefusal(rawValue: refused.cause.rawValue) ?? .other,
                    phrase: phrase(refused.phrase), retryAfter: .milliseconds(refused.retryAfterMs)))
        case .memberJoined(let joined): self = .memberJoined(try Member(joined.member))
        case .memberLeft(let left): self = .memberLeft(try RelayProtocol.memberID(left.memberID))
        case .floorGranted(let granted):
            self = .floorGranted(
                FloorGranted(
                    requestID: try requestID(granted.requestID), duration: .milliseconds(granted.durationMs),
                    priority: try priority(granted.priority)))
        case .floorDeny(let deny):
            self = .floorDeny(
                FloorDeny(
                    requestID: try requestID(deny.requestID),
                    cause: FloorDenyCause(rawValue: deny.cause.rawValue) ?? .other, phrase: phrase(deny.phrase),
                    retryAfter: .milliseconds(deny.retryAfterMs)))
        case .floorTaken(let taken): self = .floorTaken(try FloorTaken(taken))
        case .floorIdle(let idle):
            self = .floorIdle(
                FloorIdle(
                    ssrc: SSRC(rawValue: idle.ssrc),
                    lastSequence: idle.hasLastSequence ? try sequence(idle.lastSequence) : nil))
        case .floorRevoke(let revoke):
            self = .floorRevoke(
                FloorRevoke(
                    requestID: try requestID(revoke.requestID),
                    cause: FloorRevokeCause(rawValue: revoke.cause.rawValue) ?? .other, phrase: phrase(revoke.phrase)))
        case .mediaKey(let key): self = .mediaKey(try MediaKey(key))
        case .pushWelcome(let welcome): self = .pushWelcome(try PushWelcome(welcome))
        case .pushRegistered(let registered): self = .pushRegistered(try pushToken(registered.token))
        case .pushRefused(let refused):
            self = .pushRefused(
                PushRefused(
                    token: try pushToken(refused.token), cause: PushRefusal(rawValue: refused.cause.rawValue) ?? .other,
                    phrase: phrase(refused.phrase)))
        case .push(let push): self = .push(try Push(push))
        case .floorQueuePosition(let position): self = .floorQueuePosition(try FloorQueuePosition(position))
        case .listenerLoss(let loss):
            self = .listenerLoss(
                percent: try valid(
                    (0...100).contains(loss.percent) ? Int(loss.percent) : nil, "percent", "is above 100"))
        case .burstList(let list): self = .burstList(try BurstList(list))
        case .burstRefused(let refused):
            self = .burstRefused(
                BurstRefused(
                    id: try burstRequestID(refused.requestID),
                    cause: BurstRefusal(rawValue: refused.cause.rawValue) ?? .other, phrase: phrase(refused.phrase),
                    retryAfter: .milliseconds(refused.retryAfterMs)))
        case .successor(let place): self = .successor(try RelayPlace(place))
        case .floorRules(let rules): self = .floorRules(try FloorRules(rules))
        case .invitation(let invitation): self = .invitation(try Invitation(invitation))
        case .invitationRefused(let refused):
            self = .invitationRefused(
                InvitationRefused(
                    cause: InvitationRefusal(rawValue: refused.cause.rawValue) ?? .other,
                    phrase: phrase(refused.phrase), retryAfter: .milliseconds(refused.retryAfterMs)))
        case .succession(let succession): self = .succession(try Succession(succession))
        case .invitationChallenge(let challenge): self = .invitationChallenge(try InvitationChallenge(challenge))
        case .invitationPending(let pending):
            self = .invitationPending(InvitationPending(time: .milliseconds(pending.timeMs)))
        case nil: throw .unknownKind
        }
    }

    var wire: Wire {
        var wire = Wire()
        switch self {
        case .welcome(let welcome): wire.welcome = welcome.wire
        case .joinRefused(let refused):
            wire.joinRefused.cause = .init(rawValue: refused.cause.rawValue) ?? .other
            wire.joinRefused.phrase = phrase(refused.phrase)
            wire.joinRefused.retryAfterMs = refused.retryAfter.wireMilliseconds
        case .memberJoined(let member): wire.memberJoined.member = member.wire
        case .memberLeft(let member): wire.memberLeft.memberID = Data(member.bytes)
        case .floorGranted(let granted):
            wire.floorGranted.requestID = granted.requestID.rawValue
            wire.floorGranted.durationMs = granted.duration.wireMilliseconds
            wire.floorGranted.priority = UInt32(granted.priority)
        case .floorDeny(let deny):
            wire.floorDeny.requestID = deny.requestID.rawValue
            wire.floorDeny.cause = .init(rawValue: deny.cause.rawValue) ?? .other
            wire.floorDeny.phrase = phrase(deny.phrase)
            wire.floorDeny.retryAfterMs = deny.retryAfter.wireMilliseconds
        case .floorTaken(let taken): wire.floorTaken = taken.wire
        case .floorIdle(let idle):
            wire.floorIdle.ssrc = idle.ssrc.rawValue
            if let last = idle.lastSequence { wire.floorIdle.lastSequence = UInt32(last) }
        case .floorRevoke(let revoke):
            wire.floorRevoke.requestID = revoke.requestID.rawValue
            wire.floorRevoke.cause = .init(rawValue: revoke.cause.rawValue) ?? .other
            wire.floorRevoke.phrase = phrase(revoke.phrase)
        case .mediaKey(let key): wire.mediaKey = key.wire
        case .pushWelcome(let welcome): wire.pushWelcome = welcome.wire
        case .pushRegistered(let token): wire.pushRegistered.token = Data(token.bytes)
        case .pushRefused(let refused):
            wire.pushRefused.token = Data(refused.token.bytes)
            wire.pushRefused.cause = .init(rawValue: refused.cause.rawValue) ?? .other
            wire.pushRefused.phrase = phrase(refused.phrase)
        case .push(let push): wire.push = push.wire
        case .floorQueuePosition(let position): wire.floorQueuePosition = position.wire
        case .listenerLoss(let percent): wire.listenerLoss.percent = UInt32(min(max(0, percent), 100))
        case .burstList(let list): wire.burstList = list.wire
        case .burstRefused(let refused):
            wire.burstRefused.requestID = refused.id.rawValue
            wire.burstRefused.cause = .init(rawValue: refused.cause.rawValue) ?? .other
            wire.burstRefused.phrase = phrase(refused.phrase)
            wire.burstRefused.retryAfterMs = refused.retryAfter.wireMilliseconds
        case .successor(let place): wire.successor = place.wire
        case .floorRules(let rules): wire.floorRules = rules.wire
        case .invitation(let invitation): wire.invitation = invitation.wire
        case .invitationRefused(let refused):
            wire.invitationRefused.cause = .init(rawValue: refused.cause.rawValue) ?? .other
            wire.invitationRefused.phrase = phrase(refused.phrase)
            wire.invitationRefused.retryAfterMs = refused.retryAfter.wireMilliseconds
        case .succession(let succession): wire.succession = succession.wire
        case .invitationChallenge(let challenge): wire.invitationChallenge = challenge.wire
        case .invitationPending(let pending): wire.invitationPending.timeMs = pending.time.wireMilliseconds
        }
        return wire
    }
}

/// A phrase for people, made harmless and short, whichever way it goes.
private func phrase(_ text: String) -> String {
    text.cleaned(limit: RelayProtocolLimits.phraseByteCountMaximum)
}

extension ServerMessage.Welcome {
    fileprivate init(_ wire: Pttd_Relay_V1_Welcome) throws(RelayMessageError) {
        let members = try entries(
            wire.members, atMost: RelayProtocolLimits.welcomeMembersMaximum, "members", ServerMessage.Member.init)
        self.init(
            ssrc: SSRC(rawValue: wire.ssrc),
            downlinkKey: try valid(
                TrailerKey(wire.downlinkKey), "downlink_key",
                "has \(wire.downlinkKey.count) bytes instead of \(TrailerKey.byteCount)"),
            mediaKey: wire.hasMediaKey ? try MediaKey(wire.mediaKey) : nil,
            channelName: try displayName(wire.channelName, "channel_name"),
            members: members,
            floor: wire.hasFloor ? try ServerMessage.FloorTaken(wire.floor) : nil,
            memberID: try RelayProtocol.memberID(wire.memberID),
            talkTimeLimit: wire.talkTimeLimitMs == 0 ? nil : .milliseconds(wire.talkTimeLimitMs))
        if !wire.uplinkKey.isEmpty {
            uplinkKey = try valid(
                TrailerKey(wire.uplinkKey), "uplink_key",
                "has \(wire.uplinkKey.count) bytes instead of \(TrailerKey.byteCount)")
        }
        hasFloorQueue = wire.hasFloorQueue_p
        floorMode = FloorMode(rawValue: wire.floorMode.rawValue) ?? .unspecified
        isListenOnly = wire.listenOnly
        floorPriority = try priority(wire.floorPriority, "floor_priority")
        preemptionStep = try priority(wire.preemptionStep, "preemption_step")
        moreFloors = try entries(
            wire.moreFloors, atMost: RelayProtocolLimits.talkersMaximum - 1, "more_floors",
            ServerMessage.FloorTaken.init)
        offersLateEntry = wire.lateEntry
        retention = try BurstRetention(wire)
        if !wire.web.isEmpty { web = try valid(WebPlace(wire.web), "web", "is neither PORT nor HOST:PORT") }
    }

    fileprivate var wire: Pttd_Relay_V1_Welcome {
        var wire = Pttd_Relay_V1_Welcome()
        wire.ssrc = ssrc.rawValue
        wire.downlinkKey = Data(downlinkKey.bytes)
        if let uplinkKey { wire.uplinkKey = Data(uplinkKey.bytes) }
        if let mediaKey { wire.mediaKey = mediaKey.wire }
        wire.channelName = channelName.text
        wire.members = members.map(\.wire)
        if let floor { wire.floor = floor.wire }
        wire.memberID = Data(memberID.bytes)
        wire.talkTimeLimitMs = talkTimeLimit?.wireMilliseconds ?? 0
        wire.hasFloorQueue_p = hasFloorQueue
        wire.floorMode = .init(rawValue: floorMode.rawValue) ?? .unspecified
        wire.listenOnly = isListenOnly
        wire.floorPriority = UInt32(floorPriority)
        wire.preemptionStep = UInt32(preemptionStep)
        wire.moreFloors = moreFloors.prefix(RelayProtocolLimits.talkersMaximum - 1).map(\.wire)
        wire.lateEntry = offersLateEntry
        wire.keptBursts = UInt32(retention.bursts)
        wire.keptTimeMs = retention.time.wireMilliseconds
        if let web { wire.web = web.text }
        return wire
    }
}

extension ServerMessage.Member {
    fileprivate init(_ wire: Pttd_Relay_V1_Member) throws(RelayMessageError) {
        self.init(
            id: try memberID(wire.memberID),
            displayName: try RelayProtocol.displayName(wire.displayName, "display_name"),
            ssrc: SSRC(rawValue: wire.ssrc))
    }

    fileprivate var wire: Pttd_Relay_V1_Member {
        var wire = Pttd_Relay_V1_Member()
        wire.memberID = Data(id.bytes)
        wire.displayName = displayName.text
        wire.ssrc = ssrc.rawValue
        return wire
    }
}

extension ServerMessage.FloorTaken {
    fileprivate init(_ wire: Pttd_Relay_V1_FloorTaken) throws(RelayMessageError) {
        self.init(
            talker: try memberID(wire.memberID), ssrc: SSRC(rawValue: wire.ssrc), keyID: wire.keyID,
            priority: try RelayProtocol.priority(wire.priority))
    }

    fileprivate var wire: Pttd_Relay_V1_FloorTaken {
        var wire = Pttd_Relay_V1_FloorTaken()
        wire.memberID = Data(talker.bytes)
        wire.ssrc = ssrc.rawValue
        wire.keyID = keyID
        wire.priority = UInt32(priority)
        return wire
    }
}

extension MediaKey {
    init(_ wire: Pttd_Relay_V1_MediaKey) throws(RelayMessageError) {
        let epoch = try valid(UInt16(exactly: wire.epoch), "epoch", "is above 65535")
        self = try valid(
            MediaKey(epoch: epoch, baseKey: wire.baseKey), "base_key",
            "has \(wire.baseKey.count) bytes, not \(MediaKey.byteCounts)")
    }

    var wire: Pttd_Relay_V1_MediaKey {
        var wire = Pttd_Relay_V1_MediaKey()
        wire.epoch = UInt32(epoch)
        wire.baseKey = Data(baseKey)
        return wire
    }
}
