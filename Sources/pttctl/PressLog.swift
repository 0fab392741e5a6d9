// The log of a button test: each press with its length and latency, and the statistics at the end. Pure.
import MonotonicTime
import Terminal

/// The presses of one accessory.
struct PressLog {
    /// An edge of a control, as the test shows it.
    struct Edge: Encodable, Equatable {
        var control: String
        var down: Bool
        /// When the machine received it, CLOCK_MONOTONIC, nanoseconds.
        var time: Int64
        /// From there to here, milliseconds.
        var latency: Double
        /// How long it was held, milliseconds; of a release whose press was seen.
        var held: Double?
    }

    /// Figures of one control.
    struct Figures: Encodable, Equatable {
        var control: String
        var presses: Int
        var releases: Int
        /// Of `held`: the median, milliseconds; absent when no release was seen.
        var heldMedian: Double?
    }

    /// Presses and releases whose figures are kept; those after them are only counted.
    static let samplesMax = 100_000
    /// Maximum number of separately counted controls; a profile has at most ten.
    static let controlsMax = 32
    /// A press shorter than this does not come from a person: the device sends clicks.
    static let clickLimit = Duration.milliseconds(20)

    private var downSince: [String: Instant] = [:]
    private var counts: [String: (presses: Int, releases: Int)] = [:]
    private var holds: [String: [Duration]] = [:]
    private var latencies: [Duration] = []

    /// Presses that were seen.
    var presses: Int { counts.values.reduce(0) { $0 + $1.presses } }

    /// A control went down or came up.
    ///
    /// - Parameters:
    ///   - received: When the machine received it.
    ///   - now: When it was known here.
    mutating func handle(_ control: String, isDown: Bool, received: Instant, at now: Instant) -> Edge {
        // The clock is the machine's for both; a daemon of another machine would tell the future.
        let latency = max(.zero, now - received)
        if latencies.count < Self.samplesMax { latencies.append(latency) }
        var edge = Edge(
            control: control, down: isDown, time: received.nanoseconds, latency: latency.milliseconds, held: nil)
        guard counts[control] != nil || counts.count < Self.controlsMax else { return edge }
        if isDown {
            counts[control, default: (0, 0)].presses += 1
            downSince[control] = received
        } else {
            counts[control, default: (0, 0)].releases += 1
            if let since = downSince.removeValue(forKey: control) {
                let held = received - since
                edge.held = held.milliseconds
                if holds[control, default: []].count < Self.samplesMax { holds[control, default: []].append(held) }
            }
        }
        return edge
    }

    /// The controls, in the order of their names.
    var figures: [Figures] {
        counts.sorted { $0.key < $1.key }.map { control, count in
            Figures(
                control: control, presses: count.presses, releases: count.releases,
                heldMedian: Percentiles(holds[control] ?? [])?.median.milliseconds)
        }
    }

    /// The latencies of all edges; nil when there was none.
    var latency: Percentiles? { Percentiles(latencies) }

    /// What is to be said at the end.
    ///
    /// - Parameter accessory: How a command line names it.
    func summary(of accessory: String) -> [String] {
        guard !counts.isEmpty else { return ["No press arrived."] }
        var lines: [String] = []
        for figures in figures {
            var line = "\(figures.control.plain(limit: 64)): \(count(figures.presses, "press", "presses"))"
            if figures.releases != figures.presses { line += ", \(count(figures.releases, "release", "releases"))" }
            if let held = figures.heldMedian { line += ", held \(seconds(held)) (median)" }
            lines.append(line)
        }
        if let latency {
            lines.append(
                "latency of \(latency.count): median \(tenths(latency.median.milliseconds)) ms, "
                    + "p95 \(tenths(latency.p95.milliseconds)) ms, longest \(tenths(latency.longest.milliseconds)) ms")
        }
        for control in clicks {
            lines.append(
                "\(control.plain(limit: 64)) is released as soon as it is pressed: it reports clicks, not holds. Let one click begin and "
                    + "the next one end: pttctl accessory gesture \(accessory) toggle")
        }
        for (control, _) in downSince.sorted(by: { $0.key < $1.key }) {
            lines.append("\(control.plain(limit: 64)) is still pressed")
        }
        return lines
    }

    /// The controls of which every press was too short for a person.
    private var clicks: [String] {
        holds.filter { $0.value.count >= 2 && $0.value.allSatisfy { $0 < Self.clickLimit } }.keys.sorted()
    }

    private func count(_ number: Int, _ one: String, _ many: String) -> String {
        "\(number) \(number == 1 ? one : many)"
    }
}

/// The usual figures of a handful of durations.
struct Percentiles: Equatable {
    var count: Int
    var median: Duration
    var p95: Duration
    var longest: Duration

    /// By nearest rank; nil of none.
    init?(_ values: [Duration]) {
        guard !values.isEmpty else { return nil }
        let sorted = values.sorted()
        func rank(_ percent: Int) -> Duration { sorted[(sorted.count * percent + 99) / 100 - 1] }
        count = sorted.count
        median = rank(50)
        p95 = rank(95)
        longest = sorted[sorted.count - 1]
    }
}

extension Duration {
    /// Milliseconds to the microsecond.
    var milliseconds: Double { Double(nanoseconds / 1_000) / 1_000 }
}

/// A number with one digit behind the point.
func tenths(_ value: Double) -> String { "\((value * 10).rounded() / 10)" }

/// Milliseconds as seconds, to a hundredth.
func seconds(_ milliseconds: Double) -> String {
    let hundredths = Int((min(milliseconds, 1e12) / 10).rounded())
    return "\(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100) s"
}
