// Who would host a channel after its relay, and what those are told.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

@Suite struct SuccessionTests {
    private static let told = ServerMessage.Succession(
        generation: 2, host: HostID(), identity: "key", transportKeys: [1, 2], creator: DisplayName("Anna")!)
    private let crane: RelayChannelConfiguration
    private var core: RelayCore
    private let now = Instant(nanoseconds: 1_000_000_000)

    init() {
        var crane = RelayChannelConfiguration.yard()
        crane.succession = Self.told
        crane.hostMember = MemberID(.numbered(100))
        self.crane = crane
        core = RelayCore(
            channels: [crane, .yard()], limits: RelayLimits(), random: SeededGenerator(seed: 1))
    }

    private mutating func join(_ number: UInt64, offers: Bool = true) -> [RelayCore.Action] {
        let id = ConnectionID(number: number)
        _ = core.handle(.connected(id, .numbered(number)), at: now)
        _ = core.handle(.message(id, crane.joinMessage("Member \(number)")), at: now)
        return offers ? core.handle(.message(id, .successionOffer), at: now) : []
    }

    private func order(_ actions: [RelayCore.Action], to number: UInt64) -> [MemberID]? {
        for case .succession(let told) in actions.sent(to: ConnectionID(number: number)) {
            #expect(told.with(order: []) == Self.told)
            return told.order
        }
        return nil
    }

    private func members(_ numbers: [UInt64]) -> [MemberID] { numbers.map { MemberID(.numbered($0)) } }

    @Test mutating func `those who offer are told the order in which they did, and who does not is told nothing`() {
        #expect(order(join(1), to: 1) == members([1]))
        #expect(join(2, offers: false).isEmpty)
        let third = join(3)
        #expect(order(third, to: 1) == members([1, 3]) && order(third, to: 3) == members([1, 3]))
        #expect(order(third, to: 2) == nil)
        #expect(core.handle(.message(ConnectionID(number: 3), .successionOffer), at: now).isEmpty, "once is enough")
        let left = core.handle(.disconnected(ConnectionID(number: 1)), at: now)
        #expect(order(left, to: 3) == members([3]))
        #expect(core.counters.protocolViolations == 0)
    }

    @Test mutating func `the host's own member goes with it, so it does not follow it`() {
        #expect(join(100).isEmpty)
        #expect(order(join(1), to: 1) == members([1]))
    }

    @Test mutating func `the order names eight, and the ninth moves up`() {
        for number in 1...8 as ClosedRange<UInt64> { _ = join(number) }
        let ninth = join(9)
        #expect(order(ninth, to: 9) == members(Array(1...8)))
        #expect(order(ninth, to: 1) == nil, "for the others nothing has changed")
        let left = core.handle(.disconnected(ConnectionID(number: 4)), at: now)
        #expect(order(left, to: 9) == members([1, 2, 3, 5, 6, 7, 8, 9]))
    }

    @Test mutating func `a channel whose hosts do not follow each other answers nothing`() {
        let id = ConnectionID(number: 1)
        let other = RelayChannelConfiguration.yard()
        var core = RelayCore(channels: [other], limits: RelayLimits(), random: SeededGenerator(seed: 1))
        _ = core.handle(.connected(id, .numbered(1)), at: now)
        _ = core.handle(.message(id, other.joinMessage("One")), at: now)
        #expect(core.handle(.message(id, .successionOffer), at: now).isEmpty)
        #expect(core.counters.protocolViolations == 0)
    }

    @Test mutating func `whoever is on the same member's newer connection offers again`() {
        _ = join(1)
        _ = join(2)
        let id = ConnectionID(number: 3)
        _ = core.handle(.connected(id, .numbered(1)), at: now)
        let replaced = core.handle(.message(id, crane.joinMessage("Again")), at: now)
        #expect(order(replaced, to: 2) == members([2]))
        #expect(order(core.handle(.message(id, .successionOffer), at: now), to: 2) == members([2, 1]))
    }

    @Test func `a link that is lost goes where the relay was found, at once`() {
        var machine = RelayClientStateMachine()
        var time = now
        #expect(machine.handle(.join, at: time).last == .connect)
        #expect(machine.handle(.relayFound, at: time) == [.close(.none), .tell(.connecting), .connect])
        _ = machine.handle(.connected, at: time)
        #expect(machine.handle(.relayFound, at: time) == [.close(.none), .tell(.connecting), .connect])
        _ = machine.handle(.connected, at: time)
        _ = machine.handle(.welcomed(channelName: "Crane 2"), at: time)
        #expect(machine.handle(.relayFound, at: time).isEmpty, "a link that works stays")
        _ = machine.handle(.connectionEnded(.goesDown), at: time)
        time = time + .milliseconds(1)
        #expect(machine.handle(.relayFound, at: time) == [.tell(.connecting), .connect])
        _ = machine.handle(.connectionEnded(.wrongRelayKey), at: time)
        #expect(machine.handle(.relayFound, at: time).isEmpty, "a false relay is not asked again and again")
    }

    @Test func `a member that is sent to the next host is told so before its link ends`() async throws {
        let relay = try await TestRelay()
        let alice = try await TestClient.joined("Alice", relay)
        let told = Recorder<RelayHostEvent>()
        await alice.client.followHost { told.record($0) }
        await relay.server.drain(for: .seconds(5), to: RelayPlace(host: "127.0.0.1", port: 9))
        let (_, next) = try await told.wait("the word that it is sent") { if case .sent = $0 { true } else { nil } }
        #expect(next == 1)
        try await told.wait("the end of the link", from: next) {
            if case .lost(let error) = $0 { error == .goesDown ? true : nil } else { nil }
        }
    }
}
