// A QUIC connection as its owner sees it.
import CGnuTLS
import CLinux
import CNgtcp2
import Glibc
import MonotonicTime
import Reactor

/// A QUIC version 1 connection (RFC 9000) of a `QUICEndpoint`.
///
/// It is `Sendable` only so that actors on the endpoint's loop can hold it: all use is on that loop (checked). What
/// calls queue is sent at the end of the loop's turn.
public final class QUICConnection: @unchecked Sendable {
    /// What became of a client's early data.
    public enum EarlyData: Sendable, Equatable {
        /// There was nothing to resume with.
        case notOffered
        /// Sent; the server has not answered yet.
        case offered
        /// Taken.
        case accepted
        /// Refused; streams were sent again after the handshake, datagrams are lost.
        case rejected
    }

    /// What has been counted since the start.
    public struct Statistics: Sendable, Equatable {
        /// Datagrams that were dropped because the send queue was full, or with refused early data.
        public internal(set) var datagramsDroppedSending = 0
        /// Datagrams from the peer that were dropped because the receive queue was full.
        public internal(set) var datagramsDroppedReceiving = 0
    }

    enum Event {
        case ready
        case opened(QUICStream)
        case readable(QUICStream)
        case writable(QUICStream)
        case streamClosed(QUICStream, errorCode: UInt64?)
        case streamAbandoned(QUICStream)
        case datagram([UInt8], early: Bool)
        case datagramAcknowledged(UInt64)
        case datagramLost(UInt64)
        case moved(from: SocketAddress)
        case migrated(Bool)
        case resumption(ResumptionState)
        case refused
        case closed(QUICCloseReason)
    }

    enum Role {
        case client(QUICClientOptions)
        case server(QUICServerOptions)
    }

    /// The endpoint it belongs to.
    public let endpoint: QUICEndpoint
    /// The receiver of the connection's events.
    public weak var delegate: (any QUICConnectionDelegate)?
    /// The application's, for what it keeps about the connection.
    public var context: AnyObject?
    /// Whether the handshake is complete and the connection open.
    public internal(set) var isReady = false
    /// Where the peer is, as last validated.
    public internal(set) var remoteAddress: SocketAddress
    /// SHA-256 of the SubjectPublicKeyInfo of the peer's certificate; nil until it is known.
    public internal(set) var peerKeySHA256: [UInt8]?
    /// A client: what became of early data.
    public internal(set) var earlyData = EarlyData.notOffered
    /// When a packet of this connection came last.
    public internal(set) var lastHeard: Instant?
    /// Why it ended; nil while it has not.
    public internal(set) var closeReason: QUICCloseReason?
    /// Counters.
    public internal(set) var statistics = Statistics()

    let role: Role
    /// The library's object, there to be used until another connection's is asked for; nil once it has ended.
    var conn: OpaquePointer? {
        get {
            memory?.enter()
            return handle
        }
        set { handle = newValue }
    }
    private var handle: OpaquePointer?
    /// An accepted connection's: what holds `conn`.
    var memory: ConnectionMemory?
    /// Nil once the handshake is over, where nothing more can come of it.
    var session: TLSSession?
    let reference: UnsafeMutablePointer<ngtcp2_crypto_conn_ref>
    /// Where foreign packets go: the validated path, in the kernel's form for the path's socket.
    let remote: StoredEnd
    /// The host's address on that path, where the socket has several; and the same as sendmsg(2) wants it.
    let local = StoredEnd()
    var source = PacketSource()
    var socket: UDPSocket
    var ids: [ConnectionID] = []
    /// A server's: the id by which the peer sends.
    var destination: (id: ConnectionID, bytes: [UInt8])?
    lazy var deadline = Deadline { [unowned self] in self.handleExpiry() }
    var streams: [Int64: QUICStream] = [:]
    var sendQueue: [QUICStream] = []
    var datagrams: [(id: UInt64, bytes: [UInt8])] = []
    var nextDatagramID: UInt64 = 0
    /// A client's: sends a packet after this much silence; `QUICClientOptions.keepAlive` at first. While the application waits for an
    /// answer it may be short: a server that was restarted says so only when it is asked.
    public var keepAlive: Duration? {
        didSet {
            checkLoop()
            guard keepAlive != oldValue, let conn, isReady else { return }
            ngtcp2_conn_set_keep_alive_timeout(conn, keepAliveNanoseconds)
            endpoint.markDirty(self)
        }
    }
    /// A client's: whether something that was sent beside QUIC waits for an answer. Meanwhile the server is asked for a sign of life as
    /// often as if a packet of QUIC's were unanswered. So it learns that this end has another address, too.
    public var awaitsAnswer = false {
        didSet {
            checkLoop()
            if awaitsAnswer != oldValue, isReady { endpoint.markDirty(self) }
        }
    }
    /// 0: nothing is sent.
    var keepAliveNanoseconds: UInt64 { keepAlive.map { UInt64(clamping: $0.nanoseconds) } ?? 0 }
    /// Since when nothing came, while something is unanswered.
    var silentSince: UInt64?
    /// The source of the last packet that went beside QUIC, as it is in the packet.
    private var foreignSource: UInt32?
    var events: [Event] = []
    var queuedDatagramEvents = 0
    var isEventful = false
    var isDirty = false
    /// Whether the last flush left nothing of ours queued or unanswered.
    var isQuiet = false
    /// The length of the last datagram of the packet that is being read.
    var readDatagram: Int?
    var acknowledgementPace: AcknowledgementPace
    /// Whether the endpoint's owner knows it.
    var isAnnounced = false
    /// A server's: the address by which it was admitted, and whether its handshake counts no more.
    var admittedFrom: SocketAddress?
    var isHandshakeComplete = false
    var closeRequest: (code: UInt64, reason: String)?
    /// Set where a TLS callback knows better than the library why it fails.
    var failure: QUICCloseReason?
    var resetReceived = false
    var earlyDataStreamsLost = false
    var validatedPath: (remote: SocketAddress, local: SocketAddress)?
    var migration: Migration?
    var resumptionChanged = false
    var hasTicket = false
    var addressToken: [UInt8] = []

    init(endpoint: QUICEndpoint, role: Role, remote: SocketAddress, local: NetworkEnd? = nil, socket: UDPSocket) {
        self.endpoint = endpoint
        self.role = role
        self.socket = socket
        remoteAddress = remote
        acknowledgementPace = AcknowledgementPace(threshold: endpoint.configuration.acknowledgementThreshold)
        self.remote = StoredEnd(remote, family: socket.family)
        reference = .allocate(capacity: 1)
        if case .client(let options) = role {
            keepAlive = options.keepAlive
            isAnnounced = true
        }
        reference.initialize(
            to: ngtcp2_crypto_conn_ref(
                get_conn: { QUICConnection.of($0?.pointee.user_data)?.conn },
                user_data: Unmanaged.passUnretained(self).toOpaque()))
        setLocal(local)
    }

    deinit {
        if let conn { ngtcp2_conn_del(conn) }
        session = nil
        reference.deallocate()
        source.deallocate()
    }

    /// Where foreign packets go (`QUICEndpoint.fanOut`); nil while the connection is not ready. Another one after the
    /// delegate's `didMoveFrom`.
    public var fanOutPath: FanOutPath? {
        checkLoop()
        return isReady ? FanOutPath(to: remote.end, from: source) : nil
    }

    /// Packets leave from `end` from now on; nil: from the socket's own address.
    func setLocal(_ end: NetworkEnd?) {
        local.set(end)
        source.set(local.endIfAny, on: socket)
    }

    /// The id by which this end sends now; nil: none.
    var destinationID: [UInt8]? {
        guard let conn, let id = ngtcp2_conn_get_dcid(conn), id.pointee.datalen > 0 else { return nil }
        return withUnsafeBytes(of: id.pointee.data) { Array($0.prefix(id.pointee.datalen)) }
    }

    /// Whether a packet that begins so is one of this connection's: it has the peer's id, or the source of what went beside QUIC, which
    /// nobody knows who does not see packets.
    func sends(_ packet: [UInt8]) -> Bool {
        guard let first = packet.first, let id = destinationID else { return false }
        if PacketClass(firstByte: first) == .foreign {
            return foreignSource != nil && packet.withUnsafeBytes(Self.source) == foreignSource
        }
        // A long header has the version and the id's length before the id (RFC 9000, 17.2 and 17.3.1).
        return packet.dropFirst(first & 0x80 == 0 ? 1 : 6).starts(with: id)
    }

    /// The source of a packet of RTP, which is what goes beside QUIC (RFC 3550, section 5.1).
    private static func source(of packet: UnsafeRawBufferPointer) -> UInt32? {
        packet.count < 12 ? nil : packet.loadUnaligned(fromByteOffset: 8, as: UInt32.self)
    }

    func checkLoop() { endpoint.loop.checkIsolated() }

    // MARK: What the owner does

    /// Whether it can be used: connecting or ready, and not closed.
    public var isOpen: Bool { handle != nil && closeRequest == nil }

    /// Whether this side accepted it.
    public var isServer: Bool { if case .server = role { true } else { false } }

    /// Opens a bidirectional stream. A client with `resumption` may do so, and write, before it is ready: that is early
    /// data, which is sent again after the handshake if the server refuses it.
    ///
    /// - Throws: `QUICError.streamLimitReached`, also to a client that is not ready and has nothing to resume; `.closed`.
    public func openStream() throws(QUICError) -> QUICStream {
        checkLoop()
        guard let conn, isOpen else { throw QUICError.closed }
        var id: Int64 = -1
        let status = ngtcp2_conn_open_bidi_stream(conn, &id, nil)
        guard status == 0 else {
            if status == NGTCP2_ERR_STREAM_ID_BLOCKED { throw QUICError.streamLimitReached }
            throw QUICError.ngtcp2("ngtcp2_conn_open_bidi_stream", status)
        }
        let stream = QUICStream(
            id: id, connection: self, isPeerInitiated: false, sendLimit: endpoint.configuration.streamSendBuffer)
        streams[id] = stream
        return stream
    }

    /// How many streams the peer lets this side open now.
    public var availableStreams: Int {
        guard let conn, isOpen else { return 0 }
        return Int(clamping: ngtcp2_conn_get_streams_bidi_left(conn))
    }

    /// Queues a datagram (RFC 9221): it arrives complete or not at all, possibly late, and never twice. When the queue
    /// is full, the oldest datagram is dropped and reported as lost.
    ///
    /// - Returns: The datagram's number on this connection, with which the delegate gets its outcome.
    /// - Throws: `QUICError.datagramTooLarge`; `.datagramsNotSupported`; `.closed`.
    @discardableResult
    public func sendDatagram(_ datagram: [UInt8]) throws(QUICError) -> UInt64 {
        checkLoop()
        guard isOpen else { throw QUICError.closed }
        if let maximum = maximumDatagramLength {
            guard maximum > 0 else { throw QUICError.datagramsNotSupported }
            guard datagram.count <= maximum else { throw QUICError.datagramTooLarge(maximum: maximum) }
        } else if datagram.count > Self.packetRoomForDatagram {
            throw QUICError.datagramTooLarge(maximum: Self.packetRoomForDatagram)
        }
        if datagrams.count >= endpoint.configuration.datagramSendQueue {
            dropFirstDatagram()
        }
        defer { nextDatagramID += 1 }
        datagrams.append((nextDatagramID, datagram))
        endpoint.markDirty(self)
        return nextDatagramID
    }

    /// Sends a packet beside QUIC (RFC 9443) at once, by the path that QUIC's own packets take. It may be lost unnoticed.
    ///
    /// - Parameter packet: Must begin with a byte 128…191 (checked).
    public func send(foreign packet: [UInt8]) {
        checkLoop()
        precondition(packet.first.map(PacketClass.init(firstByte:)) == .foreign, "a foreign packet begins with 128…191")
        guard let conn, isReady, let path = ngtcp2_conn_get_path(conn)?.pointee else { return }
        foreignSource = packet.withUnsafeBytes(Self.source)
        let local = NetworkEnd(path.local)
        let socket = local.value.flatMap { endpoint.socket(at: $0) } ?? socket
        packet.withUnsafeBytes { endpoint.sender.send($0, on: socket, from: local, to: NetworkEnd(path.remote)) }
        endpoint.sender.send()
    }

    /// Drops the first datagram in the queue, and reports that to its owner.
    func dropFirstDatagram() {
        statistics.datagramsDroppedSending += 1
        post(.datagramLost(datagrams.removeFirst().id))
    }

    /// The longest datagram that can be sent; 0 when the peer takes none, nil while its limits are not known.
    public var maximumDatagramLength: Int? {
        guard isReady || earlyData == .offered, let frame = peerDatagramFrameSize else { return nil }
        return max(0, min(frame - Self.datagramFrameOverhead, Self.packetRoomForDatagram))
    }

    /// The longest DATAGRAM frame that the peer takes, its `max_datagram_frame_size`, bytes; 0: none. Nil while it is not known.
    public var peerDatagramFrameSize: Int? {
        guard let conn, let parameters = ngtcp2_conn_get_remote_transport_params(conn) else { return nil }
        return Int(clamping: parameters.pointee.max_datagram_frame_size)
    }

    /// A DATAGRAM frame's type byte and two-byte length.
    static let datagramFrameOverhead = 3
    /// What a packet of 1200 bytes leaves for a datagram: header byte, id, packet number, tag and frame are taken off.
    static let packetRoomForDatagram =
        1_200 - 1 - ConnectionID.maximumLength - 4 - 16 - datagramFrameOverhead

    /// Closes it with the application's `code` and `reason` (of which 256 bytes are sent). What is queued and fits the
    /// congestion window is sent before. The delegate's `didClose` follows.
    ///
    /// A server that closes on early data does so once the handshake is complete or has failed: before that, it could
    /// not send the code to the peer (RFC 9000, section 10.2.3).
    public func close(code: UInt64, reason: String = "") {
        checkLoop()
        guard isOpen else { return }
        var text = reason.utf8.prefix(256)
        // Not a part of a character.
        while String(text) == nil { text.removeLast() }
        // A QUIC variable-length integer has 62 bits.
        closeRequest = (min(code, 1 << 62 - 1), String(text) ?? "")
        isReady = false
        endpoint.markDirty(self)
    }

    /// Smoothed round-trip time; nil before it was measured.
    public var roundTripTime: Duration? {
        checkLoop()
        guard let conn, isReady else { return nil }
        var statistics = ptt_connection_info()
        ptt_get_connection_info(conn, &statistics)
        guard statistics.min_rtt != UInt64.max else { return nil }
        return .nanoseconds(Int64(clamping: statistics.smoothed_rtt))
    }
}

extension QUICError {
    static func ngtcp2(_ call: String, _ status: Int32) -> QUICError {
        .library(call: call, reason: String(cString: ngtcp2_strerror(status)))
    }
}
