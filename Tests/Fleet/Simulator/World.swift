// One thread, one clock, one queue of what happens when. Everything of a run hangs on it.
import MonotonicTime
import TestSupport

/// What a run found.
public struct Violation: Sendable, Hashable {
    /// Which invariant, for example "I1"; "L" for liveness.
    public var invariant: String
    /// Who broke it and how.
    public var text: String
    /// When, since the start.
    public var at: Duration
    /// After how many steps of the run.
    public var step: Int

    /// The same for violations of the same kind: without its numbers.
    public var kind: String { "\(invariant): \(text.filter { !$0.isNumber })" }
}

/// The queue and the clock of a run.
final class World {
    /// Time begins a while after zero, for some rules take zero for "never".
    static let start = Instant(nanoseconds: 1_000_000_000)
    /// More steps than any run needs: a circle of events that cause each other at the same time ends here.
    static let stepsMax = 500_000

    private struct Entry {
        let at: Instant
        let order: UInt64
        let work: () -> Void

        func isBefore(_ other: Entry) -> Bool { at == other.at ? order < other.order : at < other.at }
    }

    let seed: UInt64
    private(set) var now = World.start
    private(set) var steps = 0
    private(set) var violation: Violation?
    /// Called after each step.
    var checks: () -> Void = {}
    /// The readable story of the run; empty unless `isTracing`.
    private(set) var trace: [String] = []
    let isTracing: Bool
    private var heap: [Entry] = []
    private var order: UInt64 = 0

    init(seed: UInt64, isTracing: Bool) {
        self.seed = seed
        self.isTracing = isTracing
    }

    /// Random numbers of their own for each use, so that taking an action out of a schedule leaves the other ones as they were.
    func random(_ use: String) -> SeededGenerator {
        var hash = seed ^ 0xCBF2_9CE4_8422_2325
        for byte in use.utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
        return SeededGenerator(seed: hash)
    }

    var elapsed: Duration { now - Self.start }

    // MARK: Time

    func after(_ delay: Duration, _ work: @escaping () -> Void) { at(now + delay, work) }

    func at(_ time: Instant, _ work: @escaping () -> Void) {
        order += 1
        heap.append(Entry(at: max(time, now), order: order, work: work))
        var child = heap.count - 1
        while child > 0, heap[child].isBefore(heap[(child - 1) / 2]) {
            heap.swapAt(child, (child - 1) / 2)
            child = (child - 1) / 2
        }
    }

    private func takeFirst() -> Entry {
        let first = heap[0]
        let last = heap.removeLast()
        guard !heap.isEmpty else { return first }
        heap[0] = last
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && heap[child].isBefore(heap[smallest]) {
                smallest = child
            }
            guard smallest != parent else { return first }
            heap.swapAt(parent, smallest)
            parent = smallest
        }
    }

    /// Lets time pass until `end`, or until something is wrong.
    func run(until end: Instant) {
        while violation == nil, let next = heap.first, next.at <= end {
            let entry = takeFirst()
            now = entry.at
            entry.work()
            steps += 1
            checks()
            if steps > Self.stepsMax { fail("L", "the run does not come to rest: \(steps) steps") }
        }
        if violation == nil { now = max(now, end) }
    }

    /// The run is over: what was still to come held everything.
    func end() { heap = [] }

    // MARK: Telling

    /// Notes the first violation; later ones may be its consequences.
    func fail(_ invariant: String, _ text: String) {
        guard violation == nil else { return }
        violation = Violation(invariant: invariant, text: text, at: elapsed, step: steps)
        note("*** \(invariant)", text)
    }

    func note(_ who: String, _ text: @autoclosure () -> String) {
        guard isTracing else { return }
        trace.append("\(Self.text(elapsed))  \(who)  \(text())")
    }

    static func text(_ time: Duration) -> String {
        let microseconds = time.nanoseconds / 1_000
        let fraction = String(microseconds % 1_000_000)
        let zeros = String(repeating: "0", count: max(0, 6 - fraction.count))
        let seconds = "\(microseconds / 1_000_000).\(zeros)\(fraction)"
        return String(repeating: " ", count: max(0, 11 - seconds.count)) + seconds
    }
}
