// The complete client without a socket: it combines link, uplink, downlink, members and keys.
import Cryptography
import MonotonicTime
import RelayProtocol
import Vocabulary

/// A client of a relay, without the transport.
///
/// What comes in are the user's wishes, control messages and datagrams; what goes out are control messages, datagrams and
/// events. `RelayClient` carries them over QUIC; a simulation carries them over a network of its own. Not `Sendable`:
/// it holds keys in use.
public struct RelayClientCore {
    /// A client that reconnects within this time hears the current burst from its beginning. It is as long as talkers
    /// wait for their link and then for the answer.
    public static let shortAbsence: Duration = .seconds(3)
    /// The most members that are remembered; further ones are heard, but not listed.
    public static let membersMaximum = 4_096

    let invitation: InvitationLink
    private let displayName: DisplayName
    private let mode: RelayClientMode
    private var link = RelayClientStateMachine()
    var uplink: UplinkStateMachine
    var uplinkRepair = UplinkRepairStateMachine()
    var downlink = DownlinkStateMachine()
    /// Whether the relay receives this end's media.
    var hearing = HearingWatch()
    private var pushes = PushRegistrations()
    var session: MediaSession?
    private var lostAt: Instant?
    /// The key ids of the bursts that were announced last, as many as there may be talkers.
    var announcedKeyIDs: [UInt64] = []
    /// Whose the floor is, while the link is ready.
    var floor: FloorView?
    var members = MemberList()
    /// The keys that were in force, over connections.
    var keyring = MediaKeyring()
    var queries = BurstQueries()
    /// Of this connection.
    var lastBurstRequest = BurstRequestID(rawValue: 0)
    /// This member, once the relay said who it is.
    private(set) var ownID: MemberID?
    private var places: RelayPlaces
    /// What the relay's `Welcome` says of its place for links over TLS.
    private(set) var webPlace: WebPlace?
    /// Watches the path, while there is another one.
    var doubt = PathDoubt()
    /// Whether the connection loses nothing on the way and has no trailers: a link over TLS.
    var isReliable = false
    /// Whether a connection that is not carries packets outside QUIC, too.
    public var sendsOutsideQUIC = false
    /// What goes there, while the link is ready and the relay takes it.
    var direct: DirectUplink?
    /// Until then connections send datagrams only: on one of them the other packets did not seem to arrive.
    private var avoidsDirectUntil = Instant.zero
    private static let directPause: Duration = .seconds(600)
    /// When anything of the relay came by QUIC last, as far as the transport has told.
    public var lastHeard: Instant?
    /// Whether the connection was given up because the relay does not answer.
    private(set) var isLostInSilence = false
    /// Whether this end would host the channel if its host went.
    var offersSuccession = false {
        didSet { resumeBursts() }
    }
    /// Whether the relay is looked for elsewhere than where the invitation says.
    var isAway: Bool { places.isAway }
    /// Whether the link may go on over another path: a burst continues there.
    var hasOtherPath = false {
        didSet {
            guard hasOtherPath != oldValue else { return }
            resumeBursts()
            if hasOtherPath { hearOnce() }
        }
    }
    /// Whether the relay's name has several addresses: another node of its cluster may serve, and a burst continues there.
    private(set) var hasOtherAddresses = false
    /// Whether the relay may be reached in another way than by this connection.
    var hasAlternative: Bool { hasOtherPath || hasOtherAddresses }
    /// Draws key ids.
    var random: any RandomNumberGenerator & Sendable

    /// A client that is not started.
    ///
    /// - Parameters:
    ///   - invitation: The relay, the channel and its secret.
    ///   - displayName: What other members read.
    ///   - mode: Whether to be a member.
    ///   - timestampAtZero: See `UplinkStateMachine.init`.
    ///   - random: What is drawn from; only in a simulation may it be another than the system's.
    public init(
        invitation: InvitationLink, displayName: DisplayName, mode: RelayClientMode = .member, timestampAtZero: UInt32,
        random: any RandomNumberGenerator & Sendable = SecureRandom()
    ) {
        var random = random
        self.invitation = invitation
        self.displayName = displayName
        self.mode = mode
        places = RelayPlaces(home: invitation.place)
        // Channels nearby are end-to-end ones, also for the member who has created it and stays where it is.
        if invitation.mediaKey != nil || invitation.web != nil { downlink.heard = HeardSpeech() }
        uplink = UplinkStateMachine(
            firstSequence: UInt16.random(in: 0...UInt16.max, using: &random), timestampAtZero: timestampAtZero)
        self.random = random
    }

    /// The invitation, with the place to which `.connect` leads: the relay may have said another one.
    public var relay: InvitationLink {
        var relay = invitation
        relay.place = places.current
        return relay
    }

    /// Whether bursts (for a member) and pushes can be sent and received.
    public var isReady: Bool { link.isReady }

    /// Whether nobody talks, nobody wants to, and no answer is awaited: a moment at which the link may move.
    public var isQuiet: Bool { isReady && uplink.isIdle && downlink.isIdle && queries.isIdle && floor?.isIdle ?? true }

    /// After how much silence the relay is asked whether it is there: soon while it owes an answer to the join, for one that was
    /// restarted meanwhile knows nothing of it.
    public var keepAlive: Duration {
        if link.isJoining { return RelayClientStateMachine.joinKeepAlive }
        return hasOtherAddresses ? RelayClientStateMachine.keepAliveOfSeveral : RelayClientStateMachine.keepAlive
    }

    /// Packets from the relay that were dropped for `reason`.
    public func dropped(_ reason: DownlinkStateMachine.Drop) -> Int { downlink.dropped(reason) }

    /// The round-trip time to the relay, as the transport measures it.
    public var roundTripTime: Duration {
        get { downlink.roundTripTime }
        set {
            downlink.roundTripTime = newValue
            uplinkRepair.roundTripTime = newValue
            direct?.roundTripTime = newValue
        }
    }

    /// Frames that the user sent without a burst.
    public var strayFrames: Int { uplink.strayFrames }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? {
        [
            link.nextDeadline, uplink.nextDeadline, downlink.nextDeadline, queries.nextDeadline, hearing.nextDeadline,
            uplinkRepair.nextDeadline, hasAlternative ? doubt.nextDeadline : nil, direct?.nextDeadline,
        ].compactMap(\.self).min()
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .join: return steer(.join, at: now)
        case .leave: return steer(.leave, at: now)
        case .earlyDataOffered: return steer(.earlyDataOffered, at: now)
        case .connected:
            isLostInSilence = false
            return steer(.connected, at: now)
        case .joinLost: return steer(.joinLost, at: now)
        case .moveBegan: return speak(.linkMoving, at: now)
        case .moveEnded: return isReady ? speak(.linkReady, at: now) : []
        case .moved(.welcome(let welcome)) where isReady && mode == .member: return move(welcome, at: now)
        case .moved(.pushWelcome) where isReady && mode == .pushOnly:
            return push(.linkLost, at: now) + push(.linkReady, at: now)
        case .moved: return unexpected("an answer to the join", at: now)
        case .pathLost:
            isLostInSilence = true
            // Whoever talks is heard on the other path as soon as may be.
            return steer(.connectionEnded(.lost("the relay does not answer")), at: now)
                + (uplink.isIdle ? [] : steer(.wanted, at: now))
        case .connectionEnded(.wrongRelayKey) where places.isAway:
            // It says nothing of the relay that the invitation names.
            places.giveUpSuccessor()
            return steer(.connectionEnded(.unreachable("the successor has a different key")), at: now)
        case .connectionEnded(let error):
            let actions = steer(.connectionEnded(error), at: now)
            // A relay that goes leaves the request of who wants to talk to the next one.
            return error == .goesDown && !uplink.isIdle ? actions + steer(.wanted, at: now) : actions
        case .networkChanged: return steer(.networkChanged, at: now)
        case .addressesFound(let count):
            if count > 1, !hasOtherAddresses {
                hasOtherAddresses = true
                resumeBursts()
                hearOnce()
            }
            return steer(.addressesFound(count), at: now)
        case .placeCovered:
            places.cover()
            return []
        case .relayMoved(let found):
            // A link that works stays: its relay sends it away when it is time.
            guard !isReady, !seededFault("the-next-host-is-not-looked-for") else { return [] }
            // Without this a place that the relay has named would be tried first again at each announcement.
            if link.isAttemptOverdue(at: now) { places.failed() }
            places.move(to: found)
            return steer(.relayFound, at: now)
        case .violation(let what): return steer(.violation(what), at: now)
        case .message(let message): return receive(message, at: now)
        case .mediaSent(let number, let packet): return sent(packet, as: number, at: now)
        case .mediaRefused(let packet): return repair(.refused(packet: packet), at: now)
        case .mediaAcknowledged(let number):
            if isReliable || direct?.doubts(number, at: now) != true {
                hearing.answered()
                doubt.answered()
            }
            uplink.noteAcknowledged(datagram: number)
            return repair(.acknowledged(datagram: number), at: now)
        case .mediaLost(let number): return repair(.lost(datagram: number), at: now)
        case .repaired(let request, let packets, let isEnd):
            return receiveRepaired(packets, request: request, isEnd: isEnd, at: now)
        case .burst(let request, let packets, let isWhole, let isEnd):
            return receiveBurst(packets, request: request, isWhole: isWhole, isEnd: isEnd, at: now)
        case .listBursts(let id): return listBursts(id, at: now)
        case .fetchBurst(let id, let burst): return fetchBurst(id, burst, at: now)
        case .begin(let id, let priority):
            // Who speaks does not wait for the time of the next attempt.
            return steer(.wanted, at: now) + speak(.begin(id, priority: priority), at: now)
        case .frame(let frame): return speak(.frame(frame), at: now)
        case .end: return speak(.end, at: now)
        case .abort: return speak(.abort, at: now)
        case .registerPushes(let token, let topic): return push(.register(token, topic), at: now)
        case .unregisterPushes(let token): return push(.unregister(token), at: now)
        case .deadline:
            return listenForRelay(at: now) + lookAfterDirectPackets(at: now) + doubtPath(at: now)
                + steer(.deadline, at: now) + speak(.deadline, at: now) + listen(.deadline, at: now)
                + query(.deadline, at: now) + repair(.deadline, at: now)
        }
    }

    /// Without answers from the relay nobody hears this end. Then the talker is informed, and the client reconnects.
    private mutating func listenForRelay(at now: Instant) -> [Action] {
        guard hearing.isGone(at: now) else { return [] }
        isLostInSilence = true
        return steer(.connectionEnded(.lost("it does not answer while a member talks")), at: now)
    }

    /// A packet of this end is on its way, under that number.
    mutating func sent(_ packet: [UInt8], as number: UInt64, at now: Instant) -> [Action] {
        if uplink.resumesBursts, let header = try? packet.withUnsafeBytes({ try RTPHeader(parsing: $0) }) {
            uplink.noteSent(datagram: number, sequence: header.sequence)
        }
        return repair(.sent(datagram: number, packet: packet), at: now)
    }

    private mutating func doubtPath(at now: Instant) -> [Action] {
        guard hasAlternative, isReady, let patience = doubt.takeQuestion(at: now) else { return [] }
        return [.verify(patience: patience)]
    }

    private mutating func resumeBursts() {
        uplink.resumesBursts = offersSuccession || hasAlternative
    }

    /// A talker whose path changes says again what may not have been heard.
    private mutating func hearOnce() { if downlink.heard == nil { downlink.heard = HeardSpeech() } }

    // MARK: The link

    mutating func steer(_ event: RelayClientStateMachine.Event, at now: Instant) -> [Action] {
        let wasReady = link.isReady
        link.hasOtherPlaces = offersSuccession && places.areSeveral
        var actions: [Action] = []
        for action in link.handle(event, at: now) {
            switch action {
            case .connect:
                places.attempt()
                actions.append(.connect)
            case .sendJoin:
                actions.append(.send(joinMessage))
            case .sayGoodbye:
                if wasReady { actions.append(.send(.leave)) }
                // Who leaves the channel can open nothing of it any more.
                keyring = MediaKeyring()
                actions += close(.none, at: now)
            case .close(let code): actions += close(code, at: now)
            case .linkLost:
                lostAt = now
                (hearing, doubt) = (HearingWatch(), PathDoubt())
                forgetDirect(at: now)
                actions +=
                    repair(.linkLost, at: now) + speak(.linkLost, at: now) + listen(.linkLost, at: now)
                    + push(.linkLost, at: now) + query(.linkLost, at: now)
                members = MemberList()
            case .tell(let state):
                if case .unavailable = state { places.failed() }
                switch state {
                case .ready: break
                // Who was removed, or is not let in any more, can open nothing of the channel either.
                case .unavailable(.invitationRefused, _), .unavailable(.channelEnded, _):
                    keyring = MediaKeyring()
                    actions += speak(.linkClosed, at: now)
                case _ where state.mayBeReadySoon: actions += speak(.linkComing, at: now)
                case .connecting, .stopped, .unavailable: actions += speak(.linkClosed, at: now)
                }
                actions.append(.tell(.state(state)))
            }
        }
        if !wasReady, link.isReady { places.joined() }
        return actions
    }

    private mutating func close(_ code: RelayCloseCode, at now: Instant) -> [Action] {
        (session, floor) = (nil, nil)
        forgetDirect(at: now)
        return query(.linkLost, at: now) + [.close(code)]
    }

    private mutating func forgetDirect(at now: Instant) {
        if direct?.isSuspect == true { avoidsDirectUntil = now + Self.directPause }
        direct = nil
    }

    /// What asks the relay to let this end in.
    var joinMessage: ClientMessage {
        .join(
            .init(
                channel: invitation.channel, token: invitation.token, displayName: displayName,
                isPushOnly: mode == .pushOnly))
    }

    private mutating func receive(_ message: ServerMessage, at now: Instant) -> [Action] {
        switch message {
        case .welcome(let welcome):
            guard link.isJoining else { return unexpected("Welcome", at: now) }
            guard mode == .member else {
                // It did not understand that no membership was wanted.
                let phrase = "it is too old to support pushes"
                return steer(.refused(.init(cause: .unsupportedVersion, phrase: phrase)), at: now)
            }
            return enter(welcome, at: now)
        case .pushWelcome(let welcome):
            guard link.isJoining, mode == .pushOnly else { return unexpected("PushWelcome", at: now) }
            return steer(.welcomed(channelName: welcome.channelName.text), at: now) + push(.linkReady, at: now)
        case .joinRefused(let refusal):
            guard link.isJoining else { return unexpected("JoinRefused", at: now) }
            return steer(.refused(places.isAway ? judged(refusal) : refusal), at: now)
        case .pushRegistered(let token) where link.isReady: return push(.registered(token), at: now)
        case .pushRefused(let refusal) where link.isReady: return push(.refused(refusal), at: now)
        case .push(let incoming) where link.isReady: return push(.push(incoming), at: now)
        case .successor(let place) where link.isReady:
            // The relay ends the connection when it is time: not in the middle of what is said.
            places.follow(to: place)
            return []
        case .successor(let place) where link.isJoining && !seededFault("another-relay-is-not-followed"):
            // Another relay of the cluster serves the channel.
            places.follow(to: place)
            return steer(.sentOn, at: now)
        default:
            guard session != nil else { return unexpected("a message without a membership", at: now) }
            return receiveInChannel(message, at: now)
        }
    }

    /// Handles a refusal at another address than the invitation's. Except for a removed member, it does not speak for
    /// the invitation's relay.
    private mutating func judged(_ refusal: ServerMessage.JoinRefused) -> ServerMessage.JoinRefused {
        guard !refusal.cause.isTemporary, refusal.cause != .revoked else { return refusal }
        places.giveUpSuccessor()
        var refusal = refusal
        refusal.cause = .other
        return refusal
    }

    mutating func unexpected(_ what: String, at now: Instant) -> [Action] {
        steer(.violation("unexpected: \(what)"), at: now)
    }

    /// Whoever sent it would hear what is sealed with it.
    mutating func foreignKey(at now: Instant) -> [Action] {
        steer(.violation("the relay gives a key for an end-to-end channel, whose key is the invitation's"), at: now)
    }

    /// The membership goes on over another connection, with another source. Bursts of others go on where they are.
    private mutating func move(_ welcome: ServerMessage.Welcome, at now: Instant) -> [Action] {
        let talkers = downlink.talkers
        (hearing, doubt) = (HearingWatch(), PathDoubt())
        // A burst that this end began before is known to the other connection only.
        var actions = repair(.linkLost, at: now) + query(.linkLost, at: now) + speak(.linkLost, at: now)
        actions += push(.linkLost, at: now)
        lostAt = now
        actions += enter(welcome, at: now)
        let present = (welcome.floor.map { [$0] } ?? []) + welcome.moreFloors
        for ssrc in talkers where !present.contains(where: { $0.ssrc == ssrc }) {
            actions += listen(.floorIdle(ssrc: ssrc, lastSequence: nil), at: now)
        }
        return actions
    }

    private mutating func enter(_ welcome: ServerMessage.Welcome, at now: Instant) -> [Action] {
        // On an end-to-end channel the relay must not know the key, so none of its own can be the one.
        if invitation.mediaKey != nil, welcome.mediaKey != nil { return foreignKey(at: now) }
        guard let mediaKey = invitation.mediaKey ?? welcome.mediaKey else {
            return steer(.violation("neither the relay nor the invitation has the media key"), at: now)
        }
        do throws(CryptographyError) {
            session = try MediaSession(
                ssrc: welcome.ssrc, downlinkKey: welcome.downlinkKey, mediaKey: mediaKey,
                earlierKeys: keyring.latest, at: now)
        } catch {
            return steer(.connectionEnded(.system("\(error)")), at: now)
        }
        forgetDirect(at: now)
        if sendsOutsideQUIC, now >= avoidsDirectUntil, let key = welcome.uplinkKey {
            direct = try? DirectUplink(key: key, roundTripTime: uplinkRepair.roundTripTime)
        }
        // All listeners of a burst begin to hear it at once; their reports are spread by the number that the relay drew for each.
        let spread: Duration = .seconds(1)
        downlink.firstReport = spread + spread * Int(welcome.ssrc.rawValue & 0xFFFF) / 65_536
        let view = FloorView(welcome)
        floor = view
        downlink.talkersMaximum = view.talkersMaximum
        keyring.add(mediaKey)
        ownID = welcome.memberID
        lastBurstRequest = BurstRequestID(rawValue: 0)
        downlink.offersLateEntry = welcome.offersLateEntry
        members = MemberList()
        let others = welcome.members.map { members.remember($0) }
        let own = RelayMember(id: welcome.memberID.description, name: displayName.text)
        if let web = welcome.web {
            webPlace = web
            hearOnce()
        }
        var actions = steer(.welcomed(channelName: welcome.channelName.text), at: now)
        actions.append(.tell(.members([own] + others, own: own)))
        actions.append(.tell(.floorQueueOffered(welcome.hasFloorQueue)))
        actions.append(.tell(.talkersAllowed(view.talkersMaximum)))
        actions += speak(.linkReady, at: now) + push(.linkReady, at: now)
        if offersSuccession { actions.append(.send(.successionOffer)) }
        actions += outlook
        // What was said while the link was lost is not lost: a relay that gives the beginning of a burst gives that to everybody. Else a
        // burst that was heard before goes on from where it is.
        let wasHere = lostAt.map { now - $0 <= Self.shortAbsence } ?? false
        lostAt = nil
        let announced = announcedKeyIDs
        for taken in (welcome.floor.map { [$0] } ?? []) + welcome.moreFloors {
            let isLate = downlink.offersLateEntry || !wasHere || announced.contains(taken.keyID)
            actions += floorTaken(taken, isLate: isLate, at: now)
        }
        return actions
    }

    // MARK: Pushes

    mutating func push(_ event: PushRegistrations.Event, at now: Instant) -> [Action] {
        pushes.handle(event, at: now).map { action in
            switch action {
            case .send(let message): .send(message)
            case .tell(let event): .tellOfPushes(event)
            }
        }
    }
}
