// A bidirectional stream of a connection: reading, writing, ending.

/// A bidirectional stream. Used on the connection's loop only (checked).
///
/// Reading returns flow-control credit to the peer, so bytes that are not read stay with the peer.
public final class QUICStream: @unchecked Sendable {
    /// The stream's number (RFC 9000, section 2.1).
    public let id: Int64
    /// The connection it belongs to; nil once that is gone.
    public private(set) weak var connection: QUICConnection?
    /// The application's, for what it keeps about the stream.
    public var context: AnyObject?
    /// Whether the peer opened it.
    public let isPeerInitiated: Bool
    /// Whether what was received so far came as early data (0-RTT), which an attacker may have replayed, and the
    /// handshake is not complete.
    public var isEarlyData: Bool { receivedEarlyData && connection?.isReady != true }

    /// Bytes that were read and for which the peer got no credit yet.
    var creditKept = 0
    var receivedEarlyData = false
    var received: [UInt8] = []
    var receivedEnd = false
    private var endDelivered = false
    var readableQueued = false
    var sending: StreamSendBuffer
    var finishing = false
    var finishSent = false
    /// The sending side takes nothing more: finished or reset.
    var sendingClosed = false
    var writableWanted = false
    var queuedForSending = false
    /// The library no longer knows the stream.
    var isOver = false

    init(id: Int64, connection: QUICConnection, isPeerInitiated: Bool, sendLimit: Int) {
        self.id = id
        self.connection = connection
        self.isPeerInitiated = isPeerInitiated
        sending = StreamSendBuffer(limit: sendLimit)
    }

    /// How many bytes `write` takes now.
    public var availableCapacity: Int { sendingClosed || isOver ? 0 : sending.available }

    /// Queues all of `bytes`, and with `finish` ends the sending side after them.
    ///
    /// - Throws: `QUICError.sendBufferFull`: nothing was taken, and `streamDidBecomeWritable` will be called;
    ///   `.streamFinished`; `.closed`.
    public func write(_ bytes: [UInt8], finish: Bool = false) throws(QUICError) {
        guard let connection, connection.isOpen, !isOver else { throw QUICError.closed }
        connection.checkLoop()
        guard !sendingClosed else { throw QUICError.streamFinished }
        guard bytes.count <= sending.available else {
            writableWanted = true
            throw QUICError.sendBufferFull(needed: bytes.count, available: sending.available)
        }
        bytes.withUnsafeBytes { sending.append($0) }
        if sending.available < sending.limit / 2 { writableWanted = true }
        if finish {
            finishing = true
            sendingClosed = true
        }
        connection.streamHasDataToSend(self)
    }

    /// Ends the sending side; what is queued is still sent.
    public func finish() {
        // Refused only where nothing more can be sent anyway.
        try? write([], finish: true)
    }

    /// The peer takes nothing more (STOP_SENDING).
    func peerStopped() {
        sending.dropUnsent()
        sendingClosed = true
        finishSent = true
    }

    /// Everything that has arrived and was not read yet, and whether the peer's sending side ended after it. Empty
    /// and false when there is nothing.
    ///
    /// - Parameter keepsCredit: Whether the peer may not send more for these bytes before `returnCredit`: a reader that hands them on
    ///   bounds by that what is on its way.
    public func read(keepsCredit: Bool = false) -> (bytes: [UInt8], isEnd: Bool) {
        connection?.checkLoop()
        let bytes = received
        received = []
        if keepsCredit {
            creditKept += bytes.count
        } else if !bytes.isEmpty, !isOver {
            connection?.streamWasRead(self, count: bytes.count)
        }
        let end = receivedEnd && !endDelivered
        if end { endDelivered = true }
        return (bytes, end)
    }

    /// Lets the peer send `count` more bytes, of those that were read with `keepsCredit`.
    public func returnCredit(_ count: Int) {
        connection?.checkLoop()
        let count = min(count, creditKept)
        creditKept -= count
        if count > 0, !isOver { connection?.streamWasRead(self, count: count) }
    }

    /// Abandons both directions at once (RESET_STREAM and STOP_SENDING), with the application's `errorCode`.
    public func reset(errorCode: UInt64) {
        guard let connection, connection.isOpen, !isOver else { return }
        connection.checkLoop()
        sendingClosed = true
        finishing = false
        sending.dropUnsent()
        connection.resetStream(self, errorCode: errorCode)
    }
}
