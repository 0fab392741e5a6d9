// The simulated fleet: a range of schedules, the kept ones, and the tools around them. `Tests/Fleet/run` searches further.
import FleetSimulator
import FoundationEssentials
import Testing

@Suite struct FleetTests {
    private static let kept = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "Fleet/kept")

    /// The same range in every run, so that a change is judged by what it changes. Further ones: `Tests/Fleet/run --seed`.
    private static let seeds = UInt64(1)...100

    @Test func `no schedule of a range of seeds breaks an invariant, and each ends with everybody heard`() {
        let coverage = Coverage(isOn: true)
        var (schedules, transmissions) = (0, 0)
        for seed in Self.seeds {
            let schedule = Schedule(seed: seed)
            let outcome = Fleet.run(schedule, coverage: coverage)
            schedules += 1
            transmissions += outcome.transmissions
            guard let violation = outcome.violation else { continue }
            let shrunk = Shrinker.shrink(schedule, runsMax: 100) {
                Fleet.run($0).violation?.kind == violation.kind
            }
            Issue.record(
                """
                seed \(schedule.seed) at \(violation.at): \(violation.invariant): \(violation.text)
                \(shrunk)
                the story: fleet replay --seed \(schedule.seed), where the order of sets does not matter
                """)
            return
        }
        print("\(schedules) schedules, \(transmissions) transmissions")
        #expect(transmissions > schedules)
        // What every range reaches: without it the simulator simulates nothing.
        for machine in [
            "accessories", "gatt", "bridge", "channelManager", "listening", "link", "relay", "director", "succession",
        ] {
            #expect(coverage.counts[machine]?.isEmpty == false, "\(machine) was never used")
        }
    }

    @Test func `what once failed does not fail any more`() throws {
        let files = try FileManager.default.contentsOfDirectory(atPath: Self.kept.path).filter { $0.hasSuffix(".txt") }
        for file in files.sorted() {
            let text = String(decoding: try Data(contentsOf: Self.kept.appending(path: file)), as: UTF8.self)
            let violation = Fleet.run(try Schedule(text)).violation
            #expect(violation == nil, "\(file): \(violation.map { "\($0.invariant): \($0.text)" } ?? "")")
        }
    }

    @Test func `a schedule is what its text says`() throws {
        for seed in UInt64(1)...200 {
            let schedule = Schedule(seed: seed)
            #expect(try Schedule(schedule.description) == schedule)
        }
        #expect(throws: ScheduleError.self) { try Schedule("fleet seed=1 devices=2 rules=0\n 1.000 dance device=0") }
        #expect(throws: ScheduleError.self) { try Schedule("fleet seed=1 devices=2 rules=0\n 1.000 hold device=7") }
        #expect(throws: ScheduleError.self) { try Schedule("1.000 hold device=0") }
    }

    @Test func `a seed gives the same run twice`() {
        for seed in UInt64(1)...5 {
            let schedule = Schedule(seed: seed)
            let (one, other) = (Fleet.run(schedule, isTracing: true), Fleet.run(schedule, isTracing: true))
            #expect(one.steps == other.steps && one.trace == other.trace, "seed \(seed)")
        }
    }

    @Test func `shrinking leaves what is needed to fail`() {
        let schedule = Schedule(seed: 7)
        var failing = schedule
        failing.actions.append(ScheduledAction(at: 4_321, .reset, device: 1))
        failing.actions.sort { $0.at < $1.at }
        let shrunk = Shrinker.shrink(failing) { candidate in
            candidate.actions.contains { $0.verb == .reset && $0.device == 1 && $0.at > 1_000 }
        }
        #expect(shrunk.actions.map(\.verb) == [.reset])
        #expect(shrunk.actions.first?.at == 4_000)
    }
}
