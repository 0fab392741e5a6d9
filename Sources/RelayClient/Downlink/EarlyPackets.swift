// Packets that arrived before the floor message that binds their source. Pure.
import MonotonicTime

/// The packets of the burst that the next `FloorTaken` will tell of: a few, and not for long. Media go by plain UDP and may overtake
/// the control stream.
struct EarlyPackets: Sendable {
    private(set) var packets: [DownlinkStateMachine.HeldPacket] = []

    /// Whether another packet fits.
    var hasRoom: Bool { packets.count < DownlinkStateMachine.heldPacketsMaximum }

    /// When `expire` has something to do.
    var nextDeadline: Instant? { packets.first.map { $0.receivedAt + DownlinkStateMachine.heldPacketTime } }

    /// Keeps a packet; false when the store is full.
    mutating func hold(_ packet: [UInt8], receivedAt: Instant) -> Bool {
        guard hasRoom else { return false }
        packets.append(.init(bytes: packet, receivedAt: receivedAt))
        return true
    }

    /// All of them, in the order they came; none is left.
    mutating func takeAll() -> [DownlinkStateMachine.HeldPacket] {
        defer { packets = [] }
        return packets
    }

    /// Forgets those that are too old; returns how many those were.
    mutating func expire(at now: Instant) -> Int {
        let expired = packets.prefix { now >= $0.receivedAt + DownlinkStateMachine.heldPacketTime }.count
        packets.removeFirst(expired)
        return expired
    }
}
