// Repairs the uplink: sent packets are kept until the transport reports their fate, and lost ones are sent again. Pure
// rules.
import MonotonicTime

/// The sealed packets of this end whose datagrams are neither acknowledged nor lost.
///
/// A packet whose datagram was lost goes once more, on the control stream, where nothing is lost. It does not matter whether
/// its burst is over at this end: the relay waits for what its release named. What is too old to be waited for by anyone, or
/// beyond what is kept, is not repaired, and counted.
///
/// The end of a burst waits for no word of the transport, which learns of a lost packet by those behind it, and may not tell at all: where
/// a lost packet carried the release too, that is all that is sent again. The last packets that are not acknowledged go behind the
/// release at once, and those before them after `tailTimeout`.
public struct UplinkRepairStateMachine: Sendable {
    /// What may happen.
    public enum Event: Sendable, Equatable {
        /// A packet is about to be handed to the transport.
        case sealed(packet: [UInt8])
        /// The transport took a packet under this number; each is greater than the one before, while the packets go the same way.
        case sent(datagram: UInt64, packet: [UInt8])
        /// The transport did not take a packet.
        case refused(packet: [UInt8])
        /// The relay has it.
        case acknowledged(datagram: UInt64)
        /// It did not arrive, as far as the transport can tell.
        case lost(datagram: UInt64)
        /// The floor is given back: everything of the burst was sealed.
        case released
        /// The connection is gone, and all numbers with it.
        case linkLost
        /// `nextDeadline` has come, or may have.
        case deadline
    }

    /// The most packets that are kept: 5 s of those of 10 ms.
    public static let packetsMaximum = 512
    /// The most bytes that are kept.
    public static let bytesMaximum = 256 * 1_024
    /// A packet that is reported lost later than this is not sent again.
    public static let ageMaximum: Duration = .seconds(10)
    /// The most packets that go behind a release, acknowledged or not: those of a round trip of 600 ms.
    public static let tailPackets = 64
    /// The most bytes of them.
    public static let tailBytes = 8 * 1_024
    /// Packets of one turn that the transport has not taken yet.
    private static let sealedMaximum = 64
    /// Beside a round trip and a quarter of it, how long an acknowledgement may take: the relay keeps it back for 25 ms, or
    /// a report for 40.
    private static let acknowledgementGrace: Duration = .milliseconds(50)

    private struct Kept: Sendable {
        let packet: [UInt8]
        let sentAt: Instant
    }

    /// The round-trip time to the relay.
    public var roundTripTime: Duration = .milliseconds(100)
    private var kept: [UInt64: Kept] = [:]
    private var oldest: UInt64 = 0
    private var newest: UInt64 = 0
    private var bytes = 0
    /// Packets without a number yet, and whether they went behind a release already.
    private var sealed: [(packet: [UInt8], isRepaired: Bool)] = []
    /// What is not acknowledged then, up to that number, goes again.
    private var tail: (newest: UInt64, due: Instant)?
    /// Packets that were sent again.
    public private(set) var repaired = 0
    /// Packets that were lost and not sent again.
    public private(set) var givenUp = 0

    /// How many packets wait for their fate.
    public var keptCount: Int { kept.count }

    /// After a release, how long acknowledgements are waited for.
    public var tailTimeout: Duration { roundTripTime + roundTripTime / 4 + Self.acknowledgementGrace }

    /// When `.deadline` must be delivered, at the latest; `nil` when there is nothing to wait for.
    public var nextDeadline: Instant? { tail?.due }

    /// Takes an event and returns the packets that are to be sent on the control stream.
    public mutating func handle(_ event: Event, at now: Instant) -> [[UInt8]] {
        switch event {
        case .sealed(let packet):
            if sealed.count >= Self.sealedMaximum { sealed.removeFirst() }
            sealed.append((packet, false))
            return []
        case .sent(let number, let packet):
            if takeSealed(packet) { return [] }
            keep(packet, number, at: now)
            return []
        case .refused(let packet): return takeSealed(packet) ? [] : repair(packet)
        case .acknowledged(let number):
            _ = forget(number)
            return []
        case .lost(let number):
            guard let lost = forget(number) else { return [] }
            return repair(lost, at: now)
        case .released: return released(at: now)
        case .linkLost:
            kept = [:]
            bytes = 0
            sealed = []
            tail = nil
            return []
        case .deadline:
            guard let tail, tail.due <= now else { return [] }
            self.tail = nil
            let late = kept.keys.filter { $0 <= tail.newest }.sorted()
            return late.compactMap { forget($0) }.flatMap { repair($0, at: now) }
        }
    }

    /// Whether the packet went behind a release before the transport had taken it.
    private mutating func takeSealed(_ packet: [UInt8]) -> Bool {
        guard let index = sealed.firstIndex(where: { $0.packet == packet }) else { return false }
        let isRepaired = sealed[index].isRepaired
        sealed.removeFirst(index + 1)
        return isRepaired
    }

    private mutating func released(at now: Instant) -> [[UInt8]] {
        var tail: [[UInt8]] = []
        var room = Self.tailBytes
        func takes(_ packet: [UInt8]) -> Bool {
            guard tail.count < Self.tailPackets, packet.count <= room else { return false }
            room -= packet.count
            tail.append(packet)
            return true
        }
        var isRoom = true
        for index in sealed.indices.reversed() where isRoom && !sealed[index].isRepaired {
            isRoom = takes(sealed[index].packet)
            sealed[index].isRepaired = isRoom
        }
        for number in kept.keys.sorted(by: >) where isRoom {
            guard let packet = kept[number]?.packet else { continue }
            isRoom = takes(packet)
            if isRoom { _ = forget(number) }
        }
        if !kept.isEmpty {
            let due = now + tailTimeout
            self.tail = (newest, self.tail.map { min($0.due, due) } ?? due)
        }
        return tail.reversed().flatMap { repair($0) }
    }

    private mutating func repair(_ lost: Kept, at now: Instant) -> [[UInt8]] {
        guard now - lost.sentAt < Self.ageMaximum else {
            givenUp += 1
            return []
        }
        return repair(lost.packet)
    }

    private mutating func repair(_ packet: [UInt8]) -> [[UInt8]] {
        repaired += 1
        return [packet]
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
        if kept.isEmpty { tail = nil }
        return known
    }
}
