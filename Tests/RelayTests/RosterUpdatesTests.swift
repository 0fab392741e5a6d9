// Who came and went, told to many: what is kept, what is told together, and that everybody ends up knowing everybody.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct RosterUpdatesTests {
    private func change(_ number: Int, _ frame: UInt8 = 0) -> RosterUpdates.Change {
        .init(member: .numbered(number), frame: [frame])
    }

    @Test func `a few are told at once, many together at the end of the window, and a few again after a quiet one`() {
        var news = RosterUpdates()
        var notices = TokenBucket(depth: 1_000, perSecond: 0, at: .zero)
        let start = Instant(nanoseconds: 1_000_000_000)
        for number in 0..<RosterUpdates.calmChanges {
            let isTold = news.note(change(number), to: 1, &notices, at: start)
            #expect(isTold)
            #expect(news.nextDeadline == nil)
        }
        for number in 100..<110 {
            #expect(news.note(change(number), to: 1, &notices, at: start + .milliseconds(1)) == false)
        }
        #expect(news.nextDeadline == start + RosterUpdates.window)
        let first = start + RosterUpdates.window
        #expect(news.take(at: first).map(\.member) == (100..<110).map { .numbered($0) })
        #expect(news.nextDeadline == nil)
        // Still busy: what comes in the next window waits for its end.
        #expect(news.note(change(1), to: 1, &notices, at: first + .milliseconds(1)) == false)
        #expect(news.nextDeadline == first + RosterUpdates.window)
        // Also when the end is looked at late.
        #expect(news.note(change(2), to: 1, &notices, at: first + RosterUpdates.window + .milliseconds(50)) == false)
        let second = first + RosterUpdates.window + .milliseconds(51)
        #expect(news.take(at: second).map(\.member) == [.numbered(1), .numbered(2)])
        #expect(news.note(change(3), to: 1, &notices, at: second + RosterUpdates.window) == true)
    }

    @Test func `while the relay has sent too many notices, they are collected for longer, and then sent at once again`()
    {
        var news = RosterUpdates()
        var notices = TokenBucket(depth: 100, perSecond: 50, at: .zero)
        let start = Instant(nanoseconds: 1_000_000_000)
        let toldAtOnce = (0..<4).map { news.note(change($0), to: 40, &notices, at: start) }
        #expect(toldAtOnce == [true, true, false, false])
        #expect(news.nextDeadline == start + RosterUpdates.crowdedWindow)
        // Another channel has its own windows, but the same account.
        var other = RosterUpdates()
        #expect(other.note(change(9), to: 40, &notices, at: start) == false)
        #expect(other.note(change(8), to: 1, &notices, at: start) == false)
        #expect(other.take(at: start + RosterUpdates.crowdedWindow).map(\.member) == [.numbered(9), .numbered(8)])
        let later = start + RosterUpdates.crowdedWindow
        #expect(news.take(at: later).map(\.member) == [.numbered(2), .numbered(3)])
        // It goes on like that while the relay has too many, also right after a batch.
        let emptied = notices.take(100, at: later)
        #expect(emptied)
        #expect(news.note(change(4), to: 40, &notices, at: later + .milliseconds(1)) == false)
        #expect(news.nextDeadline == later + .milliseconds(1) + RosterUpdates.crowdedWindow)
        let calm = later + .milliseconds(1) + RosterUpdates.crowdedWindow
        #expect(news.take(at: calm).map(\.member) == [.numbered(4)])
        #expect(news.note(change(5), to: 40, &notices, at: calm + RosterUpdates.window) == true)
    }

    @Test func `of one member the last counts`() {
        var news = RosterUpdates()
        var notices = TokenBucket(depth: 1_000, perSecond: 0, at: .zero)
        for number in 0..<RosterUpdates.calmChanges {
            _ = news.note(change(number), to: 1, &notices, at: .zero + .seconds(1))
        }
        let now = Instant.zero + .seconds(1)
        #expect(news.note(change(50, 1), to: 1, &notices, at: now) == false)
        #expect(news.note(change(51, 2), to: 1, &notices, at: now) == false)
        #expect(news.note(change(50, 3), to: 1, &notices, at: now) == false)
        #expect(news.concerns(.numbered(50)) && !news.concerns(.numbered(1)))
        #expect(news.take(at: now).map(\.frame) == [[2], [3]])
    }

    @Test func `a series is cut between messages, wherever it begins`() {
        var series = MessageSeries()
        var generator = SeededGenerator(seed: 7)
        let frames = (0..<200).map { number in
            [UInt8](repeating: UInt8(number), count: Int.random(in: 1...2_000, using: &generator))
        }
        for frame in frames { series.append(frame) }
        for first in [0, 1, 77, 199, 200] {
            let pieces = series.pieces(from: first)
            #expect(Array(pieces.joined()) == Array(frames[first...].joined()))
            #expect(pieces.allSatisfy { $0.count <= MessageSeries.pieceBytes && !$0.isEmpty })
            // No message is in two pieces.
            #expect(pieces.reduce(0) { $0 + Set($1).count } == frames.count - first)
        }
        #expect(MessageSeries().pieces().isEmpty)
        var long = MessageSeries()
        long.append([UInt8](repeating: 1, count: 20_000))
        #expect(long.pieces().map(\.count) == [20_000])
    }

    /// A relay's rules with what each of its members knows of the others.
    private struct Crowd {
        let channel: RelayChannelConfiguration
        var core: RelayCore
        var now = Instant(nanoseconds: 1_000_000_000)
        /// By member: its connection, and the sources of the others by what it was told.
        var known: [MemberID: (connection: ConnectionID, others: [MemberID: SSRC])] = [:]
        var sources: [MemberID: SSRC] = [:]
        var connections: UInt64 = 0
        var tellings = 0
        var wrongs: [String] = []

        init(members: Int) {
            channel = .yard()
            var limits = RelayLimits()
            limits.membersPerChannel = members
            core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: 3))
        }

        mutating func take(_ actions: [RelayCore.Action]) {
            for action in actions {
                switch action {
                case .send(let message, let recipients):
                    tellings += recipients.count
                    for id in recipients { hear(message, on: id) }
                case .sendSeries(let series, let recipients):
                    tellings += recipients.count
                    for recipient in recipients {
                        for message in series.messages(for: recipient) { hear(message, on: recipient.connection) }
                    }
                default: break
                }
            }
        }

        private mutating func hear(_ message: ServerMessage, on id: ConnectionID) {
            guard let (own, _) = known.first(where: { $0.value.connection == id }) else { return }
            switch message {
            case .welcome(let welcome):
                sources[own] = welcome.ssrc
                known[own]?.others = [:]
                for member in welcome.members { known[own]?.others[member.id] = member.ssrc }
            case .memberJoined(let member):
                if member.id == own { wrongs.append("\(own) is told of itself") }
                known[own]?.others[member.id] = member.ssrc
            case .memberLeft(let member): known[own]?.others[member] = nil
            case .floorTaken(let taken):
                if known[own]?.others[taken.talker] == nil { wrongs.append("\(own) does not know who talks") }
            default: break
            }
        }

        mutating func join(_ pin: PublicKeyPin, isEarly: Bool) {
            connections += 1
            let id = ConnectionID(number: connections)
            let member = MemberID(pin)
            let join = channel.joinMessage("A member")
            // What it knew by its older connection goes with that.
            let before = known[member]
            known[member] = (id, [:])
            if isEarly {
                _ = core.handle(.greeted(id, pin), at: now)
                take(core.handle(.message(id, join), at: now))
                take(core.handle(.connected(id, pin), at: now))
            } else {
                take(core.handle(.connected(id, pin), at: now))
                take(core.handle(.message(id, join), at: now))
            }
            if let before { take(core.handle(.disconnected(before.connection), at: now)) }
        }

        mutating func leave(_ member: MemberID) {
            guard let gone = known.removeValue(forKey: member) else { return }
            sources[member] = nil
            take(core.handle(.disconnected(gone.connection), at: now))
        }

        mutating func pass(_ time: Duration) {
            let end = now + time
            while let due = core.nextDeadline, due <= end {
                now = max(now, due)
                take(core.handle(.deadline, at: now))
            }
            now = end
        }

        /// Who knows something else than what is so.
        var mistaken: Int {
            known.count { member, knowledge in
                knowledge.others != sources.filter { $0.key != member }
            }
        }
    }

    @Test(arguments: [1, 2, 3] as [UInt64])
    func `however they come and go, a moment later everybody knows who is there`(seed: UInt64) {
        var generator = SeededGenerator(seed: seed)
        var crowd = Crowd(members: 500)
        for step in 0..<1_500 {
            let number = Int.random(in: 0..<90, using: &generator)
            switch Int.random(in: 0..<10, using: &generator) {
            case 0..<6: crowd.join(.numbered(number), isEarly: Bool.random(using: &generator))
            case 6..<9: crowd.leave(.numbered(number))
            default: crowd.pass(.milliseconds(Int.random(in: 1...150, using: &generator)))
            }
            guard step % 300 == 299 else { continue }
            crowd.pass(RosterUpdates.crowdedWindow + .seconds(1))
            #expect(crowd.mistaken == 0, "after \(step) steps of seed \(seed)")
        }
        #expect(crowd.wrongs.isEmpty, "\(crowd.wrongs.prefix(3))")
    }

    @Test func `hundreds that come at once cost each of them few messages, not one for each of the others`() {
        let count = 400
        var crowd = Crowd(members: count)
        for number in 0..<count {
            crowd.join(.numbered(number), isEarly: number % 2 == 0)
            if number % 40 == 39 { crowd.pass(.milliseconds(100)) }
        }
        crowd.pass(RosterUpdates.crowdedWindow + .seconds(1))
        #expect(crowd.mistaken == 0 && crowd.wrongs.isEmpty)
        #expect(crowd.core.memberCount(of: crowd.channel.id) == count)
        // Each has its welcome with the rest of it, and a message at the end of each of some windows: 80,000 would be all of all.
        #expect(crowd.tellings < 20 * count, "\(crowd.tellings)")
    }

    @Test func `who comes when all have gone is told of none of them`() {
        var crowd = Crowd(members: 100)
        for number in 0..<60 { crowd.join(.numbered(number), isEarly: false) }
        // The last one goes while the others have not been told yet that it has come.
        for number in 0..<60 { crowd.leave(.numbered(number)) }
        crowd.join(.numbered(60), isEarly: false)
        crowd.pass(RosterUpdates.crowdedWindow + .seconds(1))
        #expect(crowd.known[.numbered(60)]?.others.isEmpty == true && crowd.mistaken == 0)
        #expect(crowd.core.nextDeadline == nil)
    }

    @Test func `a talker's name comes before its voice, also when it has only just come`() throws {
        var crowd = Crowd(members: 100)
        for number in 0..<60 { crowd.join(.numbered(number), isEarly: false) }
        #expect(crowd.core.nextDeadline != nil, "the last ones are not told of yet")
        let talker = MemberID.numbered(59)
        let connection = try #require(crowd.known[talker]?.connection)
        let epoch = crowd.core.channels[0].keys.present.epoch
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: 1), keyID: UInt64(epoch) << 48 | 1)
        crowd.take(crowd.core.handle(.message(connection, .floorRequest(request)), at: crowd.now))
        #expect(crowd.wrongs.isEmpty, "\(crowd.wrongs.prefix(3))")
        #expect(crowd.mistaken == 0)
    }
}
