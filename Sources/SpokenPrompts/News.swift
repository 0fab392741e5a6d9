// Which changes of the channel, and which levels of the accessories' batteries, are said. Pure.
import MonotonicTime

/// Compares what the channel shows with what it showed before.
public struct ChannelNews<Identifier: Hashable & Sendable>: Sendable {
    /// The same talker is named again after this time only.
    public static var talkerAgainAfter: Duration { .seconds(60) }

    private let announcesTalker: Bool
    private var channel: Identifier?
    private var talker: String?
    private var lastTalker: (name: String, at: Instant)?

    /// Nothing was shown yet.
    ///
    /// - Parameter announcesTalker: Whether it is said who talked.
    public init(announcesTalker: Bool) { self.announcesTalker = announcesTalker }

    /// The active channel, none without a name; a name that comes later is as good. Returns what is to be said of a change. A channel
    /// that is left and joined again is no change.
    public mutating func channel(_ identifier: Identifier?, name: String) -> SpokenPrompt? {
        guard let identifier, identifier != channel, !name.isEmpty else { return nil }
        channel = identifier
        return .channel(name)
    }

    /// Who talks, nil: nobody. Returns what is to be said. Who talks cannot be said meanwhile, so it is said when they have ended.
    public mutating func talker(_ name: String?, at now: Instant) -> SpokenPrompt? {
        defer { talker = name }
        guard announcesTalker, name == nil, let ended = talker else { return nil }
        defer { lastTalker = (ended, now) }
        if let lastTalker, lastTalker.name == ended, now - lastTalker.at < Self.talkerAgainAfter { return nil }
        return .talked(ended)
    }
}

/// Notices that a battery has become low: once for each time.
public struct BatteryNews: Sendable {
    /// What is less is low, in percent.
    public static let low = 15
    /// A battery that was low is charged again from here on, in percent: a level that wavers is told once.
    public static let charged = 25

    private var isLow: Set<String> = []

    /// No battery is known to be low.
    public init() {}

    /// The accessories as they are, with their levels in percent; nil: not known. Returns what is to be said.
    public mutating func update(_ levels: [(name: String, percent: Int?)]) -> [SpokenPrompt] {
        // Those that were removed.
        isLow.formIntersection(levels.map(\.name))
        var prompts: [SpokenPrompt] = []
        for (name, percent) in levels {
            guard let percent else { continue }
            if percent >= Self.charged {
                isLow.remove(name)
            } else if percent < Self.low, isLow.insert(name).inserted {
                prompts.append(.batteryLow(name))
            }
        }
        return prompts
    }
}
