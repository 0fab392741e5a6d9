// The rules of the channels' floors and what is kept of their bursts: of the configuration, or of the records.
import RelayProtocol
import RelayServer
import RelayStore

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
