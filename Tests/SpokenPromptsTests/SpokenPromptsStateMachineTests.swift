// When prompts are said, with the time passed in.

import MonotonicTime
import Testing

@testable import SpokenPrompts

@Suite struct SpokenPromptsStateMachineTests {
    typealias Machine = SpokenPromptsStateMachine

    private let pause = Machine.pause

    private func after(_ duration: Duration) -> Instant { .zero + duration }

    /// A machine with nothing to say, which has been quiet for long.
    private func quiet() -> Machine { Machine(at: .zero - .seconds(60)) }

    @Test func `in the quiet a prompt is said at once`() {
        var machine = quiet()
        #expect(machine.handle(.wanted(.connectionLost), at: .zero) == [.say(.connectionLost, number: 1)])
        #expect(machine.handle(.ended(1), at: after(.seconds(1))) == [])
        #expect(machine.nextDeadline == nil)
    }

    @Test func `while somebody talks nothing is said, and afterwards not before a pause`() {
        var machine = quiet()
        #expect(machine.handle(.busy(true), at: .zero) == [])
        #expect(machine.handle(.wanted(.channel("Team")), at: .zero) == [])
        #expect(machine.nextDeadline == nil, "nothing to wake up for")
        #expect(machine.handle(.busy(false), at: after(.seconds(1))) == [])
        let due = after(.seconds(1)) + pause
        #expect(machine.nextDeadline == due)
        #expect(machine.handle(.deadlineReached, at: due - .milliseconds(1)) == [])
        #expect(machine.handle(.deadlineReached, at: due) == [.say(.channel("Team"), number: 1)])
    }

    @Test func `a pause between two sentences is not enough`() {
        var machine = quiet()
        _ = machine.handle(.busy(true), at: .zero)
        _ = machine.handle(.wanted(.connectedAgain), at: .zero)
        _ = machine.handle(.busy(false), at: after(.seconds(1)))
        _ = machine.handle(.busy(true), at: after(.seconds(1)) + pause - .milliseconds(1))
        #expect(machine.handle(.deadlineReached, at: after(.seconds(1)) + pause) == [])
        _ = machine.handle(.busy(false), at: after(.seconds(2)))
        #expect(machine.nextDeadline == after(.seconds(2)) + pause)
    }

    @Test func `speech or a press cuts a prompt off, and it is not said again`() {
        var machine = quiet()
        _ = machine.handle(.wanted(.channel("Team")), at: .zero)
        #expect(machine.handle(.busy(true), at: after(.milliseconds(100))) == [.stop])
        #expect(machine.handle(.busy(false), at: after(.milliseconds(500))) == [])
        #expect(machine.handle(.deadlineReached, at: after(.milliseconds(500)) + pause) == [])
        #expect(machine.handle(.ended(1), at: after(.seconds(2))) == [], "what was cut off ends late")
    }

    @Test func `a low battery that was cut off is said again, for a minute`() {
        var machine = quiet()
        _ = machine.handle(.wanted(.batteryLow("vest")), at: .zero)
        #expect(machine.handle(.busy(true), at: after(.milliseconds(100))) == [.stop])
        _ = machine.handle(.busy(false), at: after(.seconds(30)))
        #expect(
            machine.handle(.deadlineReached, at: after(.seconds(30)) + pause) == [
                .say(.batteryLow("vest"), number: 2)
            ])
        _ = machine.handle(.busy(true), at: after(.seconds(31)))
        _ = machine.handle(.busy(false), at: after(.seconds(61)))
        #expect(machine.handle(.deadlineReached, at: after(.seconds(61)) + pause) == [])
    }

    @Test(arguments: [
        (SpokenPrompt.channel("Team"), 5), (.connectionLost, 5), (.connectedAgain, 5), (.talked("Ann"), 2),
        (.batteryLow("vest"), 60),
    ])
    func `what has waited too long is dropped`(prompt: SpokenPrompt, seconds: Int) {
        for (isLate, wait) in [
            (false, Duration.seconds(seconds)), (true, .seconds(seconds) + .milliseconds(1)),
        ] {
            var machine = quiet()
            _ = machine.handle(.busy(true), at: .zero)
            _ = machine.handle(.wanted(prompt), at: .zero)
            _ = machine.handle(.busy(false), at: after(wait) - pause)
            let actions = machine.handle(.deadlineReached, at: after(wait))
            #expect(actions == (isLate ? [] : [.say(prompt, number: 1)]))
            #expect(isLate == (machine.nextDeadline == nil))
        }
    }

    @Test func `a newer prompt of a kind replaces the one that waits, and goes to the end`() {
        var machine = quiet()
        _ = machine.handle(.busy(true), at: .zero)
        for prompt in [SpokenPrompt.connectionLost, .channel("One"), .batteryLow("vest"), .connectedAgain] {
            #expect(machine.handle(.wanted(prompt), at: .zero) == [])
        }
        #expect(
            said(by: &machine, from: after(.seconds(1))) == [.channel("One"), .batteryLow("vest"), .connectedAgain])
    }

    @Test func `a newer prompt of the kind that is said takes its place`() {
        var machine = quiet()
        _ = machine.handle(.wanted(.channel("One")), at: .zero)
        #expect(machine.handle(.wanted(.channel("Two")), at: after(.milliseconds(50))) == [.stop])
        let due = after(.milliseconds(50)) + pause
        #expect(machine.nextDeadline == due)
        #expect(machine.handle(.deadlineReached, at: due) == [.say(.channel("Two"), number: 2)])
        // The old one's end is not that of the new one.
        #expect(machine.handle(.ended(1), at: due) == [])
        #expect(machine.handle(.wanted(.channel("Two")), at: due) == [], "it is being said already")
        #expect(machine.handle(.ended(2), at: due + .seconds(1)) == [])
        #expect(machine.nextDeadline == nil)
    }

    @Test func `four wait at most, and the oldest makes room`() {
        var machine = quiet()
        _ = machine.handle(.busy(true), at: .zero)
        let names = (1...6).map { "vest\($0)" }
        for name in names { _ = machine.handle(.wanted(.batteryLow(name)), at: .zero) }
        #expect(said(by: &machine, from: after(.seconds(1))) == names.suffix(4).map { .batteryLow($0) })
    }

    @Test func `what was cut off does not push out what waits`() {
        var machine = quiet()
        _ = machine.handle(.wanted(.batteryLow("old")), at: .zero)
        for name in ["a", "b", "c", "d"] { _ = machine.handle(.wanted(.batteryLow(name)), at: .zero) }
        _ = machine.handle(.busy(true), at: after(.milliseconds(10)))
        #expect(
            said(by: &machine, from: after(.seconds(1))) == ["a", "b", "c", "d"].map { .batteryLow($0) })
    }

    @Test func `one after the other, with a pause between them`() {
        var machine = quiet()
        #expect(machine.handle(.wanted(.connectedAgain), at: .zero) == [.say(.connectedAgain, number: 1)])
        #expect(machine.handle(.wanted(.channel("Team")), at: .zero) == [])
        #expect(machine.handle(.ended(1), at: after(.seconds(1))) == [])
        #expect(machine.handle(.deadlineReached, at: after(.seconds(1)) + pause) == [.say(.channel("Team"), number: 2)])
    }

    @Test func `a prompt that never ends does not keep the next one waiting for ever`() {
        var machine = quiet()
        _ = machine.handle(.wanted(.connectedAgain), at: .zero)
        #expect(machine.nextDeadline == after(Machine.sayingMax))
        _ = machine.handle(.sounds(1, for: .seconds(2)), at: after(.seconds(1)))
        let limit = after(.seconds(3)) + Machine.soundDelayMax
        #expect(machine.nextDeadline == limit)
        #expect(machine.handle(.deadlineReached, at: limit - .milliseconds(1)) == [])
        #expect(machine.handle(.deadlineReached, at: limit) == [.stop])
        #expect(machine.handle(.wanted(.connectionLost), at: limit + pause) == [.say(.connectionLost, number: 2)])
        #expect(machine.handle(.sounds(1, for: .seconds(9)), at: limit + pause) == [])
        #expect(machine.nextDeadline == limit + pause + Machine.sayingMax, "the old sound is not that of the new one")
    }

    @Test func `it begins busy where it is told so`() {
        var machine = Machine(isBusy: true, at: .zero)
        #expect(machine.handle(.wanted(.connectionLost), at: after(.seconds(1))) == [])
        #expect(machine.handle(.busy(false), at: after(.seconds(2))) == [])
        #expect(machine.nextDeadline == after(.seconds(2)) + pause)
    }

    /// Random events: what must be so after any of them.
    @Test func `whatever happens, one is said at a time and never while it is busy`() {
        for seed in 1...200 as ClosedRange<UInt64> {
            var random = seed &* 0x9E37_79B9_7F4A_7C15 | 1
            func chance(_ count: UInt64) -> UInt64 {
                random ^= random << 13
                random ^= random >> 7
                random ^= random << 17
                return random % count
            }
            var machine = quiet()
            var (now, isBusy, saying) = (Instant.zero, false, UInt32?.none)
            var said = 0
            for _ in 0..<500 {
                now = now + .milliseconds(Int(chance(400)))
                var event: Machine.Event
                switch chance(6) {
                case 0:
                    isBusy.toggle()
                    event = .busy(isBusy)
                case 1: event = .ended(saying ?? UInt32(chance(50)))
                case 2: event = .deadlineReached
                default:
                    event = .wanted(
                        [
                            .channel("\(chance(3))"), .connectionLost, .connectedAgain, .batteryLow("\(chance(9))"),
                            .talked("\(chance(3))"),
                        ][Int(chance(5))])
                }
                if case .ended(let number) = event, number == saying { saying = nil }
                for action in machine.handle(event, at: now) {
                    switch action {
                    case .stop:
                        #expect(saying != nil)
                        saying = nil
                    case .say(_, let number):
                        #expect(saying == nil && !isBusy, "seed \(seed)")
                        saying = number
                        said += 1
                    }
                }
                #expect(!isBusy || saying == nil, "seed \(seed)")
            }
            #expect(said > 5, "seed \(seed)")
        }
    }

    /// Lets it be quiet, and ends each prompt after a second.
    private func said(by machine: inout Machine, from start: Instant) -> [SpokenPrompt] {
        var prompts: [SpokenPrompt] = []
        var now = start
        var actions = machine.handle(.busy(false), at: now)
        for _ in 0..<20 {
            if let deadline = machine.nextDeadline, actions.isEmpty {
                now = deadline
                actions = machine.handle(.deadlineReached, at: now)
            }
            guard case .say(let prompt, let number)? = actions.first else { break }
            prompts.append(prompt)
            now = now + .seconds(1)
            actions = machine.handle(.ended(number), at: now)
        }
        return prompts
    }
}
