// Carries the relay's rules out over QUIC: streams and datagrams in, messages and sealed packets out.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// `RelayCore` on a `QUICEndpoint`. It is `Sendable` only so that it can be shut down when nobody holds its relay any more:
/// all use is on the endpoint's loop.
final class RelayEngine: @unchecked Sendable {
    let endpoint: QUICEndpoint
    var core: RelayCore
    var milestoneHandler: (@Sendable (RelayMilestone, Instant) -> Void)?
    /// Told when all have gone after `.drain`.
    var drainedHandler: (@Sendable () -> Void)?
    let startedAt = Instant.now
    /// See `RelayStatistics.forwarding`.
    var forwarding = LatencyHistogram()

    private let limits: RelayLimits
    private let enrol: (@Sendable (ConnectionID, RelayEnrolment) -> Void)?
    private let log: RelayLog
    private var peers: [ConnectionID: RelayPeer] = [:]
    private var groups: [ListenerGroup]
    private var nextNumber: UInt64 = 1
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?

    /// The control stream: the first that a client opens.
    private static let controlStream: Int64 = 0

    init(endpoint: QUICEndpoint, configuration: RelayServerConfiguration, logger: Logger) {
        self.endpoint = endpoint
        limits = configuration.limits
        core = RelayCore(
            channels: configuration.channels, limits: configuration.limits, timers: configuration.timers,
            roster: configuration.roster, acceptsPushes: configuration.acceptsPushes, startedAt: .now)
        enrol = configuration.enrol
        groups = configuration.channels.map { _ in ListenerGroup() }
        log = RelayLog(logger: logger)
    }

    /// Tells members that the relay goes down, and closes the port.
    func shutDown() {
        timer?.timer.cancel()
        timer = nil
        _ = core.handle(.shutDown, at: .now)
        for peer in peers.values { peer.detach() }
        peers = [:]
        groups = groups.map { _ in ListenerGroup() }
        endpoint.delegate = nil
        endpoint.close(code: RelayCloseCode.goingDown.rawValue, reason: "the relay is going down")
    }

    func handle(_ event: RelayCore.Event) {
        let now = Instant.now
        carryOut(core.handle(event, at: now), at: now)
        arm()
        if core.isDrained { drainedHandler?() }
    }

    func push(_ request: PushRequest) -> PushVerdict {
        let now = Instant.now
        let (verdict, actions) = core.push(request, at: now)
        carryOut(actions, at: now)
        return verdict
    }

    // MARK: Actions

    private func carryOut(_ actions: [RelayCore.Action], at now: Instant) {
        for action in actions { carryOut(action, at: now) }
    }

    private func carryOut(_ action: RelayCore.Action, at now: Instant) {
        switch action {
        case .send(let message, let recipients):
            let bytes = message.framed()
            for id in recipients {
                guard let peer = peers[id] else { continue }
                if !peer.send(bytes, limit: limits.controlBacklogBytes) {
                    log.slowPeer(id)
                    peer.connection.close(
                        code: RelayCloseCode.internalError.rawValue, reason: "control messages are not taken")
                }
            }
        case .close(let id, let code, let reason):
            guard let peer = peers.removeValue(forKey: id) else { return }
            peer.detach()
            peer.connection.close(code: code.rawValue, reason: reason)
        case .enrol(let id, let enrolment):
            guard let enrol else {
                return handle(.enrolled(id, enrolment, .refused(.other, "the relay keeps no members")))
            }
            enrol(id, enrolment)
        case .startMedia(let id, let channel, let key, _):
            // Channels may be added while it runs.
            while groups.count < core.channelCount { groups.append(ListenerGroup()) }
            guard groups.indices.contains(channel), let peer = peers[id] else { return }
            guard peer.makeSealer(key) else {
                log.noSealer(id)
                return
            }
            groups[channel].insert(peer)
        case .stopMedia(let id, let channel):
            guard groups.indices.contains(channel) else { return }
            groups[channel].remove(id)
        case .forward(let packet, let channel, let talker):
            packet.withUnsafeBytes { forward($0, channel: channel, except: talker) }
        case .answerRepair(let id, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.controlBacklogBytes) == false {
                core.counters.repairsRefused += 1
            }
        case .answerBurst(let id, let request, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.controlBacklogBytes) == false {
                carryOut(core.refuseForNow(request, to: id), at: now)
            }
        case .note(let milestone):
            log.milestone(milestone, at: now)
            milestoneHandler?(milestone, now)
        }
    }

    /// Wakes at the next deadline of the rules. A timer that turns out early costs one wake; none runs while nothing is
    /// under way.
    private func arm() {
        guard let deadline = core.nextDeadline else {
            timer?.timer.cancel()
            timer = nil
            return
        }
        arm(deadline)
    }

    private func arm(_ deadline: Instant) {
        if let timer, timer.timer.isPending, timer.deadline <= deadline { return }
        timer?.timer.cancel()
        timer = (
            deadline,
            endpoint.loop.schedule(at: deadline) { [weak self] in
                self?.timer = nil
                self?.handle(.deadline)
            }
        )
    }

    // MARK: Media

    private func receiveMedia(_ datagram: [UInt8], from peer: RelayPeer) {
        let now = Instant.now
        if let request = RepairDatagram.request(in: datagram, limit: limits.datagramBytes) {
            return handle(.message(peer.id, request))
        }
        datagram.withUnsafeBytes { packet in
            guard packet.count <= limits.datagramBytes, let header = MediaPacketHeader(parsing: packet) else {
                core.countMalformedMedia()
                log.dropped(.malformed, from: peer.id, at: now)
                return
            }
            let (decision, actions) = core.media(header, bytes: datagram, from: peer.id, at: now)
            switch decision {
            case .drop(let reason):
                log.dropped(reason, from: peer.id, at: now)
                for action in actions { carryOut(action, at: now) }
            case .forward(let channel):
                // Who starts to listen with this packet gets it; everything else can wait until it is out.
                for action in actions where action.isMediaSwitch { carryOut(action, at: now) }
                forward(packet, channel: channel, except: peer.id)
                for action in actions where !action.isMediaSwitch { carryOut(action, at: now) }
                if let deadline = core.floorDeadline(channel: channel) {
                    arm(deadline)
                } else {
                    // The burst is over, which may let others go.
                    arm()
                }
            }
        }
    }

    private func forward(_ packet: UnsafeRawBufferPointer, channel: Int, except talker: ConnectionID) {
        let group = groups[channel]
        let place = group.prepare(for: talker)
        guard !group.recipients.connections.isEmpty else { return }
        let result = endpoint.fanOut(packet, to: group.recipients, except: place) { number, trailer in
            group.seal(packet, for: number, into: trailer)
        }
        forwarding.count(.now - endpoint.turnBegan)
        core.counters.packetsOut += result.sent
        core.counters.packetsNotSent += result.failed
    }
}

// MARK: - What the transport tells

extension RelayEngine: QUICEndpointDelegate {
    func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
        let id = ConnectionID(number: nextNumber)
        nextNumber += 1
        let peer = RelayPeer(id: id, connection: connection)
        connection.context = peer
        connection.delegate = self
        peers[id] = peer
        if connection.isReady { welcome(peer) } else { greet(peer) }
    }

    /// It sent early data: an answer to that may be on its way before it has proven who it is.
    private func greet(_ peer: RelayPeer) {
        guard let pin = pin(of: peer) else { return }
        handle(.greeted(peer.id, pin))
    }

    private func pin(of peer: RelayPeer) -> PublicKeyPin? {
        if let pin = peer.connection.peerKeySHA256.flatMap({ PublicKeyPin($0) }) { return pin }
        peers[peer.id] = nil
        peer.detach()
        peer.connection.close(code: RelayCloseCode.protocolViolation.rawValue, reason: "a client key is needed")
        return nil
    }

    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {
        // Media come up in QUIC datagrams only, which say who sent them.
        core.counters.strayPackets += 1
    }

    private func welcome(_ peer: RelayPeer) {
        guard !peer.isConnected else { return }
        peer.isConnected = true
        guard let pin = pin(of: peer) else { return }
        handle(.connected(peer.id, pin))
    }
}

extension RelayEngine: QUICConnectionDelegate {
    private func peer(of connection: QUICConnection) -> RelayPeer? {
        guard let peer = connection.context as? RelayPeer, peers[peer.id] === peer else { return nil }
        return peer
    }

    func connectionDidBecomeReady(_ connection: QUICConnection) {
        if let peer = peer(of: connection) { welcome(peer) }
    }

    func connection(_ connection: QUICConnection, didOpen stream: QUICStream) {
        guard let peer = peer(of: connection) else { return }
        guard stream.id == Self.controlStream else {
            return handle(.violation(peer.id, "a second stream"))
        }
        peer.stream = stream
    }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        guard let peer = peer(of: connection), peer.stream === stream else { return }
        // Early data and what comes after the handshake may be read in one go: by then it is known who it is.
        if connection.isReady { welcome(peer) }
        let (bytes, isEnd) = stream.read()
        var messages: [[UInt8]] = []
        var failure: MessageDecoder.Failure?
        do throws(MessageDecoder.Failure) {
            try peer.decoder.feed(bytes) { messages.append($0) }
        } catch {
            failure = error
        }
        for message in messages {
            // The connection may be closed by any of them.
            guard peers[peer.id] === peer else { return }
            do throws(RelayMessageError) {
                handle(.message(peer.id, try ClientMessage(parsing: message)))
            } catch {
                guard error.isViolation else {
                    log.unknownMessage(peer.id)
                    continue
                }
                handle(.violation(peer.id, error.description))
            }
        }
        guard peers[peer.id] === peer else { return }
        if let failure { return handle(.violation(peer.id, failure.description)) }
        if isEnd { handle(.message(peer.id, .leave)) }
    }

    func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream) {
        guard let peer = peer(of: connection) else { return }
        if peer.stream === stream { peer.flush() } else { peer.continueAnswer(on: stream) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        guard let peer = peer(of: connection) else { return }
        guard peer.stream === stream else { return peer.endAnswer(on: stream) }
        handle(.message(peer.id, .leave))
    }

    func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool) {
        guard let peer = peer(of: connection), !isEarlyData else { return }
        receiveMedia(datagram, from: peer)
    }

    func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress) {
        guard let peer = peer(of: connection) else { return }
        log.moved(peer.id, to: connection.remoteAddress)
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        guard let peer = peer(of: connection) else { return }
        peers[peer.id] = nil
        peer.detach()
        log.closed(peer.id, reason)
        handle(.disconnected(peer.id))
    }
}
