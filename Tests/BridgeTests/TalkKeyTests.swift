import Bridge
import Testing

@Suite struct TalkKeyTests {
    @Test func `the first holder begins and the last one ends`() {
        var key = TalkKey()
        #expect(key.press(.accessories) == .begin)
        #expect(key.press(.caller(":1.5")) == .none)
        #expect(key.release(.accessories) == .none)
        #expect(key.isHeld)
        #expect(key.release(.caller(":1.5")) == .stop)
        #expect(!key.isHeld)
    }

    @Test func `a repeated press is no second edge`() {
        var key = TalkKey()
        #expect(key.press(.accessories) == .begin)
        #expect(key.press(.accessories) == .none)
        #expect(key.release(.accessories) == .stop)
        #expect(key.release(.accessories) == .none)
    }

    @Test func `a press that a transmission used up does not begin the next`() {
        var key = TalkKey()
        _ = key.press(.caller(":1.4"))
        _ = key.press(.caller(":1.5"))
        key.transmissionEnded()
        #expect(!key.isHeld)
        #expect(key.press(.caller(":1.4")) == .none)
        #expect(key.release(.caller(":1.4")) == .none)
        #expect(key.press(.caller(":1.4")) == .begin)
        #expect(key.release(.caller(":1.4")) == .stop)
        #expect(key.isPressed(by: .caller(":1.5")))
        #expect(key.release(.caller(":1.5")) == .none)
    }

    @Test func `accessories report fresh presses only`() {
        var key = TalkKey()
        _ = key.press(.accessories)
        key.transmissionEnded()
        #expect(!key.isPressed(by: .accessories))
        #expect(key.press(.accessories) == .begin)
    }

    @Test func `holders are bounded`() {
        var key = TalkKey()
        for index in 0..<TalkKey.holderLimit { _ = key.press(.caller(":1.\(index)")) }
        #expect(key.press(.caller(":1.x")) == .none)
        #expect(!key.isPressed(by: .caller(":1.x")))
        #expect(key.holders.count == TalkKey.holderLimit)
    }
}
