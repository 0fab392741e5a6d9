// Coming late to a burst: its beginning is fetched, everything is heard in order, and nothing waits for ever.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayClient

@Suite struct LateEntryTests {
    private var machine = DownlinkStateMachine()
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let talker = RelayMember(id: "a", name: "Alice")
    private let burst = BurstName(ssrc: SSRC(rawValue: 7), keyID: 1)
    private var lastRequest = BurstRequestID(rawValue: 0)
    /// What was told, with what was taken of what was held.
    private var told: [RelayLinkEvent] = []
    private var fetches: [(id: BurstRequestID, first: UInt16?)] = []

    private var reports: [ClientMessage.ReceptionReport] = []
    private var asked: [ClientMessage.RepairRequest] = []

    init() { machine.offersLateEntry = true }

    /// Does what is said, as the client does.
    private mutating func carryOut(_ actions: [DownlinkStateMachine.Action]) {
        for action in actions {
            switch action {
            case .tell(let event): told.append(event)
            case .fetch(let name, let first):
                #expect(name == burst)
                lastRequest = lastRequest.next
                fetches.append((lastRequest, first))
                carryOut(machine.handle(.fetchAsked(lastRequest, of: name), at: now))
            case .conclude(let ssrc): carryOut(machine.handle(.conclude(ssrc), at: now))
            case .retry(let packets):
                for packet in packets { live(UInt16(packet.bytes[0]) << 8 | UInt16(packet.bytes[1])) }
            case .report(let report): reports.append(report)
            case .ask(let request): asked.append(request)
            }
        }
    }

    private mutating func handle(_ event: DownlinkStateMachine.Event) { carryOut(machine.handle(event, at: now)) }

    private mutating func join() {
        handle(.floorTaken(talker, ssrc: burst.ssrc, keyID: burst.keyID, isLate: true))
    }

    private mutating func take(_ sequence: UInt16, isRepaired: Bool) {
        let header = RTPHeader(
            marker: sequence == 0, sequence: sequence, timestamp: UInt32(sequence) * 480, ssrc: burst.ssrc)
        handle(.opened(header, payload: [UInt8(sequence & 255)], receivedAt: now, isRepaired: isRepaired))
    }

    /// A packet comes now, as it is said.
    private mutating func live(_ sequence: UInt16) {
        switch machine.admit(ssrc: burst.ssrc, keyID: burst.keyID, sequence: sequence) {
        case .open: take(sequence, isRepaired: false)
        case .hold:
            machine.hold(
                [UInt8(sequence >> 8), UInt8(sequence & 255)], receivedAt: now,
                place: (burst.ssrc, burst.keyID, sequence))
        case .resume:
            handle(.resumed(ssrc: burst.ssrc, keyID: burst.keyID))
            live(sequence)
        case .drop: break
        }
    }

    /// Packets come in answer to the request that was made last.
    private mutating func answer(_ sequences: some Sequence<UInt16>, isWhole: Bool) {
        let id = fetches.last!.id
        for sequence in sequences {
            guard machine.admit(ssrc: burst.ssrc, keyID: burst.keyID, sequence: sequence, isRepaired: true) == .open
            else { continue }
            take(sequence, isRepaired: true)
        }
        handle(.fetched(id, isWhole: isWhole))
    }

    private var heard: [UInt16] {
        told.compactMap { if case .frame(let frame) = $0 { frame.sequence } else { nil } }
    }
    private var ended: [ReceptionReport] {
        told.compactMap { if case .burstEnded(_, .completed, let report) = $0 { report } else { nil } }
    }

    @Test mutating func `what was said before comes first, in order, and what comes meanwhile behind it`() {
        join()
        #expect(fetches.map { $0.first } == [nil])
        for sequence in 100..<120 as Range<UInt16> { live(sequence) }
        #expect(heard.isEmpty)
        answer(0..<60, isWhole: false)
        #expect(fetches.map { $0.first } == [nil, 60])
        #expect(heard == Array(0..<60))
        live(120)
        answer(60..<121, isWhole: true)
        #expect(heard == Array(0...120))
        live(121)
        #expect(heard == Array(0...121))
        let late = told.compactMap { if case .frame(let frame) = $0 { frame.isLate } else { nil } }
        #expect(late == [Bool](repeating: true, count: 100) + [Bool](repeating: false, count: 22))
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: 121))
        #expect(ended.map(\.received) == [122] && ended.map(\.lost) == [0])
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a burst that ends while its beginning comes is heard whole`() {
        join()
        for sequence in 50..<60 as Range<UInt16> { live(sequence) }
        answer(0..<20, isWhole: false)
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: 59))
        #expect(told.last == .floorIdle && ended.isEmpty)
        answer(20..<60, isWhole: true)
        #expect(heard == Array(0..<60))
        #expect(ended.map(\.received) == [60])
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `what was fetched and held of a burst is heard though nobody says where it ended`() {
        join()
        for sequence in 50..<60 as Range<UInt16> { live(sequence) }
        answer(0..<20, isWhole: false)
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: nil))
        #expect(told.last == .floorIdle && ended.isEmpty)
        answer(20..<60, isWhole: true)
        #expect(heard == Array(0..<60) && ended.map(\.received) == [60])
        #expect(machine.nextDeadline == nil)
    }

    @Test mutating func `a relay that puts off for long is asked again after five seconds`() {
        join()
        handle(.fetchRefused(.init(id: fetches[0].id, cause: .tooMuch, retryAfter: .seconds(3_600))))
        #expect(machine.nextDeadline == now + .seconds(5))
    }

    @Test mutating func `a longer beginning than repair could bring is fetched over the wrap, and opened in order`() {
        // 40 s of packets of 10 ms, of which the last 10 come meanwhile.
        join()
        let first: UInt16 = 63_000
        for offset in 3_990..<4_000 as Range<UInt16> { live(first &+ offset) }
        var next: UInt16 = 0
        while next < 3_990 {
            let piece = next..<min(next + 700, 3_990)
            answer(piece.map { first &+ $0 }, isWhole: false)
            next = piece.upperBound
        }
        #expect(heard == (0..<4_000 as Range<UInt16>).map { first &+ $0 })
        #expect(fetches.count == 6)
    }

    @Test mutating func `what is left out of a long beginning is skipped, and neither reported as lost nor asked for`()
    {
        // Two minutes late: the first of them is fetched, and the other left out.
        let said: UInt16 = 12_000
        join()
        live(said)
        let first = UInt16(LateEntry.packetsMaximum)
        var next: UInt16 = 0
        while next < first {
            answer(next..<min(next + 600, first), isWhole: false)
            next += 600
        }
        live(said + 1)
        // One is really lost.
        live(said + 3)
        #expect(heard == Array(0..<first) + [said, said + 1, said + 3])
        now = now + .seconds(3)
        handle(.deadline)
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: said + 3))
        while ended.isEmpty, let due = machine.nextDeadline {
            now = max(now, due)
            handle(.deadline)
        }
        #expect(ended.map(\.lost) == [1])
        #expect(ended.map(\.skipped) == [Int(said - first)])
        #expect(!reports.isEmpty && reports.allSatisfy { $0.lost <= 1 }, "\(reports.map(\.lost))")
        let wanted = Set(asked.flatMap(\.ranges))
        #expect(wanted == [SequenceRange(first: said + 2, last: said + 2)])
    }

    @Test mutating func `a beginning that is given up in the middle is skipped from there on`() {
        join()
        live(300)
        answer(0..<100, isWhole: false)
        handle(.fetchRefused(.init(id: fetches.last!.id, cause: .notKept)))
        #expect(heard == Array(0..<100) + [300])
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: 300))
        #expect(ended.map(\.lost) == [0] && ended.map(\.skipped) == [200])
        #expect(asked.isEmpty)
    }

    @Test mutating func `when nothing comes of it the burst is heard from where it is`() {
        join()
        live(100)
        var deadlines = 0
        while heard.isEmpty, let due = machine.nextDeadline, deadlines < 20 {
            now = max(now, due)
            deadlines += 1
            handle(.deadline)
        }
        #expect(heard == [100])
        #expect(fetches.count == LateEntry.vainMaximum)
        #expect(now - Instant(nanoseconds: 1_000_000_000) <= .seconds(6))
    }

    @Test(arguments: [BurstRefusal.notKept, .off, .other])
    mutating func `a refusal leaves what comes now`(cause: BurstRefusal) {
        join()
        live(100)
        handle(.fetchRefused(.init(id: fetches[0].id, cause: cause)))
        #expect(heard == [100] && fetches.count == 1)
    }

    @Test mutating func `who is put off asks again when it is told to`() {
        join()
        handle(.fetchRefused(.init(id: fetches[0].id, cause: .tooMuch, retryAfter: .seconds(1))))
        #expect(machine.nextDeadline == now + .seconds(1))
        now = now + .seconds(1)
        handle(.deadline)
        #expect(fetches.count == 2)
        answer(0..<3, isWhole: true)
        #expect(heard == [0, 1, 2])
    }

    @Test mutating func `after a lost link a burst is heard on from where it was`() {
        handle(.floorTaken(talker, ssrc: burst.ssrc, keyID: burst.keyID))
        for sequence in 0..<30 as Range<UInt16> { live(sequence) }
        handle(.linkLost)
        told = []
        now = now + .seconds(4)
        join()
        #expect(fetches.map { $0.first } == [30])
        answer(30..<80, isWhole: true)
        live(80)
        #expect(heard == Array(30...80))
    }

    @Test mutating func `what was heard before a link was lost, or is older, is not heard again over the next one`() {
        handle(.floorTaken(talker, ssrc: burst.ssrc, keyID: burst.keyID))
        for sequence in (0..<30 as Range<UInt16>) where sequence != 20 { live(sequence) }
        handle(.linkLost)
        told = []
        join()
        // Its talker, or the relay, sends them again.
        for sequence in [20, 28, 29, 31, 33] as [UInt16] { live(sequence) }
        answer(20..<32, isWhole: true)
        #expect(heard == [30, 31, 33])
        for sequence in [5, 20, 29, 30] as [UInt16] { live(sequence) }
        #expect(
            machine.admit(ssrc: burst.ssrc, keyID: burst.keyID, sequence: 20, isRepaired: true) == .drop(.duplicate))
        #expect(heard == [30, 31, 33])
        live(32)
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: 33))
        // Number 20 was lost to the piece before.
        #expect(ended.map(\.received) == [4] && ended.map(\.lost) == [0])
    }

    @Test mutating func `what follows what was heard before is asked for when it is lost, too`() {
        handle(.floorTaken(talker, ssrc: burst.ssrc, keyID: burst.keyID))
        for sequence in 0..<30 as Range<UInt16> { live(sequence) }
        handle(.linkLost)
        join()
        // The relay has nothing more yet; the next two are lost on the way.
        answer([], isWhole: true)
        live(32)
        #expect(asked.last?.ranges == [SequenceRange(first: 30, last: 31)])
    }

    @Test mutating func `the next burst does not wait for long`() {
        join()
        live(100)
        answer(0..<10, isWhole: false)
        handle(.floorIdle(ssrc: burst.ssrc, lastSequence: 100))
        let began = now
        handle(.floorTaken(talker, ssrc: burst.ssrc, keyID: 2))
        while ended.isEmpty, let due = machine.nextDeadline {
            now = max(now, due)
            handle(.deadline)
        }
        #expect(now - began <= DownlinkStateMachine.supersedingTime + DownlinkStateMachine.completionTime)
        #expect(heard.contains(100))
        #expect(told.last == .floorTaken(by: talker))
    }

    @Test mutating func `a relay that gives no beginnings is not asked for one`() {
        machine.offersLateEntry = false
        join()
        live(100)
        #expect(fetches.isEmpty && heard == [100])
    }

    @Test func `whatever comes in whatever order, no frame is told twice and the burst ends`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for round in 0..<300 {
            var test = Self()
            test.join()
            let known = UInt16.random(in: 0...400, using: &random)
            var said = known
            var isIdle = false
            for _ in 0..<Int.random(in: 1...200, using: &random) {
                test.now = test.now + .milliseconds(Int.random(in: 0...200, using: &random))
                switch Int.random(in: 0..<10, using: &random) {
                case 0..<6:
                    if !isIdle, !random.chance(10) { test.live(said) }
                    said += isIdle ? 0 : 1
                case 6, 7:
                    guard let fetch = test.fetches.last, test.machine.awaits(fetch.id) else { break }
                    let first = fetch.first ?? 0
                    let last = min(said, first &+ UInt16.random(in: 0...150, using: &random))
                    test.answer(first < last ? first..<last : 0..<0, isWhole: last == said)
                case 8:
                    if !isIdle, said > 0, random.chance(10) {
                        isIdle = true
                        test.handle(.floorIdle(ssrc: test.burst.ssrc, lastSequence: said - 1))
                    }
                default: test.handle(.deadline)
                }
            }
            if !isIdle {
                test.handle(.floorIdle(ssrc: test.burst.ssrc, lastSequence: said > 0 ? said - 1 : nil))
            }
            var steps = 0
            while let due = test.machine.nextDeadline, steps < 500 {
                test.now = max(test.now, due)
                steps += 1
                test.handle(.deadline)
            }
            #expect(test.machine.nextDeadline == nil, "round \(round), seed \(seed)")
            #expect(Set(test.heard).count == test.heard.count, "round \(round), seed \(seed)")
            let ends = test.told.count { if case .burstEnded = $0 { true } else { false } }
            let begins = test.told.count { if case .burstBegan = $0 { true } else { false } }
            #expect(ends == begins && begins <= 1, "round \(round), seed \(seed)")
        }
    }
}
