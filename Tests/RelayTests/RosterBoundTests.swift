// A channel as full as it may be, with names as long as they may be: what waits for a slow client stays within its bound.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct RosterBoundTests {
    /// A full channel whose members take no more than a slow link carries.
    private struct Crowd {
        let channel = RelayChannelConfiguration.yard()
        let limits: RelayLimits
        var core: RelayCore
        var now = Instant(nanoseconds: 1_000_000_000)
        /// Control bytes on their way to each connection, and the most that ever were.
        var unsent: [ConnectionID: Int] = [:]
        var most = 0
        private var last: UInt64 = 0
        private var connectionOf: [Int: ConnectionID] = [:]
        /// Of the member that joined first: the sources of the others by what it was told.
        var heard: [MemberID: SSRC] = [:]
        var watched: ConnectionID?

        init(members: Int) {
            var limits = RelayLimits()
            limits.membersPerChannel = members
            limits.connections = 4 * members
            // So that the members decide on the bound, as they do in thousands.
            limits.controlBacklogBytes = 64 * 1_024
            self.limits = limits
            core = RelayCore(channels: [channel], limits: limits, random: SeededGenerator(seed: 5))
        }

        mutating func take(_ actions: [RelayCore.Action]) {
            for action in actions {
                switch action {
                case .send(let message, let recipients):
                    let count = message.framed().count
                    for id in recipients { add(count, to: id) }
                    if let watched, recipients.contains(watched) { hear(message) }
                case .sendSeries(let series, let recipients):
                    for each in recipients {
                        let known = each.first == 0 ? 0 : series.ends[each.first - 1]
                        add(series.bytes.count - known, to: each.connection)
                        if each.connection == watched { series.messages(for: each).forEach { hear($0) } }
                    }
                case .close(let id, _, _): unsent[id] = nil
                default: break
                }
            }
        }

        private mutating func add(_ count: Int, to id: ConnectionID) {
            unsent[id, default: 0] += count
            most = max(most, unsent[id] ?? 0)
        }

        private mutating func hear(_ message: ServerMessage) {
            switch message {
            case .memberJoined(let member): heard[member.id] = member.ssrc
            case .memberLeft(let member): heard[member] = nil
            case .welcome(let welcome): for member in welcome.members { heard[member.id] = member.ssrc }
            default: break
            }
        }

        @discardableResult
        mutating func join(_ number: Int, isEarly: Bool = false) -> [RelayCore.Action] {
            last += 1
            let id = ConnectionID(number: last)
            if watched == nil { watched = id }
            let older = connectionOf.updateValue(id, forKey: number)
            let join = channel.joinMessage(String(repeating: "n", count: 120) + String(10_000_000 + number))
            var early: [RelayCore.Action] = []
            if isEarly {
                _ = core.handle(.greeted(id, .numbered(number)), at: now)
                early = core.handle(.message(id, join), at: now)
                take(early)
                take(core.handle(.connected(id, .numbered(number)), at: now))
            } else {
                take(core.handle(.connected(id, .numbered(number)), at: now))
                take(core.handle(.message(id, join), at: now))
            }
            if let older { unsent[older] = nil }
            return early
        }

        mutating func pass(_ time: Duration) {
            let end = now + time
            while now < end {
                let step = min(end, now + .milliseconds(50))
                // Each takes what a slow link carries.
                let taken = limits.rosterNewsPerSecond / 20
                for id in unsent.keys { unsent[id] = max(0, (unsent[id] ?? 0) - taken) }
                now = step
                if let due = core.nextDeadline, due <= now { take(core.handle(.deadline, at: now)) }
            }
        }
    }

    @Test func `the longest announcement is as long as the bound says`() {
        let name = DisplayName(String(repeating: "n", count: 128))!
        let member = ServerMessage.Member(
            id: .numbered(1), displayName: name, ssrc: SSRC(rawValue: .max))
        #expect(ServerMessage.memberJoined(member).framed().count == RelayLimits.announcementBytesMaximum)
        var limits = RelayLimits()
        for members in [1, 500, 1_365, 1_366, 3_000, 10_000] {
            limits.membersPerChannel = members
            let welcome = members * RelayLimits.announcementBytesMaximum
            #expect(
                welcome + limits.rosterUpdateBytes + RelayLimits.otherControlBytes <= limits.controlBacklog,
                "\(members) members")
        }
    }

    @Test func `when all members of a full channel come back at once, nobody has more waiting than it may`() {
        let count = 900
        var crowd = Crowd(members: count)
        for number in 0..<count {
            crowd.join(number)
            if number % 30 == 29 { crowd.pass(.milliseconds(200)) }
        }
        crowd.pass(.seconds(20))
        crowd.most = 0
        // All on new connections, each in its place; the first one listens from its new connection on.
        crowd.watched = nil
        crowd.heard = [:]
        for number in 0..<count {
            crowd.join(number)
            if number % 300 == 299 { crowd.pass(.milliseconds(50)) }
        }
        crowd.pass(.seconds(5))
        #expect(crowd.most <= crowd.limits.controlBacklog, "\(crowd.most) of \(crowd.limits.controlBacklog)")
        #expect(crowd.core.memberCount(of: crowd.channel.id) == count)
        // Late, but in the end everybody knows everybody.
        crowd.pass(.seconds(10))
        let sources = Dictionary(
            uniqueKeysWithValues: crowd.core.channels[0].members.all.map { ($0.id, $0.ssrc) })
        #expect(crowd.heard == sources.filter { $0.key != .numbered(0) })
        #expect(crowd.core.nextDeadline == nil, "nothing waits any more")
    }

    @Test func `who would be told of everybody twice is welcomed after its handshake`() {
        var crowd = Crowd(members: 900)
        for number in 0..<50 { crowd.join(number) }
        crowd.pass(.seconds(5))
        #expect(!crowd.join(900, isEarly: true).isEmpty)
        for number in 50..<899 {
            crowd.join(number)
            if number % 30 == 29 { crowd.pass(.milliseconds(200)) }
        }
        crowd.pass(.seconds(20))
        #expect(crowd.join(900, isEarly: true).isEmpty)
        #expect(crowd.core.memberCount(of: crowd.channel.id) == 900, "it is a member all the same")
        #expect(crowd.most <= crowd.limits.controlBacklog)
    }

    @Test func `a talker is introduced though the news before it have to wait`() {
        var limits = RelayLimits()
        limits.membersPerChannel = 900
        limits.controlBacklogBytes = 1
        var news = RosterUpdates(limits: limits)
        var notices = TokenBucket(depth: 2_000, perSecond: 0, at: .zero)
        let now = Instant(nanoseconds: 1_000_000_000)
        func change(_ number: Int) -> RosterUpdates.Change {
            .init(member: .numbered(number), frame: [UInt8](repeating: 0, count: 160))
        }
        for number in 0..<(RosterUpdates.calmChanges + 200) { _ = news.note(change(number), to: 1, &notices, at: now) }
        let told = news.take(at: now).count
        #expect(told == limits.rosterUpdateBytes / 160 && told < 200)
        let last = MemberID.numbered(RosterUpdates.calmChanges + 199)
        #expect(news.take(of: last) != nil && news.take(of: last) == nil && !news.concerns(last))
        #expect(news.nextDeadline == now + RosterUpdates.window)
        let rest = news.take(at: now + .seconds(60)).count
        #expect(told + rest <= 199)
        // More than may wait is told, whatever it comes to.
        limits.membersPerChannel = 4
        limits.rosterNewsPerSecond = 0
        var flooded = RosterUpdates(limits: limits)
        for number in 0..<1_000 { _ = flooded.note(change(number), to: 1, &notices, at: now) }
        _ = flooded.take(at: now)
        #expect(flooded.waiting.count <= 16)
    }
}
