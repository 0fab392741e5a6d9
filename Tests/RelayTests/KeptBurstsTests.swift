// What a relay gives of bursts that it keeps, to whom, and how much.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct KeptBurstsTests {
    private var channel = RelayChannelConfiguration.yard()
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private let alice = ConnectionID(number: 1)
    private let bob = ConnectionID(number: 2)
    private var ssrc: [ConnectionID: SSRC] = [:]
    private var epoch: UInt64 = 0
    private var bursts: UInt64 = 0
    private var sequence: UInt16 = 65_530
    private var lastRequest: UInt32 = 0

    init() { self.init { _, _ in } }

    private init(_ change: (inout RelayChannelConfiguration, inout RelayLimits) -> Void) {
        var limits = RelayLimits()
        channel.retention = BurstRetention(bursts: 3, time: .seconds(60))
        change(&channel, &limits)
        core = RelayCore(channels: [channel], limits: limits, startedAt: now, random: SeededGenerator(seed: 1))
        for id in [alice, bob] { join(id) }
    }

    private mutating func join(_ id: ConnectionID, isPushOnly: Bool = false) {
        let join = channel.joinMessage("member \(id)", isPushOnly: isPushOnly)
        guard let welcome = core.enter(id, by: join, at: now).welcome(for: id) else { return }
        ssrc[id] = welcome.ssrc
        epoch = UInt64(welcome.mediaKey?.epoch ?? 0) << 48
        #expect(welcome.offersLateEntry && welcome.retention == channel.retention)
    }

    private func packet(_ sequence: UInt16, _ key: UInt64, isFirst: Bool = false, timestamp: UInt32 = 0) -> [UInt8] {
        packetOnTheWire(sequence, ssrc: ssrc[alice]!, keyID: key, isFirst: isFirst, timestamp: timestamp)
    }

    /// Alice says so many packets of 10 ms, one every `pace`, and gives the floor back or not.
    @discardableResult
    private mutating func say(_ count: Int, ends: Bool = true, pace: Duration = .milliseconds(10)) -> (
        name: BurstName, packets: [[UInt8]]
    ) {
        bursts += 1
        let key = epoch | bursts
        let id = FloorRequestID(rawValue: UInt32(bursts))
        _ = core.handle(.message(alice, .floorRequest(.init(requestID: id, keyID: key))), at: now)
        var packets: [[UInt8]] = []
        for number in 0..<count {
            sequence &+= 1
            // The clock wraps within.
            let timestamp = UInt32.max - 1_000 &+ UInt32(number) &* 480
            packets.append(packet(sequence, key, isFirst: number == 0, timestamp: timestamp))
            #expect(core.media(packets.last!, from: alice, at: now).0 == .forward(channel: 0))
            now = now + pace
        }
        if ends {
            let release = ClientMessage.floorRelease(.init(requestID: id, lastSequence: sequence))
            _ = core.handle(.message(alice, release), at: now)
        }
        return (BurstName(ssrc: ssrc[alice]!, keyID: key), packets)
    }

    private mutating func request() -> BurstRequestID {
        lastRequest += 1
        return BurstRequestID(rawValue: lastRequest)
    }

    private mutating func list(_ id: ConnectionID? = nil) -> Result<[ServerMessage.KeptBurst], Refusal> {
        let request = request()
        for case .send(let message, let to) in core.handle(.message(id ?? bob, .burstListRequest(request)), at: now) {
            #expect(to == [id ?? bob])
            if case .burstList(let list) = message, list.id == request { return .success(list.bursts) }
            if case .burstRefused(let refused) = message, refused.id == request { return .failure(Refusal(refused)) }
        }
        return .failure(Refusal(cause: nil))
    }

    fileprivate struct Refusal: Error, Equatable {
        var cause: BurstRefusal?
        var retryAfter = Duration.zero

        init(cause: BurstRefusal?) { self.cause = cause }
        init(_ refused: ServerMessage.BurstRefused) {
            (cause, retryAfter) = (refused.cause, refused.retryAfter)
        }
    }

    private mutating func fetch(
        _ name: BurstName, from first: UInt16? = nil, by id: ConnectionID? = nil
    ) -> Result<(packets: [[UInt8]], isWhole: Bool), Refusal> {
        let request = request()
        let asker = id ?? bob
        let message = ClientMessage.burstRequest(.init(id: request, burst: name, first: first))
        for action in core.handle(.message(asker, message), at: now) {
            switch action {
            case .answerBurst(asker, request, let bytes):
                var decoder = RepairStreamDecoder()
                var packets: [[UInt8]] = []
                try? decoder.feed(bytes, isEnd: true) { packets.append($0) }
                #expect(decoder.isBurst && decoder.id == request.rawValue)
                return .success((packets, decoder.isWhole))
            case .send(.burstRefused(let refused), _) where refused.id == request: return .failure(Refusal(refused))
            default: continue
            }
        }
        return .failure(Refusal(cause: nil))
    }

    @Test mutating func `the last bursts are told with their talker and time, and given whole`() throws {
        let first = say(300)
        now = now + .seconds(5)
        let second = say(5)
        now = now + .seconds(1)
        let bursts = try list().get()
        try #require(bursts.map(\.burst) == [second.name, first.name])
        #expect(bursts.map(\.name.text) == ["member 1", "member 1"])
        #expect(bursts.map(\.talker) == [bursts[0].talker, bursts[0].talker])
        #expect(bursts[1].duration == .seconds(3) && bursts[1].packets == 300 && !bursts[1].isGoingOn)
        #expect(bursts[0].age == .milliseconds(1_050))
        #expect(try fetch(first.name).get().packets == first.packets)
        #expect(try fetch(second.name).get().isWhole)
        #expect(core.counters.packetsReplayed == 305)
    }

    @Test mutating func `a burst is as long as its speech, however fast or slowly its packets came`() throws {
        say(150, pace: .milliseconds(1))
        say(150, pace: .milliseconds(20))
        say(1)
        #expect(try list().get().map(\.duration) == [.milliseconds(20), .milliseconds(1_500), .milliseconds(1_500)])
    }

    @Test func `a talker that lies about the time makes its burst no longer than it can be`() {
        var length = SpeechLength()
        #expect(length.duration == .zero)
        for (number, timestamp) in [(Int64(1), UInt32(0)), (0, 4_294_966_816), (2, 480)] {
            length.note(
                packetOnTheWire(1, ssrc: SSRC(rawValue: 1), keyID: 1, isFirst: false, timestamp: timestamp), number)
        }
        #expect(length.duration == .milliseconds(30), "whatever the order in which they come")
        var store = BurstStore()
        let name = BurstName(ssrc: SSRC(rawValue: 1), keyID: 1)
        store.begin(name, of: .numbered(1), named: DisplayName("Mallory")!, at: now)
        for (sequence, timestamp) in [(UInt16(1), UInt32(0)), (2, 4_000_000_000)] {
            store.keep(
                packetOnTheWire(sequence, ssrc: name.ssrc, keyID: 1, isFirst: false, timestamp: timestamp), of: name,
                sequence: sequence, at: now)
        }
        #expect(store.bursts[0].duration == BurstStore.heldSpeechMaximum)
    }

    @Test mutating func `a burst that goes on is given from its start, and from where somebody was`() throws {
        let burst = say(100, ends: false)
        let all = try fetch(burst.name).get()
        #expect(all.packets == burst.packets && all.isWhole)
        #expect(try list().get().first?.isGoingOn == true)
        let rest = try fetch(burst.name, from: sequence &- 9).get()
        #expect(rest.packets == burst.packets.suffix(10))
    }

    @Test mutating func `what was said is kept when the channel gets other rules`() throws {
        let burst = say(10)
        _ = core.handle(.setRules(FloorRules(mode: .fullDuplex), of: channel.id), at: now)
        #expect(core.configuration(of: channel.id)?.rules.mode == .fullDuplex)
        #expect(try list().get().map(\.burst) == [burst.name])
        #expect(try fetch(burst.name).get().packets == burst.packets)
    }

    @Test func `without retention a burst is given until its repair is over, and there is no list`() throws {
        var test = Self { channel, _ in channel.retention = .off }
        let burst = test.say(50, ends: false)
        #expect(test.list() == .failure(Refusal(cause: .off)))
        #expect(try test.fetch(burst.name).get().packets.count == 50)
        let over = test.say(1)
        test.now = test.now + .seconds(14)
        #expect(try test.fetch(over.name).get().packets.count == 1)
        test.now = test.now + .seconds(2)
        #expect(test.refusal(of: over.name) == .notKept)
        #expect(test.core.handle(.deadline, at: test.now).isEmpty)
        #expect(test.core.nextDeadline == nil && test.core.keptBytes == 0)
    }

    private mutating func refusal(of name: BurstName, by id: ConnectionID? = nil) -> BurstRefusal? {
        if case .failure(let refusal) = fetch(name, by: id) { refusal.cause } else { nil }
    }

    @Test mutating func `who gets pushes only, or is no member any more, gets nothing of it`() {
        let burst = say(3)
        let carol = ConnectionID(number: 3)
        join(carol, isPushOnly: true)
        #expect(list(carol) == .failure(Refusal(cause: .notAMember)))
        #expect(refusal(of: burst.name, by: carol) == .notAMember)
        #expect(core.counters.protocolViolations == 0)
        _ = core.handle(.revoke([.numbered(2)], from: channel.id), at: now)
        let asked = ClientMessage.burstRequest(.init(id: request(), burst: burst.name))
        #expect(core.handle(.message(bob, asked), at: now).isEmpty)
    }

    @Test mutating func `who may only listen hears what was said once more`() throws {
        let burst = say(3)
        let listening = RelayMembership(isListenOnly: true)
        _ = core.handle(.readmit(.numbered(2), to: channel.id, as: listening), at: now)
        #expect(try fetch(burst.name).get().packets == burst.packets)
    }

    @Test mutating func `what is not kept is refused by its cause`() {
        say(3)
        #expect(refusal(of: BurstName(ssrc: ssrc[alice]!, keyID: 99)) == .notKept)
        #expect(refusal(of: BurstName(ssrc: ssrc[bob]!, keyID: epoch | 1)) == .notKept)
    }

    @Test mutating func `who asks too often is put off, and is no violator; who counts back is one`() throws {
        let burst = say(3)
        var answers = 0
        for _ in 0..<30 { if case .success = fetch(burst.name) { answers += 1 } }
        #expect(answers == core.limits.burstRequestBurst)
        #expect(fetch(burst.name).refusal == Refusal.putOff(core.limits.burstRetryTime))
        #expect(core.counters.protocolViolations == 0)
        now = now + .seconds(1)
        #expect(try fetch(burst.name).get().packets.count == 3)
        let again = ClientMessage.burstRequest(.init(id: BurstRequestID(rawValue: lastRequest), burst: burst.name))
        _ = core.handle(.message(bob, again), at: now)
        #expect(core.counters.protocolViolations == 1)
    }

    @Test func `a long burst comes in pieces, as fast as a member may have it`() throws {
        var test = Self { _, limits in
            limits.burstAnswerBytes = 8_000
            limits.burstBytes = 20_000
            limits.burstBytesPerSecond = 8_000
        }
        let burst = test.say(1_000)
        var got: [[UInt8]] = []
        var next: UInt16?
        var putOff = 0
        for _ in 0..<100 {
            switch test.fetch(burst.name, from: next) {
            case .success((let packets, let isWhole)):
                got += packets
                #expect(packets.count <= 100)
                next = try RTPHeader(parsing: packets.last!).sequence &+ 1
                if isWhole { next = nil }
            case .failure(let refusal):
                #expect(refusal == .putOff(.seconds(1)))
                putOff += 1
                test.now = test.now + .seconds(1)
            }
            if next == nil { break }
        }
        #expect(got == burst.packets)
        #expect(putOff > 5)
    }

    @Test func `members together get no more than the relay spares, and live media are forwarded all the while`() {
        var test = Self { _, limits in
            limits.burstBytesOfAll = 20_000
            limits.burstBytesOfAllPerSecond = 1
        }
        let burst = test.say(200)
        var given = 0
        for number in 3...12 as ClosedRange<UInt64> {
            let id = ConnectionID(number: number)
            test.join(id)
            if case .success(let answer) = test.fetch(burst.name, by: id) { given += answer.packets.count * 80 }
        }
        #expect((16_000...20_000).contains(given), "\(given)")
        test.say(10)
    }

    @Test func `only what is given is charged, to the member and to all`() throws {
        var test = Self { _, limits in
            limits.burstAnswerBytes = 8_000
            limits.burstBytes = 17_000
            limits.burstBytesPerSecond = 1
            limits.burstBytesOfAll = 9_000
            limits.burstBytesOfAllPerSecond = 9_000
            limits.burstRequestBurst = 100
        }
        let burst = test.say(100)
        // All of what there is for all, and then nothing: the member is not charged for that.
        #expect(try test.fetch(burst.name).get().packets.count == 100)
        for _ in 0..<10 { #expect(test.refusal(of: burst.name) == .tooMuch) }
        test.now = test.now + .seconds(1)
        #expect(try test.fetch(burst.name).get().packets.count == 100)
        // Now the member has had its part, and all have not.
        test.now = test.now + .seconds(1)
        for _ in 0..<10 { #expect(test.refusal(of: burst.name) == .tooMuch) }
        #expect(try test.fetch(burst.name, by: test.alice).get().packets.count == 100)
    }

    @Test func `an answer that its connection could not take is given back`() throws {
        var test = Self { _, limits in
            limits.burstBytes = 5_000
            limits.burstBytesPerSecond = 1
        }
        let burst = test.say(50)
        var request = BurstRequestID(rawValue: 0)
        for _ in 0..<4 {
            let count = RepairStream.encode(burst: request, packets: burst.packets, isWhole: true).count
            #expect(RepairStream.burstByteCount(packets: burst.packets, isWhole: true) == count)
            #expect(try test.fetch(burst.name).get().packets.count == 50)
            request = BurstRequestID(rawValue: test.lastRequest)
            let told = test.core.burstNotTaken(request, bytes: count, by: test.bob, at: test.now)
            guard case .send(.burstRefused(let refused), to: [test.bob])? = told.first else {
                return #expect(Bool(false), "\(told)")
            }
            #expect(refused.id == request && refused.cause == .tooMuch)
        }
        #expect(try test.fetch(burst.name).get().packets.count == 50)
        #expect(test.refusal(of: burst.name) == .tooMuch)
    }

    @Test func `a long beginning is not copied for each of its packets, also while it is handed out`() {
        var test = Self { _, limits in
            limits.burstRequestBurst = 1_000_000
            limits.messageBurst = 1_000_000
            limits.mediaBurst = 1_000_000
        }
        let key = test.say(1, ends: false).name.keyID
        var moves = 0
        var place: UnsafeRawPointer?
        for _ in 0..<5_000 {
            test.sequence &+= 1
            let packet = test.packet(test.sequence, key)
            _ = test.core.media(packet, from: test.alice, at: test.now)
            test.now = test.now + .milliseconds(10)
            let name = BurstName(ssrc: test.ssrc[test.alice]!, keyID: key)
            if case .failure(let refusal) = test.fetch(name, from: test.sequence &- 9) {
                #expect(refusal.cause == .tooMuch)
            }
            let now = test.core.channels[0].store.current[0].packets.withUnsafeBytes { $0.baseAddress }
            if now != place { moves += 1 }
            place = now
        }
        // It moves when it outgrows its place, each time into one of twice the size; a copy for each would be five thousand.
        #expect(moves < 40, "\(moves)")
    }

    @Test func `all channels together keep no more than they may, and the oldest goes first`() throws {
        var test = Self { _, limits in limits.keptBytes = 60_000 }
        let first = test.say(200)
        let second = test.say(200)
        #expect(test.core.keptBytes <= 60_000)
        let third = test.say(200)
        #expect(test.core.keptBytes <= 60_000)
        #expect(test.refusal(of: first.name) == .notKept)
        _ = second
        #expect(try test.fetch(third.name).get().packets == third.packets)
        // One that is longer than all of it keeps its newest part.
        let long = test.say(1_000, ends: false)
        let kept = try test.fetch(long.name).get().packets
        #expect(kept.last == long.packets.last && kept.count > 250, "\(kept.count)")
        #expect(test.core.keptBytes <= 60_000)
    }

    @Test func `the memory that is counted is that of what is kept, whatever happens`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var test = Self { _, limits in limits.keptBytes = 100_000 }
        for _ in 0..<400 {
            test.say(Int.random(in: 1...60, using: &random))
            test.now = test.now + .milliseconds(Int.random(in: 0...20_000, using: &random))
            if random.chance(30) { _ = test.core.handle(.deadline, at: test.now) }
            if random.chance(10) {
                let retention = BurstRetention(bursts: Int.random(in: 0...6, using: &random), time: .seconds(30))
                _ = test.core.handle(.setRetention(retention, of: test.channel.id), at: test.now)
            }
            let counted = test.core.channels.reduce(0) { $0 + $1.store.byteCount }
            #expect(test.core.keptBytes == counted && counted <= 100_000, "seed \(seed)")
        }
        _ = test.core.handle(.shutDown, at: test.now)
        #expect(test.core.keptBytes == 0)
    }
}

extension KeptBurstsTests.Refusal {
    fileprivate static func putOff(_ time: Duration) -> Self {
        var refusal = Self(cause: .tooMuch)
        refusal.retryAfter = time
        return refusal
    }
}

extension Result {
    fileprivate var refusal: Failure? { if case .failure(let failure) = self { failure } else { nil } }
}
