// One thread of a relay: its socket on the relay's port, its connections, and their streams and datagrams. No rules.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// The connections of one of a relay's endpoints: what they say is reported to the relay's rules, what those order is carried out.
///
/// All but `tally` and `orders` is used on the endpoint's loop.
final class RelayWorker: @unchecked Sendable {
    let endpoint: QUICEndpoint
    /// What is counted; read on any thread.
    let tally = Mutex(RelayWorkerTally())
    /// Orders from another loop; nil for the worker that lives on the rules' loop.
    let orders: Mailbox<RelayWorkerOrder>?

    private let number: Int
    private let numbers: ConnectionNumbers
    private let places: ConnectionPlaces?
    private let limits: RelayLimits
    private let log: RelayLog
    private let post: (RelayWorkerReport) -> Bool
    /// Where its reports wait for another loop, and whether they wait too long.
    private var reports: Mailbox<RelayWorkerReport>?
    private var rules = RulesWatch()
    private var peers: [ConnectionID: RelayPeer] = [:]
    private var groups: [ListenerGroup] = []

    /// The control stream: the first that a client opens.
    private static let controlStream: Int64 = 0

    /// A worker of `endpoint`, whose delegate it becomes. Called on the endpoint's loop.
    ///
    /// - Parameters:
    ///   - number: Which one of the relay's it is, from 0.
    ///   - places: Gets the addresses of connections.
    ///   - report: Passes reports to the rules; false when one was dropped, which is allowed only for datagrams.
    init(
        _ number: Int, endpoint: QUICEndpoint, numbers: ConnectionNumbers, orders: Mailbox<RelayWorkerOrder>? = nil,
        places: ConnectionPlaces? = nil, limits: RelayLimits, logger: Logger,
        report: @escaping (RelayWorkerReport) -> Bool
    ) {
        self.number = number
        self.endpoint = endpoint
        self.numbers = numbers
        self.places = places
        self.orders = orders
        self.limits = limits
        post = report
        log = RelayLog(logger: logger)
        endpoint.delegate = self
    }

    /// Tells members that the relay goes down, and closes the port. Called on the loop.
    func shutDown() {
        orders?.shut()
        for peer in peers.values { peer.detach() }
        peers = [:]
        groups = []
        endpoint.delegate = nil
        endpoint.close(code: RelayCloseCode.goingDown.rawValue, reason: "the relay is going down")
    }

    /// Counts what the endpoint knows. Called on the loop.
    func count() {
        let statistics = endpoint.statistics
        let connections = endpoint.connectionCount
        tally.withLock { tally in
            tally.connections = connections
            tally.transport = .init(
                packetsReceived: statistics.packetsReceived, malformedPackets: statistics.malformedPackets,
                strayPackets: statistics.strayPackets, accepted: statistics.accepted,
                handshakesFailed: statistics.handshakesFailed, refusedForLoad: statistics.refusedForLoad,
                retriesSent: statistics.retriesSent)
        }
    }

    /// From now on it reads nothing while what it has reported, which goes to `reports`, is not taken. Called on the loop.
    func watch(_ reports: Mailbox<RelayWorkerReport>) {
        self.reports = reports
        endpoint.mayRead = { [unowned self] in !rules.isHanging(handled: reports.handledCount, at: .now) }
    }

    // MARK: Orders

    /// Does what it is told. Called on the loop.
    func carryOut(_ order: RelayWorkerOrder) {
        switch order {
        case .action(let action): carryOut(action)
        case .returnCredit(let id, let bytes): peers[id]?.stream?.returnCredit(bytes)
        case .count: count()
        }
    }

    private func carryOut(_ action: RelayCore.Action) {
        switch action {
        case .send(let message, let recipients):
            let bytes = message.framed()
            for id in recipients { if let peer = peers[id] { send(bytes, to: peer) } }
        case .sendSeries(let series, let recipients):
            let whole = series.pieces()
            for recipient in recipients {
                guard let peer = peers[recipient.connection] else { continue }
                for piece in recipient.first == 0 ? whole : series.pieces(from: recipient.first) {
                    send(piece, to: peer)
                }
            }
        case .close(let id, let code, let reason):
            guard let peer = peers.removeValue(forKey: id) else { return }
            places?.set(nil, of: id)
            peer.detach()
            peer.connection.close(code: code.rawValue, reason: reason)
        case .startMedia(let id, let channel, let key, _):
            // Channels may be added while it runs.
            while groups.count <= channel { groups.append(ListenerGroup()) }
            guard let peer = peers[id] else { return }
            guard peer.makeSealer(key, maximum: limits.downlinkPackets) else {
                log.fault(.noSealer, id)
                return
            }
            groups[channel].insert(peer)
        case .stopMedia(let id, let channel):
            guard groups.indices.contains(channel) else { return }
            groups[channel].remove(id)
        case .forward(let packet, let channel, let talker, let arrived):
            packet.withUnsafeBytes { forward($0, channel: channel, except: talker, arrived: arrived) }
        case .answerRepair(let id, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.answerBytes) == false {
                tally.withLock { $0.repairsRefused += 1 }
            }
        case .answerBurst(let id, let request, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.answerBytes) == false {
                _ = report(.burstNotTaken(id, request, bytes: bytes.count))
            }
        case .enrol, .note: break  // The engine's.
        }
    }

    private func send(_ bytes: [UInt8], to peer: RelayPeer) {
        guard peer.connection.isOpen, !peer.send(bytes, limit: limits.controlBacklog) else { return }
        log.fault(.slowPeer, peer.id)
        peer.connection.close(code: RelayCloseCode.internalError.rawValue, reason: "control messages are not read")
    }

    private func forward(
        _ packet: UnsafeRawBufferPointer, channel: Int, except talker: ConnectionID, arrived: Instant
    ) {
        guard groups.indices.contains(channel) else { return }
        let group = groups[channel]
        let place = group.prepare(for: talker)
        guard !group.recipients.connections.isEmpty else { return }
        let result = endpoint.fanOut(packet, to: group.recipients, except: place)
        let time = Instant.now - arrived
        tally.withLock { tally in
            tally.forwarding.count(time)
            tally.packetsOut += result.sent
            tally.packetsNotSent += result.failed
        }
        for id in group.removeExhausted() {
            log.fault(.exhausted, id)
            peers[id]?.connection.close(
                code: RelayCloseCode.internalError.rawValue, reason: "the connection's packet counter is used up")
        }
    }

    // MARK: Reports

    private func tell(_ event: RelayCore.Event) { _ = report(.event(event)) }

    private func report(_ report: RelayWorkerReport) -> Bool {
        let isTaken = post(report)
        if let reports { rules.reported(reports.postedCount, at: .now) }
        return isTaken
    }

    private func receiveMedia(_ datagram: [UInt8], from peer: RelayPeer) {
        if let request = RepairDatagram.request(in: datagram, limit: limits.datagramBytes) {
            // When it is lost, the same one comes on the control stream.
            _ = report(.repairRequest(request, from: peer.id))
            return
        }
        let header = datagram.withUnsafeBytes { packet in
            packet.count <= limits.datagramBytes ? MediaPacketHeader(parsing: packet) : nil
        }
        guard let header else {
            _ = report(.malformedMedia(from: peer.id))
            return
        }
        if !report(.media(header, datagram, from: peer.id, arrived: endpoint.turnBegan)) {
            tally.withLock { $0.mediaDropped += 1 }
        }
    }
}

extension RelayWorker: RelayCarrier {
    func take(_ order: RelayWorkerOrder) -> Bool {
        if let orders { return orders.post(order, mayBeLost: order.mayBeLost) }
        carryOut(order)
        return true
    }
}

// MARK: - What the transport tells

extension RelayWorker: QUICEndpointDelegate {
    func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
        let peer = RelayPeer(id: numbers.next(of: number), connection: connection)
        connection.context = peer
        connection.delegate = self
        peers[peer.id] = peer
        if connection.isReady { welcome(peer) } else { greet(peer) }
    }

    /// It sent early data: an answer to that may be on its way before it has proven who it is.
    private func greet(_ peer: RelayPeer) {
        guard let pin = pin(of: peer) else { return }
        tell(.greeted(peer.id, pin, carriesMedia: carriesMedia(peer)))
    }

    private func carriesMedia(_ peer: RelayPeer) -> Bool {
        let minimum = RelayProtocolLimits.datagramFrameByteCountMinimum
        return (peer.connection.peerDatagramFrameSize ?? minimum) >= minimum
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
        tally.withLock { $0.strayPackets += 1 }
    }

    private func welcome(_ peer: RelayPeer) {
        guard !peer.isConnected else { return }
        peer.isConnected = true
        guard let pin = pin(of: peer) else { return }
        places?.set(peer.connection.place, of: peer.id)
        tell(.connected(peer.id, pin, carriesMedia: carriesMedia(peer)))
    }
}

extension RelayWorker: QUICConnectionDelegate {
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
            return tell(.violation(peer.id, "a second stream"))
        }
        peer.stream = stream
    }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        guard let peer = peer(of: connection), peer.stream === stream else { return }
        // Early data and what comes after the handshake may be read in one go: by then it is known who it is.
        if connection.isReady { welcome(peer) }
        // On a thread of its own, a worker can read faster than the rules follow.
        let (bytes, isEnd) = stream.read(keepsCredit: reports != nil)
        defer { if reports != nil, !bytes.isEmpty { _ = report(.read(peer.id, bytes: bytes.count)) } }
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
                tell(.message(peer.id, try ClientMessage(parsing: message)))
            } catch {
                guard error.isViolation else {
                    log.fault(.unknownMessage, peer.id)
                    tell(.unknownMessage(peer.id))
                    continue
                }
                tell(.violation(peer.id, error.description))
            }
        }
        guard peers[peer.id] === peer else { return }
        if let failure { return tell(.violation(peer.id, failure.description)) }
        if isEnd { tell(.message(peer.id, .leave)) }
    }

    func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream) {
        guard let peer = peer(of: connection) else { return }
        if peer.stream === stream { peer.flush() } else { peer.continueAnswer(on: stream) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        guard let peer = peer(of: connection) else { return }
        guard peer.stream === stream else { return peer.endAnswer(on: stream) }
        tell(.message(peer.id, .leave))
    }

    /// A client whose control stream has ended in either direction cannot be a member: it could not be told to stop
    /// talking.
    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) {
        guard let peer = peer(of: connection), peer.stream === stream else { return }
        tell(.message(peer.id, .leave))
    }

    func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool) {
        guard let peer = peer(of: connection), !isEarlyData else { return }
        receiveMedia(datagram, from: peer)
    }

    func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress) {
        guard let peer = peer(of: connection) else { return }
        places?.set(connection.place, of: peer.id)
        log.moved(peer.id, to: connection.remoteAddress)
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        guard let peer = peer(of: connection) else { return }
        peers[peer.id] = nil
        places?.set(nil, of: peer.id)
        peer.detach()
        log.closed(peer.id, reason)
        tell(.disconnected(peer.id))
    }
}
