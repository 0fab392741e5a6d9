// What was sent and may not have arrived: packets are kept until the transport knows, and the lost ones go again. Pure rules.
import MonotonicTime

/// The sealed packets of this end whose datagrams are neither acknowledged nor lost.
///
/// A packet whose datagram was lost goes once more, on the control stream, where nothing is lost. It does not matter whether
/// its burst is over at this end: the relay waits for what its release named. What is too old to be waited for by anyone, or
/// beyond what is kept, is not repaired, and counted.
public struct UplinkRepairStateMachine: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// The transport took a packet under this number; each is greater than the one before.
        case sent(datagram: UInt64, packet: [UInt8])
        /// The transport did not take a packet.
        case refused(packet: [UInt8])
        /// The relay has it.
        case acknowledged(datagram: UInt64)
        /// It did not arrive, as far as the transport can tell.
        case lost(datagram: UInt64)
        /// The connection is gone, and all numbers with it.
        case linkLost
    }

    /// What is to be done.
    public enum Action: Sendable, Equatable {
        /// Send the packet on the control stream.
        case repair([UInt8])
    }

    /// The most packets that are kept: 5 s of those of 10 ms.
    public static let packetsMaximum = 512
    /// The most bytes that are kept.
    public static let bytesMaximum = 256 * 1_024
    /// A packet that is lost so long after it was sent is not sent again.
    public static let ageMaximum: Duration = .seconds(10)

    private struct Kept: Sendable {
        let packet: [UInt8]
        let sentAt: Instant
    }

    private var kept: [UInt64: Kept] = [:]
    private var oldest: UInt64 = 0
    private var newest: UInt64 = 0
    private var bytes = 0
    /// Packets that were sent again.
    public private(set) var repaired = 0
    /// Packets that were lost and not sent again.
    public private(set) var givenUp = 0

    /// Nothing is on its way.
    public init() {}

    /// How many packets wait for their fate.
    public var keptCount: Int { kept.count }

    /// Takes an event and says what is to be done.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .sent(let number, let packet):
            keep(packet, number, at: now)
            return []
        case .refused(let packet): return repair(packet)
        case .acknowledged(let number):
            _ = forget(number)
            return []
        case .lost(let number):
            guard let lost = forget(number) else { return [] }
            guard now - lost.sentAt < Self.ageMaximum else {
                givenUp += 1
                return []
            }
            return repair(lost.packet)
        case .linkLost:
            kept = [:]
            bytes = 0
            return []
        }
    }

    private mutating func repair(_ packet: [UInt8]) -> [Action] {
        repaired += 1
        return [.repair(packet)]
    }

    private mutating func keep(_ packet: [UInt8], _ number: UInt64, at now: Instant) {
        if kept.isEmpty { oldest = number }
        while kept.count >= Self.packetsMaximum || bytes + packet.count > Self.bytesMaximum, oldest <= newest {
            if forget(oldest) != nil { givenUp += 1 }
            oldest += 1
        }
        kept[number] = Kept(packet: packet, sentAt: now)
        bytes += packet.count
        newest = number
    }

    private mutating func forget(_ number: UInt64) -> Kept? {
        guard let known = kept.removeValue(forKey: number) else { return nil }
        bytes -= known.packet.count
        return known
    }
}
