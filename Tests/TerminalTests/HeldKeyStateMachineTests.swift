import MonotonicTime
import Terminal
import TestSupport
import Testing

@Suite struct HeldKeyStateMachineTests {
    private func at(_ milliseconds: Int) -> Instant { .zero + .milliseconds(milliseconds) }
    private func bytes(_ text: String) -> [UInt8] { Array(text.utf8) }

    @Test func `a held key is one press and ends when the repeats stop`() {
        var key = HeldKeyStateMachine()
        #expect(key.handle(bytes(" "), at: at(0)) == [.pressed])
        #expect(key.handleTimeout(at: at(600)) == [])
        for time in stride(from: 660, to: 2_000, by: 40) { #expect(key.handle(bytes(" "), at: at(time)) == []) }
        #expect(key.nextDeadline == at(1_980) + HeldKeyStateMachine.nextRepeatLimit)
        #expect(key.handleTimeout(at: at(2_100)) == [])
        #expect(key.handleTimeout(at: at(2_180)) == [.released])
        #expect(key.nextDeadline == nil)
        #expect(key.handle(bytes(" "), at: at(3_000)) == [.pressed])
    }

    @Test func `a tap is released after the keyboards delay`() {
        var key = HeldKeyStateMachine()
        _ = key.handle(bytes(" "), at: at(0))
        #expect(key.handleTimeout(at: at(750)) == [.released])
    }

    @Test func `a terminal that tells releases is believed`() {
        var key = HeldKeyStateMachine()
        #expect(key.handle(bytes("\u{1B}[32;1:1u"), at: at(0)) == [.pressed])
        #expect(key.nextDeadline == nil)
        #expect(key.handle(bytes("\u{1B}[32;1:2u\u{1B}[32;1:2u"), at: at(700)) == [])
        #expect(key.handle(bytes("\u{1B}[32;1:3u"), at: at(900)) == [.released])
    }

    @Test(arguments: [
        "q", "\u{03}", "\u{04}", "\u{1B}", "\u{1B}[27u", "\u{1B}[113;1:1u", "\u{1B}[99;5u", "\u{1B}[100;5:1u",
        "\u{1B}[99;133u", "\u{1B}[100;69:1u", "\u{1B}[99;197:1u",
    ])
    func `the user can leave`(_ keys: String) {
        var key = HeldKeyStateMachine()
        #expect(key.handle(bytes(keys), at: at(0)) == [.quit])
    }

    @Test func `other keys and garbage do nothing`() {
        var generator = SeededGenerator()
        for text in [
            "a", "\u{1B}[A", "\u{1B}[99;1u", "\u{1B}[x", "\u{1B}OP", "\u{1B}[;;;u", "\u{1B}[999999999999999999999u",
            "\u{1B}[99;129u", "\u{1B}[100;65u", "\u{1B}[99;0u", "\u{1B}[99;-9223372036854775808u",
        ] {
            var key = HeldKeyStateMachine()
            #expect(key.handle(bytes(text), at: at(0)) == [], "\(text)")
            #expect(key.handle(bytes(" "), at: at(1)) == [.pressed], "\(text)")
        }
        for _ in 0..<2_000 {
            var key = HeldKeyStateMachine()
            var balance = 0
            for _ in 0..<20 {
                let noise = (0..<Int.random(in: 0..<40, using: &generator)).map { _ in
                    UInt8.random(in: 0...255, using: &generator)
                }
                for output in key.handle(noise, at: at(0)) {
                    balance += output == .pressed ? 1 : output == .released ? -1 : 0
                    #expect((0...1).contains(balance))
                }
            }
        }
    }
}
