// Messages from the relay to a member: the members, the floor, and the current key.
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
            return speak(.denied(denial.requestID, FloorDenial(denial)), at: now)
        case .floorRevoke(let revocation):
            return speak(.revoked(revocation.requestID, FloorRevocation(revocation)), at: now)
        case .floorTaken(let taken):
            return floorChanged { $0.taken(taken) } + floorTaken(taken, at: now)
        case .floorIdle(let idle):
            var concluded: [Action] = []
            if idle.ssrc == session?.ssrc {
                hearing.concluded()
                concluded = concludeDirectPackets(at: now)
            }
            defer { if !downlink.hasTalkers { doubt.expectsNothing() } }
            return concluded + floorChanged { $0.idle(idle.ssrc) }
                + listen(.floorIdle(ssrc: idle.ssrc, lastSequence: idle.lastSequence), at: now)
                + speak(.floorIdle, at: now)
        case .mediaKey(let key):
            if seededFault("a-media-key-is-not-taken") { return [] }
            guard invitation.mediaKey == nil else { return foreignKey(at: now) }
            let isNews = session.map { $0.mediaKey.epoch != key.epoch } ?? false
            session?.renew(key, at: now)
            keyring.add(key)
            return isNews ? speak(.keyRenewed, at: now) : []
        case .floorQueuePosition(let place):
            return speak(.queued(place.requestID, position: place.position), at: now)
        case .floorRules(let rules):
            floor?.change(to: rules)
            // What was told before of the floor does not hold for either.
            return [.tell(.floorQueueOffered(rules.hasQueue))] + hearAsManyAsMayTalk() + outlook
        case .listenerLoss(let percent): return [.tell(.listenerLoss(percent: percent))]
        case .burstList(let list): return query(.listed(list), at: now)
        case .burstRefused(let refusal): return burstRefused(refusal, at: now)
        case .succession(let succession): return offersSuccession ? [.tellOfSuccession(succession)] : []
        case .welcome, .pushWelcome, .joinRefused, .pushRegistered, .pushRefused, .push, .successor, .invitation,
            .invitationRefused, .invitationChallenge, .invitationPending:
            return unexpected("a second answer to the join", at: now)
        }
    }

    mutating func floorTaken(
        _ taken: ServerMessage.FloorTaken, isLate: Bool = false, at now: Instant
    ) -> [Action] {
        doubt.expects(at: now)
        announcedKeyIDs.removeAll { $0 == taken.keyID }
        announcedKeyIDs.append(taken.keyID)
        if announcedKeyIDs.count > RelayProtocolLimits.talkersMaximum { announcedKeyIDs.removeFirst() }
        // Who waited for the floor may have asked for it minutes ago, and under the key of then.
        if let key = keyring.key(of: UInt16(taken.keyID >> 48)) { session?.expectBurst(key, at: now) }
        return listen(
            .floorTaken(members.named(taken.talker), ssrc: taken.ssrc, keyID: taken.keyID, isLate: isLate), at: now)
    }

    /// Applies a change of the floor, and reports it to the user if the answer to a request would now be different.
    private mutating func floorChanged(_ change: (inout FloorView) -> Void) -> [Action] {
        guard var view = floor, let before = view.outlook else { return [] }
        change(&view)
        floor = view
        return view.outlook.map { $0 != before } ?? false ? outlook : []
    }

    /// What is told of how a request would be answered now; nothing where the relay has not said how it decides.
    var outlook: [Action] {
        floor?.outlook.map { [.tell(.floorOutlook($0.normal, emergency: $0.emergency))] } ?? []
    }

    /// The channel's rules may be others now.
    private mutating func hearAsManyAsMayTalk() -> [Action] {
        guard let maximum = floor?.talkersMaximum, maximum != downlink.talkersMaximum else { return [] }
        downlink.talkersMaximum = maximum
        return [.tell(.talkersAllowed(maximum))]
    }
}
