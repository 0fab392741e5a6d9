// The stream that answers a `RepairRequest`: its number, then packets. Writing it, and cutting it again.

/// The answer to a `RepairRequest` as it stands on a stream of the relay: `repair_id` in 4 bytes, then each packet
/// after a length of 2 bytes, all in network order.
public enum RepairStream {
    /// The whole stream. Packets that no request can be answered with (see `RelayProtocolLimits`) are left out.
    public static func encode(id: UInt32, packets: [[UInt8]]) -> [UInt8] {
        var bytes = [UInt8]()
        bytes.reserveCapacity(packets.reduce(4) { $0 + 2 + $1.count })
        for shift in [24, 16, 8, 0] as [UInt32] { bytes.append(UInt8(truncatingIfNeeded: id >> shift)) }
        for packet in packets where RelayProtocolLimits.repairPacketByteCounts.contains(packet.count) {
            bytes.append(UInt8(truncatingIfNeeded: packet.count >> 8))
            bytes.append(UInt8(truncatingIfNeeded: packet.count))
            bytes += packet
        }
        return bytes
    }
}

/// Cuts such a stream into packets, whatever chunks it comes in. It keeps at most one unfinished packet.
public struct RepairStreamDecoder: Sendable {
    /// Why a stream is none that answers a request.
    public enum Failure: Error, Hashable, Sendable, CustomStringConvertible {
        /// A length that no packet has.
        case packetLength(Int)
        /// More packets than a request can ask for.
        case tooManyPackets
        /// It ended within a packet or its number.
        case cutOff

        /// One line for a log.
        public var description: String {
            switch self {
            case .packetLength(let count): "a repaired packet of \(count) bytes"
            case .tooManyPackets: "more than \(RelayProtocolLimits.repairPacketsMaximum) repaired packets on one stream"
            case .cutOff: "a repair stream that ends within a packet"
            }
        }
    }

    /// The request that the stream answers; `nil` until it is there.
    public private(set) var id: UInt32?
    private var head: [UInt8] = []
    private var length: Int?
    private var body: [UInt8] = []
    private var packets = 0
    private var failure: Failure?

    /// A decoder at the beginning of a stream.
    public init() {}

    /// Takes the next bytes and hands out the packets that they complete, in order. Throws after the packets before the fault,
    /// and again at every later call.
    public mutating func feed(
        _ bytes: some Sequence<UInt8>, isEnd: Bool = false, _ receive: ([UInt8]) -> Void
    ) throws(Failure) {
        if let failure { throw failure }
        for byte in bytes { try take(byte, receive) }
        if isEnd, id == nil || length != nil || !head.isEmpty { try fail(.cutOff) }
    }

    private mutating func take(_ byte: UInt8, _ receive: ([UInt8]) -> Void) throws(Failure) {
        if let length {
            body.append(byte)
            guard body.count == length else { return }
            let packet = body
            body = []
            self.length = nil
            packets += 1
            if packets > RelayProtocolLimits.repairPacketsMaximum { try fail(.tooManyPackets) }
            return receive(packet)
        }
        head.append(byte)
        if id == nil {
            guard head.count == 4 else { return }
            id = head.reduce(0) { $0 << 8 | UInt32($1) }
            head = []
        } else if head.count == 2 {
            let count = Int(head[0]) << 8 | Int(head[1])
            head = []
            guard RelayProtocolLimits.repairPacketByteCounts.contains(count) else {
                return try fail(.packetLength(count))
            }
            length = count
        }
    }

    private mutating func fail(_ problem: Failure) throws(Failure) {
        failure = problem
        throw problem
    }
}
