// Which changes of the channel are said. Pure.
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
