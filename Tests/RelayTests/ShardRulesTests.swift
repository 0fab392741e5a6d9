// A relay's rules in several parts: which part has a channel and a connection, what they share, and pushes from one to another.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayServer

@Suite struct ShardRulesTests {
    private static let limits = RelayLimits()
    private let channels = [RelayChannelConfiguration.yard(), .yard(), .yard()]
    private var now = Instant.zero + .seconds(100)

    /// Two shards of one relay, with a channel each.
    private func shards(_ limits: RelayLimits = Self.limits) -> [RelayCore] {
        let census = RelayCensus()
        return (0..<2).map { number in
            RelayCore(
                channels: [channels[number]], limits: limits, timers: .init(), roster: .open, acceptsPushes: true,
                web: nil, shard: .init(number: number, count: 2, census: census), startedAt: now - .seconds(90),
                random: SeededGenerator(seed: 1))
        }
    }

    // MARK: Where connections go

    private func join(_ channel: Int) -> ClientMessage { channels[channel].joinMessage("Alice") }

    private func request(_ channel: Int) -> ClientMessage {
        .invitationRequest(.init(channel: channels[channel].id))
    }

    private func shardOf(_ id: ChannelID) -> Int? { channels.firstIndex { $0.id == id } }

    @Test func `a join leads a connection to the shard of its channel, once`() {
        var route = ConnectionRoute(shard: 0)
        let movedByOther = route.moves(by: .leave, shardOf)
        #expect(!movedByOther && route.shard == 0)
        let moved = route.moves(by: join(1), shardOf)
        #expect(moved && route.shard == 1)
        // A second join breaks the protocol, which the shard that has the member is to say.
        let movedAgain = route.moves(by: join(2), shardOf)
        #expect(!movedAgain && route.shard == 1)
    }

    @Test func `a join of the own shard's channel, or of none, leaves a connection where it is`() {
        var route = ConnectionRoute(shard: 2)
        let moves = [join(2), join(0)].map { route.moves(by: $0, shardOf) }
        #expect(moves == [false, false] && route.shard == 2, "it has joined with the first")
        var other = ConnectionRoute(shard: 2)
        let moved = other.moves(by: RelayChannelConfiguration.yard().joinMessage("Alice"), shardOf)
        #expect(!moved && other.shard == 2)
    }

    @Test func `who asks for invitations moves twice at most, so that asking costs no more than anywhere`() {
        var route = ConnectionRoute(shard: 0)
        var shards: [Int] = []
        for message in [request(1), request(1), join(2), join(0)] {
            _ = route.moves(by: message, shardOf)
            shards.append(route.shard)
        }
        #expect(shards == [1, 1, 2, 2])
        var asking = ConnectionRoute(shard: 0)
        let moves = (0..<100).count { asking.moves(by: request($0 % 3), shardOf) }
        #expect(moves == 2)
    }

    @Test func `channels are dealt out in turn, and none has two shards`() {
        let directory = ChannelDirectory(shards: 2)
        #expect(channels.map { directory.add($0) } == [0, 1, 0])
        #expect(directory.add(channels[1]) == nil)
        #expect(directory.configurations == channels)
        #expect(channels.map { directory.shard(of: $0.id) } == [0, 1, 0])
        let later = RelayChannelConfiguration.yard()
        #expect(directory.add(later, isServed: false) == 1)
        #expect(directory.shard(of: later.id) == nil, "its shard does not have it yet")
        directory.serve(later.id, isTaken: true)
        #expect(directory.shard(of: later.id) == 1)
        let refused = RelayChannelConfiguration.yard()
        _ = directory.add(refused, isServed: false)
        directory.serve(refused.id, isTaken: false)
        #expect(directory.configuration(of: refused.id) == nil && directory.count == 4)
    }

    @Test func `new connections are spread once there are many, and no longer when half of them are gone`() {
        let spread = ConnectionSpread(from: 4)
        #expect(!spread.isSpread)
        #expect((0..<4).map { _ in spread.opened() } == [false, false, false, true])
        #expect(spread.isSpread)
        #expect(!spread.opened(), "it is spread already")
        #expect((0..<4).map { _ in spread.closed() } == [false, false, false, true])
        #expect(!spread.isSpread)
        let always = ConnectionSpread(from: 0)
        #expect(always.isSpread && !always.opened() && !always.closed() && always.isSpread)
    }

    // MARK: What shards share

    @Test func `no two shards give out the same source`() {
        // Of the same seed, so that they draw the same numbers.
        var sources: [Set<UInt32>] = []
        for var core in shards() {
            var own: Set<UInt32> = []
            for number in 1...200 as ClosedRange<UInt64> {
                let id = ConnectionID(number: number)
                let join = core.channelConfigurations[0].joinMessage("Member")
                own.insert(core.enter(id, by: join, at: now).welcome(for: id)!.ssrc.rawValue)
            }
            #expect(own.count == 200 && !own.contains(0))
            sources.append(own)
        }
        #expect(sources[0].isDisjoint(with: sources[1]))
    }

    /// The largest number there is, and then others.
    private struct LargestFirst: RandomNumberGenerator, Sendable {
        private var following = UInt64.max
        mutating func next() -> UInt64 {
            defer { following &+= 0x0123_4567 }
            return following
        }
    }

    @Test(arguments: 2...8) func `a source is its shard's, also of the largest number that is drawn`(count: Int) {
        for number in 0..<count {
            let place = RelayShardPlace(number: number, count: count, census: RelayCensus())
            var secrets = RelaySecrets(LargestFirst(), of: place)
            #expect(secrets.source().rawValue % UInt32(count) == UInt32(number))
        }
    }

    @Test func `connections are counted over all shards`() {
        var limits = Self.limits
        limits.connections = 3
        var shards = shards(limits)
        for number in 1...3 as ClosedRange<UInt64> {
            let shard = Int(number % 2)
            let actions = shards[shard].enter(ConnectionID(number: number), by: join(shard), at: now)
            #expect(actions.welcome(for: ConnectionID(number: number)) != nil)
        }
        let late = ConnectionID(number: 9)
        func refusal(_ actions: [RelayCore.Action]) -> JoinRefusal? {
            if case .joinRefused(let refusal)? = actions.sent(to: late).first { refusal.cause } else { nil }
        }
        let full = shards[0].enter(late, by: join(0), at: now)
        #expect(refusal(full) == .relayBusy)
        _ = shards[0].handle(.disconnected(late), at: now)
        // One of the other shard goes.
        _ = shards[1].handle(.disconnected(ConnectionID(number: 1)), at: now)
        let again = shards[0].enter(late, by: join(0), at: now)
        #expect(again.welcome(for: late) != nil)
        // Those of a shard that ends count no more.
        _ = shards[0].handle(.shutDown, at: now)
        #expect(shards[0].shared.connections.total == 1)
    }

    @Test func `the memory of kept bursts is that of all shards, and who has less than a part of it drops nothing`() {
        let census = RelayCensus()
        var limits = Self.limits
        limits.keptBytes = 100
        var budgets = (0..<2).map {
            BurstBudget(limits, of: .init(number: $0, count: 2, census: census), at: now)
        }
        budgets[0].note(90, of: 0)
        #expect(!budgets[0].isExceeded)
        budgets[1].note(20, of: 0)
        #expect(!budgets[1].isExceeded && budgets[0].isExceeded)
        budgets[0].note(70, of: 0)
        #expect(!budgets[0].isExceeded && census.keptBytes == 90)
    }

    @Test func `a relay that drains is empty once the last of each shard has gone`() {
        var shards = shards()
        let alice = ConnectionID(number: 1)
        _ = shards[0].enter(alice, by: join(0), at: now)
        for index in shards.indices { _ = shards[index].handle(.drain(to: nil), at: now) }
        #expect(shards.map(\.isDrained) == [true, true], "who does not talk is sent away at once")
        var talking = self.shards()
        let welcome = talking[0].enter(alice, by: join(0), at: now).welcome(for: alice)!
        let request = ClientMessage.floorRequest(
            .init(requestID: .first, keyID: UInt64(welcome.mediaKey!.epoch) << 48 | 1))
        _ = talking[0].handle(.message(alice, request), at: now)
        #expect(talking[0].channels[0].floor.holder != nil)
        _ = talking[0].handle(.drain(to: nil), at: now)
        #expect(!talking[0].isDrained)
        _ = talking[0].handle(.disconnected(alice), at: now)
        #expect(talking[0].isDrained)
    }

    // MARK: Pushes

    private let token = PushToken(Array(repeating: 7, count: 32))!
    private let topic = PushTopic(application: "org.example.radio")!
    private let cab = ConnectionID(number: 5)

    /// The shards with a push-only client of the second one, whose token is registered with the first.
    private func shardsWithToken() -> [RelayCore] {
        var shards = shards()
        let join = channels[1].joinMessage("Cab", isPushOnly: true)
        _ = shards[1].enter(cab, by: join, at: now)
        let register = ClientMessage.pushRegister(.init(token: token, topic: topic))
        let told = shards[1].handle(.message(cab, register), at: now)
        #expect(told.count == 1)
        for case .pushes(let event) in told {
            let answer = shards[0].handle(.pushes(event), at: now)
            #expect(answer.sent(to: cab) == [.pushRegistered(token)])
        }
        return shards
    }

    private func push() -> PushRequest {
        PushRequest(token: token, topic: topic, payload: Array("{}".utf8), priority: 10, lifetime: .seconds(60))!
    }

    @Test func `a push reaches a client of another shard, and its receipt the registry`() {
        var shards = shardsWithToken()
        #expect(shards[0].pushTokenCount == 1 && shards[1].pushTokenCount == 0)
        let (verdict, actions) = shards[0].push(push(), at: now)
        #expect(verdict == .accepted(.sent))
        guard case .push(let sent)? = actions.sent(to: cab).first else { return #expect(Bool(false), "not sent") }
        let passedOn = shards[1].handle(.push(sent, to: cab), at: now)
        #expect(passedOn.sent(to: cab) == [.push(sent)])
        #expect(shards[0].pushes.keptPushCount == 1)
        let receipt = ClientMessage.pushReceipt(.init(id: sent.id, outcome: .taken))
        for case .pushes(let event) in shards[1].handle(.message(cab, receipt), at: now) {
            _ = shards[0].handle(.pushes(event), at: now)
        }
        #expect(shards[0].pushes.keptPushCount == 0, "it need not be sent again")
    }

    @Test func `receipts that were asked for do not count as messages, others do`() {
        var shards = shardsWithToken()
        // The join and the registration have counted.
        let bound = Self.limits.messageBurst - 2
        let sent = ServerMessage.Push(
            id: PushID(rawValue: 1), token: token, payload: [1], priority: 10, lifetime: .zero)
        let receipt = ClientMessage.pushReceipt(.init(id: sent.id, outcome: .taken))
        for _ in 0..<(3 * bound) {
            _ = shards[1].handle(.push(sent, to: cab), at: now)
            let told = shards[1].handle(.message(cab, receipt), at: now)
            #expect(told.count == 1)
        }
        for _ in 0..<bound {
            let told = shards[1].handle(.message(cab, receipt), at: now)
            #expect(told.count == 1)
        }
        let actions = shards[1].handle(.message(cab, receipt), at: now)
        let isClosed = actions.contains { if case .close(cab, .protocolViolation, _) = $0 { true } else { false } }
        #expect(isClosed)
    }

    @Test func `a push for who has gone from another shard is kept, and given when it is back on any`() {
        var shards = shardsWithToken()
        let gone = shards[1].handle(.disconnected(cab), at: now)
        #expect(gone.count == 1)
        for case .pushes(let event) in gone { _ = shards[0].handle(.pushes(event), at: now) }
        let (verdict, actions) = shards[0].push(push(), at: now)
        #expect(verdict == .accepted(.kept) && actions.sent(to: cab).isEmpty)
        let back = ConnectionID(number: 6)
        _ = shards[0].enter(back, .numbered(5), by: channels[0].joinMessage("Cab", isPushOnly: true), at: now)
        let register = ClientMessage.pushRegister(.init(token: token, topic: topic))
        let told = shards[0].handle(.message(back, register), at: now).sent(to: back)
        #expect(told.count == 2 && told[0] == .pushRegistered(token))
        // Who never registered a token leaves without a word to the registry.
        let plain = ConnectionID(number: 7)
        _ = shards[1].enter(plain, by: join(1), at: now)
        let left = shards[1].handle(.disconnected(plain), at: now)
        #expect(!left.contains { if case .pushes = $0 { true } else { false } })
    }
}
