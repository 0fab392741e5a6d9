// fleet: runs schedules of the simulated fleet. Tests/Fleet/run drives it.
import ArgumentParser
import FleetSimulator
import FoundationEssentials
import Glibc

@main
struct FleetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "fleet", abstract: "Simulates a fleet of push-to-talk devices and their relay in one thread.",
        subcommands: [Run.self, Replay.self], defaultSubcommand: Run.self)

    static func main() {
        hashDeterministically()
        Self.main(nil)
    }

    /// Starts itself again where the order of sets hangs on the process: a seed is to give the same run everywhere.
    private static func hashDeterministically() {
        let name = "SWIFT_DETERMINISTIC_HASHING"
        guard getenv(name) == nil, setenv(name, "1", 1) == 0 else { return }
        execv("/proc/self/exe", CommandLine.unsafeArgv)
        perror("fleet: it cannot be started again with \(name)=1; set that yourself")
        Glibc.exit(1)
    }
}

/// Says a line at once, for whoever ends this before its end.
func say(_ line: String) {
    let bytes = Array("\(line)\n".utf8)
    var place = 0
    while place < bytes.count {
        let count = bytes[place...].withUnsafeBytes { write(STDOUT_FILENO, $0.baseAddress, $0.count) }
        guard count > 0 else { return }
        place += count
    }
}

/// What both say of a schedule that fails.
func describe(_ schedule: Schedule, _ violation: Violation, shrinks: Bool) {
    say(
        "FAILED seed \(schedule.seed) step \(violation.step) at \(violation.at): \(violation.invariant): \(violation.text)"
    )
    guard shrinks else { return }
    let shrunk = Shrinker.shrink(schedule) { Fleet.run($0).violation?.kind == violation.kind }
    let outcome = Fleet.run(shrunk, isTracing: true)
    say("The story of the shrunk schedule, its last lines:")
    for line in outcome.trace.suffix(80) { say(line) }
    say("The shrunk schedule; keep it as Tests/Fleet/kept/NAME.txt:")
    say("# \(outcome.violation.map { "\($0.invariant): \($0.text)" } ?? "does not fail any more")")
    say("\(shrunk)")
}

struct Run: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Runs the schedules of a range of seeds.")

    @Option(help: "The first seed.") var seed: UInt64 = 1
    @Option(help: "How many.") var schedules: UInt64 = 1_000
    @Option(help: "Every so many schedules are counted in the coverage.") var coverageEvery: UInt64 = 16
    @Option(help: "Schedules that may fail before it ends.") var failures = 1
    @Option(help: "A file that always has the seed that runs, for one that crashes.") var current: String?
    @Option(help: "A file for the coverage.") var coverage: String?
    @Option(help: "The fault of this name, at seededFault(…) in the sources, happens.") var fault: String?
    @Flag(help: "Do not shrink what fails.") var plain = false
    @Flag(help: "Only schedules of channels nearby: every fifth seed, from five times the first one.") var nearby =
        false
    @Flag(help: "Only schedules of clusters: every twentieth seed, from about twenty times the first.") var cluster =
        false

    func run() throws {
        if let fault, !Fleet.seed(fault: fault) {
            throw ValidationError("this build has no seeded faults: see Tests/Fleet/run --check-checker")
        }
        let counted = Coverage(isOn: true)
        let silent = Coverage()
        var (steps, transmissions, failed) = (0, 0, 0)
        // Until all is well again after the last trouble: with relays for all, in clusters, and on channels nearby.
        var recoveries = (relays: Duration.zero, clusters: Duration.zero, nearby: Duration.zero)
        let clock = ContinuousClock()
        let began = clock.now
        var done: UInt64 = 0
        for offset in 0..<schedules {
            let seed = self.seed(of: seed &+ offset)
            if let current { try save("\(seed)\n", to: current) }
            let schedule = Schedule(seed: seed)
            let outcome = Fleet.run(schedule, coverage: offset % coverageEvery == 0 ? counted : silent)
            steps += outcome.steps
            transmissions += outcome.transmissions
            if schedule.isNearby {
                recoveries.nearby = max(recoveries.nearby, outcome.recovery)
            } else if schedule.isCluster {
                recoveries.clusters = max(recoveries.clusters, outcome.recovery)
            } else {
                recoveries.relays = max(recoveries.relays, outcome.recovery)
            }
            done += 1
            guard let violation = outcome.violation else { continue }
            failed += 1
            describe(schedule, violation, shrinks: !plain)
            if failed >= failures { break }
        }
        let seconds = Double((clock.now - began) / .milliseconds(1)) / 1_000
        say(
            "\(done) schedules, \(failed) failed, \(steps) steps, \(transmissions) transmissions, "
                + "\(Int(Double(done) / max(seconds, 0.001))) schedules/s")
        say(
            "after the last trouble all was well within \(recoveries.relays), in clusters \(recoveries.clusters), "
                + "on channels nearby \(recoveries.nearby)")
        if let coverage { try save(counted.lines, to: coverage) }
        if failed > 0 { throw ExitCode.failure }
    }

    /// The seed of the schedule of that number among those that are wanted.
    private func seed(of number: UInt64) -> UInt64 {
        if nearby { return number &* Schedule.nearbyEvery }
        return cluster ? number &* Schedule.clusterEvery &+ Schedule.clusterRemainder : number
    }

    private func save(_ text: String, to path: String) throws { try Data(text.utf8).write(to: URL(filePath: path)) }
}

struct Replay: ParsableCommand {
    static let configuration = CommandConfiguration(abstract: "Runs a schedule from a file, and tells its story.")

    @Argument(help: "The file; or a seed with --seed.") var file: String?
    @Option(help: "The schedule of this seed.") var seed: UInt64?
    @Flag(help: "Without the story.") var quiet = false
    @Flag(help: "Shrinks it when it fails.") var shrink = false

    func run() throws {
        let schedule: Schedule
        if let file {
            schedule = try Schedule(String(decoding: Data(contentsOf: URL(filePath: file)), as: UTF8.self))
        } else if let seed {
            schedule = Schedule(seed: seed)
        } else {
            throw ValidationError("give a file or --seed")
        }
        let outcome = Fleet.run(schedule, isTracing: !quiet)
        say("\(schedule)")
        for line in outcome.trace { say(line) }
        guard let violation = outcome.violation else { return say("passed, \(outcome.steps) steps") }
        describe(schedule, violation, shrinks: shrink)
        throw ExitCode.failure
    }
}
