import Accessories
import Bridge
import Testing

@Suite struct TalkKeyTests {
    @Test func `the first holder begins and the last one ends`() {
        var key = TalkKey()
        #expect(key.press(.accessories) == .began(.accessories, .normal))
        #expect(key.press(.caller(":1.5")) == nil)
        #expect(key.release(.accessories) == nil)
        #expect(key.isHeld)
        #expect(key.release(.caller(":1.5")) == .ended(.caller(":1.5")))
        #expect(!key.isHeld)
    }

    @Test func `an emergency makes what is held urgent until it ends`() {
        var key = TalkKey()
        _ = key.press(.accessories)
        #expect(!key.isUrgent)
        let change = key.press(.accessories, .emergency)
        #expect(change == .escalated(.accessories))
        #expect(key.isUrgent && key.holders == [.accessories])
        _ = key.press(.caller(":1.5"))
        _ = key.release(.accessories)
        #expect(key.isUrgent)
        _ = key.release(.caller(":1.5"))
        #expect(!key.isUrgent)
        _ = key.press(.accessories, .emergency)
        key.transmissionEnded()
        #expect(!key.isUrgent && !key.isHeld)
    }

    @Test func `a repeated press is no second edge`() {
        var key = TalkKey()
        #expect(key.press(.accessories) == .began(.accessories, .normal))
        #expect(key.press(.accessories) == nil)
        #expect(key.release(.accessories) == .ended(.accessories))
        #expect(key.release(.accessories) == nil)
    }

    @Test func `a press that a transmission used up does not begin the next`() {
        var key = TalkKey()
        _ = key.press(.caller(":1.4"))
        _ = key.press(.caller(":1.5"))
        key.transmissionEnded()
        #expect(!key.isHeld)
        #expect(key.press(.caller(":1.4")) == nil)
        #expect(key.release(.caller(":1.4")) == nil)
        #expect(key.press(.caller(":1.4")) == .began(.caller(":1.4"), .normal))
        #expect(key.release(.caller(":1.4")) == .ended(.caller(":1.4")))
        #expect(key.isPressed(by: .caller(":1.5")))
        #expect(key.release(.caller(":1.5")) == nil)
    }

    @Test func `accessories report fresh presses only`() {
        var key = TalkKey()
        _ = key.press(.accessories)
        key.transmissionEnded()
        #expect(!key.isPressed(by: .accessories))
        #expect(key.press(.accessories) == .began(.accessories, .normal))
    }

    @Test func `holders are bounded`() {
        var key = TalkKey()
        for index in 0..<TalkKey.holderLimit { _ = key.press(.caller(":1.\(index)")) }
        #expect(key.press(.caller(":1.x")) == nil)
        #expect(!key.isPressed(by: .caller(":1.x")))
        #expect(key.holders.count == TalkKey.holderLimit)
    }
}
