// What members are told beside the floor itself: that they may do more or less, and what their last burst lost.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct FloorRightsTests {
    private let channel = RelayChannelConfiguration(
        id: ChannelID(), name: DisplayName("Yard")!, token: InvitationToken(), rules: FloorRules(preemptionStep: 5))
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private var requests: UInt32 = 0

    init() {
        core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1))
        for id in [alice, bob] {
            _ = core.handle(.connected(id, pin(id)), at: now)
            let join = ClientMessage.Join(
                channel: channel.id, token: channel.token, displayName: DisplayName("Member \(id)")!)
            for case .send(.welcome(let welcome), to: [id]) in core.handle(.message(id, .join(join)), at: now) {
                welcomes[id] = welcome
            }
        }
    }

    private func pin(_ id: ConnectionID) -> PublicKeyPin {
        PublicKeyPin([UInt8](repeating: UInt8(id.number), count: 32))!
    }

    private func sent(_ actions: [RelayCore.Action], to id: ConnectionID) -> [ServerMessage] {
        actions.compactMap { if case .send(let message, let to) = $0, to.contains(id) { message } else { nil } }
    }

    private mutating func readmit(_ id: ConnectionID, _ membership: RelayMembership) -> [RelayCore.Action] {
        core.handle(.readmit(MemberID(pin(id)), to: channel.id, as: membership), at: now)
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

    @Test mutating func `a connected member is told when it may do more or less, and its view of the floor follows`() {
        var view = FloorView(welcomes[bob]!)
        for case .floorTaken(let taken) in sent(ask(alice), to: bob) { view.taken(taken) }
        #expect(view.outlook?.isOpen == false)

        func follow(_ actions: [RelayCore.Action]) -> Int {
            var told = 0
            for case .floorRights(let rights) in sent(actions, to: bob) {
                view.allowed(rights)
                told += 1
            }
            return told
        }
        let raised = readmit(bob, RelayMembership(priority: 9))
        #expect(follow(raised) == 1 && sent(raised, to: alice).isEmpty)
        #expect(view.outlook?.isOpen == true && view.priority == 9)
        #expect(sent(ask(bob, priority: 9), to: alice).contains { if case .floorRevoke = $0 { true } else { false } })

        #expect(follow(readmit(bob, RelayMembership(priority: 9))) == 0, "nothing has changed")
        #expect(follow(readmit(bob, RelayMembership(priority: 9, isListenOnly: true))) == 1)
        #expect(view.outlook == .init(isOpen: false, isOpenToEmergencies: false))
        #expect(follow(readmit(bob, RelayMembership())) == 1)
        #expect(view.priority == 0)
    }

    @Test mutating func `what a short burst lost is told with the next grant, once`() {
        func told(_ actions: [RelayCore.Action]) -> [Int] {
            sent(actions, to: alice).compactMap { if case .listenerLoss(let percent) = $0 { percent } else { nil } }
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

    @Test mutating func `a channel that nobody has joined yet keeps as many bursts as its new rules let talk`() {
        var yard = RelayChannelConfiguration(id: ChannelID(), name: DisplayName("Gate")!, token: InvitationToken())
        #expect(core.serve(yard))
        #expect(core.channels[1].store.limits.bursts == core.limits.burstStore.bursts)
        yard.rules = FloorRules(mode: .fullDuplex)
        #expect(core.serve(yard))
        #expect(core.channels[1].store.limits.bursts == 4 * core.limits.burstStore.bursts)
    }

    @Test mutating func `a request that finds nothing counts all the same`() {
        var limits = RelayLimits()
        limits.repairBurst = 1_000
        limits.repairBytes = 10 * limits.repairBytesMinimum
        core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: 1))
        _ = core.handle(.connected(bob, pin(bob)), at: now)
        let join = ClientMessage.Join(channel: channel.id, token: channel.token, displayName: DisplayName("Bob")!)
        _ = core.handle(.message(bob, .join(join)), at: now)
        for id in UInt32(1)...20 {
            let request = ClientMessage.RepairRequest(
                id: id, ssrc: SSRC(rawValue: 1), keyID: 1, ranges: [SequenceRange(first: 0, last: 9)])
            _ = core.handle(.message(bob, .repairRequest(request)), at: now)
        }
        #expect(core.counters.repairsAnswered == 10 && core.counters.repairsRefused == 10)
    }
}
