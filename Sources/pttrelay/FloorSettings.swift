// The settings of pttrelay.toml for a channel's floor and its kept bursts.
import RelayProtocol
import RelayServer
import Settings

enum FloorSettings {
    /// The rules in a `[[channel]]` table.
    static func rules(_ table: SettingsTable) -> FloorRules {
        FloorRules(
            mode: table.value("mode", .oneOf, default: .halfDuplex),
            hasQueue: table.value("queue", .boolean, default: false),
            preemptionStep: table.optional("preemption-step", .integer(in: 1...254)).map { UInt8($0) })
    }

    /// What holds where the configuration says nothing.
    static let standardRetention = BurstRetention(bursts: 5, time: .seconds(600))

    /// What is kept of its bursts, in a `[[channel]]` table.
    static func retention(_ table: SettingsTable) -> BurstRetention {
        BurstRetention(
            bursts: table.value(
                "keep-bursts", .integer(in: retainedBursts), default: standardRetention.bursts),
            time: table.value("keep-time", .duration(in: retentionTimes), default: standardRetention.time))
    }

    /// How many bursts can be kept.
    static let retainedBursts = 0...RelayProtocolLimits.keptBurstsMaximum
    /// For how long they can be.
    static let retentionTimes: ClosedRange<Duration> = .zero ... .seconds(86_400)

    /// The floor's timers in the table `[relay]`.
    static func timers(_ table: SettingsTable) -> FloorControlStateMachine.Timers {
        var timers = FloorControlStateMachine.Timers()
        timers.talkTimeLimit = table.value(
            "talk-time-limit", .duration(in: .seconds(5) ... .seconds(3_600)), default: timers.talkTimeLimit)
        timers.mediaTimeout = table.value("media-time-limit", mediaTime, default: timers.mediaTimeout)
        timers.retryAfter = table.value(
            "retry-after", .duration(in: .zero ... .seconds(60)), default: timers.retryAfter)
        return timers
    }

    /// T1. A burst survives a gap of 2 s, with what is repaired after it; a listener ends one after 6 s of silence
    /// (docs/floor-control.md, T103), and would not hear what came of it then.
    static let mediaTimeRange: ClosedRange<Duration> = .seconds(3) ... .seconds(5)

    private static var mediaTime: SettingType<Duration> {
        // Any time is read, so that one that does not do is told why.
        SettingType<Duration>.duration(in: .zero ... .seconds(86_400))
            .map(placeholder: mediaTimeRange.upperBound) { time throws(SettingRefusal) in
                guard mediaTimeRange.contains(time) else {
                    throw SettingRefusal(
                        "\"\(durationText(time))\" is too \(time < mediaTimeRange.lowerBound ? "short" : "long")",
                        """
                        write a time from "\(durationText(mediaTimeRange.lowerBound))", since a burst survives a gap of 2s in the \
                        network, to "\(durationText(mediaTimeRange.upperBound))", since listeners end a burst after 6s without media
                        """)
                }
                return time
            }
    }
}

extension BurstRetention {
    /// What is kept, in words: "the last 5 bursts for 10min".
    var words: String {
        isOn ? "the last \(bursts == 1 ? "burst" : "\(bursts) bursts") for \(durationText(time))" : "no bursts"
    }
}
