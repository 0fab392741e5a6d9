// What a relay keeps of the last bursts, and for how long.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct BurstStoreTests {
    private let talker = MemberID(PublicKeyPin([UInt8](repeating: 1, count: 32))!)
    private let name = DisplayName("Ada")!
    private let ssrc = SSRC(rawValue: 7)
    private var now = Instant(nanoseconds: 1_000_000_000)

    private func packet(_ sequence: UInt16) -> [UInt8] { [UInt8(sequence >> 8), UInt8(sequence & 255)] }

    private func keep(_ store: inout BurstStore, _ sequence: UInt16, key: UInt64 = 1) {
        keep(packet(sequence), in: &store, sequence, key: key)
    }

    private func keep(_ bytes: [UInt8], in store: inout BurstStore, _ sequence: UInt16, key: UInt64) {
        let burst = BurstName(ssrc: ssrc, keyID: key)
        if !store.isKeeping(burst) { store.begin(burst, of: talker, named: name, at: now) }
        store.keep(bytes, of: burst, sequence: sequence, at: now)
    }

    private func get(_ store: BurstStore, _ first: UInt16, _ last: UInt16, key: UInt64 = 1) -> [[UInt8]] {
        store.packets(ssrc: ssrc, keyID: key, ranges: [SequenceRange(first: first, last: last)], byteLimit: 10_000)
    }

    @Test func `packets come back in order over the wrap, each once, by source and key id`() {
        var store = BurstStore()
        for sequence in [65_533, 65_535, 65_534, 1, 0] as [UInt16] { keep(&store, sequence) }
        #expect(get(store, 65_534, 0) == [65_534, 65_535, 0].map(packet))
        #expect(get(store, 0, 65_535).count == 5)
        #expect(get(store, 0, 65_535, key: 2).isEmpty)
        #expect(get(store, 2, 10).isEmpty)
        let twice = [SequenceRange(first: 0, last: 1), SequenceRange(first: 0, last: 1)]
        #expect(store.packets(ssrc: ssrc, keyID: 1, ranges: twice, byteLimit: 10_000).count == 2)
        #expect(store.packets(ssrc: ssrc, keyID: 1, ranges: twice, byteLimit: 3).count == 1)
    }

    @Test func `whatever ranges are asked for, the answer is what a walk over all packets finds`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<200 {
            var store = BurstStore()
            let first = UInt16.random(in: 0...UInt16.max, using: &random)
            var kept: [UInt16] = []
            for offset in UInt16(0)..<300 where random.chance(70) { kept.append(first &+ offset) }
            for sequence in kept.shuffled(using: &random) { keep(&store, sequence) }
            let ranges = (0..<Int.random(in: 1...8, using: &random)).map { _ in
                let start = first &+ UInt16.random(in: 0...320, using: &random) &- 10
                return SequenceRange(first: start, last: start &+ UInt16.random(in: 0...60, using: &random))
            }
            let wanted = kept.filter { sequence in
                ranges.contains { sequence &- $0.first <= $0.last &- $0.first }
            }
            let found = store.packets(ssrc: ssrc, keyID: 1, ranges: ranges, byteLimit: 10_000)
            #expect(found == wanted.map(packet), "seed \(seed)")
        }
    }

    @Test func `two bursts are kept, and what is older than its time is not`() {
        var store = BurstStore()
        for key in 1...3 as ClosedRange<UInt64> { keep(&store, 5, key: key) }
        #expect(store.bursts.map(\.burst.keyID) == [2, 3])
        #expect(store.nextDeadline == now + store.limits.age)
        store.expire(at: now + store.limits.age)
        #expect(store.bursts.isEmpty && store.nextDeadline == nil)
    }

    @Test mutating func `packets that came late and out of order are forgotten in time too`() {
        var store = BurstStore()
        keep(&store, 9)
        now = now + .seconds(1)
        keep(&store, 3)
        now = store.nextDeadline!
        store.expire(at: now)
        #expect(store.bursts.isEmpty && store.nextDeadline == nil)
    }

    @Test mutating func `whatever is said, no more is kept than allowed, and the newest is there`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var limits = BurstStore.Limits()
        limits.packets = 300
        limits.bytes = 20_000
        limits.age = .seconds(2)
        limits.retention = BurstRetention(bursts: 3, time: .seconds(4))
        var store = BurstStore(limits: limits)
        var sequence = UInt16.random(in: 0...UInt16.max, using: &random)
        var key: UInt64 = 1
        for _ in 0..<20_000 {
            now = now + .milliseconds(Int.random(in: 0...12, using: &random))
            if random.chance(1) {
                key += 1
                now = now + .milliseconds(Int.random(in: 0...3_000, using: &random))
            }
            sequence &+= 1
            let bytes = [UInt8](repeating: 0, count: Int.random(in: 20...200, using: &random))
            keep(bytes, in: &store, sequence, key: key)
            if random.chance(1) { store.end(ssrc, at: now) }
            #expect(store.current.count <= 2 && store.past.count <= 3, "seed \(seed)")
            #expect(store.bursts.reduce(0) { $0 + $1.packetCount } <= 300, "seed \(seed)")
            #expect(store.byteCount <= 20_000, "seed \(seed)")
            #expect(get(store, sequence, sequence, key: key) == [bytes], "seed \(seed)")
        }
        store.expire(at: now + .seconds(4))
        #expect(store.bursts.isEmpty && store.byteCount == 0, "seed \(seed)")
    }

    @Test mutating func `a burst is kept whole for as long as it goes on, and a while after it`() {
        var store = BurstStore()
        for sequence in 0..<6_000 as Range<UInt16> {
            keep(&store, sequence)
            now = now + .milliseconds(10)
        }
        let whole = store.packets(
            of: BurstName(ssrc: ssrc, keyID: 1), from: nil, byteLimit: .max, countLimit: .max)
        #expect(whole?.packets.count == 6_000 && whole?.isWhole == true)
        store.end(ssrc, at: now)
        store.expire(at: now + .seconds(14))
        #expect(get(store, 0, 0) == [packet(0)])
        #expect(store.offered(at: now).isEmpty, "nothing is to be kept for longer")
        store.expire(at: now + store.limits.age)
        #expect(store.bursts.isEmpty && store.byteCount == 0 && store.nextDeadline == nil)
    }

    @Test mutating func `a burst is given in pieces, each going on where the one before ended`() {
        var store = BurstStore()
        for offset in 0..<50 as Range<UInt16> where offset != 20 { keep(&store, 65_520 &+ offset) }
        let name = BurstName(ssrc: ssrc, keyID: 1)
        var next: UInt16?
        var got: [[UInt8]] = []
        while let (packets, isWhole) = store.packets(of: name, from: next, byteLimit: 21, countLimit: 100) {
            #expect(packets.count <= 10)
            got += packets
            guard !isWhole, let last = packets.last else { break }
            next = (UInt16(last[0]) << 8 | UInt16(last[1])) &+ 1
        }
        #expect(got == (0..<50 as Range<UInt16>).filter { $0 != 20 }.map { packet(65_520 &+ $0) })
        #expect(store.packets(of: name, from: nil, byteLimit: 1_000, countLimit: 3)?.packets.count == 3)
        #expect(store.packets(of: name, from: 65_520 &+ 50, byteLimit: 1_000, countLimit: 3)?.isWhole == true)
        #expect(store.packets(of: BurstName(ssrc: ssrc, keyID: 2), from: nil, byteLimit: 9, countLimit: 9) == nil)
    }

    @Test mutating func `as many bursts as are to be kept are offered for their time, the newest first`() {
        var limits = BurstStore.Limits()
        limits.retention = BurstRetention(bursts: 3, time: .seconds(60))
        var store = BurstStore(limits: limits)
        for key in 1...5 as ClosedRange<UInt64> {
            keep(&store, 1, key: key)
            store.end(ssrc, at: now)
            now = now + .seconds(1)
        }
        keep(&store, 2, key: 6)
        #expect(store.offered(at: now).map(\.burst.keyID) == [6, 5, 4, 3])
        #expect(store.offered(at: now).map { $0.endedAt == nil } == [true, false, false, false])
        store.end(ssrc, at: now)
        #expect(store.offered(at: now).map(\.burst.keyID) == [6, 5, 4])
        now = now + .seconds(59)
        store.expire(at: now)
        #expect(store.offered(at: now).map(\.burst.keyID) == [6])
        #expect(store.nextDeadline == now + .seconds(1))
        store.set(.off, at: now)
        #expect(store.offered(at: now).isEmpty && store.bursts.isEmpty)
    }
}
