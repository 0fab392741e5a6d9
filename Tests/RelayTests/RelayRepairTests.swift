// The relay's part in repair: what talkers send again, what listeners ask for, what talkers are told.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct RelayRepairTests {
    private let channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private var ssrc: [ConnectionID: SSRC] = [:]
    private var keyID: UInt64 = 0
    private var lastRequest: UInt32 = 0

    init() {
        core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1))
        for id in [alice, bob] {
            let welcome = core.enter(id, by: channel.joinMessage("\(id)"), at: now).welcome(for: id)!
            ssrc[id] = welcome.ssrc
            keyID = UInt64(welcome.mediaKey!.epoch) << 48 | 1
        }
        let request = ClientMessage.floorRequest(
            .init(requestID: FloorRequestID(rawValue: 1), priority: 0, keyID: keyID))
        _ = core.handle(.message(alice, request), at: now)
    }

    private func packet(_ sequence: UInt16, from id: ConnectionID? = nil, key: UInt64? = nil) -> [UInt8] {
        packetOnTheWire(sequence, ssrc: ssrc[id ?? alice]!, keyID: key ?? keyID, isFirst: sequence < 2)
    }

    private mutating func datagram(_ sequence: UInt16) {
        #expect(core.media(packet(sequence), from: alice, at: now).0 == .forward(channel: 0))
    }

    private mutating func repair(_ bytes: [UInt8], from id: ConnectionID? = nil) -> [RelayCore.Action] {
        core.handle(.message(id ?? alice, .mediaRepair(bytes)), at: now)
    }

    private func forwarded(_ actions: [RelayCore.Action]) -> [[UInt8]] {
        actions.compactMap { if case .forward(let packet, channel: 0, except: alice, _) = $0 { packet } else { nil } }
    }

    private mutating func ask(_ ranges: [SequenceRange], id: UInt32? = nil) -> [RelayCore.Action] {
        lastRequest += 1
        let request = ClientMessage.RepairRequest(
            id: id ?? lastRequest, ssrc: ssrc[alice]!, keyID: keyID, ranges: ranges)
        return core.handle(.message(bob, .repairRequest(request)), at: now)
    }

    private func answer(_ actions: [RelayCore.Action]) -> (id: UInt32?, packets: [[UInt8]])? {
        for case .answerRepair(bob, let bytes) in actions {
            var decoder = RepairStreamDecoder()
            var packets: [[UInt8]] = []
            try? decoder.feed(bytes, isEnd: true) { packets.append($0) }
            return (decoder.id, packets)
        }
        return nil
    }

    @Test mutating func `a packet that its talker sends again is forwarded once, as its datagram would have been`() {
        datagram(1)
        datagram(3)
        #expect(forwarded(repair(packet(2))) == [packet(2)])
        #expect(forwarded(repair(packet(2))).isEmpty)
        #expect(forwarded(repair(packet(1))).isEmpty)
        #expect(core.counters.packetsRepaired == 1)
        #expect(core.counters.packetsSpare == 2 && core.counters.droppedTotal == 0)
    }

    @Test mutating func `what is sent again behind the end of its burst, and had come, is no packet without the floor`()
    {
        datagram(1)
        datagram(2)
        let release = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: 1), lastSequence: 2)
        _ = core.handle(.message(alice, .floorRelease(release)), at: now)
        now = now + .seconds(5)
        #expect(repair(packet(2)).isEmpty)
        #expect(core.counters.packetsSpare == 1 && core.counters.droppedTotal == 0)
        // What had not come is one, and its sender is told.
        #expect(!repair(packet(3)).sent(to: alice).isEmpty)
        #expect(core.counters.dropped(.noFloor) == 1)
    }

    @Test mutating func `what is sent again passes the same checks, and breaks nothing`() {
        datagram(1)
        #expect(repair(packet(2, from: bob)).isEmpty)
        #expect(repair(packet(2, key: keyID + 1)).isEmpty)
        #expect(repair([UInt8](repeating: 0, count: 50)).isEmpty)
        #expect(repair([UInt8](repeating: 128, count: 1_200)).isEmpty)
        #expect(repair(packet(2, from: bob), from: bob).isEmpty)
        #expect(core.counters.dropped(.foreignSource) == 1)
        #expect(core.counters.dropped(.wrongKeyID) == 1)
        #expect(core.counters.dropped(.malformed) == 2)
        #expect(core.counters.dropped(.noFloor) == 1)
        #expect(core.counters.protocolViolations == 0)
    }

    @Test mutating func `two seconds of packets may come at once, with the release before them`() {
        datagram(0)
        let release = ClientMessage.floorRelease(.init(requestID: FloorRequestID(rawValue: 1), lastSequence: 300))
        _ = core.handle(.message(alice, release), at: now)
        var actions: [RelayCore.Action] = []
        for sequence in 1...300 {
            now = now + .milliseconds(1)
            actions += repair(packet(UInt16(sequence)))
        }
        #expect(forwarded(actions).count == 300)
        #expect(core.counters.protocolViolations == 0)
        let idle = actions.contains {
            if case .send(.floorIdle(let idle), _) = $0 { idle.lastSequence == 300 } else { false }
        }
        #expect(idle)
    }

    @Test mutating func `a listener gets what it asks for, after the burst too, until it is too old`() {
        for sequence in 1...20 as ClosedRange<UInt16> { datagram(sequence) }
        let asked = [SequenceRange(first: 3, last: 4), SequenceRange(first: 18, last: 30)]
        #expect(answer(ask(asked))?.packets == [3, 4, 18, 19, 20].map { packet($0) })
        let release = ClientMessage.floorRelease(.init(requestID: FloorRequestID(rawValue: 1), lastSequence: 20))
        _ = core.handle(.message(alice, release), at: now)
        let late = answer(ask([SequenceRange(first: 1, last: 1)]))
        #expect(late?.packets == [packet(1)] && late?.id == lastRequest)
        now = core.nextDeadline!
        _ = core.handle(.deadline, at: now)
        #expect(answer(ask([SequenceRange(first: 1, last: 1)]))?.packets == [])
        #expect(core.nextDeadline == nil)
    }

    @Test mutating func `who asks too often or for too much gets no answer for a while, and is no violator`() {
        for sequence in 1...200 as ClosedRange<UInt16> { datagram(sequence) }
        var answers = 0
        for _ in 0..<100 where answer(ask([SequenceRange(first: 1, last: 200)])) != nil { answers += 1 }
        #expect(answers == core.limits.repairBurst)
        #expect(core.counters.repairsRefused == 100 - answers)
        #expect(core.counters.packetsSentAgain == answers * 200)
        now = now + .seconds(1)
        #expect(answer(ask([SequenceRange(first: 1, last: 200)])) != nil)
        #expect(core.counters.protocolViolations == 0)
        #expect(core.memberCount(of: channel.id) == 2)
    }

    @Test mutating func `a request that comes in a datagram and on the stream is answered once`() {
        datagram(1)
        #expect(answer(ask([SequenceRange(first: 1, last: 1)], id: 7)) != nil)
        #expect(ask([SequenceRange(first: 1, last: 1)], id: 7).isEmpty)
        #expect(ask([SequenceRange(first: 1, last: 1)], id: 6).isEmpty)
        #expect(answer(ask([SequenceRange(first: 1, last: 1)], id: 8)) != nil)
        #expect(core.counters.protocolViolations == 0 && core.counters.repairsRefused == 0)
    }

    @Test func `only a repair request is read from a datagram that is no packet`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        let request = ClientMessage.repairRequest(
            .init(id: 1, ssrc: SSRC(rawValue: 7), keyID: 9, ranges: [SequenceRange(first: 65_535, last: 2)]))
        let bytes = Array(request.framed().dropFirst(4))
        #expect(RepairDatagram.request(in: bytes, limit: 1_160) == request)
        #expect(RepairDatagram.request(in: bytes, limit: bytes.count - 1) == nil)
        #expect(RepairDatagram.request(in: Array(ClientMessage.leave.framed().dropFirst(4)), limit: 1_160) == nil)
        #expect(RepairDatagram.request(in: packet(1), limit: 1_160) == nil)
        #expect(RepairDatagram.request(in: [], limit: 1_160) == nil)
        for _ in 0..<2_000 {
            var broken = bytes
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                broken[Int.random(in: 0..<broken.count, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            // Whatever it makes of that, it is a request or nothing.
            if let message = RepairDatagram.request(in: broken, limit: 1_160) {
                guard case .repairRequest = message else {
                    Issue.record("another message came through, seed \(seed)")
                    return
                }
            }
        }
    }

    private mutating func report(received: UInt32, lost: UInt32) -> [Int] {
        let report = ClientMessage.ReceptionReport(
            ssrc: ssrc[alice]!, received: received, lost: lost, highestSequence: 0, jitter: 0)
        return core.handle(.message(bob, .receptionReport(report)), at: now).compactMap {
            if case .send(.listenerLoss(let percent), to: [alice]) = $0 { percent } else { nil }
        }
    }

    @Test
    mutating func `the talker is told what the worst listener misses, when it changed, every two seconds at most`() {
        datagram(1)
        #expect(report(received: 100, lost: 0) == [0], "the talker may still go by the burst before")
        now = now + .seconds(2)
        #expect(report(received: 180, lost: 20) == [10])
        #expect(report(received: 180, lost: 120).isEmpty, "it was told just now")
        now = now + .seconds(2)
        #expect(report(received: 260, lost: 140).first ?? 0 > 20)
        var received: UInt32 = 260
        var last = 100
        for _ in 0..<20 {
            now = now + .seconds(2)
            received += 100
            if let told = report(received: received, lost: 140).first { last = told }
        }
        #expect(last == 0)
    }

    @Test mutating func `what the talker loses itself counts for its listeners`() {
        for sequence in 0..<80 as Range<UInt16> { datagram(sequence) }
        for sequence in 80..<100 as Range<UInt16> { _ = repair(packet(sequence)) }
        #expect(report(received: 100, lost: 0) == [20])
    }

    @Test mutating func `what the talker is told does not depend on how many listen`() {
        datagram(1)
        _ = report(received: 1, lost: 0)
        var told: [Int] = []
        // One packet in two hundred came by repair; fifty reports a window say that nothing else is missing.
        for sequence in UInt16(2)..<802 {
            if sequence % 200 == 0 {
                _ = core.handle(.message(alice, .mediaRepair(packet(sequence))), at: now)
            } else {
                datagram(sequence)
            }
            now = now + .milliseconds(10)
            if sequence % 4 == 0 { told += report(received: UInt32(sequence), lost: 0) }
        }
        #expect(told.allSatisfy { $0 <= 1 }, "\(told)")
    }
}
