// What the relay tells a member: who is there, whose the floor is, which key is in force.
import MonotonicTime
import RelayProtocol

extension RelayClientCore {
    mutating func receiveInChannel(_ message: ServerMessage, at now: Instant) -> [Action] {
        switch message {
        case .memberJoined(let member):
            return [.tell(.memberJoined(members.remember(member)))]
        case .memberLeft(let id):
            guard let member = members.forget(id) else { return [] }
            return [.tell(.memberLeft(member))]
        case .floorGranted(let grant):
            return speak(.granted(grant.requestID, duration: grant.duration), at: now)
        case .floorDeny(let denial):
            let reason: FloorDenial =
                denial.cause == .anotherClientHasPermission
                ? .taken : .refused(denial.phrase.isEmpty ? "\(denial.cause)" : denial.phrase)
            return speak(.denied(denial.requestID, reason), at: now)
        case .floorRevoke(let revocation):
            let reason: FloorRevocation =
                revocation.cause == .mediaBurstTooLong
                ? .talkTimeLimit : .other(revocation.phrase.isEmpty ? "\(revocation.cause)" : revocation.phrase)
            return speak(.revoked(revocation.requestID, reason), at: now)
        case .floorTaken(let taken): return floorTaken(taken, at: now)
        case .floorIdle(let idle):
            return listen(.floorIdle(ssrc: idle.ssrc, lastSequence: idle.lastSequence), at: now)
        case .mediaKey(let key):
            guard invitation.mediaKey == nil else { return foreignKey(at: now) }
            session?.renew(key, at: now)
            return []
        case .floorQueuePosition(let place):
            return speak(.queued(place.requestID, position: place.position), at: now)
        case .listenerLoss(let percent): return [.tell(.listenerLoss(percent: percent))]
        case .welcome, .pushWelcome, .joinRefused, .pushRegistered, .pushRefused, .push:
            return unexpected("a second answer to the join", at: now)
        }
    }

    mutating func floorTaken(
        _ taken: ServerMessage.FloorTaken, isLate: Bool = false, at now: Instant
    ) -> [Action] {
        announcedKeyID = taken.keyID
        return listen(
            .floorTaken(members.named(taken.talker), ssrc: taken.ssrc, keyID: taken.keyID, isLate: isLate), at: now)
    }
}
