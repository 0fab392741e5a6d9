// One thread of a relay: its socket on the relay's port, its connections, and their streams and datagrams. No rules.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol
import Synchronization

/// The connections of one of a relay's endpoints: what they say is reported to the shard that has their channel, what the
/// shards order is carried out.
///
/// All but `tally` is used on the endpoint's loop.
final class RelayWorker: @unchecked Sendable {
    let number: Int
    let endpoint: QUICEndpoint
    /// What is counted here and by the shard; read on any thread.
    let tally = Mutex(RelayWorkerTally())
    /// The rules of the channels that this thread has. Set once, before the first event.
    private(set) var shard: RelayShard?

    private let exchange: RelayExchange
    private let places: ConnectionPlaces?
    private let limits: RelayLimits
    private let log: RelayLog
    private var watches: ShardWatches
    private var peers: [ConnectionID: RelayPeer] = [:]

    /// The control stream: the first that a client opens.
    private static let controlStream: Int64 = 0

    /// A worker of `endpoint`, whose delegate it becomes. Called on the endpoint's loop.
    ///
    /// - Parameters:
    ///   - number: Which one of the relay's it is, from 0.
    ///   - places: Gets the addresses of connections.
    init(
        _ number: Int, endpoint: QUICEndpoint, _ exchange: RelayExchange, places: ConnectionPlaces? = nil,
        logger: Logger
    ) {
        self.number = number
        self.endpoint = endpoint
        self.exchange = exchange
        self.places = places
        limits = exchange.limits
        log = RelayLog(logger: logger)
        watches = ShardWatches(shards: exchange.workers, own: number)
        endpoint.delegate = self
        guard exchange.workers > 1 else { return }
        // A talker concludes from acknowledgements that it is heard: nothing is read while a shard does not follow.
        endpoint.mayRead = { [unowned self] in !watches.areHanging(exchange, at: .now) }
    }

    /// Gives it the rules of its channels. Called on the loop.
    func adopt(_ shard: RelayShard) { self.shard = shard }

    /// Tells members that the relay goes down, and closes the port. Called on the loop.
    func shutDown() {
        exchange.shut(number)
        shard?.shutDown()
        for peer in peers.values { peer.detach() }
        peers = [:]
        endpoint.delegate = nil
        endpoint.close(code: RelayCloseCode.goingDown.rawValue, reason: "the relay is going down")
    }

    /// Counts what the endpoint knows. Called on the loop.
    func count() {
        let statistics = endpoint.statistics
        let connections = endpoint.connectionCount
        tally.withLock { tally in
            tally.connections = connections
            tally.transport = statistics
        }
    }

    /// Takes mail for its connections or its shard. Called on the loop.
    func take(_ mail: RelayMail) {
        switch mail {
        case .report(let report): shard?.take(report)
        case .order(let order): carryOut(order)
        case .question(let question): if let shard { question(shard) }
        case .front: break  // The relay's own.
        }
    }

    // MARK: Orders

    /// Does what it is told. Called on the loop.
    func carryOut(_ order: RelayWorkerOrder) {
        switch order {
        case .action(let action): carryOut(action)
        case .returnCredit(let id, let bytes): peers[id]?.stream?.returnCredit(bytes)
        case .count: break  // Of those over TLS.
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
            guard let peer = peers[id] else { return }
            remove(peer)
            peer.connection.close(code: code.rawValue, reason: reason)
            // The shard that it has left may have decided so, while the one that it is on knows nothing of it.
            if peer.route.hasMoved { tell(.disconnected(id), of: peer) }
        case .answerRepair(let id, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.answerBytes) == false {
                tally.withLock { $0.counters.repairsRefused += 1 }
            }
        case .answerBurst(let id, let request, let bytes):
            if peers[id]?.answer(bytes, limit: limits.repairAnswers, byteLimit: limits.answerBytes) == false {
                if let peer = peers[id] { _ = report(.burstNotTaken(id, request, bytes: bytes.count), of: peer) }
            }
        case .startMedia, .takeMedia, .stopMedia, .forward, .enrol, .pushes, .moved, .note: break  // The shard's.
        }
    }

    private func send(_ bytes: [UInt8], to peer: RelayPeer) {
        guard peer.connection.isOpen, !peer.send(bytes, limit: limits.controlBacklog) else { return }
        log.fault(.slowPeer, peer.id)
        peer.connection.close(code: RelayCloseCode.internalError.rawValue, reason: "control messages are not read")
    }

    // MARK: Reports

    private func tell(_ event: RelayCore.Event, of peer: RelayPeer) { _ = report(.event(event), of: peer) }

    /// Tells the shard that has the connection; false when the report was dropped, which happens only to datagrams.
    private func report(_ report: RelayWorkerReport, of peer: RelayPeer) -> Bool {
        self.report(report, to: peer.route.shard)
    }

    private func report(_ report: RelayWorkerReport, to target: Int) -> Bool {
        guard target != number else {
            shard?.take(report)
            return true
        }
        let isTaken = exchange.post(.report(report), to: target)
        watches.reported(to: target, exchange, at: .now)
        return isTaken
    }

    /// A client says something. The first message that names a channel leads its connection to the channel's shard.
    private func tell(_ message: ClientMessage, of peer: RelayPeer) {
        let former = peer.route.shard
        if peer.route.moves(by: message, { exchange.directory.shard(of: $0) }) {
            _ = report(.event(.disconnected(peer.id)), to: former)
            announce(peer)
        }
        tell(.message(peer.id, message), of: peer)
    }

    private func receiveMedia(_ datagram: [UInt8], from peer: RelayPeer) {
        if let request = RepairDatagram.request(in: datagram, limit: limits.datagramBytes) {
            // When it is lost, the same one comes on the control stream.
            _ = report(.repairRequest(request, from: peer.id), of: peer)
            return
        }
        guard let header = MediaPacketHeader(parsing: datagram, limit: limits.datagramBytes) else {
            _ = report(.malformedMedia(from: peer.id), of: peer)
            return
        }
        if !report(.media(header, datagram, from: peer.id, arrived: endpoint.turnBegan), of: peer) {
            tally.withLock { $0.counters.packetsNotSent += 1 }
        }
    }
}

// MARK: - What the transport tells

extension RelayWorker: QUICEndpointDelegate {
    func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
        let peer = RelayPeer(id: exchange.numbers.next(of: number), connection: connection, shard: number)
        connection.context = peer
        connection.delegate = self
        peers[peer.id] = peer
        if exchange.spread.opened() { steer(isSpread: true) }
        if connection.isReady {
            welcome(peer)
        } else {
            // It sent early data: an answer to that may be on its way before it has proven who it is.
            announce(peer)
        }
    }

    private func steer(isSpread: Bool) {
        guard exchange.workers > 1 else { return }
        do {
            try endpoint.steerByConnectionID(of: exchange.workers, strangers: isSpread ? .spread : .first)
        } catch {
            log.cannotSteer(error)
        }
    }

    /// A connection is not there any more.
    private func remove(_ peer: RelayPeer) {
        peers[peer.id] = nil
        places?.set(nil, of: peer.id)
        peer.detach()
        if exchange.spread.closed() { steer(isSpread: false) }
    }

    /// Tells the shard of a connection that it is greeted or connected.
    private func announce(_ peer: RelayPeer) {
        guard let pin = pin(of: peer) else { return }
        let event: RelayCore.Event =
            peer.isConnected
            ? .connected(peer.id, pin, carriesMedia: carriesMedia(peer))
            : .greeted(peer.id, pin, carriesMedia: carriesMedia(peer))
        _ = report(.announced(peer.id, event, peer.connection.fanOutPath), of: peer)
    }

    private func carriesMedia(_ peer: RelayPeer) -> Bool {
        let minimum = RelayProtocolLimits.datagramFrameByteCountMinimum
        return (peer.connection.peerDatagramFrameSize ?? minimum) >= minimum
    }

    private func pin(of peer: RelayPeer) -> PublicKeyPin? {
        if let pin = peer.connection.peerKeySHA256.flatMap({ PublicKeyPin($0) }) { return pin }
        remove(peer)
        peer.connection.close(code: RelayCloseCode.protocolViolation.rawValue, reason: "a client key is needed")
        return nil
    }

    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {
        // The kernel gives it to the worker whose shard gave the source its number.
        if shard?.takeForeign(packet, arrived: endpoint.turnBegan) != true {
            tally.withLock { $0.counters.strayPackets += 1 }
        }
    }

    private func welcome(_ peer: RelayPeer) {
        guard !peer.isConnected else { return }
        peer.isConnected = true
        places?.set(peer.connection.place, of: peer.id)
        announce(peer)
    }
}

extension RelayWorker: QUICConnectionDelegate {
    /// Nil once it was removed, which detaches it.
    private func peer(of connection: QUICConnection) -> RelayPeer? { connection.context as? RelayPeer }

    func connectionDidBecomeReady(_ connection: QUICConnection) {
        if let peer = peer(of: connection) { welcome(peer) }
    }

    func connection(_ connection: QUICConnection, didOpen stream: QUICStream) {
        guard let peer = peer(of: connection) else { return }
        guard stream.id == Self.controlStream else {
            return tell(.violation(peer.id, "a second stream"), of: peer)
        }
        peer.stream = stream
    }

    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {
        guard let peer = peer(of: connection), peer.stream === stream else { return }
        // Early data and what comes after the handshake may be read in one go: by then it is known who it is.
        if connection.isReady { welcome(peer) }
        // A worker can read faster than a shard on another thread follows.
        let keepsCredit = peer.route.shard != number
        let (bytes, isEnd) = stream.read(keepsCredit: keepsCredit)
        defer { if keepsCredit, !bytes.isEmpty { _ = report(.read(peer.id, bytes: bytes.count), of: peer) } }
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
                tell(try ClientMessage(parsing: message), of: peer)
            } catch {
                guard error.isViolation else {
                    log.fault(.unknownMessage, peer.id)
                    tell(.unknownMessage(peer.id), of: peer)
                    continue
                }
                tell(.violation(peer.id, error.description), of: peer)
            }
        }
        guard peers[peer.id] === peer else { return }
        if let failure { return tell(.violation(peer.id, failure.description), of: peer) }
        if isEnd { tell(.leave, of: peer) }
    }

    func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream) {
        guard let peer = peer(of: connection) else { return }
        if peer.stream === stream { peer.flush() } else { peer.continueAnswer(on: stream) }
    }

    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {
        guard let peer = peer(of: connection) else { return }
        guard peer.stream === stream else { return peer.endAnswer(on: stream) }
        tell(.leave, of: peer)
    }

    /// A client whose control stream has ended in either direction cannot be a member: it could not be told to stop
    /// talking.
    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) {
        guard let peer = peer(of: connection), peer.stream === stream else { return }
        tell(.leave, of: peer)
    }

    func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool) {
        guard let peer = peer(of: connection), !isEarlyData else { return }
        receiveMedia(datagram, from: peer)
    }

    func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress) {
        guard let peer = peer(of: connection) else { return }
        places?.set(connection.place, of: peer.id)
        if let path = connection.fanOutPath { _ = report(.moved(peer.id, path), of: peer) }
        log.moved(peer.id, to: connection.remoteAddress)
    }

    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason) {
        guard let peer = peer(of: connection) else { return }
        remove(peer)
        log.closed(peer.id, reason)
        tell(.disconnected(peer.id), of: peer)
    }
}
