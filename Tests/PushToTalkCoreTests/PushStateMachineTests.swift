// Whose pushes are, how long they wait, and how the program is asked.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import TestSupport
import Testing
import Vocabulary

@Suite struct PushStateMachineTests {
    typealias PushAction = PushStateMachine.Action
    let now = Instant.zero + .seconds(100)
    let ann = PTParticipant(name: "Ann", image: nil)
    let token: PushToken
    let other: PushToken

    init() throws {
        token = try #require(PushToken([UInt8](repeating: 7, count: 32)))
        other = try #require(PushToken([UInt8](repeating: 8, count: 100)))
    }

    func joined(_ program: ChannelProgram = .present, canStart: Bool = true) -> PushStateMachine {
        var pushes = PushStateMachine()
        _ = pushes.handle(.joined(token, program, canStartProgram: canStart), at: now)
        return pushes
    }

    func speaker(_ name: String = "1", to token: PushToken? = nil, _ expiry: Push.Expiry = .immediate) throws -> Push {
        Push(
            identifier: name, token: token ?? self.token, payload: try PushPayload(validating: "{}"), expiry: expiry)
    }

    func update(_ name: String = "1", high: Bool = true, _ expiry: Push.Expiry = .immediate) throws -> Push {
        let payload = try PushPayload(validating: #"{"aps":{"ptt-push-type":"service-update"}}"#)
        return Push(identifier: name, token: token, payload: payload, isHighPriority: high, expiry: expiry)
    }

    @Test func `a push is put to the program and its answer is done`() throws {
        var pushes = joined()
        let push = try speaker()
        let delivery = try #require(pushes.handle(.received(push), at: now).asked.first)
        #expect(delivery.push == push)
        #expect(pushes.isAwaitingAnswer)
        let answer = PTPushResult.activeRemoteParticipant(ann)
        #expect(
            pushes.handle(.answered(delivery.identifier, answer), at: now) == [.perform(answer, delivery)])
        #expect(!pushes.isAwaitingAnswer)
        #expect(pushes.nextDeadline == nil)
        // Answered is answered.
        #expect(pushes.handle(.answered(delivery.identifier, .leaveChannel), at: now).isEmpty)
    }

    @Test func `one push is asked about at a time`() throws {
        var pushes = joined()
        let first = try #require(pushes.handle(.received(try speaker("1")), at: now).asked.first)
        #expect(pushes.handle(.received(try speaker("2")), at: now).isEmpty)
        let second = pushes.handle(.answered(first.identifier, .activeRemoteParticipant(ann)), at: now).asked
        #expect(second.map(\.push.identifier) == ["2"])
    }

    @Test func `a program that does not answer within ten seconds is not waited for`() throws {
        var pushes = joined()
        let push = try speaker("1")
        let delivery = try #require(pushes.handle(.received(push), at: now).asked.first)
        let later = try speaker("2", .at(now + .seconds(60)))
        _ = pushes.handle(.received(later), at: now)
        #expect(pushes.nextDeadline == now + .seconds(10))
        let late = pushes.handle(.deadlineReached, at: now + .seconds(10))
        #expect(late.outcome(of: push) == .dropped(.notAnswered(reason: "no answer within 10.0 seconds")))
        #expect(late.asked.map(\.push) == [later])
        // The late answer is void: it is none to the question that is open.
        #expect(pushes.handle(.answered(delivery.identifier, .leaveChannel), at: now + .seconds(11)).isEmpty)
    }

    @Test func `a token is that of one membership`() throws {
        var pushes = joined()
        let stranger = try speaker("1", to: other)
        #expect(pushes.handle(.received(stranger), at: now).outcome(of: stranger) == .dropped(.deadToken))
        #expect(pushes.handle(.left, at: now).isEmpty)
        let late = try speaker("2")
        #expect(pushes.handle(.received(late), at: now).outcome(of: late) == .dropped(.noProgram))
        _ = pushes.handle(.joined(other, .present, canStartProgram: true), at: now)
        #expect(pushes.handle(.received(late), at: now).outcome(of: late) == .dropped(.deadToken))
    }

    @Test func `a push that came another way is for the active channel`() throws {
        var pushes = joined()
        let local = Push(identifier: "local", token: nil, payload: try PushPayload(validating: "{}"))
        #expect(pushes.handle(.received(local), at: now).asked.map(\.push) == [local])
        var none = PushStateMachine()
        #expect(none.handle(.received(local), at: now).outcome(of: local) == .dropped(.noProgram))
    }

    @Test func `leaving forgets what waits and what is being answered`() throws {
        var pushes = joined()
        let asked = try speaker("1")
        let waiting = try speaker("2")
        let delivery = try #require(pushes.handle(.received(asked), at: now).asked.first)
        _ = pushes.handle(.received(waiting), at: now)
        let left = pushes.handle(.left, at: now)
        #expect(left.outcome(of: asked) == .dropped(.channelLeft))
        #expect(left.outcome(of: waiting) == .dropped(.channelLeft))
        #expect(pushes.handle(.answered(delivery.identifier, .leaveChannel), at: now).isEmpty)
        #expect(pushes.token == nil)
        #expect(pushes.nextDeadline == nil)
    }

    @Test func `a program that does not run is started once for all pushes that wait`() throws {
        var pushes = joined(.absent)
        let first = try speaker("1")
        #expect(pushes.handle(.received(first), at: now) == [.startProgram])
        #expect(pushes.handle(.received(try speaker("2")), at: now).isEmpty)
        #expect(pushes.handle(.programCame, at: now + .seconds(2)).asked.map(\.push) == [first])
        #expect(pushes.waitingCount == 1)
    }

    @Test func `a push for now does not come late and one with time waits`() throws {
        var pushes = joined(.absent)
        let immediate = try speaker("1")
        let patient = try speaker("2", .at(now + .seconds(60)))
        _ = pushes.handle(.received(immediate), at: now)
        _ = pushes.handle(.received(patient), at: now)
        let late = pushes.handle(.deadlineReached, at: now + .seconds(10))
        #expect(late.outcome(of: immediate) == .dropped(.expired))
        #expect(pushes.waitingCount == 1)
        #expect(pushes.handle(.programCame, at: now + .seconds(59)).asked.map(\.push) == [patient])

        var never = joined(.absent)
        _ = never.handle(.received(patient), at: now)
        // The time counts, whoever comes first: the deadline or the program.
        #expect(never.handle(.programCame, at: now + .seconds(60)).outcome(of: patient) == .dropped(.expired))
        let stale = try speaker("3", .at(now))
        #expect(never.handle(.received(stale), at: now).outcome(of: stale) == .dropped(.expired))
    }

    @Test func `a program that does not start is told and tried again for the next push`() throws {
        var pushes = joined(.absent)
        let immediate = try speaker("1")
        let patient = try speaker("2", .at(now + .seconds(600)))
        _ = pushes.handle(.received(immediate), at: now)
        _ = pushes.handle(.received(patient), at: now)
        let failed = pushes.handle(.programNotStarted(reason: "no such service"), at: now)
        #expect(failed.outcome(of: immediate) == .dropped(.programNotStarted(reason: "no such service")))
        #expect(failed.count == 1)
        #expect(pushes.handle(.received(try speaker("3")), at: now).contains(.startProgram))
        _ = pushes.handle(.deadlineReached, at: now + .seconds(10))
        let late = pushes.handle(.deadlineReached, at: now + .seconds(25))
        #expect(late.isEmpty)
        #expect(pushes.handle(.received(try speaker("4")), at: now + .seconds(26)).contains(.startProgram))
    }

    @Test func `a program that cannot be started is waited for only by pushes with time`() throws {
        var pushes = joined(.absent, canStart: false)
        let immediate = try speaker("1")
        #expect(pushes.handle(.received(immediate), at: now).outcome(of: immediate) == .dropped(.noProgram))
        let patient = try speaker("2", .at(now + .seconds(60)))
        #expect(pushes.handle(.received(patient), at: now).isEmpty)
        #expect(pushes.handle(.programCame, at: now).asked.map(\.push) == [patient])
    }

    @Test func `a program that ends while it is asked is started for what waits only`() throws {
        var pushes = joined()
        let asked = try speaker("1")
        _ = pushes.handle(.received(asked), at: now)
        let alone = pushes.handle(.programLeft, at: now)
        #expect(alone == [.settled(asked, .dropped(.notAnswered(reason: "the program ended")))])
        _ = pushes.handle(.programCame, at: now)
        _ = pushes.handle(.received(asked), at: now)
        let next = try speaker("2")
        _ = pushes.handle(.received(next), at: now)
        #expect(pushes.handle(.programLeft, at: now).last == .startProgram)
        #expect(pushes.handle(.programCame, at: now).asked.map(\.push) == [next])
    }

    @Test func `what waits is bounded`() throws {
        var pushes = joined(.absent)
        for number in 0..<16 { _ = pushes.handle(.received(try speaker("\(number)")), at: now) }
        let further = try speaker("further")
        #expect(pushes.handle(.received(further), at: now).outcome(of: further) == .dropped(.tooMany))
        #expect(pushes.waitingCount == 16)
    }

    @Test func `the daemons end drops what waits`() throws {
        var pushes = joined()
        let asked = try speaker("1")
        _ = pushes.handle(.received(asked), at: now)
        #expect(pushes.handle(.shutdown, at: now) == [.settled(asked, .dropped(.shutdown))])
    }

    // MARK: Service updates

    @Test func `six service updates an hour are of high priority`() throws {
        var pushes = joined()
        var time = now
        for remaining in (0..<6).reversed() {
            let actions = pushes.handle(.received(try update("\(remaining)")), at: time)
            let delivery = try #require(actions.updates.first)
            #expect(delivery.isHigh && delivery.remaining == remaining)
            #expect(
                pushes.handle(.completed(delivery.delivery.identifier), at: time)
                    == [.settled(delivery.delivery.push, .delivered)])
            time = time + .seconds(60)
        }
        // Further ones come as of low priority, and so do those that are.
        for high in [true, false] {
            let delivery = try #require(pushes.handle(.received(try update("low", high: high)), at: time).updates.first)
            #expect(!delivery.isHigh && delivery.remaining == 0)
            _ = pushes.handle(.completed(delivery.delivery.identifier), at: time)
        }
        // The hour rolls: the first one has left it.
        #expect(pushes.remainingHighPriorityBudget(at: now + .seconds(3599)) == 0)
        #expect(pushes.remainingHighPriorityBudget(at: now + .seconds(3600)) == 1)
        let again = try #require(pushes.handle(.received(try update()), at: now + .seconds(3600)).updates.first)
        #expect(again.isHigh && again.remaining == 0)
    }

    @Test func `a new membership does not renew the budget`() throws {
        var pushes = joined()
        for _ in 0..<6 {
            let delivery = try #require(pushes.handle(.received(try update()), at: now).updates.first)
            _ = pushes.handle(.completed(delivery.delivery.identifier), at: now)
        }
        _ = pushes.handle(.left, at: now)
        _ = pushes.handle(.joined(token, .present, canStartProgram: true), at: now)
        #expect(pushes.remainingHighPriorityBudget(at: now) == 0)
    }

    @Test func `a service update does not hold a speaker up`() throws {
        var pushes = joined()
        let delivery = try #require(pushes.handle(.received(try update("1")), at: now).updates.first)
        #expect(pushes.handle(.received(try update("2")), at: now).isEmpty)
        #expect(pushes.handle(.received(try speaker("3")), at: now).asked.count == 1)
        let next = pushes.handle(.completed(delivery.delivery.identifier), at: now)
        #expect(next.updates.map(\.delivery.push.identifier) == ["2"])
    }

    @Test func `a completion is awaited for thirty seconds`() throws {
        var pushes = joined()
        let push = try update("1")
        _ = pushes.handle(.received(push), at: now)
        #expect(pushes.nextDeadline == now + .seconds(30))
        let late = pushes.handle(.deadlineReached, at: now + .seconds(30))
        #expect(late.outcome(of: push) == .dropped(.notAnswered(reason: "not completed within 30.0 seconds")))
        #expect(pushes.nextDeadline == nil)
    }

    @Test func `only a service update within the budget starts a program`() throws {
        var pushes = joined(.absent)
        let low = try update("low", high: false)
        #expect(pushes.handle(.received(low), at: now).outcome(of: low) == .dropped(.noProgram))
        let patient = try update("patient", high: false, .at(now + .seconds(60)))
        #expect(pushes.handle(.received(patient), at: now).isEmpty)
        #expect(pushes.handle(.received(try update("high")), at: now) == [.startProgram])
        let came = pushes.handle(.programCame, at: now).updates
        #expect(came.map(\.delivery.push.identifier) == ["patient"])
    }

    // MARK: Values

    @Test func `tokens are random in bytes and in length`() throws {
        var generator = SeededGenerator()
        var lengths: Set<Int> = []
        var tokens: Set<PushToken> = []
        for _ in 0..<2_000 {
            let token = PushToken.random(using: &generator)
            lengths.insert(token.bytes.count)
            tokens.insert(token)
            #expect(PushToken(hexadecimal: token.hexadecimal) == token)
            #expect(PushToken(hexadecimal: token.hexadecimal.uppercased()) == token)
        }
        #expect(tokens.count == 2_000)
        #expect(lengths == Set(32...100))
        for bad in [
            "", "zz", String(repeating: "a", count: 63), String(repeating: "a", count: 62),
            String(repeating: "ab", count: 101), String(repeating: "x", count: 64), String(repeating: "é", count: 32),
        ] { #expect(PushToken(hexadecimal: bad) == nil) }
        #expect(PushToken([UInt8](repeating: 0, count: 31)) == nil)
        #expect("\(token)" == "07070707…")
    }

    @Test(arguments: [
        (#"{"aps":{}}"#, PushPayload.Kind.speaker), (#"{"speaker":"Ann"}"#, .speaker), ("{}", .speaker),
        (#"{"aps":{"ptt-push-type":"service-update"},"x":[1,{"y":null}]}"#, .serviceUpdate),
        (#"{"aps":{"ptt-push-type":"other"}}"#, .speaker), (#"{"aps":"service-update"}"#, .speaker),
        (#"{"ptt-push-type":"service-update"}"#, .speaker), (#"{"aps":{"ptt-push-type":7}}"#, .speaker),
    ]) func `a payload says what kind of push it is`(_ text: String, _ kind: PushPayload.Kind) throws {
        let payload = try PushPayload(validating: text)
        #expect(payload.kind == kind)
        #expect(payload.text == text)
    }

    @Test func `what is no object is no payload`() {
        for bad in ["", "[]", "7", "\"text\"", "null", "{", "{\"a\":}", "{} {}", "nonsense"] {
            #expect(throws: PushPayload.Invalid.notAnObject, "\(bad)") { try PushPayload(validating: bad) }
        }
        #expect(throws: PushPayload.Invalid.notAnObject) { try PushPayload(validating: [0x7B, 0xFF, 0x7D]) }
        for bad in ["{\"a\":\"\0\"}", "{\"a\":1}\0", "{\"a\0\":1}", "\0{}", "{\"aps\":{},\0\"b\":2}"] {
            #expect(throws: PushPayload.Invalid.notAnObject, "\(bad.debugDescription)") {
                try PushPayload(validating: bad)
            }
        }
        // Written as JSON writes it, there is none in the text.
        #expect((try? PushPayload(validating: #"{"a":"\u0000"}"#)) != nil)
        let big = "{\"a\":\"\(String(repeating: "x", count: 4_096))\"}"
        #expect(throws: PushPayload.Invalid.tooLarge(byteCount: 4_104)) { try PushPayload(validating: big) }
        #expect(throws: PushPayload.Invalid.self) {
            try PushPayload(validating: String(repeating: "{\"a\":", count: 800))
        }
    }

    @Test func `random bytes are no payload and do not crash`() {
        var generator = SeededGenerator()
        let base = Array(#"{"aps":{"ptt-push-type":"service-update"},"x":[1,2.5e3,"\u00e9"]}"#.utf8)
        for _ in 0..<20_000 {
            var bytes = base
            for _ in 0..<Int.random(in: 1...4, using: &generator) {
                bytes[Int.random(in: bytes.indices, using: &generator)] = UInt8.random(in: 0...255, using: &generator)
            }
            if generator.chance(30) { bytes.removeLast(Int.random(in: 0..<bytes.count, using: &generator)) }
            if let payload = try? PushPayload(validating: bytes) { #expect(Array(payload.text.utf8) == bytes) }
        }
    }
}

extension [PushStateMachine.Action] {
    fileprivate var asked: [PushDelivery] {
        compactMap { if case .ask(let delivery) = $0 { delivery } else { nil } }
    }
    fileprivate var updates: [(delivery: PushDelivery, isHigh: Bool, remaining: Int)] {
        compactMap {
            if case .update(let delivery, let isHigh, let remaining) = $0 { (delivery, isHigh, remaining) } else { nil }
        }
    }
    fileprivate func outcome(of push: Push) -> PushOutcome? {
        for case .settled(push, let outcome) in self { return outcome }
        return nil
    }
}
