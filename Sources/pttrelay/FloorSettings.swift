// The settings for the channels' floors and their kept bursts: of pttrelay.toml, or of the records.
import RelayProtocol
import RelayServer
import RelayStore
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

/// The settings of the configuration for the channels' floors and their kept bursts.
struct Floors: Sendable, Equatable {
    /// By the channels' names.
    var rules: [String: FloorRules] = [:]
    /// What is kept of their bursts.
    var retentions: [String: BurstRetention] = [:]
    /// Whether presses wait on every channel, whatever its rules say.
    var allHaveQueues = false

    /// The rules of one channel: of the configuration if that declares it.
    func rules(of channel: ChannelRecord) -> FloorRules {
        var rules = channel.isDeclared ? rules[channel.name.text] ?? FloorRules() : channel.settings.rules
        if allHaveQueues { rules.hasQueue = true }
        return rules
    }

    /// What is kept of the bursts of one channel: of the configuration if that declares it.
    func retention(of channel: ChannelRecord) -> BurstRetention {
        channel.isDeclared
            ? retentions[channel.name.text] ?? FloorSettings.standardRetention : channel.settings.retention
    }
}

extension ChannelSettings {
    /// As the relay has them.
    var rules: FloorRules { FloorRules(mode: mode.floorMode, hasQueue: hasQueue, preemptionStep: preemptionStep) }

    /// As the relay has it.
    var retention: BurstRetention {
        let standard = FloorSettings.standardRetention
        return BurstRetention(
            bursts: keptBursts ?? standard.bursts,
            time: keptMilliseconds.map { .milliseconds($0) } ?? standard.time)
    }
}

extension ChannelSettings.Mode {
    /// As the relay has it.
    var floorMode: FloorRules.Mode {
        switch self {
        case .halfDuplex: .halfDuplex
        case .fullDuplex: .fullDuplex
        case .cutIn: .cutIn
        case .listenOnly: .listenOnly
        }
    }

    /// The same in the records.
    init(_ mode: FloorRules.Mode) {
        self =
            switch mode {
            case .halfDuplex: .halfDuplex
            case .fullDuplex: .fullDuplex
            case .cutIn: .cutIn
            case .listenOnly: .listenOnly
            }
    }
}
