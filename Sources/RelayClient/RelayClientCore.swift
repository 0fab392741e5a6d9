// The whole client without a socket: link, uplink, downlink, members and keys, put together.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame

/// A client of a relay, without the transport.
///
/// What comes in are the user's wishes, control messages and datagrams; what goes out are control messages, datagrams and
/// events. `RelayClient` carries them over QUIC; a simulation carries them over a network of its own. Not `Sendable`:
/// it holds keys in use.
public struct RelayClientCore {
    /// What may happen, datagrams aside.
    public enum Event: Sendable {
        /// The user wants the link.
        case join
        /// The user does not want it any more.
        case leave
        /// The first packet to the relay of the invitation can carry early data, which only that relay can read.
        case earlyDataOffered
        /// The handshake with the relay of the invitation is complete.
        case connected
        /// There is no connection, or none any more.
        case connectionEnded(RelayLinkError)
        /// This machine's network has changed while there was no connection.
        case networkChanged
        /// A control message came.
        case message(ServerMessage)
        /// The transport took a media datagram under this number.
        case mediaSent(UInt64, [UInt8])
        /// The transport did not take a media datagram.
        case mediaRefused([UInt8])
        /// The relay has that datagram.
        case mediaAcknowledged(UInt64)
        /// That datagram is lost.
        case mediaLost(UInt64)
        /// Packets came in answer to a repair request; `isEnd`: all that the relay had.
        case repaired(request: UInt32, packets: [[UInt8]], isEnd: Bool)
        /// Something came on a stream of the relay that is none of the protocol's.
        case violation(String)
        /// The user begins a burst.
        case begin(BurstID, priority: UInt8)
        /// The next frame of the burst.
        case frame(OutgoingFrame)
        /// The burst has got its last frame.
        case end
        /// What is not sent of the burst is to be erased.
        case abort
        /// The user wants the pushes for a token.
        case registerPushes(PushToken, PushTopic)
        /// The user declares a token dead.
        case unregisterPushes(PushToken)
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Open a connection to the relay of the invitation.
        case connect
        /// Close the connection, if there is one, after what was sent.
        case close(RelayCloseCode)
        /// Send a control message.
        case send(ClientMessage)
        /// Send a media datagram.
        case sendMedia([UInt8])
        /// Tell the user.
        case tell(RelayLinkEvent)
        /// Tell the user of pushes.
        case tellOfPushes(PushLinkEvent)
    }

    /// What exists while the link is ready.
    private struct Session {
        let ssrc: SSRC
        let downlinkOpener: DownlinkOpener
        var frameOpener: SFrameOpener
        var mediaKey: MediaKey
        var sealer: (requestID: FloorRequestID, sealer: SFrameSealer)?
    }

    /// Who is back after so long at most hears a burst that began meanwhile from its start: as long as talkers wait for their link, and
    /// for the answer after it.
    public static let shortAbsence: Duration = .seconds(3)
    /// The most members that are remembered; further ones are heard, but not listed.
    public static let membersMaximum = 4_096

    private let invitation: InvitationLink
    private let displayName: DisplayName
    private let mode: RelayClientMode
    private var link = RelayClientStateMachine()
    private var uplink: UplinkStateMachine
    private var uplinkRepair = UplinkRepairStateMachine()
    private var downlink = DownlinkStateMachine()
    private var pushes = PushRegistrations()
    private var session: Session?
    private var lostAt: Instant?
    /// The key id of the burst that was announced last.
    private var announcedKeyID: UInt64?
    private var members: [MemberID: RelayMember] = [:]
    private let plaintext = Scratch(byteCount: 2_048)

    /// A client that is not started.
    ///
    /// - Parameters:
    ///   - invitation: The relay, the channel and its secret.
    ///   - displayName: What other members read.
    ///   - mode: Whether to be a member.
    public init(invitation: InvitationLink, displayName: DisplayName, mode: RelayClientMode = .member) {
        self.invitation = invitation
        self.displayName = displayName
        self.mode = mode
        var random = SecureRandom()
        uplink = UplinkStateMachine(
            firstSequence: UInt16.random(in: 0...UInt16.max, using: &random),
            firstTimestamp: UInt32.random(in: 0...UInt32.max, using: &random))
    }

    /// Whether bursts (for a member) and pushes can be sent and received.
    public var isReady: Bool { link.isReady }

    /// Packets from the relay that were dropped for `reason`.
    public func dropped(_ reason: DownlinkStateMachine.Drop) -> Int { downlink.dropped(reason) }

    /// Packets of this end that were lost on the way to the relay, and sent again.
    public var packetsRepaired: Int { uplinkRepair.repaired }

    /// The round-trip time to the relay, as the transport measures it.
    public var roundTripTime: Duration {
        get { downlink.roundTripTime }
        set { downlink.roundTripTime = newValue }
    }

    /// Frames that the user sent without a burst.
    public var strayFrames: Int { uplink.strayFrames }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? {
        [link.nextDeadline, uplink.nextDeadline, downlink.nextDeadline].compactMap(\.self).min()
    }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .join: return steer(.join, at: now)
        case .leave: return steer(.leave, at: now)
        case .earlyDataOffered: return steer(.earlyDataOffered, at: now)
        case .connected: return steer(.connected, at: now)
        case .connectionEnded(let error): return steer(.connectionEnded(error), at: now)
        case .networkChanged: return steer(.networkChanged, at: now)
        case .violation(let what): return steer(.violation(what), at: now)
        case .message(let message): return receive(message, at: now)
        case .mediaSent(let number, let packet): return repair(.sent(datagram: number, packet: packet), at: now)
        case .mediaRefused(let packet): return repair(.refused(packet: packet), at: now)
        case .mediaAcknowledged(let number): return repair(.acknowledged(datagram: number), at: now)
        case .mediaLost(let number): return repair(.lost(datagram: number), at: now)
        case .repaired(let request, let packets, let isEnd):
            return receiveRepaired(packets, request: request, isEnd: isEnd, at: now)
        case .begin(let id, let priority):
            // Who speaks does not wait for the time of the next attempt.
            return steer(.wanted, at: now) + speak(.begin(id, priority: priority), at: now)
        case .frame(let frame): return speak(.frame(frame), at: now)
        case .end: return speak(.end, at: now)
        case .abort: return speak(.abort, at: now)
        case .registerPushes(let token, let topic): return push(.register(token, topic), at: now)
        case .unregisterPushes(let token): return push(.unregister(token), at: now)
        case .deadline:
            return steer(.deadline, at: now) + speak(.deadline, at: now) + listen(.deadline, at: now)
        }
    }

    // MARK: The link

    private mutating func steer(_ event: RelayClientStateMachine.Event, at now: Instant) -> [Action] {
        let wasReady = link.isReady
        var actions: [Action] = []
        for action in link.handle(event, at: now) {
            switch action {
            case .connect: actions.append(.connect)
            case .sendJoin:
                actions.append(
                    .send(
                        .join(
                            .init(
                                channel: invitation.channel, token: invitation.token, displayName: displayName,
                                isPushOnly: mode == .pushOnly))))
            case .sayGoodbye:
                if wasReady { actions.append(.send(.leave)) }
                session = nil
                actions.append(.close(.none))
            case .close(let code):
                session = nil
                actions.append(.close(code))
            case .linkLost:
                lostAt = now
                actions +=
                    repair(.linkLost, at: now) + speak(.linkLost, at: now) + listen(.linkLost, at: now)
                    + push(.linkLost, at: now)
                members = [:]
            case .tell(let state):
                switch state {
                case .ready: break
                case _ where state.mayBeReadySoon: actions += speak(.linkComing, at: now)
                case .connecting, .stopped, .unavailable: actions += speak(.linkClosed, at: now)
                }
                actions.append(.tell(.state(state)))
            }
        }
        return actions
    }

    private mutating func receive(_ message: ServerMessage, at now: Instant) -> [Action] {
        switch message {
        case .welcome(let welcome):
            guard link.isJoining else { return unexpected("Welcome", at: now) }
            guard mode == .member else {
                // It did not understand that no membership was wanted.
                let phrase = "it is too old for pushes"
                return steer(.refused(.init(cause: .unsupportedVersion, phrase: phrase)), at: now)
            }
            return enter(welcome, at: now)
        case .pushWelcome(let welcome):
            guard link.isJoining, mode == .pushOnly else { return unexpected("PushWelcome", at: now) }
            return steer(.welcomed(channelName: welcome.channelName.text), at: now) + push(.linkReady, at: now)
        case .joinRefused(let refusal):
            return link.isJoining ? steer(.refused(refusal), at: now) : unexpected("JoinRefused", at: now)
        case .pushRegistered(let token) where link.isReady: return push(.registered(token), at: now)
        case .pushRefused(let refusal) where link.isReady: return push(.refused(refusal), at: now)
        case .push(let incoming) where link.isReady: return push(.push(incoming), at: now)
        default:
            guard session != nil else { return unexpected("a message without a membership", at: now) }
            return receiveInChannel(message, at: now)
        }
    }

    private mutating func unexpected(_ what: String, at now: Instant) -> [Action] {
        steer(.violation("unexpected: \(what)"), at: now)
    }

    private mutating func enter(_ welcome: ServerMessage.Welcome, at now: Instant) -> [Action] {
        guard let mediaKey = welcome.mediaKey ?? invitation.mediaKey else {
            return steer(.violation("neither the relay nor the invitation has the media key"), at: now)
        }
        let opener: DownlinkOpener
        do throws(CryptographyError) {
            opener = try DownlinkOpener(key: welcome.downlinkKey)
        } catch {
            return steer(.connectionEnded(.system("\(error)")), at: now)
        }
        var frameOpener = SFrameOpener()
        frameOpener.setEpoch(mediaKey.epoch, baseKey: mediaKey.baseKey, at: now)
        session = Session(
            ssrc: welcome.ssrc, downlinkOpener: opener, frameOpener: frameOpener, mediaKey: mediaKey, sealer: nil)
        members = [:]
        for member in welcome.members { remember(member) }
        let own = RelayMember(id: welcome.memberID.description, name: displayName.text)
        let others = welcome.members.map { RelayMember(id: $0.id.description, name: $0.displayName.text) }
        var actions = steer(.welcomed(channelName: welcome.channelName.text), at: now)
        actions.append(.tell(.members([own] + others, own: own)))
        actions.append(.tell(.floorQueueOffered(welcome.hasFloorQueue)))
        actions += speak(.linkReady, at: now) + push(.linkReady, at: now)
        // What was said while the link was lost is not lost. A burst that was heard before goes on from where it is.
        let wasHere = lostAt.map { now - $0 <= Self.shortAbsence } ?? false
        lostAt = nil
        if let taken = welcome.floor {
            actions += floorTaken(taken, isLate: !wasHere || taken.keyID == announcedKeyID, at: now)
        }
        return actions
    }

    // MARK: The channel

    private mutating func receiveInChannel(_ message: ServerMessage, at now: Instant) -> [Action] {
        switch message {
        case .memberJoined(let member):
            return [.tell(.memberJoined(remember(member)))]
        case .memberLeft(let id):
            guard let member = members.removeValue(forKey: id) else { return [] }
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
            session?.mediaKey = key
            session?.frameOpener.setEpoch(key.epoch, baseKey: key.baseKey, at: now)
            return []
        case .floorQueuePosition(let place):
            return speak(.queued(place.requestID, position: place.position), at: now)
        case .listenerLoss(let percent): return [.tell(.listenerLoss(percent: percent))]
        case .welcome, .pushWelcome, .joinRefused, .pushRegistered, .pushRefused, .push:
            return unexpected("a second answer to the join", at: now)
        }
    }

    // MARK: Pushes

    private mutating func push(_ event: PushRegistrations.Event, at now: Instant) -> [Action] {
        pushes.handle(event, at: now).map { action in
            switch action {
            case .send(let message): .send(message)
            case .tell(let event): .tellOfPushes(event)
            }
        }
    }

    @discardableResult
    private mutating func remember(_ member: ServerMessage.Member) -> RelayMember {
        let known = RelayMember(id: member.id.description, name: member.displayName.text)
        if members[member.id] != nil || members.count < Self.membersMaximum { members[member.id] = known }
        return known
    }

    private mutating func floorTaken(
        _ taken: ServerMessage.FloorTaken, isLate: Bool = false, at now: Instant
    ) -> [Action] {
        announcedKeyID = taken.keyID
        // A talker that was not announced is heard nevertheless, under its identifier.
        let talker =
            members[taken.talker] ?? RelayMember(id: taken.talker.description, name: taken.talker.description)
        return listen(.floorTaken(talker, ssrc: taken.ssrc, keyID: taken.keyID, isLate: isLate), at: now)
    }

    // MARK: Talking

    private mutating func speak(_ event: UplinkStateMachine.Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        for action in uplink.handle(event, at: now) {
            switch action {
            case .requestFloor(let requestID, let priority):
                actions += requestFloor(requestID, priority: priority, at: now)
            case .sendMedia(let requestID, let frame):
                guard let datagram = seal(frame, requestID) else {
                    actions += speak(.revoked(requestID, .other("this machine cannot encrypt")), at: now)
                    continue
                }
                actions.append(.sendMedia(datagram))
            case .releaseFloor(let requestID, let lastSequence):
                if session != nil {
                    actions.append(.send(.floorRelease(.init(requestID: requestID, lastSequence: lastSequence))))
                }
            case .tell(let event): actions.append(.tell(event))
            }
        }
        return actions
    }

    private mutating func requestFloor(_ requestID: FloorRequestID, priority: UInt8, at now: Instant) -> [Action] {
        guard let key = session?.mediaKey else { return [] }
        let keyID = KeyID.fresh(epoch: key.epoch)
        do throws(SFrameError) {
            session?.sealer = (requestID, try SFrameSealer(baseKey: key.baseKey, keyID: keyID))
        } catch {
            return speak(.denied(requestID, .refused("this machine cannot encrypt: \(error)")), at: now)
        }
        let request = ClientMessage.FloorRequest(
            requestID: requestID, priority: priority, keyID: keyID.rawValue, mayQueue: true)
        return [.send(.floorRequest(request))]
    }

    /// The RTP packet with the frame sealed in it (RFC 9605), its header authenticated.
    private func seal(_ frame: UplinkStateMachine.MediaFrame, _ requestID: FloorRequestID) -> [UInt8]? {
        guard let session, let sealer = session.sealer, sealer.requestID == requestID else { return nil }
        let header = RTPHeader(
            marker: frame.marker, sequence: frame.sequence, timestamp: frame.timestamp, ssrc: session.ssrc)
        let capacity = RTPHeader.byteCount + SFrameSealer.sealedByteCountMaximum(frame.payload.count)
        let packet = [UInt8](unsafeUninitializedCapacity: capacity) { buffer, count in
            let output = UnsafeMutableRawBufferPointer(buffer)
            header.write(to: output)
            let body = UnsafeMutableRawBufferPointer(rebasing: output[RTPHeader.byteCount...])
            let metadata = UnsafeRawBufferPointer(rebasing: output[..<RTPHeader.byteCount])
            let sealed = frame.payload.withUnsafeBytes { payload in
                try? sealer.sealer.seal(payload, metadata: metadata, into: body)
            }
            count = sealed.map { RTPHeader.byteCount + $0 } ?? 0
        }
        return packet.isEmpty ? nil : packet
    }

    private mutating func repair(_ event: UplinkRepairStateMachine.Event, at now: Instant) -> [Action] {
        uplinkRepair.handle(event, at: now).map { action in
            switch action {
            case .repair(let packet): .send(.mediaRepair(packet))
            }
        }
    }

    // MARK: Listening

    /// Takes packets that were asked for. They came over QUIC, from the relay: there is no trailer to check.
    private mutating func receiveRepaired(
        _ packets: [[UInt8]], request: UInt32, isEnd: Bool, at now: Instant
    ) -> [Action] {
        guard session != nil else { return [] }
        var actions: [Action] = []
        for packet in packets {
            actions += packet.withUnsafeBytes { receivePacket($0, receivedAt: now, isRepaired: true, at: now) }
        }
        return isEnd ? actions + listen(.answered(request: request), at: now) : actions
    }

    /// Takes a datagram that came, not through QUIC, from the relay's address.
    public mutating func receive(_ datagram: UnsafeRawBufferPointer, at now: Instant) -> [Action] {
        guard let session else {
            downlink.count(.notAuthentic)
            return []
        }
        guard let count = try? session.downlinkOpener.open(datagram) else {
            downlink.count(.notAuthentic)
            return []
        }
        return receivePacket(UnsafeRawBufferPointer(rebasing: datagram[..<count]), receivedAt: now, at: now)
    }

    private mutating func receivePacket(
        _ packet: UnsafeRawBufferPointer, receivedAt: Instant, isRepaired: Bool = false, at now: Instant
    ) -> [Action] {
        guard let header = try? RTPHeader(parsing: packet) else {
            downlink.count(.malformed)
            return []
        }
        let metadata = UnsafeRawBufferPointer(rebasing: packet[..<RTPHeader.byteCount])
        let frame = UnsafeRawBufferPointer(rebasing: packet[RTPHeader.byteCount...])
        guard let sealed = try? SFrameHeader(parsing: frame) else {
            downlink.count(.malformed)
            return []
        }
        switch downlink.admit(
            ssrc: header.ssrc, keyID: sealed.keyID.rawValue, sequence: header.sequence, isRepaired: isRepaired)
        {
        case .drop: return []
        case .hold:
            downlink.hold(Array(packet), at: now)
            return []
        case .open:
            guard
                let opened = try? session?.frameOpener.open(frame, metadata: metadata, into: plaintext.buffer, at: now)
            else {
                downlink.count(.notOpened)
                return []
            }
            return listen(
                .opened(
                    header, payload: Array(plaintext.buffer[..<opened.byteCount]), receivedAt: receivedAt,
                    isRepaired: isRepaired), at: now)
        }
    }

    private mutating func listen(_ event: DownlinkStateMachine.Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        for action in downlink.handle(event, at: now) {
            switch action {
            case .tell(let event): actions.append(.tell(event))
            case .report(let report): if session != nil { actions.append(.send(.receptionReport(report))) }
            case .ask(let request): if session != nil { actions.append(.send(.repairRequest(request))) }
            case .retry(let packets):
                for packet in packets {
                    actions += packet.bytes.withUnsafeBytes {
                        receivePacket($0, receivedAt: packet.receivedAt, at: now)
                    }
                }
            }
        }
        return actions
    }
}

/// Memory that every packet is opened into.
private final class Scratch {
    let buffer: UnsafeMutableRawBufferPointer
    init(byteCount: Int) { buffer = .allocate(byteCount: byteCount, alignment: 16) }
    deinit { buffer.deallocate() }
}
