// Which packets outside QUIC have come, and when their talker hears of it.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct UplinkReceiptsTests {
    private static let ssrc = SSRC(rawValue: 0x1234_5678)
    private var receipts = UplinkReceipts(of: UplinkReceiptsTests.ssrc)
    private var now = Instant(nanoseconds: 1_000_000_000)

    private func report(_ highest: UInt32, _ earlier: UInt64) -> UplinkReport {
        UplinkReport(ssrc: Self.ssrc, highest: highest, earlier: earlier)
    }

    /// The reports on `count` packets that come in order.
    private mutating func reports(every interval: Duration, of count: UInt32) -> [UplinkReport] {
        var reports: [UplinkReport] = []
        for counter in 0..<count {
            if receipts.received(counter, at: now), let report = receipts.takeReport(at: now) { reports.append(report) }
            now = now + interval
        }
        return reports
    }

    /// A report with all that there is up to `highest`.
    private func whole(_ highest: UInt32) -> UplinkReport {
        report(highest, highest < 64 ? 1 << UInt64(highest) - 1 : .max)
    }

    @Test mutating func `of packets of 20 ms every third has a report`() {
        let told = reports(every: .milliseconds(20), of: 200)
        let expected = stride(from: 2 as UInt32, to: 200, by: 3).map { whole($0) }
        #expect(told == expected)
    }

    @Test mutating func `of packets of 10 ms every fifth has a report`() {
        let told = reports(every: .milliseconds(10), of: 200)
        let expected = stride(from: 4 as UInt32, to: 200, by: 5).map { whole($0) }
        #expect(told == expected)
    }

    @Test mutating func `the interval counts from the oldest that was not told`() {
        let first = receipts.received(0, at: now)
        #expect(!first)
        #expect(receipts.owedSince == now)
        let early = receipts.received(1, at: now + UplinkReceipts.interval - .nanoseconds(1))
        #expect(!early)
        #expect(receipts.owedSince == now)
        let due = receipts.received(2, at: now + UplinkReceipts.interval)
        #expect(due)
        _ = receipts.takeReport(at: now)
        #expect(receipts.owedSince == nil)
        let afterSilence = receipts.received(3, at: now + .seconds(5))
        #expect(!afterSilence)
        #expect(receipts.owedSince == now + .seconds(5))
    }

    @Test mutating func `a gap is told at once, and so is what fills it`() {
        let first = receipts.received(0, at: now)
        #expect(!first)
        let behindGap = receipts.received(3, at: now)
        #expect(behindGap)
        let withGap = receipts.takeReport(at: now)
        #expect(withGap == report(3, 0b100))
        // In order again.
        now = now + UplinkReceipts.shortest
        let next = receipts.received(4, at: now)
        #expect(!next)
        let late = receipts.received(2, at: now)
        #expect(late)
        let withLate = receipts.takeReport(at: now)
        #expect(withLate == report(4, 0b1011))
        let after = receipts.received(5, at: now)
        #expect(!after)
    }

    @Test mutating func `a gap waits to be told while nobody takes the report`() {
        _ = receipts.received(0, at: now)
        _ = receipts.received(2, at: now)
        let next = receipts.received(3, at: now)
        #expect(next)
        let told = receipts.takeReport(at: now)
        #expect(told == report(3, 0b101))
    }

    @Test mutating func `a first counter that is not 0 is told at once`() {
        let first = receipts.received(1, at: now)
        #expect(first)
        let told = receipts.takeReport(at: now)
        #expect(told == report(1, 0))
        now = now + UplinkReceipts.shortest
        let late = receipts.received(0, at: now)
        #expect(late)
        let withLate = receipts.takeReport(at: now)
        #expect(withLate == report(1, 1))
    }

    @Test mutating func `what comes right behind a report waits, however urgent it is`() {
        _ = receipts.received(1, at: now)
        _ = receipts.takeReport(at: now)
        let gap = receipts.received(3, at: now)
        #expect(!gap)
        let soon = receipts.received(5, at: now + UplinkReceipts.shortest - .nanoseconds(1))
        #expect(!soon)
        now = now + UplinkReceipts.shortest
        let due = receipts.received(6, at: now)
        #expect(due)
        let told = receipts.takeReport(at: now)
        #expect(told == report(6, 0b10101))
    }

    @Test mutating func `nothing is told when nothing is owed`() {
        let before = receipts.takeReport(at: now)
        #expect(before == nil)
        #expect(receipts.owedSince == nil)
        _ = receipts.received(0, at: now)
        // What is taken early, at a release, is told, too.
        let told = receipts.takeReport(at: now)
        #expect(told == report(0, 0))
        let again = receipts.takeReport(at: now)
        #expect(again == nil)
    }

    @Test(arguments: [1, 2, 62, 63, 64, 65, 66, 127, 128, 1000, 0x8000_0000] as [UInt32])
    func `a step moves what came before`(step: UInt32) {
        // All, then nothing but the highest, of those before.
        for count in [100, 1] as [UInt32] {
            var receipts = UplinkReceipts(of: Self.ssrc)
            for counter in 100 - count..<100 { _ = receipts.received(counter, at: now) }
            _ = receipts.received(99 + step, at: now)
            var earlier: UInt64 = 0
            for bit in 0..<64 as Range<UInt32> where bit >= step - 1 && bit - (step - 1) < count {
                earlier |= 1 << UInt64(bit)
            }
            let told = receipts.takeReport(at: now)
            #expect(told == report(99 + step, earlier), "\(count) packets before")
        }
    }

    @Test func `whatever arrives in whatever order, the report says it`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let starts = [0, 1, 63, 64, 65, 0x7FFF_FF00, .max - 300, .max - 64, .max] as [UInt32]
        for start in starts {
            for run in 0..<20 {
                var receipts = UplinkReceipts(of: Self.ssrc)
                var model = Model()
                var now = self.now
                for step in 0..<200 {
                    now = now + .milliseconds(Int.random(in: 0...25, using: &random))
                    guard let counter = model.next(from: start, &random) else { continue }
                    let isTold = receipts.received(counter, at: now)
                    model.receive(counter, at: now)
                    let isSoon = model.reportedAt.map { now - $0 < .milliseconds(5) } ?? false
                    let isOld = model.owedSince.map { now - $0 >= .milliseconds(40) } ?? false
                    let isUrgent = !isSoon && (model.isUrgent || isOld)
                    let place = "seed \(seed), start \(start), run \(run), step \(step): \(counter)"
                    #expect(isTold == isUrgent, "\(place)")
                    #expect(receipts.owedSince == model.owedSince, "\(place)")
                    var copy = receipts
                    let (told, expected) = (copy.takeReport(at: now), model.report(of: Self.ssrc))
                    #expect(told == expected, "\(place)")
                    guard told == expected, isTold == isUrgent else { return }
                    if isTold || random.chance(5) {
                        _ = receipts.takeReport(at: now)
                        (model.isUrgent, model.owedSince, model.reportedAt) = (false, nil, now)
                    }
                }
            }
        }
    }
}

/// The same, with all counters in a set.
private struct Model {
    var received: Set<UInt32> = []
    var isUrgent = false
    var owedSince: Instant?
    var reportedAt: Instant?

    var highest: UInt32? { received.max() }

    /// A counter that has not come, near the highest: the trailer's window lets none come twice.
    func next(from start: UInt32, _ random: inout SeededGenerator) -> UInt32? {
        guard let highest else { return start }
        let step: UInt32 =
            switch Int.random(in: 0..<20, using: &random) {
            case 0...9: 1
            case 10...12: UInt32.random(in: 2...6, using: &random)
            case 13: UInt32.random(in: 62...67, using: &random)
            case 14: random.chance(20) ? UInt32.random(in: 68...1000, using: &random) : 1
            default: 0
            }
        if step > 0, step <= .max - highest { return highest + step }
        let latest: UInt32 = random.chance(50) ? 8 : 70
        let late = UInt32.random(in: 0...min(highest, latest), using: &random)
        return received.contains(highest - late) ? nil : highest - late
    }

    mutating func receive(_ counter: UInt32, at now: Instant) {
        let expected = highest.map { UInt64($0) + 1 } ?? 0
        if UInt64(counter) != expected { isUrgent = true }
        received.insert(counter)
        owedSince = owedSince ?? now
    }

    func report(of ssrc: SSRC) -> UplinkReport? {
        guard let highest, owedSince != nil else { return nil }
        var earlier: UInt64 = 0
        for bit in 0..<64 as Range<UInt32> where bit < highest && received.contains(highest - 1 - bit) {
            earlier |= 1 << UInt64(bit)
        }
        return UplinkReport(ssrc: ssrc, highest: highest, earlier: earlier)
    }
}
