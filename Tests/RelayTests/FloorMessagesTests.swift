// The floor's rules as members see them: what the relay sends to whom, and what it forwards.
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct FloorMessagesTests {
    private var core = RelayCore(channels: [])
    private var channel = RelayChannelConfiguration.yard()
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private let ids = (1...6).map { ConnectionID(number: $0) }

    /// A channel with those rules and as many members; `priorities` of the first of them.
    private mutating func open(_ rules: FloorRules, members: Int, priorities: [UInt8] = []) {
        channel.rules = rules
        core = RelayCore(channels: [channel], random: SeededGenerator(seed: 1))
        for id in ids.prefix(members) { join(id) }
        for (id, priority) in zip(ids, priorities) {
            let readmitted = RelayMembership(priority: priority)
            _ = core.handle(.readmit(welcomes[id]!.memberID, to: channel.id, as: readmitted), at: now)
        }
    }

    private mutating func join(_ id: ConnectionID) {
        welcomes[id] = core.enter(id, by: channel.joinMessage("Member \(id)"), at: now).welcome(for: id)
    }

    private func keyID(_ id: ConnectionID, _ number: UInt32) -> UInt64 {
        UInt64(welcomes[id]?.mediaKey?.epoch ?? 0) << 48 | id.number << 32 | UInt64(number)
    }

    private mutating func ask(_ member: Int, _ number: UInt32 = 1, priority: UInt8 = 0) -> [RelayCore.Action] {
        let id = ids[member]
        let request = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: number), priority: priority, keyID: keyID(id, number), mayQueue: true)
        return core.handle(.message(id, .floorRequest(request)), at: now)
    }

    private mutating func release(_ member: Int, _ number: UInt32 = 1, last: UInt16?) -> [RelayCore.Action] {
        let release = ClientMessage.FloorRelease(requestID: FloorRequestID(rawValue: number), lastSequence: last)
        return core.handle(.message(ids[member], .floorRelease(release)), at: now)
    }

    private mutating func media(
        _ member: Int, _ sequence: UInt16, request number: UInt32 = 1
    ) -> (RelayCore.MediaDecision, [RelayCore.Action]) {
        let id = ids[member]
        let header = MediaPacketHeader(
            ssrc: welcomes[id]!.ssrc, sequence: sequence, marker: true, keyID: keyID(id, number))
        return core.media(header, bytes: [UInt8](repeating: 0, count: 100), from: id, at: now)
    }

    private func sent(_ actions: [RelayCore.Action], to member: Int) -> [ServerMessage] {
        actions.sent(to: ids[member])
    }

    @Test mutating func `a member asks for less than its priority or for all of it, and never gets more`() {
        open(FloorRules(), members: 2, priorities: [40])
        for (number, (asked, expected)) in [(UInt8(10), UInt8(10)), (40, 40), (254, 40), (255, 255)].enumerated() {
            let number = UInt32(number + 1)
            let actions = ask(0, number, priority: asked)
            guard case .floorGranted(let granted)? = sent(actions, to: 0).last else {
                return #expect(Bool(false), "\(actions)")
            }
            #expect(granted.priority == expected)
            guard case .floorTaken(let taken)? = sent(actions, to: 1).last else {
                return #expect(Bool(false), "\(actions)")
            }
            #expect(taken.priority == expected)
        }
    }

    @Test mutating func `a newcomer is told its rights and everybody who talks`() {
        open(FloorRules(mode: .fullDuplex, hasQueue: true), members: 4)
        for member in 0..<3 { _ = ask(member, priority: member == 2 ? 255 : 0) }
        join(ids[4])
        let welcome = welcomes[ids[4]]!
        #expect(welcome.floorMode == .fullDuplex && welcome.hasFloorQueue && !welcome.isListenOnly)
        #expect(welcome.floor?.ssrc == welcomes[ids[0]]?.ssrc)
        #expect(welcome.moreFloors.map(\.ssrc) == [welcomes[ids[1]]!.ssrc, welcomes[ids[2]]!.ssrc])
        #expect(welcome.moreFloors.map(\.priority) == [0, 255])
        #expect(Set(welcome.members.prefix(3).map(\.ssrc)) == Set((0..<3).map { welcomes[ids[$0]]!.ssrc }))
    }

    @Test mutating func `who may only listen is denied, and cut off when it talks already`() {
        open(FloorRules(), members: 2)
        _ = ask(0)
        let (member, channel) = (welcomes[ids[0]]!.memberID, core.channels[0].configuration.id)
        let actions = core.handle(.readmit(member, to: channel, as: .init(isListenOnly: true)), at: now)
        #expect(
            sent(actions, to: 0).first
                == .floorRevoke(
                    .init(requestID: .first, cause: .noPermission, phrase: "this member may only listen")))
        #expect(sent(actions, to: 1) == [.floorIdle(.init(ssrc: welcomes[ids[0]]!.ssrc, lastSequence: nil))])
        for priority in [UInt8(0), 255] {
            guard case .floorDeny(let denial)? = sent(ask(0, 2 + UInt32(priority), priority: priority), to: 0).first
            else { return #expect(Bool(false), "not denied") }
            #expect(denial.cause == .receiveOnly)
        }
        #expect(media(0, 1).0 == .drop(.noFloor))
    }

    @Test mutating func `on a listen-only channel who was invited with a priority talks, and everybody else listens`() {
        open(FloorRules(mode: .listenOnly, hasQueue: true), members: 3)
        #expect(welcomes[ids[0]]?.isListenOnly == true && welcomes[ids[0]]?.floorMode == .halfDuplex)
        for priority in [UInt8(0), 255] {
            guard case .floorDeny(let denial)? = sent(ask(0, 1 + UInt32(priority), priority: priority), to: 0).first
            else { return #expect(Bool(false), "not denied") }
            #expect(denial.cause == .receiveOnly)
        }
        let channel = core.channels[0].configuration.id
        for member in [1, 2] {
            let told = core.handle(
                .readmit(welcomes[ids[member]]!.memberID, to: channel, as: .init(priority: 1)), at: now)
            guard case .floorRules(let rules)? = sent(told, to: member).first else {
                return #expect(Bool(false), "\(told)")
            }
            #expect(!rules.isListenOnly && rules.priority == 1)
        }
        #expect(sent(ask(1), to: 1).contains { if case .floorGranted = $0 { true } else { false } })
        #expect(media(1, 1).0 == .forward(channel: 0))
        // One at a time.
        #expect(sent(ask(2), to: 2).contains { if case .floorQueuePosition = $0 { true } else { false } })
        // Who loses its priority loses the floor.
        _ = core.handle(.readmit(welcomes[ids[1]]!.memberID, to: channel, as: .init()), at: now)
        #expect(media(1, 2).0 == .drop(.noFloor))
        #expect(core.channels[0].floor.holder?.ssrc == welcomes[ids[2]]?.ssrc)
    }

    @Test mutating func `an emergency is heard: who talks is told who has it, and everybody whose it is`() {
        open(FloorRules(), members: 3)
        _ = ask(0)
        _ = media(0, 1)
        let asked = ask(1, priority: 255)
        #expect(
            sent(asked, to: 0)
                == [.floorRevoke(.init(requestID: .first, cause: .preempted, phrase: "Member 2 has an emergency"))])
        #expect(sent(asked, to: 1).isEmpty, "it has the floor in a moment")
        let released = release(0, last: 1)
        guard case .floorTaken(let taken)? = sent(released, to: 2).last else {
            return #expect(Bool(false), "\(released)")
        }
        #expect(taken.priority == 255 && taken.talker == welcomes[ids[1]]?.memberID)
        #expect(sent(released, to: 1).contains { if case .floorGranted = $0 { true } else { false } })
    }

    @Test mutating func `four talk at once, each heard by the others, each told what its listeners miss`() {
        open(FloorRules(mode: .fullDuplex), members: 6)
        for member in 0..<4 {
            #expect(
                sent(ask(member), to: (member + 1) % 4).contains { if case .floorTaken = $0 { true } else { false } })
        }
        for sequence in UInt16(0)..<20 {
            for member in 0..<4 { #expect(media(member, sequence).0 == .forward(channel: 0)) }
            #expect(media(4, sequence).0 == .drop(.noFloor))
        }
        for member in 0..<4 {
            let talker = welcomes[ids[member]]!.ssrc
            let report = ClientMessage.ReceptionReport(
                ssrc: talker, received: 20 - UInt32(member), lost: UInt32(member), highestSequence: 19, jitter: 0)
            let told = sent(core.handle(.message(ids[5], .receptionReport(report)), at: now), to: member)
            #expect(told == [.listenerLoss(percent: member * 5)])
            let bursts = core.channels[0].store.packets(
                ssrc: talker, keyID: keyID(ids[member], 1), ranges: [SequenceRange(first: 0, last: 19)],
                byteLimit: 1 << 20)
            #expect(bursts.count == 20, "what is interleaved is kept by its talker")
        }
        let left = core.handle(.disconnected(ids[1]), at: now)
        #expect(sent(left, to: 0).first == .floorIdle(.init(ssrc: welcomes[ids[1]]!.ssrc, lastSequence: 19)))
        #expect(core.channels[0].floor.taken(by: core.channels[0].members).count == 3)
    }

    @Test mutating func `who sends without the floor is told so now and then, but not for the tail of its burst`() {
        open(FloorRules(), members: 2)
        #expect(media(0, 1).1.isEmpty, "it never asked")
        _ = ask(0)
        _ = media(0, 1)
        _ = release(0, last: 1)
        let tail = media(0, 2)
        #expect(tail.0 == .drop(.noFloor) && tail.1.isEmpty)
        var reminders = 0
        for sequence in UInt16(3)..<300 {
            now = now + .milliseconds(20)
            let (decision, actions) = media(0, sequence)
            #expect(decision == .drop(.noFloor))
            for case .floorRevoke(let revoke) in sent(actions, to: 0) {
                #expect(revoke.cause == .noPermission && revoke.requestID == .first)
                reminders += 1
            }
        }
        #expect(reminders == 2, "5.9 s, one every two seconds")
    }

    @Test mutating func `a request that is refused for its key takes the older one of its member out of the queue`() {
        open(FloorRules(hasQueue: true), members: 3)
        for member in 0..<3 { _ = ask(member) }
        // Asked with the key id of the request before.
        let again = ClientMessage.FloorRequest(
            requestID: FloorRequestID(rawValue: 2), keyID: keyID(ids[1], 1), mayQueue: true)
        let actions = core.handle(.message(ids[1], .floorRequest(again)), at: now)
        #expect(sent(actions, to: 2) == [.floorQueuePosition(.init(requestID: .first, position: 1))])
        guard case .floorDeny(let denial)? = sent(actions, to: 1).first else {
            return #expect(Bool(false), "\(actions)")
        }
        #expect(denial.requestID.rawValue == 2 && denial.cause == .other)
        #expect(core.channels[0].floor.waiting.map(\.ssrc) == [welcomes[ids[2]]!.ssrc])
    }

    @Test mutating func `the log hears of who waits once, however often its place changes`() {
        open(FloorRules(hasQueue: true, preemptionStep: 200), members: 6, priorities: [0, 1, 2, 3, 4, 5])
        var notes = 0
        for member in 0..<6 {
            for case .note(.floorQueued) in ask(member, priority: UInt8(member)) { notes += 1 }
        }
        #expect(notes == 5, "each but the talker, though all moved back")
    }

    @Test mutating func `a talk-time limit that was passed is told with the time to wait`() {
        channel.rules = FloorRules()
        var timers = FloorControlStateMachine.Timers()
        timers.retryAfter = .seconds(7)
        core = RelayCore(channels: [channel], timers: timers, random: SeededGenerator(seed: 1))
        join(ids[0])
        _ = ask(0)
        for second in UInt16(0)...60 {
            _ = media(0, second)
            _ = core.handle(.deadline, at: now)
            now = now + .seconds(1)
        }
        _ = release(0, last: 60)
        guard case .floorDeny(let denial)? = sent(ask(0, 2), to: 0).first else {
            return #expect(Bool(false), "not denied")
        }
        #expect(denial.cause == .retryAfterNotExpired)
        #expect(denial.retryAfter == .seconds(6))
    }
}
