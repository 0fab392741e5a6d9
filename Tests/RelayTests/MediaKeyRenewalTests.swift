// When a channel's media key is another one, and who is told an earlier one.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct MediaKeyRenewalTests {
    private var channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private let carol = ConnectionID(number: 3)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private var requests: UInt32 = 0

    init() { self.init(isEndToEnd: false) }

    private init(isEndToEnd: Bool, limits: RelayLimits = RelayLimits(), members: [UInt8]? = nil) {
        channel.isEndToEnd = isEndToEnd
        let id = channel.id
        let roster = members.map { numbers in
            RelayRoster(memberships: [
                id: Dictionary(uniqueKeysWithValues: numbers.map { (MemberID.numbered($0), RelayMembership()) })
            ])
        }
        core = RelayCore(
            channels: [channel], limits: limits, roster: roster ?? .open, random: SeededGenerator(seed: 1))
    }

    private func keys(_ actions: [RelayCore.Action], to id: ConnectionID) -> [MediaKey] {
        actions.sent(to: id).compactMap { if case .mediaKey(let key) = $0 { key } else { nil } }
    }

    @discardableResult
    private mutating func join(_ id: ConnectionID, _ member: UInt64? = nil) -> [RelayCore.Action] {
        var actions = core.enter(
            id, .numbered(member ?? id.number), by: channel.joinMessage("Member \(id)"), at: now)
        for case .enrol(id, let enrolment) in actions {
            actions += core.handle(.enrolled(id, enrolment, .admitted(.init())), at: now)
        }
        if let welcome = actions.welcome(for: id) { welcomes[id] = welcome }
        return actions
    }

    private func key(_ epoch: UInt16, _ number: UInt32) -> UInt64 { UInt64(epoch) << 48 | UInt64(number) }

    /// Asks under a key of `epoch`, that in force by default; with the actions, what the burst is sealed with.
    private mutating func ask(
        _ id: ConnectionID, epoch: UInt16? = nil, mayQueue: Bool = false
    ) -> (actions: [RelayCore.Action], keyID: UInt64) {
        requests += 1
        let keyID = key(epoch ?? (channel.isEndToEnd ? 0 : core.channels[0].keys.present.epoch), requests)
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: requests), keyID: keyID, mayQueue: mayQueue)
        return (core.handle(.message(id, .floorRequest(request)), at: now), keyID)
    }

    private func place(_ actions: [RelayCore.Action], _ id: ConnectionID) -> Int? {
        actions.sent(to: id).compactMap { if case .floorQueuePosition(let place) = $0 { place.position } else { nil } }
            .last
    }

    private func isGranted(_ actions: [RelayCore.Action], _ id: ConnectionID) -> Bool {
        actions.sent(to: id).contains { if case .floorGranted = $0 { true } else { false } }
    }

    private mutating func release(_ id: ConnectionID, last: UInt16? = nil) {
        let release = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: requests), lastSequence: last)
        _ = core.handle(.message(id, .floorRelease(release)), at: now)
    }

    private mutating func say(_ id: ConnectionID, _ keyID: UInt64, _ sequence: UInt16) -> RelayCore.MediaDecision {
        let header = MediaPacketHeader(
            ssrc: welcomes[id]!.ssrc, sequence: sequence, marker: true, keyID: keyID)
        return core.media(header, bytes: [UInt8](repeating: 0, count: 50), from: id, at: now).0
    }

    // MARK: By the number of bursts

    @Test func `after so many bursts the key is another one, and a burst under way goes on under its own`() {
        #expect(RelayLimits().burstsPerMediaKey == 65_000)
        var limits = RelayLimits()
        limits.burstsPerMediaKey = 10
        limits.messageBurst = 10_000
        var test = Self(isEndToEnd: false, limits: limits)
        test.join(test.alice)
        test.join(test.bob)
        let first = test.welcomes[test.alice]!.mediaKey!
        for burst in 1...9 {
            let asked = test.ask(test.alice)
            #expect(test.isGranted(asked.actions, test.alice) && test.keys(asked.actions, to: test.bob).isEmpty)
            // The same request once more is the same burst.
            let again = ClientMessage.FloorRequest(
                requestID: FloorRequestID(rawValue: UInt32(burst)), keyID: asked.keyID)
            _ = test.core.handle(.message(test.alice, .floorRequest(again)), at: test.now)
            test.release(test.alice)
        }
        let last = test.ask(test.alice)
        #expect(test.isGranted(last.actions, test.alice))
        let renewed = test.keys(last.actions, to: test.bob)
        #expect(renewed.count == 1 && renewed.first?.epoch == first.epoch &+ 1)
        #expect(test.keys(last.actions, to: test.alice) == renewed)
        #expect(test.say(test.alice, last.keyID, 0) == .forward(channel: 0))
        test.release(test.alice, last: 0)
        for _ in 1...9 {
            #expect(test.keys(test.ask(test.alice).actions, to: test.bob).isEmpty, "the count begins anew")
            test.release(test.alice)
        }
    }

    @Test func `who has not heard of the new key may use the one before, but not without end`() {
        var limits = RelayLimits()
        limits.burstsPerMediaKey = 1
        limits.messageBurst = 10_000
        var test = Self(isEndToEnd: false, limits: limits)
        test.join(test.alice)
        let epoch = test.welcomes[test.alice]!.mediaKey!.epoch
        var granted = 0
        for _ in 0..<600 {
            if test.isGranted(test.ask(test.alice, epoch: epoch).actions, test.alice) { granted += 1 }
            test.release(test.alice)
        }
        #expect(granted == test.core.limits.burstsPerEarlierMediaKey)
        #expect(test.core.channels[0].keys.present.epoch == epoch &+ 1)
        #expect(RelayLimits().burstsPerEarlierMediaKey + FloorQueue.lengthMaximum + 4 < 65_536)
    }

    @Test func `the key of an end-to-end channel is its members', however many bursts there are`() {
        var limits = RelayLimits()
        limits.burstsPerMediaKey = 3
        var test = Self(isEndToEnd: true, limits: limits)
        test.join(test.alice)
        for _ in 0..<20 {
            let asked = test.ask(test.alice)
            #expect(test.isGranted(asked.actions, test.alice) && test.keys(asked.actions, to: test.alice).isEmpty)
            test.release(test.alice)
        }
    }

    // MARK: Within a burst

    @Test mutating func `a burst is taken to its end under its key, however long after the renewal`() {
        for id in [alice, bob, carol] { join(id) }
        let burst = ask(alice)
        for sequence in UInt16(0)..<50 {
            #expect(say(alice, burst.keyID, sequence) == .forward(channel: 0))
            if sequence == 3 { _ = core.handle(.revoke([.numbered(3)], from: channel.id), at: now) }
            now = now + .seconds(1)
            _ = core.handle(.deadline, at: now)
        }
        release(alice, last: 49)
        #expect(!isGranted(ask(alice, epoch: UInt16(burst.keyID >> 48)).actions, alice), "the next one has the new key")
    }

    @Test
    mutating func
        `who waits for the floor over a renewal asks once more, keeps its place, and has it under the new key`()
    {
        channel.rules = FloorRules(hasQueue: true)
        core = RelayCore(channels: [channel], roster: .open, random: SeededGenerator(seed: 1))
        for id in [alice, bob, carol] { join(id) }
        join(ConnectionID(number: 4))
        let burst = ask(alice)
        let waiting = ask(bob, mayQueue: true)
        #expect(place(waiting.actions, bob) == 1)
        #expect(place(ask(carol, mayQueue: true).actions, carol) == 2)
        let renewed = core.handle(.revoke([.numbered(4)], from: channel.id), at: now)
        #expect(keys(renewed, to: bob).count == 1)
        let again = ask(bob, mayQueue: true)
        #expect(again.keyID >> 48 != waiting.keyID >> 48)
        #expect(place(again.actions, bob) == 1 && again.actions.sent(to: carol).isEmpty)
        #expect(!again.actions.sent(to: bob).contains { if case .floorDeny = $0 { true } else { false } })
        let ended = core.handle(.message(alice, .floorRelease(.init(requestID: .first, lastSequence: nil))), at: now)
        #expect(isGranted(ended, bob))
        #expect(say(bob, waiting.keyID, 1) == .drop(.wrongKeyID))
        #expect(say(bob, again.keyID, 2) == .forward(channel: 0))
        #expect(burst.keyID != again.keyID)
    }

    @Test
    mutating func `whose grant is on its way at a renewal has the floor under the new key, before those who wait`() {
        channel.rules = FloorRules(hasQueue: true)
        core = RelayCore(channels: [channel], roster: .open, random: SeededGenerator(seed: 1))
        for id in [alice, bob, carol] { join(id) }
        #expect(isGranted(ask(alice).actions, alice))
        #expect(place(ask(bob, mayQueue: true).actions, bob) == 1)
        _ = core.handle(.revoke([.numbered(3)], from: channel.id), at: now)
        let again = ask(alice)
        #expect(isGranted(again.actions, alice))
        #expect(say(alice, again.keyID, 1) == .forward(channel: 0))
        // Nobody keeps the floor by asking for it again and again.
        #expect(!isGranted(ask(alice).actions, alice))
    }

    @Test mutating func `a member that comes back in the middle of such a burst can open the rest of it`() throws {
        for id in [alice, bob, carol] { join(id) }
        let burst = ask(alice)
        let before = core.channels[0].keys.present
        _ = say(alice, burst.keyID, 0)
        _ = core.handle(.revoke([.numbered(3)], from: channel.id), at: now)
        now = now + .seconds(3)
        _ = say(alice, burst.keyID, 1)
        let present = core.channels[0].keys.present
        let bobAgain = ConnectionID(number: 20)
        let told = join(bobAgain, 2)
        #expect(welcomes[bobAgain]?.mediaKey == present)
        #expect(keys(told, to: bobAgain) == [before, present], "what it seals with is the last it is told")
        let messages = told.sent(to: bobAgain)
        guard case .welcome(let welcome)? = messages.first else { return #expect(Bool(false), "\(messages)") }
        #expect(welcome.floor?.keyID == burst.keyID)
        // Twice renewed, it is still the key of the burst.
        _ = core.handle(.renewMediaKey(channel.id), at: now)
        let again = join(ConnectionID(number: 21), 2)
        #expect(keys(again, to: ConnectionID(number: 21)) == [before, core.channels[0].keys.present])
        #expect(core.channels[0].keys.earlierCount == 2)
        // Over, nobody is told of it any more, and it is forgotten.
        release(alice, last: 1)
        now = now + .seconds(30)
        _ = ask(alice)
        _ = say(alice, key(core.channels[0].keys.present.epoch, requests), 2)
        #expect(keys(join(ConnectionID(number: 22), 2), to: ConnectionID(number: 22)).isEmpty)
        release(alice, last: 2)
        #expect(core.channels[0].keys.earlierCount == 0)
    }

    @Test func `who was written down but away can open it, who comes new or was removed cannot`() {
        var test = Self(isEndToEnd: false, members: [1, 2, 3, 4])
        for id in [test.alice, test.bob] { test.join(id) }
        let burst = test.ask(test.alice)
        let before = test.core.channels[0].keys.present
        _ = test.say(test.alice, burst.keyID, 0)
        _ = test.core.handle(.revoke([.numbered(3)], from: test.channel.id), at: test.now)
        let present = test.core.channels[0].keys.present
        let away = ConnectionID(number: 10)
        #expect(test.keys(test.join(away, 4), to: away) == [before, present])
        let new = ConnectionID(number: 11)
        let told = test.join(new, 5)
        #expect(test.welcomes[new]?.mediaKey == present && test.keys(told, to: new).isEmpty)
        // Let in again, it is as new.
        _ = test.core.handle(.readmit(.numbered(3), to: test.channel.id, as: .init()), at: test.now)
        let removed = ConnectionID(number: 12)
        #expect(test.keys(test.join(removed, 3), to: removed).isEmpty)
        #expect(test.welcomes[removed] != nil)
    }

    @Test func `of an end-to-end channel no key is told, whatever is asked for`() {
        var test = Self(isEndToEnd: true)
        for id in [test.alice, test.bob] { test.join(id) }
        _ = test.ask(test.alice)
        _ = test.core.handle(.renewMediaKey(test.channel.id), at: test.now)
        let again = ConnectionID(number: 10)
        #expect(test.keys(test.join(again, 2), to: again).isEmpty && test.welcomes[again]?.mediaKey == nil)
    }
}
