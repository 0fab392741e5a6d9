// The last encrypted bursts of a channel, for listeners that missed packets, join late, or request a burst again. Pure.
import MonotonicTime
import RelayProtocol
import Vocabulary

/// The packets of the last bursts of one channel, in the order of their sequence numbers.
///
/// The relay cannot decrypt them. They are kept as received, by source and key id, so that they can be sent again to
/// any member that has the key. A burst is kept completely while it is in progress and for `Limits.age` after its end;
/// the last ones are kept longer if the channel's `Limits.retention` says so. All bursts together have a limit on
/// packets and bytes: ended bursts are dropped first, the oldest first, then the beginnings of bursts in progress.
public struct BurstStore: Sendable {
    /// How much is kept.
    public struct Limits: Sendable, Hashable {
        /// Maximum number of bursts in progress, bursts without a reported end included, per member that may talk at
        /// once. The same number of ended bursts is kept for repair.
        public var bursts = 2
        /// Packets of all bursts: four minutes of packets of 10 ms.
        public var packets = 24_000
        /// Bytes of all packets, with `packetOverhead` for each.
        public var bytes = 4 * 1_024 * 1_024
        /// How long after its newest packet, or its end, a burst is kept in any case.
        public var age: Duration = .seconds(15)
        /// What is kept for longer.
        public var retention = BurstRetention.off
        /// The design's limits.
        public init() {}
    }

    /// The memory of a packet in addition to its bytes.
    public static let packetOverhead = 64

    /// No talker, and no network, holds more speech back than this.
    static let heldSpeechMaximum: Duration = .seconds(10)

    /// One burst that is kept.
    public struct Burst: Sendable {
        /// Its source and key id.
        public let burst: BurstName
        /// The talker.
        public let talker: MemberID
        /// What the talker was called.
        public let name: DisplayName
        /// When its first packet came.
        public let beganAt: Instant
        /// When its talker released the floor; `nil` while it is in progress.
        public fileprivate(set) var endedAt: Instant?
        /// When the newest packet came; not always the last of them.
        public fileprivate(set) var newestAt: Instant
        fileprivate var extender = SequenceExtender()
        fileprivate var speech = SpeechLength()
        fileprivate(set) var packets: [Packet] = []
        /// Those before it are gone; they are taken out of the array now and then, for it costs a walk.
        fileprivate var first = 0
        fileprivate var byteCount = 0

        /// How many of its packets are kept.
        public var packetCount: Int { packets.count - first }

        /// How long what was said is, by the packets' own time stamps. A talker may hold some of it back and send it faster, or say what it
        /// likes of the time: not much longer than its packets took to come.
        public var duration: Duration {
            min(speech.duration, newestAt - beganAt + BurstStore.heldSpeechMaximum)
        }
    }

    struct Packet: Sendable {
        let number: Int64
        let receivedAt: Instant
        let bytes: [UInt8]
        var cost: Int { bytes.count + BurstStore.packetOverhead }
    }

    /// The limits in force.
    public internal(set) var limits: Limits
    /// The bursts in progress, in the order of their begins.
    private(set) var current: [Burst] = []
    /// Those that are over, in the order they ended.
    private(set) var past: [Burst] = []
    private var packetCount = 0
    /// What is kept takes so much memory.
    public private(set) var byteCount = 0
    /// When the first of `past` is too old.
    private var pastDeadline: Instant?

    /// Nothing is kept yet.
    public init(limits: Limits = Limits()) { self.limits = limits }

    /// Keeps what a channel of that configuration has to. Each of those who may talk at once has as many bursts.
    mutating func adopt(_ configuration: RelayChannelConfiguration, _ limits: RelayLimits) {
        self.limits = limits.burstStore
        self.limits.bursts *= configuration.rules.talkersMaximum
        self.limits.retention = configuration.retention
    }

    /// What is kept: those that are over first.
    public var bursts: [Burst] { past + current }

    /// When `expire` has something to do. `nil` while nothing is kept.
    public var nextDeadline: Instant? {
        var next = pastDeadline
        for burst in current { next = earlier(next, burst.newestAt + limits.age) }
        return next
    }

    /// Other bursts are to be kept once they are over, or for another time.
    public mutating func set(_ retention: BurstRetention, at now: Instant) {
        limits.retention = retention
        settlePast()
        expire(at: now)
    }

    // MARK: In

    /// Whether the burst is in progress and packets of it are kept.
    public func isKeeping(_ burst: BurstName) -> Bool { current.contains { $0.burst == burst } }

    /// Begins to keep a burst of `talker`.
    public mutating func begin(_ burst: BurstName, of talker: MemberID, named name: DisplayName, at now: Instant) {
        while current.count >= limits.bursts { dropStalest() }
        current.append(Burst(burst: burst, talker: talker, name: name, beganAt: now, newestAt: now))
    }

    /// Keeps a packet of a burst that has begun, forwarded for the first time.
    public mutating func keep(_ bytes: [UInt8], of burst: BurstName, sequence: UInt16, at now: Instant) {
        // That of the packet before, but where several talk at once.
        guard let last = current.lastIndex(where: { $0.burst == burst }) else { return }
        current[last].newestAt = now
        let number = current[last].extender.extend(sequence)
        current[last].speech.note(bytes, number)
        let packet = Packet(number: number, receivedAt: now, bytes: bytes)
        var position = current[last].packets.count
        while position > current[last].first, current[last].packets[position - 1].number > number { position -= 1 }
        current[last].packets.insert(packet, at: position)
        current[last].byteCount += packet.cost
        packetCount += 1
        byteCount += packet.cost
        while packetCount > limits.packets || byteCount > limits.bytes {
            guard dropOldestPast() || dropOldest() else { break }
        }
        expire(at: now)
    }

    /// The bursts of that source are over.
    public mutating func end(_ ssrc: SSRC, at now: Instant) {
        while let index = current.firstIndex(where: { $0.burst.ssrc == ssrc }) {
            var burst = current.remove(at: index)
            guard burst.packetCount > 0 else { continue }
            burst.endedAt = now
            past.append(burst)
        }
        settlePast()
    }

    // MARK: Out

    /// The packets of a burst within `ranges` that are kept, oldest first, each once: as many of them as `byteLimit` allows.
    public func packets(ssrc: SSRC, keyID: UInt64, ranges: [SequenceRange], byteLimit: Int) -> [[UInt8]] {
        guard let burst = find(BurstName(ssrc: ssrc, keyID: keyID)) else { return [] }
        return burst.packets(at: burst.places(of: ranges).joined(), byteLimit: byteLimit)
    }

    /// Whether that packet of a burst is kept.
    func has(_ sequence: UInt16, of name: BurstName) -> Bool {
        guard let burst = find(name) else { return false }
        let place = burst.place(from: sequence)
        return place < burst.packets.count && UInt16(truncatingIfNeeded: burst.packets[place].number) == sequence
    }

    /// The packets of a burst from sequence number `first` on (`nil`: from the first that is kept), oldest first: as many of them as
    /// `byteLimit` and `countLimit` allow, and whether those are all. `nil`: that burst is not kept.
    public func packets(
        of name: BurstName, from first: UInt16?, byteLimit: Int, countLimit: Int
    ) -> (packets: [[UInt8]], isWhole: Bool)? {
        guard let burst = find(name) else { return nil }
        let rest = (first.map(burst.place(from:)) ?? burst.first)..<burst.packets.count
        let found = burst.packets(at: rest.prefix(countLimit), byteLimit: byteLimit)
        return (found, found.count == rest.count)
    }

    /// The bursts that may be requested, bursts in progress before ended ones, the newest first.
    public func offered(at now: Instant) -> [Burst] {
        let kept = past.suffix(limits.retention.bursts).filter {
            ($0.endedAt ?? now) + limits.retention.time > now
        }
        return Array((kept + current).reversed().prefix(RelayProtocolLimits.keptBurstsMaximum))
    }

    private func find(_ name: BurstName) -> Burst? {
        current.last { $0.burst == name } ?? past.last { $0.burst == name }
    }

    // MARK: Going

    /// Forgets what is too old.
    public mutating func expire(at now: Instant) {
        while let index = current.firstIndex(where: { $0.newestAt + limits.age <= now }) {
            forget(current.remove(at: index))
        }
        guard let due = pastDeadline, due <= now else { return }
        for index in past.indices.reversed() where expiry(ofPast: index) <= now { forget(past.remove(at: index)) }
        settlePast()
    }

    /// Forgets everything.
    public mutating func removeAll() { self = BurstStore(limits: limits) }

    /// When the oldest of those that are over ended.
    var oldestEnd: Instant? { past.first?.endedAt }

    /// Drops the burst that ended first. If all are in progress, it drops a part of the beginning of the largest one.
    mutating func makeRoom() {
        guard !dropOldestPast() else { return }
        var dropped = 0
        while dropped < Self.packetsDroppedAtOnce, dropOldest() { dropped += 1 }
    }

    /// So many packets are dropped for one walk over the channels.
    private static let packetsDroppedAtOnce = 64

    /// Forgets the oldest of those that are over; false: there is none.
    private mutating func dropOldestPast() -> Bool {
        guard !past.isEmpty else { return false }
        forget(past.removeFirst())
        settlePast()
        return true
    }

    /// Drops the oldest packet of the bursts in progress; false: there is none.
    private mutating func dropOldest() -> Bool {
        func began(_ index: Int) -> Instant { current[index].packets[current[index].first].receivedAt }
        let kept = current.indices.filter { current[$0].packetCount > 0 }
        guard let index = kept.min(by: { began($0) < began($1) }) else { return false }
        let first = current[index].first
        let cost = current[index].packets[first].cost
        packetCount -= 1
        byteCount -= cost
        current[index].byteCount -= cost
        current[index].first += 1
        if current[index].first >= 256 || current[index].packetCount == 0 {
            current[index].packets.removeFirst(current[index].first)
            current[index].first = 0
        }
        return true
    }

    /// Makes space for another burst: drops the one that has been without packets for the longest time.
    private mutating func dropStalest() {
        guard let index = current.indices.min(by: { current[$0].newestAt < current[$1].newestAt }) else { return }
        forget(current.remove(at: index))
    }

    private mutating func forget(_ burst: Burst) {
        packetCount -= burst.packetCount
        byteCount -= burst.byteCount
    }

    /// No more of them than may be, and the time of the next to go.
    private mutating func settlePast() {
        while past.count > max(limits.retention.bursts, limits.bursts) { forget(past.removeFirst()) }
        pastDeadline = past.indices.map(expiry).min()
    }

    /// The last ones are kept for longer.
    private func expiry(ofPast index: Int) -> Instant {
        let isRetained = past.count - index <= limits.retention.bursts
        return (past[index].endedAt ?? past[index].newestAt)
            + (isRetained ? max(limits.age, limits.retention.time) : limits.age)
    }
}

extension BurstStore.Burst {
    /// The number that a sequence number stands for: that next to the newest packet's. What is kept of a burst is shorter than half of
    /// the numbers.
    private func number(of sequence: UInt16) -> Int64 {
        let newest = packets.last?.number ?? 0
        return newest + Int64(sequence.sequenceDistance(from: UInt16(truncatingIfNeeded: newest)))
    }

    /// Where the first packet with that sequence number, or one behind it, is.
    func place(from sequence: UInt16) -> Int { place(of: number(of: sequence)) }

    private func place(of number: Int64) -> Int {
        var (low, high) = (first, packets.count)
        while low < high {
            let middle = (low + high) / 2
            if packets[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low
    }

    /// The packets at those places, as many as `byteLimit` allows.
    func packets(at places: some Sequence<Int>, byteLimit: Int) -> [[UInt8]] {
        var found: [[UInt8]] = []
        var room = byteLimit
        for place in places {
            room -= packets[place].bytes.count
            guard room >= 0 else { break }
            found.append(packets[place].bytes)
        }
        return found
    }

    /// Where the packets within `ranges` are: in order, and none twice.
    func places(of ranges: [SequenceRange]) -> [Range<Int>] {
        var places: [Range<Int>] = []
        for range in ranges {
            let nearest = number(of: range.first)
            // A long range may also mean numbers before the wrap.
            for low in [nearest - 65_536, nearest] {
                let found = place(of: low)..<place(of: low + Int64(range.count))
                if !found.isEmpty { places.append(found) }
            }
        }
        places.sort { $0.lowerBound < $1.lowerBound }
        var end = 0
        return places.compactMap { each in
            let rest = max(each.lowerBound, end)..<max(each.upperBound, end)
            end = rest.upperBound
            return rest.isEmpty ? nil : rest
        }
    }
}
