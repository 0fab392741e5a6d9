// Packs the queues into packets: datagrams first, then streams in turn, until the queues are empty or the window is
// full.
import CGnuTLS
import CLinux
import CNgtcp2

extension QUICConnection {
    /// Packets that one connection may send before the others get their turn.
    private static let packetsPerFlush = 64
    /// Pieces of a send buffer that are handed to the library at once.
    private static let piecesPerWrite = 8
    /// What takes less time at the pace of the congestion window is sent without a pause, and without a timer for its end; nanoseconds.
    private static let unpacedTime: UInt64 = 1_000_000
    /// What any path carries (RFC 9000, section 14): larger packets are not probed for.
    static let packetByteCountMaximum = Int(NGTCP2_MAX_UDP_PAYLOAD_SIZE)

    private enum Step {
        /// Something was put into the packet, or dropped; continue with the same packet.
        case more
        /// The packet is complete.
        case packet(Int)
        /// Nothing can be sent now.
        case nothing
        case failed(Int32)

        /// What the library says of a write.
        init(written: Int) {
            switch written {
            case 1...: self = .packet(written)
            case 0: self = .nothing
            default:
                let status = Int32(truncatingIfNeeded: written)
                self = status == NGTCP2_ERR_WRITE_MORE ? .more : .failed(status)
            }
        }
    }

    /// Where a flush stands.
    private struct Pass {
        var path = ngtcp2_path_storage()
        var info = ngtcp2_pkt_info()
        let time: UInt64
        /// Streams without credit; they wait for the next flush.
        var blocked: [QUICStream] = []
        var datagramsBlocked = false
    }

    /// Sends what is queued, acknowledgements and probes included.
    func flush() {
        guard let conn else { return }
        isQuiet = false
        acknowledgementPace.acknowledged()
        if earlyDataStreamsLost { sendEarlyDataAgain(conn) }
        var pass = Pass(time: endpoint.timestamp())
        ngtcp2_path_storage_zero(&pass.path)
        var packets = 0
        var failure: Int32?
        sending: while packets < Self.packetsPerFlush {
            guard let room = endpoint.sender.reserve() else {
                endpoint.markDirty(self)
                break
            }
            while true {
                switch step(conn, .init(rebasing: room.prefix(Self.packetByteCountMaximum)), &pass) {
                case .more: continue
                case .packet(let length):
                    commit(length, &pass)
                    packets += 1
                    continue sending
                case .nothing: break sending
                case .failed(let status):
                    failure = status
                    break sending
                }
            }
        }
        for stream in pass.blocked { sendQueue.append(stream) }
        if let failure {
            end(afterError: failure)
            return
        }
        // As if it had been a moment before, where the library allows it: a few packets are no burst that has to be paced.
        ptt_packets_sent(conn, pass.time, Self.unpacedTime)
        if let closeRequest, isHandshakeComplete || !isServer {
            end(.closedLocally(code: closeRequest.code, reason: closeRequest.reason), send: .application(closeRequest))
            return
        }
        if packets == Self.packetsPerFlush { endpoint.markDirty(self) }
        var statistics = ptt_connection_info()
        ptt_get_connection_info(conn, &statistics)
        probe(conn, statistics, at: pass.time)
        updateDeadline(conn, statistics)
    }

    private func step(_ conn: OpaquePointer, _ buffer: UnsafeMutableRawBufferPointer, _ pass: inout Pass) -> Step {
        if !datagrams.isEmpty, !pass.datagramsBlocked, let maximum = maximumDatagramLength {
            return writeDatagram(conn, buffer, &pass, maximum: maximum)
        }
        if let stream = nextStreamToSend() { return write(stream, conn, buffer, &pass) }
        var taken = 0
        let written = ngtcp2_conn_writev_stream_versioned(
            conn, &pass.path.path, NGTCP2_PKT_INFO_VERSION, &pass.info, buffer.bytes, buffer.count, &taken,
            NGTCP2_WRITE_STREAM_FLAG_NONE, -1, nil, 0, pass.time)
        return Step(written: written)
    }

    private func writeDatagram(
        _ conn: OpaquePointer, _ buffer: UnsafeMutableRawBufferPointer, _ pass: inout Pass, maximum: Int
    ) -> Step {
        guard datagrams[0].bytes.count <= maximum else {
            dropFirstDatagram()
            return .more
        }
        var accepted: Int32 = 0
        let id = datagrams[0].id
        let written = datagrams[0].bytes.withUnsafeMutableBufferPointer { datagram in
            // The library asserts that a piece is not empty: an empty datagram has none.
            var vector = ngtcp2_vec(base: datagram.baseAddress, len: datagram.count)
            return ngtcp2_conn_writev_datagram_versioned(
                conn, &pass.path.path, NGTCP2_PKT_INFO_VERSION, &pass.info, buffer.bytes, buffer.count, &accepted,
                NGTCP2_WRITE_DATAGRAM_FLAG_MORE, id, &vector, datagram.isEmpty ? 0 : 1, pass.time)
        }
        if accepted != 0 { datagrams.removeFirst() }
        let step = Step(written: written)
        switch step {
        case .failed(NGTCP2_ERR_INVALID_STATE), .failed(NGTCP2_ERR_INVALID_ARGUMENT):
            // The peer's limits were checked above, so this is the library's view of them: drop what it refuses.
            dropFirstDatagram()
            return .more
        default: return step
        }
    }

    /// The first stream in the queue that still has something to say.
    private func nextStreamToSend() -> QUICStream? {
        while let stream = sendQueue.first {
            if !stream.isOver, stream.sending.unsent > 0 || (stream.finishing && !stream.finishSent) { return stream }
            stream.queuedForSending = false
            sendQueue.removeFirst()
        }
        return nil
    }

    private func write(
        _ stream: QUICStream, _ conn: OpaquePointer, _ buffer: UnsafeMutableRawBufferPointer, _ pass: inout Pass
    ) -> Step {
        var taken = -1
        var offered = 0
        let written = withUnsafeTemporaryAllocation(of: ngtcp2_vec.self, capacity: Self.piecesPerWrite) { vectors in
            var count = 0
            offered = stream.sending.forEachUnsent(maximum: Self.piecesPerWrite) { base, length in
                vectors[count] = ngtcp2_vec(base: base.assumingMemoryBound(to: UInt8.self), len: length)
                count += 1
            }
            var flags = NGTCP2_WRITE_STREAM_FLAG_MORE
            if stream.finishing, offered == stream.sending.unsent { flags |= NGTCP2_WRITE_STREAM_FLAG_FIN }
            return ngtcp2_conn_writev_stream_versioned(
                conn, &pass.path.path, NGTCP2_PKT_INFO_VERSION, &pass.info, buffer.bytes, buffer.count, &taken,
                flags, stream.id, vectors.baseAddress, count, pass.time)
        }
        if taken >= 0 {
            stream.sending.markSent(taken)
            if stream.finishing, taken == offered, stream.sending.unsent == 0 { stream.finishSent = true }
        }
        let step = Step(written: written)
        switch step {
        case .packet:
            // The next packet is another stream's, if there is one.
            if sendQueue.count > 1 { sendQueue.append(sendQueue.removeFirst()) }
            return step
        case .failed(NGTCP2_ERR_STREAM_DATA_BLOCKED):
            pass.blocked.append(sendQueue.removeFirst())
            return .more
        case .failed(NGTCP2_ERR_STREAM_SHUT_WR), .failed(NGTCP2_ERR_STREAM_NOT_FOUND):
            stream.peerStopped()
            return .more
        default: return step
        }
    }

    private func commit(_ length: Int, _ pass: inout Pass) {
        let local = NetworkEnd(pass.path.path.local)
        let socket = local.value.flatMap { endpoint.socket(at: $0) } ?? socket
        endpoint.sender.commit(length, on: socket, from: local, to: NetworkEnd(pass.path.path.remote))
    }

    func streamHasDataToSend(_ stream: QUICStream) {
        if !stream.queuedForSending {
            stream.queuedForSending = true
            sendQueue.append(stream)
        }
        endpoint.markDirty(self)
    }

    func streamWasRead(_ stream: QUICStream, count: Int) {
        guard let conn else { return }
        // Refused only for a stream that the library has forgotten, and then there is nothing to extend.
        _ = ngtcp2_conn_extend_max_stream_offset(conn, stream.id, UInt64(count))
        ngtcp2_conn_extend_max_offset(conn, UInt64(count))
        endpoint.markDirty(self)
    }

    func resetStream(_ stream: QUICStream, errorCode: UInt64) {
        guard let conn else { return }
        _ = ptt_shutdown_stream(conn, stream.id, min(errorCode, 1 << 62 - 1))
        endpoint.markDirty(self)
    }

    /// The server refused the early data, and the library has forgotten the streams: the same ones are opened
    /// again, and send everything from the start.
    private func sendEarlyDataAgain(_ conn: OpaquePointer) {
        earlyDataStreamsLost = false
        let lost = streams.values.sorted { $0.id < $1.id }
        streams = [:]
        sendQueue = []
        for stream in lost {
            var id: Int64 = -1
            stream.sending.rewind()
            stream.finishSent = false
            stream.queuedForSending = false
            guard ngtcp2_conn_open_bidi_stream(conn, &id, nil) == 0, id == stream.id else {
                // The server allows fewer streams than it did.
                stream.isOver = true
                post(.streamClosed(stream, errorCode: nil))
                continue
            }
            streams[id] = stream
            streamHasDataToSend(stream)
        }
    }
}

extension UnsafeMutableRawBufferPointer {
    fileprivate var bytes: UnsafeMutablePointer<UInt8>? { baseAddress?.assumingMemoryBound(to: UInt8.self) }
}
