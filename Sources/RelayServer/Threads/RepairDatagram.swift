// Repair requests in datagrams: on the control stream they would wait for each other's losses.
import RelayProtocol

/// The one message that a client may send in a datagram, without a length before it.
enum RepairDatagram {
    /// RTP begins with 128 or more (RFC 9443), this message's protobuf field with less.
    private static let rtpFrom: UInt8 = 128

    /// The request in `datagram` of at most `limit` bytes; nil: it is none, but media or rubbish.
    static func request(in datagram: [UInt8], limit: Int) -> ClientMessage? {
        guard let first = datagram.first, first < rtpFrom,
            datagram.count <= limit,
            let message = try? ClientMessage(parsing: datagram), case .repairRequest = message
        else { return nil }
        return message
    }
}
