// What pttrelay.toml says about the floor of a channel, and about what is kept of its bursts.
import RelayClient
import RelayProtocol
import RelayServer
import Settings
import Testing

@testable import RelayStore
@testable import pttrelay

@Suite struct FloorSettingsTests {
    private func read(_ text: String) throws(SettingsError) -> RelaySettings {
        try SettingsFile.read(text: text, file: "pttrelay.toml", RelaySettings.read)
    }

    @Test func `a channel that says nothing has a plain floor`() throws {
        let settings = try read("[[channel]]\nname = \"Yard\"\n")
        #expect(settings.floorRules["Yard"] == FloorRules())
        #expect(settings.timers == FloorControlStateMachine.Timers())
    }

    @Test func `all that can be said of a floor is understood`() throws {
        let settings = try read(
            "[relay]\ntalk-time-limit = \"30s\"\nmedia-time-limit = \"4s\"\nretry-after = \"10s\"\n"
                + "[[channel]]\nname = \"A\"\nqueue = true\npreemption-step = 10\n"
                + "[[channel]]\nname = \"B\"\nmode = \"full-duplex\"\n[[channel]]\nname = \"C\"\nmode = \"cut-in\"\n"
                + "[[channel]]\nname = \"D\"\nmode = \"listen-only\"\n")
        #expect(settings.floorRules["A"] == FloorRules(hasQueue: true, preemptionStep: 10))
        #expect(settings.floorRules["B"] == FloorRules(mode: .fullDuplex))
        #expect(settings.floorRules["C"] == FloorRules(mode: .cutIn))
        #expect(settings.floorRules["D"] == FloorRules(mode: .listenOnly))
        #expect(settings.timers.talkTimeLimit == .seconds(30))
        #expect(settings.timers.mediaTimeout == .seconds(4))
        #expect(settings.timers.retryAfter == .seconds(10))
    }

    @Test func `the relay ends a burst without sound before its listeners do, and not for a gap that it survives`()
        throws
    {
        #expect(try read("[relay]\nmedia-time-limit = \"3s\"").timers.mediaTimeout == .seconds(3))
        #expect(try read("[relay]\nmedia-time-limit = \"5s\"").timers.mediaTimeout == .seconds(5))
        #expect(FloorSettings.mediaTimeRange.upperBound < DownlinkStateMachine.silenceTimeout)
        #expect(DownlinkStateMachine.silenceTimeout == .seconds(6), "the message says so")
        #expect(FloorSettings.mediaTimeRange.lowerBound > .seconds(2))
        #expect(FloorSettings.mediaTimeRange.contains(FloorControlStateMachine.Timers().mediaTimeout))
    }

    @Test func `what is kept of a channel's bursts is as it says`() throws {
        let settings = try read(
            "[limits]\nkeep-megabytes = 8\n[[channel]]\nname = \"A\"\n"
                + "[[channel]]\nname = \"B\"\nkeep-bursts = 64\nkeep-time = \"24h\"\n"
                + "[[channel]]\nname = \"C\"\nkeep-bursts = 0\n[[channel]]\nname = \"D\"\nkeep-time = \"0s\"\n")
        #expect(settings.limits.keptBytes == 8 * 1_024 * 1_024)
        #expect(settings.retentions["A"] == FloorSettings.standardRetention)
        #expect(settings.retentions["B"] == BurstRetention(bursts: 64, time: .seconds(86_400)))
        #expect(settings.retentions["C"] == .off && settings.retentions["D"] == .off)
        let floors = Floors(retentions: settings.retentions)
        var channel = ChannelRecord(
            id: ChannelID(), name: DisplayName("C")!, isEndToEnd: false, isAdded: false, isServed: true)
        #expect(floors.retention(of: channel) == FloorSettings.standardRetention, "the file does not declare it")
        channel.settings.keptBursts = 3
        #expect(floors.retention(of: channel) == BurstRetention(bursts: 3, time: .seconds(600)))
        channel.isDeclared = true
        #expect(floors.retention(of: channel) == .off)
        channel.name = DisplayName("made later")!
        #expect(floors.retention(of: channel) == FloorSettings.standardRetention)
        #expect(settings.retentions["B"]?.words == "the last 64 bursts for 1440min")
    }

    @Test(arguments: [
        ("[[channel]]\nname = \"A\"\nkeep-bursts = 65", "keep-bursts"),
        ("[[channel]]\nname = \"A\"\nkeep-time = \"25h\"", "keep-time"),
        ("[limits]\nkeep-megabytes = 1", "keep-megabytes"),
        ("[[channel]]\nname = \"A\"\nmode = \"duplex\"", "full-duplex"),
        ("[[channel]]\nname = \"A\"\npreemption-step = 0", "preemption-step"),
        ("[[channel]]\nname = \"A\"\npreemption-step = 255", "preemption-step"),
        ("[relay]\nmedia-time-limit = \"1s\"", "media-time-limit: \"1s\" is too short"),
        ("[relay]\nmedia-time-limit = \"5.001s\"", "listeners end a burst after 6s without media"),
        ("[relay]\nmedia-time-limit = \"1min\"", "is too long"),
    ])
    func `a mistake is told where it is`(text: String, words: String) {
        let error = #expect(throws: SettingsError.self) { _ = try read(text) }
        #expect(error?.problems.map(\.description).joined().contains(words) == true, "\(String(describing: error))")
    }
}
