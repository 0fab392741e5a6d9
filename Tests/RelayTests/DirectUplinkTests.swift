// What becomes of a talker's packets outside QUIC.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayClient
@testable import RelayServer

private typealias Fate = DirectUplink.Fate

private func acknowledged(_ counters: [UInt32]) -> [Fate] {
    counters.map { .acknowledged(DirectUplink.firstNumber + UInt64($0)) }
}

private func lost(_ counters: [UInt32]) -> [Fate] { counters.map { .lost(DirectUplink.firstNumber + UInt64($0)) } }

private func report(_ highest: UInt32, _ earlier: UInt64 = 0) -> UplinkReport {
    UplinkReport(ssrc: SSRC(rawValue: 1), highest: highest, earlier: earlier)
}

@Suite struct DirectUplinkTests {
    private static let roundTripTime: Duration = .milliseconds(40)
    /// 9/8 of a round trip.
    private static let lossTime: Duration = .milliseconds(45)
    /// A round trip and 100 ms.
    private static let answerTime: Duration = .milliseconds(140)
    private static let tick: Duration = .nanoseconds(1)

    private var uplink: DirectUplink
    private let start = Instant(nanoseconds: 1_000_000_000)
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var looks = 0

    init() throws { uplink = try DirectUplink(key: TrailerKey(), roundTripTime: Self.roundTripTime) }

    /// Sends packets at once.
    private mutating func send(_ count: Int = 1) {
        for _ in 0..<count {
            let sealed = uplink.seal([0x80, 111, 7], at: now)
            let isSealed = sealed != nil
            #expect(isSealed)
        }
    }

    /// Looks exactly when it asks for it.
    private mutating func run(until end: Instant, heard: (Instant) -> Instant? = { _ in nil }) -> [Fate] {
        var fates: [Fate] = []
        while let due = uplink.nextDeadline, due <= end {
            now = max(now, due)
            fates += uplink.look(heard: heard(now), at: now)
            looks += 1
            guard let next = uplink.nextDeadline, next <= now else { continue }
            Issue.record("after a look at \(now) it asks for another at \(next)")
            break
        }
        now = end
        return fates
    }

    /// Talks in packets of 20 ms for as long as they can go this way.
    private mutating func talk(_ count: Int, heard: (Instant) -> Instant? = { _ in nil }) -> [Fate] {
        var fates: [Fate] = []
        for _ in 0..<count {
            _ = uplink.seal([0x80, 111, 7], at: now)
            fates += run(until: now + .milliseconds(20), heard: heard)
        }
        return fates
    }

    @Test func `packets have their trailers, and numbers behind all those of datagrams`() throws {
        let key = TrailerKey()
        var uplink = try DirectUplink(key: key, roundTripTime: Self.roundTripTime)
        let opener = try TrailerOpener(key: key)
        #expect(DirectUplink.firstNumber == 1 << 32)
        for counter in 0..<5 as Range<UInt8> {
            let packet: [UInt8] = [0x80, 111, 9 &* counter]
            guard let (datagram, number) = uplink.seal(packet, at: now) else {
                Issue.record("packet \(counter) is not sealed")
                return
            }
            let opened = try opener.open(datagram)
            #expect(opened == packet)
            let carried = Array(datagram[3..<7])
            #expect(carried == [0, 0, 0, counter])
            #expect(number == 1 << 32 + UInt64(counter))
        }
        #expect(uplink.sentCount == 5)
    }

    @Test mutating func `what a report has is acknowledged, once`() {
        #expect(uplink.nextDeadline == nil)
        send(3)
        let first = uplink.take(report(1, 0b1), at: now)
        #expect(first == acknowledged([0, 1]))
        #expect(uplink.sentCount == 1)
        let same = uplink.take(report(1, 0b1), at: now)
        #expect(same.isEmpty)
        let second = uplink.take(report(2, 0b11), at: now)
        #expect(second == acknowledged([2]))
        #expect(uplink.sentCount == 0)
        #expect(uplink.nextDeadline == nil)
    }

    @Test mutating func `a packet is lost when the third after it came, and not the second`() {
        send(6)
        let second = uplink.take(report(2, 0b01), at: now)
        #expect(second == acknowledged([1, 2]))
        #expect(uplink.sentCount == 4)
        let third = uplink.take(report(3, 0b011), at: now)
        #expect(third == acknowledged([3]) + lost([0]))
        // It has its fate, whatever comes.
        let late = uplink.take(report(3, 0b111), at: now)
        #expect(late.isEmpty)
        #expect(uplink.sentCount == 2)
    }

    @Test mutating func `a packet that another overtook is lost after nine eighths of a round trip, and not before`() {
        send(2)
        now = now + .milliseconds(40)
        let fates = uplink.take(report(1), at: now)
        #expect(fates == acknowledged([1]))
        #expect(uplink.nextDeadline == start + Self.lossTime)
        let early = uplink.look(heard: nil, at: start + Self.lossTime - Self.tick)
        #expect(early.isEmpty)
        #expect(uplink.nextDeadline == start + Self.lossTime)
        let late = run(until: start + Self.lossTime)
        #expect(late == lost([0]))
        #expect(uplink.nextDeadline == nil)
        let never = run(until: start + .seconds(10))
        #expect(never.isEmpty)
    }

    @Test mutating func `it is lost at once when the report comes later than that`() {
        send(3)
        now = start + Self.lossTime
        send(1)
        // Packet 2 was not overtaken.
        let fates = uplink.take(report(1), at: now)
        #expect(fates == acknowledged([1]) + lost([0]))
        #expect(uplink.sentCount == 2)
    }

    @Test(
        arguments: [
            .zero, .nanoseconds(1), .microseconds(800), .nanoseconds(40_000_001), .nanoseconds(40_000_003),
            .nanoseconds(123_456_789), .milliseconds(500),
        ] as [Duration])
    mutating func `a lost packet takes one look, whatever the round trip`(roundTripTime: Duration) {
        uplink.roundTripTime = roundTripTime
        send(2)
        let fates = uplink.take(report(1), at: now)
        #expect(fates == acknowledged([1]))
        guard let due = uplink.nextDeadline else {
            Issue.record("no look is wanted")
            return
        }
        // Eighths of a nanosecond are rounded.
        let (wait, expected) = ((due - start).nanoseconds, max(roundTripTime.nanoseconds * 9 / 8, 1_000_000))
        #expect(wait == expected || wait == expected + 1)
        let looked = run(until: due)
        #expect(looked == lost([0]))
        #expect(uplink.nextDeadline == nil)
    }

    @Test mutating func `what is beyond the span of a report, and was not reported, is lost`() {
        send(70)
        let fates = uplink.take(report(69, .max), at: now)
        #expect(fates == acknowledged(Array(5...69)) + lost(Array(0...4)))
        #expect(uplink.sentCount == 0)
    }

    @Test mutating func `an old report that comes late changes nothing`() {
        send(5)
        let fates = uplink.take(report(3, 0b110), at: now)
        #expect(fates == acknowledged([0, 1, 3]))
        let due = uplink.nextDeadline
        #expect(due == start + Self.lossTime)
        for old in [report(0), report(1, 0b1), report(1), report(3, 0b110)] {
            let late = uplink.take(old, at: now)
            #expect(late.isEmpty)
            #expect(uplink.sentCount == 2)
            #expect(uplink.nextDeadline == due)
        }
        let looked = run(until: start + Self.lossTime)
        #expect(looked == lost([2]))
        // Packet 4 was overtaken by none.
        #expect(uplink.sentCount == 1)
    }

    // MARK: Signs of life

    @Test mutating func `an answer is awaited after a round trip and 100 ms`() {
        send(1)
        #expect(uplink.nextDeadline == start + Self.answerTime)
        var fates = run(until: start + Self.answerTime - Self.tick)
        #expect(!uplink.awaitsAnswer)
        fates += run(until: start + Self.answerTime)
        #expect(uplink.awaitsAnswer)
        #expect(fates.isEmpty)
    }

    @Test mutating func `a report ends that`() {
        send(1)
        _ = run(until: start + Self.answerTime)
        #expect(uplink.awaitsAnswer)
        now = now + .milliseconds(10)
        let fates = uplink.take(report(0), at: now)
        #expect(fates == acknowledged([0]))
        #expect(!uplink.awaitsAnswer)
        #expect(uplink.nextDeadline == nil)
    }

    @Test mutating func `a report that has not all yet ends that, and it begins again for the rest`() {
        _ = talk(7)
        #expect(now == start + Self.answerTime)
        #expect(uplink.awaitsAnswer)
        send(1)
        now = now + .milliseconds(10)
        let reportedAt = now
        let fates = uplink.take(report(6, 0b111111), at: now)
        #expect(fates == acknowledged(Array(0...6)))
        #expect(!uplink.awaitsAnswer)
        #expect(uplink.nextDeadline == reportedAt + Self.answerTime)
        _ = run(until: reportedAt + Self.answerTime - Self.tick)
        #expect(!uplink.awaitsAnswer)
        _ = run(until: reportedAt + Self.answerTime)
        #expect(uplink.awaitsAnswer)
    }

    @Test mutating func `2 s after the last packet no answer is awaited any more, and all is lost`() {
        send(1)
        var fates = run(until: start + .seconds(1))
        send(1)
        let end = start + .seconds(3)
        fates += run(until: end - Self.tick)
        #expect(uplink.awaitsAnswer)
        #expect(fates.isEmpty)
        fates = run(until: end)
        #expect(fates == lost([0, 1]))
        #expect(!uplink.awaitsAnswer)
        #expect(!uplink.isBlocked)
        #expect(uplink.sentCount == 0)
        #expect(uplink.nextDeadline == nil)
        // The next one begins anew.
        send(1)
        #expect(uplink.nextDeadline == end + Self.answerTime)
        let late = uplink.take(report(1, 0b1), at: now)
        #expect(late.isEmpty)
        #expect(uplink.sentCount == 1)
    }

    // MARK: Back to datagrams

    /// Talks, while the relay is heard all the time, until nothing goes this way any more.
    ///
    /// - Parameter begin: From when on it counts that the relay is heard.
    private mutating func talkUntilBlocked(answeredFrom begin: Instant) -> [Fate] {
        let earliest = begin + DirectUplink.blockedAfter
        var fates: [Fate] = []
        while !uplink.isBlocked, now < earliest + .milliseconds(300) { fates += talk(1) { $0 } }
        #expect(uplink.isBlocked)
        #expect(now >= earliest)
        return fates
    }

    @Test mutating func `it goes back to datagrams when the relay is heard and reports nothing`() {
        let fates = talkUntilBlocked(answeredFrom: start + Self.answerTime)
        let expected = lost(Array(0..<UInt32(fates.count)))
        #expect(fates == expected)
        #expect(fates.count >= 37)
        #expect(!uplink.awaitsAnswer)
        #expect(uplink.sentCount == 0)
        #expect(uplink.nextDeadline == nil)
        let sealed = uplink.seal([0x80, 111, 7], at: now)
        let isSealed = sealed != nil
        #expect(!isSealed)
        let late = uplink.take(report(32, .max), at: now)
        #expect(late.isEmpty)
        #expect(uplink.isBlocked)
    }

    @Test mutating func `acknowledged datagrams show that it is heard only when it has used them for a moment`() {
        _ = talkUntilBlocked(answeredFrom: now)
        let blocked = now
        let atOnce = uplink.doubts(7, at: blocked + .milliseconds(100))
        #expect(atOnce)
        let later = uplink.doubts(7, at: blocked + DirectUplink.hangTime)
        #expect(!later)
        let direct = uplink.doubts(DirectUplink.firstNumber, at: blocked)
        #expect(!direct)
    }

    @Test mutating func `while it sends outside QUIC, datagrams show nothing`() {
        send()
        let datagram = uplink.doubts(0, at: now)
        let own = uplink.doubts(DirectUplink.firstNumber, at: now)
        #expect(datagram && !own)
    }

    @Test mutating func `at the end of its burst nothing is waited for`() {
        send(3)
        now = now + Self.answerTime
        _ = uplink.look(heard: nil, at: now)
        #expect(uplink.awaitsAnswer)
        uplink.conclude()
        #expect(!uplink.awaitsAnswer && uplink.sentCount == 0 && uplink.nextDeadline == nil && !uplink.isSuspect)
        let late = uplink.take(report(2, 0b11), at: now)
        #expect(late == [])
    }

    @Test mutating func `a report begins that anew`() {
        _ = talk(35) { $0 }
        #expect(uplink.awaitsAnswer)
        let reportedAt = now
        let fates = uplink.take(report(0), at: now)
        #expect(fates == acknowledged([0]))
        let rest = talkUntilBlocked(answeredFrom: reportedAt + Self.answerTime)
        let expected = lost(Array(1..<1 + UInt32(rest.count)))
        #expect(rest == expected)
    }

    @Test mutating func `it does not while nothing is heard, but when the relay is back and still reports nothing`() {
        let silent = talk(100)
        #expect(silent.isEmpty)
        #expect(!uplink.isBlocked)
        #expect(uplink.awaitsAnswer)
        #expect(uplink.sentCount == 100)
        #expect(looks <= 25, "it looks now and then")
        let heard = talkUntilBlocked(answeredFrom: now)
        let isLost = heard.starts(with: lost(Array(0..<100)))
        #expect(isLost)
    }

    @Test mutating func `it does not when nothing was sent since the relay was heard`() {
        send(5)
        let fates = run(until: start + .seconds(5)) { $0 }
        #expect(!uplink.isBlocked)
        #expect(fates == lost(Array(0...4)))
    }

    /// What was said in an outage is missing, the relay is heard again, and then the talker says more.
    @Test(arguments: 0..<20)
    mutating func `it does not before the relay could report what was sent since it was heard`(step: Int) {
        _ = talk(10)
        var fates = run(until: start + .milliseconds(300))
        fates += run(until: start + .milliseconds(950 + 5 * step)) { $0 }
        #expect(fates.isEmpty)
        send(1)
        fates = run(until: now + Self.roundTripTime - Self.tick) { $0 }
        #expect(fates.isEmpty)
        #expect(!uplink.isBlocked)
        now = now + Self.tick
        // The relay tells of the gap at once.
        fates = uplink.take(report(10), at: now)
        let first = fates.first
        #expect(first == Fate.acknowledged(DirectUplink.firstNumber + 10))
        #expect(uplink.sentCount == 0)
    }

    @Test mutating func `that the relay was heard before it could have reported does not count`() {
        let heard = start + .milliseconds(100)
        let fates = talk(100) { _ in heard }
        #expect(fates.isEmpty)
        #expect(!uplink.isBlocked)
    }

    @Test mutating func `it does not while reports come, though never on the newest packets`() {
        var counter: UInt32 = 0
        for _ in 0..<200 {
            let fates = talk(3) { $0 }
            #expect(fates.isEmpty)
            let told = uplink.take(report(counter, .max), at: now)
            #expect(!told.isEmpty)
            counter += 3
        }
        #expect(!uplink.isBlocked)
        #expect(!uplink.awaitsAnswer)
        #expect(uplink.sentCount == 2)
    }

    @Test mutating func `of so many packets at most the fate is waited for`() {
        let maximum = DirectUplink.sentMaximum
        #expect(maximum == 512)
        for count in 1...600 {
            send(1)
            #expect(uplink.sentCount == min(count, maximum))
        }
        let fates = uplink.take(report(599, .max), at: now)
        #expect(fates == acknowledged(Array(535...599)) + lost(Array(88...534)))
        #expect(uplink.sentCount == 0)
    }

    // MARK: Over a way

    @Test func `over a way that loses and reorders, each packet has one fate, and it is a right one`() throws {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        var (acknowledged, lost) = (0, 0)
        for run in 0..<60 {
            let delay = Int64.random(in: 1_000_000...150_000_000, using: &random)
            var way = SimulatedTalk.Way(delay: delay)
            way.jitter = Int64.random(in: 0...60_000_000, using: &random)
            way.lossPercent = [0, 5, 20, 50].randomElement(using: &random) ?? 0
            way.outage = random.chance(30) ? .milliseconds(Int.random(in: 100...1_500, using: &random)) : .zero
            let interval: Duration = .milliseconds(random.chance(50) ? 10 : 20)
            // What the client takes for a round trip is never quite right.
            let roundTrip = 2 * delay + Int64.random(in: 0...2 * way.jitter, using: &random)
            var talk = try SimulatedTalk(
                over: way, roundTripTime: roundTrip, interval: interval, isHeard: false, seed: random.next())
            talk.run(250)
            let troubles = talk.troubles
            #expect(troubles == [], "seed \(seed), run \(run)")
            guard troubles.isEmpty else { return }
            acknowledged += talk.acknowledged
            lost += talk.lost
        }
        #expect(acknowledged > 1_000 && lost > 500, "seed \(seed)")
    }

    @Test func `over a way that loses nothing and keeps the order, all is acknowledged and nothing lost`() throws {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for run in 0..<40 {
            let delay = Int64.random(in: 1_000_000...150_000_000, using: &random)
            let interval: Duration = .milliseconds(random.chance(50) ? 10 : 20)
            var talk = try SimulatedTalk(
                over: SimulatedTalk.Way(delay: delay), roundTripTime: 2 * delay, interval: interval, isHeard: true,
                seed: random.next())
            talk.run(250)
            let (troubles, acknowledged, lost) = (talk.troubles, talk.acknowledged, talk.lost)
            #expect(troubles == [], "seed \(seed), run \(run)")
            #expect(lost == 0, "seed \(seed), run \(run)")
            #expect(acknowledged == 250, "seed \(seed), run \(run)")
        }
    }

    @Test func `after an outage of both ways it goes on outside QUIC`() throws {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for run in 0..<60 {
            let delay = Int64.random(in: 1_000_000...150_000_000, using: &random)
            var way = SimulatedTalk.Way(delay: delay)
            way.jitter = Int64.random(in: 0...30_000_000, using: &random)
            way.outage = .milliseconds(Int.random(in: 100...3_000, using: &random))
            way.hasPauses = false
            let interval: Duration = .milliseconds(random.chance(50) ? 10 : 20)
            var talk = try SimulatedTalk(
                over: way, roundTripTime: 2 * delay + way.jitter, interval: interval, isHeard: true,
                seed: random.next())
            talk.run(400)
            let troubles = talk.troubles
            #expect(troubles == [], "seed \(seed), run \(run)")
            guard troubles.isEmpty else { return }
        }
    }
}

/// A talker, a way to the relay and back, and the receipts at its other end. Times are in nanoseconds.
private struct SimulatedTalk {
    struct Way {
        /// The same in both directions.
        var delay: Int64
        /// Up to this is added, for each packet by itself, so that they overtake each other.
        var jitter: Int64 = 0
        var lossPercent = 0
        /// Half a second from the beginning nothing arrives for so long, either way.
        var outage: Duration = .zero
        /// Whether the talker pauses now and then.
        var hasPauses = true
    }

    private struct Parcel<Content> {
        let due: Instant
        let content: Content
    }

    private static let beginning = Instant(nanoseconds: 1_000_000_000)

    private let way: Way
    private let roundTripTime: Int64
    private let interval: Duration
    /// Whether the relay is heard by QUIC where there is no outage, or never.
    private let isHeard: Bool
    private var random: SeededGenerator
    private var now = SimulatedTalk.beginning

    private var uplink: DirectUplink
    private var receipts = UplinkReceipts(of: SSRC(rawValue: 1))
    private var toSend = 0
    private var nextSend: Instant?
    private var up: [Parcel<UInt32>] = []
    private var down: [Parcel<UplinkReport>] = []
    private var relayLooksAt: Instant?

    private var sentAt: [Instant] = []
    /// Those without a fate.
    private var unanswered: [UInt32] = []
    private var arrived: Set<UInt32> = []
    private var newestReported: UInt32?
    private(set) var acknowledged = 0
    private(set) var lost = 0
    private(set) var troubles: [String] = []

    init(over way: Way, roundTripTime: Int64, interval: Duration, isHeard: Bool, seed: UInt64) throws {
        self.way = way
        self.roundTripTime = roundTripTime
        self.interval = interval
        self.isHeard = isHeard
        random = SeededGenerator(seed: seed)
        uplink = try DirectUplink(key: TrailerKey(), roundTripTime: .nanoseconds(roundTripTime))
    }

    /// Sends so many packets, and goes on until nothing is waited for.
    mutating func run(_ packets: Int) {
        toSend = packets
        nextSend = now
        while troubles.isEmpty, let next = nextEvent {
            now = max(now, next)
            step()
            lookForOverdue()
        }
        guard troubles.isEmpty else { return }
        if let first = unanswered.first { complain("packet \(first) has no fate") }
        if uplink.sentCount > 0 { complain("\(uplink.sentCount) packets are still kept") }
        if uplink.awaitsAnswer { complain("an answer is still awaited") }
        if uplink.isBlocked { complain("nothing goes this way any more") }
    }

    private var nextEvent: Instant? {
        let parcels = up.map(\.due) + down.map(\.due)
        return [parcels.min(), nextSend, relayLooksAt, uplink.nextDeadline].compactMap(\.self).min()
    }

    private mutating func step() {
        if let due = nextSend, due <= now { return send() }
        if let index = up.firstIndex(where: { $0.due <= now }) { return arrive(up.remove(at: index).content) }
        if let due = relayLooksAt, due <= now { return lookAtRelay() }
        if let index = down.firstIndex(where: { $0.due <= now }) { return take(down.remove(at: index).content) }
        let fates = uplink.look(heard: heard, at: now)
        note(fates)
        if let again = uplink.nextDeadline, again <= now {
            complain("after a look at \(now) it asks for another at \(again)")
        }
    }

    // MARK: The way

    private var outage: Range<Instant> {
        let begin = Self.beginning + .milliseconds(500)
        return begin..<begin + way.outage
    }

    /// When the relay was heard by QUIC last. After an outage that takes a round trip.
    private var heard: Instant? {
        guard isHeard else { return nil }
        let silence = outage.lowerBound..<outage.upperBound + .nanoseconds(roundTripTime)
        return outage.isEmpty || !silence.contains(now) ? now : silence.lowerBound
    }

    /// When what is sent now arrives; nil: never.
    private mutating func arrival() -> Instant? {
        if outage.contains(now) { return nil }
        if random.chance(way.lossPercent) { return nil }
        return now + .nanoseconds(way.delay + Int64.random(in: 0...way.jitter, using: &random))
    }

    private mutating func send() {
        let counter = UInt32(sentAt.count)
        guard let (_, number) = uplink.seal([0x80, 111, 7], at: now) else {
            return complain("packet \(counter) cannot go this way")
        }
        if number != DirectUplink.firstNumber + UInt64(counter) { complain("packet \(counter) has number \(number)") }
        sentAt.append(now)
        unanswered.append(counter)
        if let due = arrival() { up.append(Parcel(due: due, content: counter)) }
        toSend -= 1
        var pause = interval
        switch Int.random(in: 0..<30, using: &random) {
        case 0 where way.hasPauses: pause = .milliseconds(600)
        case 1...3: pause = .zero
        default: break
        }
        nextSend = toSend > 0 ? now + pause : nil
    }

    // MARK: The relay

    private mutating func arrive(_ counter: UInt32) {
        arrived.insert(counter)
        if receipts.received(counter, at: now) { return sendReport() }
        if relayLooksAt == nil { relayLooksAt = now + UplinkReceipts.tail }
    }

    /// Like the relay, which looks at all members at once, and not when the time of each is over.
    private mutating func lookAtRelay() {
        relayLooksAt = nil
        guard let since = receipts.owedSince else { return }
        if now - since >= UplinkReceipts.interval { return sendReport() }
        relayLooksAt = now + UplinkReceipts.tail
    }

    private mutating func sendReport() {
        guard let report = receipts.takeReport(at: now) else { return complain("the relay has nothing to tell") }
        if let due = arrival() { down.append(Parcel(due: due, content: report)) }
    }

    // MARK: What is told

    private mutating func take(_ report: UplinkReport) {
        newestReported = max(newestReported ?? 0, report.highest)
        note(uplink.take(report, at: now))
    }

    private mutating func note(_ fates: [Fate]) {
        for fate in fates {
            switch fate {
            case .acknowledged(let number):
                guard let counter = close(number) else { return }
                acknowledged += 1
                if !arrived.contains(counter) { complain("packet \(counter) has not come and is acknowledged") }
            case .lost(let number):
                guard let counter = close(number) else { return }
                lost += 1
                let newest = newestReported ?? 0
                let isLate = counter < newest && newest - counter >= 3
                // 9/8 of a round trip, but for the rounding to nanoseconds.
                let age = (now - sentAt[Int(counter)]).nanoseconds
                let isOld = counter < newest && age * 8 + 8 >= roundTripTime * 9
                // Nothing comes any more.
                let isOver = sentAt.last.map { now - $0 >= .seconds(2) } ?? false
                if !isLate && !isOld && !isOver { complain("packet \(counter), \(age) ns old, is lost too early") }
            }
        }
    }

    /// The packet whose fate is told: it must have been sent, and have none yet.
    private mutating func close(_ number: UInt64) -> UInt32? {
        guard let index = unanswered.firstIndex(where: { DirectUplink.firstNumber + UInt64($0) == number }) else {
            complain("\(number) is told of that was not sent, or has its fate")
            return nil
        }
        return unanswered.remove(at: index)
    }

    private mutating func lookForOverdue() {
        guard let newest = newestReported else { return }
        for counter in unanswered.prefix(while: { $0 < newest }) {
            let age = (now - sentAt[Int(counter)]).nanoseconds
            guard newest - counter >= 3 || age * 8 > roundTripTime * 9 + 8 else { continue }
            complain("packet \(counter), \(age) ns old, should be lost: \(newest) was reported")
        }
    }

    private mutating func complain(_ trouble: String) { troubles.append("\(now): \(trouble)") }
}
