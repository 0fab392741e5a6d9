// Which changes of the channel and of batteries are said.

import MonotonicTime
import Testing

@testable import SpokenPrompts

@Suite struct NewsTests {
    @Test func `another active channel is named, once`() {
        var news = ChannelNews<Int>(announcesTalker: false)
        #expect(news.channel(nil, name: "") == nil)
        #expect(news.channel(1, name: "One") == .channel("One"))
        #expect(news.channel(1, name: "One") == nil)
        #expect(news.channel(1, name: "Renamed") == nil, "the channel is the same")
        #expect(news.channel(nil, name: "") == nil)
        #expect(news.channel(1, name: "One") == nil, "joined again")
        #expect(news.channel(2, name: "Two") == .channel("Two"))
        #expect(news.channel(1, name: "One") == .channel("One"))
    }

    @Test func `a channel whose name comes later is named then`() {
        var news = ChannelNews<Int>(announcesTalker: false)
        #expect(news.channel(1, name: "") == nil)
        #expect(news.channel(1, name: "One") == .channel("One"))
    }

    @Test func `who talked is named when they have ended, and not again and again`() {
        var news = ChannelNews<Int>(announcesTalker: true)
        func talks(_ name: String, at seconds: Int) -> SpokenPrompt? {
            let began = news.talker(name, at: .zero + .seconds(seconds))
            #expect(began == nil, "nothing can be said while somebody talks")
            return news.talker(nil, at: .zero + .seconds(seconds + 1))
        }
        #expect(news.talker(nil, at: .zero) == nil)
        #expect(talks("Ann", at: 0) == .talked("Ann"))
        #expect(talks("Ann", at: 5) == nil)
        #expect(talks("Ben", at: 10) == .talked("Ben"))
        #expect(talks("Ann", at: 20) == .talked("Ann"))
        #expect(talks("Ann", at: 79) == nil)
        #expect(talks("Ann", at: 139) == .talked("Ann"), "a minute later")
    }

    @Test func `of several talkers the last one is named`() {
        var news = ChannelNews<Int>(announcesTalker: true)
        _ = news.talker("Ann", at: .zero)
        #expect(news.talker("Ben", at: .zero) == nil)
        #expect(news.talker(nil, at: .zero) == .talked("Ben"))
    }

    @Test func `nobody is named who need not be`() {
        var news = ChannelNews<Int>(announcesTalker: false)
        _ = news.talker("Ann", at: .zero)
        #expect(news.talker(nil, at: .zero) == nil)
    }

    @Test func `a battery is told once when it becomes low, and again after it was charged`() {
        var news = BatteryNews()
        func told(_ percent: Int?) -> [SpokenPrompt] { news.update([("vest", percent)]) }
        #expect(told(nil) == [])
        #expect(told(BatteryNews.low) == [])
        #expect(told(BatteryNews.low - 1) == [.batteryLow("vest")])
        for percent in [14, 16, 14, 5, nil, 10, BatteryNews.charged - 1, 3] { #expect(told(percent) == []) }
        #expect(told(BatteryNews.charged) == [])
        #expect(told(14) == [.batteryLow("vest")])
    }

    @Test func `each battery counts for itself, and one that was removed is forgotten`() {
        var news = BatteryNews()
        #expect(news.update([("a", 10), ("b", 90), ("c", 1)]) == [.batteryLow("a"), .batteryLow("c")])
        #expect(news.update([("a", 10), ("b", 9)]) == [.batteryLow("b")])
        #expect(news.update([("a", 10), ("b", 9), ("c", 1)]) == [.batteryLow("c")])
    }
}
