// Which states and events of each machine a run has reached.

/// Counts pairs of a state and an event, by machine. Names come from the enums themselves, so they are never out of date;
/// Tests/Fleet/coverage.txt says which there are to be.
public final class Coverage {
    /// By machine, "state event" and how often.
    public private(set) var counts: [String: [String: Int]] = [:]
    /// Whether it counts: names take time.
    public var isOn: Bool

    /// A count of nothing yet.
    public init(isOn: Bool = false) { self.isOn = isOn }

    func record(_ machine: String, state: String, event: some Any) {
        guard isOn else { return }
        counts[machine, default: [:]]["\(state) \(Self.name(event))", default: 0] += 1
    }

    func record(_ machine: String, state: some Any) {
        guard isOn else { return }
        counts[machine, default: [:]][Self.name(state), default: 0] += 1
    }

    /// Adds what another run counted.
    public func add(_ machine: String, _ pair: String, _ count: Int) {
        counts[machine, default: [:]][pair, default: 0] += count
    }

    /// The name of an enum's case, without what it carries.
    static func name(_ value: some Any) -> String {
        let mirror = Mirror(reflecting: value)
        guard mirror.displayStyle == .enum else { return "\(type(of: value))" }
        return mirror.children.first?.label ?? "\(value)"
    }
}

extension Coverage {
    /// One line for each pair: machine, state, event and count. For a file.
    public var lines: String {
        counts.sorted { $0.key < $1.key }.flatMap { machine, pairs in
            pairs.sorted { $0.key < $1.key }.map { "\(machine) \($0.key) \($0.value)\n" }
        }.joined()
    }
}
