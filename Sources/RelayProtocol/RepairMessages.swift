// The messages about packets that were lost, and about waiting for the floor, and their way to and from protobuf.
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
    guard RelayProtocolLimits.repairPacketByteCounts.contains(bytes.count) else {
        throw .invalidField(
            "packet", reason: "has \(bytes.count) bytes, not \(RelayProtocolLimits.repairPacketByteCounts)")
    }
    return Array(bytes)
}

extension ClientMessage.RepairRequest {
    init(_ wire: Pttd_Relay_V1_RepairRequest) throws(RelayMessageError) {
        guard wire.repairID != 0 else { throw .invalidField("repair_id", reason: "is 0") }
        let limit = RelayProtocolLimits.repairRangesMaximum
        guard wire.ranges.count <= limit else {
            throw .invalidField("ranges", reason: "has \(wire.ranges.count) entries, more than \(limit)")
        }
        var ranges: [SequenceRange] = []
        for range in wire.ranges {
            ranges.append(
                SequenceRange(
                    first: try valid(UInt16(exactly: range.first), "first", "is above 65535"),
                    last: try valid(UInt16(exactly: range.last), "last", "is above 65535")))
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
