// The messages about packets that were lost, and about waiting for the floor, with the streams that answer them.
import FoundationEssentials
import SwiftProtobuf

/// Some RTP sequence numbers of one burst, both ends included; `last` may have wrapped past 65535.
public struct SequenceRange: Sendable, Hashable {
    /// The first.
    public var first: UInt16
    /// The last.
    public var last: UInt16

    /// From `first` to `last`.
    public init(first: UInt16, last: UInt16) {
        self.first = first
        self.last = last
    }

    /// How many there are, 1…65536.
    public var count: Int { Int(last &- first) + 1 }
}

extension RelayProtocolLimits {
    /// The bytes of an RTP packet in `MediaRepair` and on a repair stream.
    public static let repairPacketByteCounts = 13...1_200
    /// The most ranges in one `RepairRequest`.
    public static let repairRangesMaximum = 64
    /// The most packets that one `RepairRequest` asks for.
    public static let repairPacketsMaximum = 4_096
}

extension ClientMessage {
    /// Asks for packets of a talker that did not come.
    public struct RepairRequest: Sendable, Hashable {
        /// Names the request on the stream that answers it; greater than every earlier one of the connection.
        public var id: UInt32
        /// The talker.
        public var ssrc: SSRC
        /// The SFrame key id of the burst.
        public var keyID: UInt64
        /// What is missing: 1…64 ranges of 4096 packets at most.
        public var ranges: [SequenceRange]

        /// A request for `ranges`; more than the limits allow is a programming error.
        public init(id: UInt32, ssrc: SSRC, keyID: UInt64, ranges: [SequenceRange]) {
            precondition(Self.isWithinLimits(ranges))
            self.id = id
            self.ssrc = ssrc
            self.keyID = keyID
            self.ranges = ranges
        }

        static func isWithinLimits(_ ranges: [SequenceRange]) -> Bool {
            (1...RelayProtocolLimits.repairRangesMaximum).contains(ranges.count)
                && ranges.reduce(0) { $0 + $1.count } <= RelayProtocolLimits.repairPacketsMaximum
        }
    }
}

extension ServerMessage {
    /// A request that waits for the floor (TS 24.380: Floor Queue Position Info).
    public struct FloorQueuePosition: Sendable, Hashable {
        /// The request.
        public var requestID: FloorRequestID
        /// 1: the next one.
        public var position: Int

        /// `requestID` is the one at `position`.
        public init(requestID: FloorRequestID, position: Int) {
            self.requestID = requestID
            self.position = position
        }
    }
}

/// A lost packet from the wire.
func repairPacket(_ bytes: Data) throws(RelayMessageError) -> [UInt8] {
    let counts = RelayProtocolLimits.repairPacketByteCounts
    return try valid(
        counts.contains(bytes.count) ? Array(bytes) : nil, "packet", "has \(bytes.count) bytes, not \(counts)")
}

extension ClientMessage.RepairRequest {
    init(_ wire: Pttd_Relay_V1_RepairRequest) throws(RelayMessageError) {
        guard wire.repairID != 0 else { throw .invalidField("repair_id", reason: "is 0") }
        let ranges = try entries(wire.ranges, atMost: RelayProtocolLimits.repairRangesMaximum, "ranges") {
            range throws(RelayMessageError) in
            SequenceRange(
                first: try sequence(range.first, "first"), last: try sequence(range.last, "last"))
        }
        guard Self.isWithinLimits(ranges) else {
            let most = RelayProtocolLimits.repairPacketsMaximum
            throw .invalidField("ranges", reason: "ask for no packet, or for more than \(most)")
        }
        self.init(id: wire.repairID, ssrc: SSRC(rawValue: wire.ssrc), keyID: wire.keyID, ranges: ranges)
    }

    var wire: Pttd_Relay_V1_RepairRequest {
        var wire = Pttd_Relay_V1_RepairRequest()
        wire.repairID = id
        wire.ssrc = ssrc.rawValue
        wire.keyID = keyID
        wire.ranges = ranges.map { range in
            var wire = Pttd_Relay_V1_SequenceRange()
            wire.first = UInt32(range.first)
            wire.last = UInt32(range.last)
            return wire
        }
        return wire
    }
}

extension ServerMessage.FloorQueuePosition {
    init(_ wire: Pttd_Relay_V1_FloorQueuePosition) throws(RelayMessageError) {
        guard wire.position > 0 else { throw .invalidField("position", reason: "is 0") }
        self.init(requestID: try RelayProtocol.requestID(wire.requestID), position: Int(wire.position))
    }

    var wire: Pttd_Relay_V1_FloorQueuePosition {
        var wire = Pttd_Relay_V1_FloorQueuePosition()
        wire.requestID = requestID.rawValue
        wire.position = UInt32(clamping: position)
        return wire
    }
}

/// The answer to a `RepairRequest` as it stands on a stream of the relay: `repair_id` in 4 bytes, then each packet
/// after a length of 2 bytes, all in network order.
public enum RepairStream {
    /// The whole stream; `id` is not 0. Packets that no request can be answered with (see `RelayProtocolLimits`) are left out.
    public static func encode(id: UInt32, packets: [[UInt8]]) -> [UInt8] {
        write(id.bigEndianBytes, packets)
    }

    /// The answer to a `BurstRequest`: the same behind 4 bytes of 0, and a length of 0 behind the packets when it `isWhole`.
    public static func encode(burst id: BurstRequestID, packets: [[UInt8]], isWhole: Bool) -> [UInt8] {
        write([0, 0, 0, 0] + id.rawValue.bigEndianBytes, packets) + (isWhole ? [0, 0] : [])
    }

    /// The size of the answer to a `BurstRequest`.
    public static func burstByteCount(packets: [[UInt8]], isWhole: Bool) -> Int {
        packets.reduce(isWhole ? 10 : 8) { sum, packet in
            RelayProtocolLimits.repairPacketByteCounts.contains(packet.count) ? sum + 2 + packet.count : sum
        }
    }

    private static func write(_ head: [UInt8], _ packets: [[UInt8]]) -> [UInt8] {
        var bytes = [UInt8]()
        bytes.reserveCapacity(packets.reduce(head.count + 2) { $0 + 2 + $1.count })
        bytes += head
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
        /// Something behind what ends the packets of a burst.
        case behindEnd
        /// It ended within a packet or its number.
        case cutOff

        /// One line for a log.
        public var description: String {
            switch self {
            case .packetLength(let count): "a repaired packet of \(count) bytes"
            case .tooManyPackets: "more than \(RelayProtocolLimits.repairPacketsMaximum) repaired packets on one stream"
            case .behindEnd: "a burst's stream that goes on behind its end"
            case .cutOff: "a repair stream that ends within a packet"
            }
        }
    }

    /// The request that the stream answers; `nil` until it is there.
    public private(set) var id: UInt32?
    /// Whether that is a `BurstRequest`.
    public private(set) var isBurst = false
    /// Whether all that was asked for of the burst has come.
    public private(set) var isWhole = false
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
        if isWhole { return try fail(.behindEnd) }
        head.append(byte)
        if id == nil {
            guard head.count == 4 else { return }
            let number = head.reduce(0) { $0 << 8 | UInt32($1) }
            head = []
            if number == 0, !isBurst { isBurst = true } else { id = number }
        } else if head.count == 2 {
            let count = Int(head[0]) << 8 | Int(head[1])
            head = []
            if isBurst, count == 0 {
                isWhole = true
                return
            }
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
