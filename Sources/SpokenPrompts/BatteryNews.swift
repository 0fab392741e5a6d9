// Which levels of the accessories' batteries are said. Pure.

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
