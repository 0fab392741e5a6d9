// What was said last on a channel, sealed as it came: for listeners who missed some of it. Pure.
import MonotonicTime
import RelayProtocol

/// The packets of the last bursts of one channel, in the order of their sequence numbers.
///
/// The relay cannot read them. They are kept as they came, by source and key id, so that any member who has the key can be sent
/// them again; bounded in packets, bytes and age over all bursts together, the oldest going first.
public struct BurstStore: Sendable {
    /// How much is kept.
    public struct Limits: Sendable, Hashable {
        /// Bursts, the current one included; that many for each who may talk at once.
        public var bursts = 2
        /// Packets of all bursts.
        public var packets = 4_096
        /// Bytes of all packets.
        public var bytes = 512 * 1_024
        /// How long a packet is kept.
        public var age: Duration = .seconds(15)
        /// The design's limits.
        public init() {}
    }

    /// One burst that is kept.
    public struct Burst: Sendable {
        /// Who said it.
        public let talker: MemberID
        /// Its source.
        public let ssrc: SSRC
        /// The SFrame key id that its packets name.
        public let keyID: UInt64
        /// When its first packet came.
        public let beganAt: Instant
        /// When the newest one came; not always the last of them.
        fileprivate var newestAt: Instant
        fileprivate var extender = SequenceExtender()
        fileprivate var packets: [Packet] = []
        /// Those before it are gone; they are taken out of the array now and then, for it costs a walk.
        fileprivate var first = 0

        /// How many of its packets are kept.
        public var packetCount: Int { packets.count - first }
    }

    fileprivate struct Packet: Sendable {
        let number: Int64
        let receivedAt: Instant
        let bytes: [UInt8]
    }

    /// The limits in force.
    public let limits: Limits
    /// What is kept, oldest first.
    public private(set) var bursts: [Burst] = []
    private var packetCount = 0
    private var byteCount = 0

    /// Nothing is kept yet.
    public init(limits: Limits = Limits()) { self.limits = limits }

    /// When `expire` has something to do: all that is kept is too old then. `nil` while nothing is kept.
    public var nextDeadline: Instant? {
        bursts.map(\.newestAt).max().map { $0 + limits.age }
    }

    /// Keeps a packet of `talker` that was forwarded for the first time.
    public mutating func keep(
        _ bytes: [UInt8], of talker: MemberID, ssrc: SSRC, keyID: UInt64, sequence: UInt16, at now: Instant
    ) {
        // That of the packet before, but where several talk at once.
        let known = bursts.lastIndex { $0.keyID == keyID && $0.ssrc == ssrc }
        if known == nil {
            while bursts.count >= limits.bursts { dropStalest() }
            bursts.append(Burst(talker: talker, ssrc: ssrc, keyID: keyID, beganAt: now, newestAt: now))
        }
        let last = known ?? bursts.count - 1
        bursts[last].newestAt = now
        let number = bursts[last].extender.extend(sequence)
        var position = bursts[last].packets.count
        while position > bursts[last].first, bursts[last].packets[position - 1].number > number { position -= 1 }
        bursts[last].packets.insert(Packet(number: number, receivedAt: now, bytes: bytes), at: position)
        packetCount += 1
        byteCount += bytes.count
        while packetCount > limits.packets || byteCount > limits.bytes { dropOldest() }
        expire(at: now)
    }

    /// The packets of a burst within `ranges` that are kept, oldest first, each once: as many of them as `byteLimit` allows.
    public func packets(ssrc: SSRC, keyID: UInt64, ranges: [SequenceRange], byteLimit: Int) -> [[UInt8]] {
        guard let burst = bursts.last(where: { $0.ssrc == ssrc && $0.keyID == keyID }) else { return [] }
        var found: [[UInt8]] = []
        var room = byteLimit
        for packet in burst.packets[burst.first...] {
            let sequence = UInt16(truncatingIfNeeded: packet.number)
            guard ranges.contains(where: { sequence &- $0.first <= $0.last &- $0.first }) else { continue }
            guard packet.bytes.count <= room else { break }
            room -= packet.bytes.count
            found.append(packet.bytes)
        }
        return found
    }

    /// Forgets what is too old.
    public mutating func expire(at now: Instant) {
        while let index = oldest(), now - bursts[index].packets[bursts[index].first].receivedAt >= limits.age {
            dropFirst(of: index)
        }
        // A current one stays, with the numbers that it has seen.
        bursts.removeAll { $0.packetCount == 0 && $0.newestAt + limits.age <= now }
    }

    /// Forgets everything.
    public mutating func removeAll() {
        bursts = []
        packetCount = 0
        byteCount = 0
    }

    /// The burst whose first packet has been kept for longest.
    private func oldest() -> Int? {
        var oldest: (index: Int, at: Instant)?
        for (index, burst) in bursts.enumerated() where burst.packetCount > 0 {
            let at = burst.packets[burst.first].receivedAt
            if at < oldest?.at ?? Instant(nanoseconds: .max) { oldest = (index, at) }
        }
        return oldest?.index
    }

    /// Makes room for another burst: that goes to which nothing has come for longest.
    private mutating func dropStalest() {
        guard let index = bursts.indices.min(by: { bursts[$0].newestAt < bursts[$1].newestAt }) else { return }
        let burst = bursts.remove(at: index)
        packetCount -= burst.packetCount
        for packet in burst.packets[burst.first...] { byteCount -= packet.bytes.count }
    }

    private mutating func dropOldest() {
        if let index = oldest() { dropFirst(of: index) }
    }

    private mutating func dropFirst(of index: Int) {
        let first = bursts[index].first
        packetCount -= 1
        byteCount -= bursts[index].packets[first].bytes.count
        bursts[index].first += 1
        if bursts[index].first >= 256 || bursts[index].packetCount == 0 {
            bursts[index].packets.removeFirst(bursts[index].first)
            bursts[index].first = 0
        }
    }
}
