// What a talker is told of a burst that was over before anybody reported on it, and what asking for packets in vain costs.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct LossOfShortBurstsTests {
    private let channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private var requests: UInt32 = 0

    init() {
        core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1))
        for id in [alice, bob] {
            welcomes[id] = core.enter(id, by: channel.joinMessage("Member \(id)"), at: now).welcome(for: id)
        }
    }

    private mutating func ask(_ id: ConnectionID, priority: UInt8 = 0) -> [RelayCore.Action] {
        requests += 1
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: requests), priority: priority, keyID: key)
        return core.handle(.message(id, .floorRequest(request)), at: now)
    }

    private var key: UInt64 { UInt64(welcomes[alice]?.mediaKey?.epoch ?? 0) << 48 | UInt64(requests) }

    /// A burst of that many packets, of which those that `isRepaired` come again over the control stream.
    private mutating func talk(_ packets: UInt16, isRepaired: (UInt16) -> Bool = { _ in false }) {
        for sequence in 0..<packets {
            let header = MediaPacketHeader(
                ssrc: welcomes[alice]!.ssrc, sequence: sequence, marker: sequence == 0, keyID: key)
            let bytes = [UInt8](repeating: 0, count: 100)
            #expect(
                core.media(header, bytes: bytes, isRepaired: isRepaired(sequence), from: alice, at: now).0
                    == .forward(channel: 0))
        }
        let release = ClientMessage.FloorRelease(
            requestID: FloorRequestID(rawValue: requests), lastSequence: packets - 1)
        _ = core.handle(.message(alice, .floorRelease(release)), at: now)
    }

    /// What Bob reports of Alice, after her burst.
    private mutating func report(received: UInt32, lost: UInt32) -> [RelayCore.Action] {
        let report = ClientMessage.ReceptionReport(
            ssrc: welcomes[alice]!.ssrc, received: received, lost: lost, highestSequence: 0, jitter: 0)
        return core.handle(.message(bob, .receptionReport(report)), at: now)
    }

    @Test mutating func `what a short burst lost is told with the next grant, once`() {
        func told(_ actions: [RelayCore.Action]) -> [Int] {
            actions.sent(to: alice).compactMap { if case .listenerLoss(let percent) = $0 { percent } else { nil } }
        }
        _ = ask(alice)
        talk(80)
        #expect(told(report(received: 60, lost: 20)).isEmpty, "she talks no more")
        #expect(told(ask(alice)) == [25])
        talk(80) { $0 < 40 }
        #expect(told(report(received: 140, lost: 20)).isEmpty)
        #expect(told(ask(alice)) == [50], "what she lost herself on the way to the relay")
        talk(10)
        _ = report(received: 150, lost: 20)
        #expect(told(ask(alice)) == [0])
        talk(10)
        _ = report(received: 160, lost: 20)
        #expect(told(ask(alice)).isEmpty, "it is as it was")
    }

    @Test mutating func `a request that finds nothing counts all the same`() {
        var limits = RelayLimits()
        limits.repairBurst = 1_000
        limits.repairBytes = 10 * limits.repairBytesMinimum
        core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: 1))
        _ = core.enter(bob, by: channel.joinMessage("Bob"), at: now)
        for id in UInt32(1)...20 {
            let request = ClientMessage.RepairRequest(
                id: id, ssrc: SSRC(rawValue: 1), keyID: 1, ranges: [SequenceRange(first: 0, last: 9)])
            _ = core.handle(.message(bob, .repairRequest(request)), at: now)
        }
        #expect(core.counters.repairsAnswered == 10 && core.counters.repairsRefused == 10)
    }
}
