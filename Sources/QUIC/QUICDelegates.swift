// How an endpoint reports events to its owner. All calls run on the endpoint's loop, never during a call of the owner.

/// The owner of an endpoint.
///
/// Calls come on the loop's thread, one at a time, so an actor on the same loop enters itself by
/// `assumeIsolated`. The delegate may call anything on the endpoint and its connections from there.
public protocol QUICEndpointDelegate: AnyObject {
    /// A client is there, and its key is known: `connection.peerKeySHA256`. Set `connection.delegate` now; what the
    /// client sent follows. `connection.isReady` is false when it is early data that came first.
    func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection)

    /// A packet came whose first byte is 128…191 (RFC 9443: not QUIC), from anyone. `packet` is valid during the call.
    func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress)
}

extension QUICEndpointDelegate {
    /// By default connections are refused: nobody would own them.
    public func endpoint(_ endpoint: QUICEndpoint, didAccept connection: QUICConnection) {
        connection.close(code: 0, reason: "not accepting")
    }

    /// By default foreign packets are ignored.
    public func endpoint(
        _ endpoint: QUICEndpoint, didReceiveForeignPacket packet: UnsafeRawBufferPointer, from address: SocketAddress
    ) {}
}

/// The owner of a connection. Only `didClose` must be written; the others have empty defaults.
public protocol QUICConnectionDelegate: AnyObject {
    /// The handshake is complete: the peer is authenticated, and everything may be sent. The server may still refuse a
    /// client after that; `didClose` reports it.
    func connectionDidBecomeReady(_ connection: QUICConnection)
    /// The peer opened a stream.
    func connection(_ connection: QUICConnection, didOpen stream: QUICStream)
    /// Bytes or the end of a stream can be read with `stream.read()`.
    func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream)
    /// A send buffer that was more than half full, or too full for a write, is at most half full again.
    func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream)
    /// Both directions are over; `errorCode` is nil after a proper end, else the reset's code. What was received may
    /// still be read.
    func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?)
    /// The peer has abandoned a direction of a stream: it sends no more (RESET_STREAM), or, of a stream that it opened, takes no more
    /// (STOP_SENDING).
    func connection(_ connection: QUICConnection, didAbandon stream: QUICStream)
    /// A datagram (RFC 9221) came; `isEarlyData` when it may be a replay.
    func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool)
    /// The peer has the datagram that `sendDatagram` gave this number.
    func connection(_ connection: QUICConnection, didAcknowledgeDatagram id: UInt64)
    /// That datagram was not sent, or is taken for lost: later packets arrived, or nothing did for too long. In the latter
    /// case it may have arrived all the same.
    func connection(_ connection: QUICConnection, didLoseDatagram id: UInt64)
    /// The peer has moved and its new address is validated: `connection.remoteAddress`.
    func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress)
    /// A client's move by `migrate` is over: the new path is validated and in use, or (false) nobody answered there.
    func connection(_ connection: QUICConnection, didEndMigration succeeded: Bool)
    /// A client got something to resume with; the newest replaces the older ones.
    func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState)
    /// The host to which a client sends says that nobody has the port: the process that had it has ended. The connection goes on, because this
    /// is not authenticated: whoever sees its packets can forge it. A host may answer only some of many packets, and one that quotes too little
    /// of them is not believed.
    func connectionWasRefused(_ connection: QUICConnection)
    /// The connection is over; the last call about it.
    func connection(_ connection: QUICConnection, didClose reason: QUICCloseReason)
}

extension QUICConnectionDelegate {
    /// By default nothing.
    public func connectionDidBecomeReady(_ connection: QUICConnection) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didOpen stream: QUICStream) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, streamDidBecomeReadable stream: QUICStream) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, streamDidBecomeWritable stream: QUICStream) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didClose stream: QUICStream, errorCode: UInt64?) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didAbandon stream: QUICStream) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didReceiveDatagram datagram: [UInt8], isEarlyData: Bool) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didAcknowledgeDatagram id: UInt64) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didLoseDatagram id: UInt64) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didMoveFrom oldAddress: SocketAddress) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didEndMigration succeeded: Bool) {}
    /// By default nothing.
    public func connection(_ connection: QUICConnection, didReceive resumption: ResumptionState) {}
    /// By default nothing.
    public func connectionWasRefused(_ connection: QUICConnection) {}
}
