// pttctl accessory test: each press as it comes, without transmitting.
import ArgumentParser
import MonotonicTime
import PTTBus
import Terminal

/// `pttctl accessory test`.
struct AccessoryTest: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "test",
        abstract: "Show each press of an accessory, with its latency; nothing is transmitted meanwhile.",
        discussion: """
            The latency is the time from the machine's receipt of the press to pttd's report of it to this program. \
            Statistics follow at the end, after Ctrl-C or --seconds. The exit status is 1 when no press arrived.

            With --sound its presses transmit: others on the channel hear you. It shows how long after each press the \
            microphone of the accessory hears you, which is when the go-ahead tone sounds. The exit status is 1 when \
            the microphone never heard you.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "Its name, id or address, as 'pttctl accessory list' shows them.", completion: .accessories)
    var accessory: String
    @Option(help: "Stop after this many seconds, at most 86400.") var seconds: Double?
    @Flag(help: "Talk for real, and show when its microphone hears you.") var sound = false
    @Flag(help: "Print JSON, one object per line.") var json = false

    func validate() throws {
        try AccessoryScan.check(seconds)
        if sound, json { throw ValidationError("'--sound' prints no JSON; leave one of both away") }
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            if sound { return try await testSound(daemon) }
            let live = try await LiveFeed.start(daemon, seconds: seconds, tick: .seconds(1))
            defer { live.stop() }
            let chosen = try ChosenAccessory.find(accessory, in: await daemon.snapshot)
            try await daemon.startTest(of: chosen.path)
            var screen = TestScreen(isJSON: json, chosen: chosen)
            try screen.begin()
            loop: for await item in live.news {
                switch item {
                case .event(.accessory(.control(chosen.path, let control, let isDown, let received)), let now):
                    try screen.edge(control, isDown: isDown, received: received, at: now)
                case .event(.changed(_, let new), _):
                    guard let properties = new.accessories[chosen.path] else {
                        // A daemon that has left tells that next.
                        guard await daemon.isRunning else { continue }
                        try screen.end()
                        throw Failure("the accessory was removed")
                    }
                    try screen.changed(properties)
                case .event(.running(false), _):
                    try screen.end()
                    throw Failure.daemonLeft
                case .event, .tick: break
                case .interrupted, .timeUp: break loop
                }
            }
            // Leaving the bus ends it as well; asked for, it has ended when this command has.
            try? await daemon.stopTest(of: chosen.path)
            try screen.end()
            if screen.log.presses == 0 { throw ExitCode.failure }
        }
    }
}

extension AccessoryTest {
    /// Shows what becomes of the accessory's sound at each press, which transmits.
    private func testSound(_ daemon: DaemonClient) async throws {
        let live = try await LiveFeed.start(daemon, seconds: seconds, tick: .seconds(1))
        defer { live.stop() }
        let snapshot = await daemon.snapshot
        let chosen = try ChosenAccessory.find(accessory, in: snapshot)
        guard !chosen.properties.sound.isEmpty else {
            throw Failure(
                "\(chosen.title) has no microphone that is known; connect it as a headset, or name its sound in pttd.toml "
                    + "(sound = \"ADDRESS\" in [accessory.\(chosen.properties.id.plain(limit: 64))])")
        }
        Console.say("Testing the sound of \(chosen.title). Others on the channel hear you. Ctrl-C ends.")
        Console.say("sound: \(chosen.properties.sound.plain())")
        Console.say("Press its button, wait for the tone, and say something.")
        var (sound, problem) = (chosen.properties.sound, snapshot.manager.microphoneProblem)
        var hasHeard = false
        loop: for await item in live.news {
            switch item {
            case .event(.accessory(.control(chosen.path, let control, let isDown, _)), _):
                Console.say("\(Monitor.clock())  \(control.plain(limit: 64).fitted(12)) \(isDown ? "DOWN" : "up")")
            case .event(.changed(_, let new), _):
                guard let properties = new.accessories[chosen.path] else {
                    guard await daemon.isRunning else { continue }
                    throw Failure("the accessory was removed")
                }
                if properties.sound != sound {
                    Console.say("\(Monitor.clock())  \(properties.sound.plain())")
                    hasHeard = hasHeard || properties.sound.contains("heard")
                }
                if new.manager.microphoneProblem != problem, !new.manager.microphoneProblem.isEmpty {
                    Console.say("\(Monitor.clock())  \(new.manager.microphoneProblem.plain())")
                }
                (sound, problem) = (properties.sound, new.manager.microphoneProblem)
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event, .tick: break
            case .interrupted, .timeUp: break loop
            }
        }
        if !hasHeard { throw ExitCode.failure }
    }
}

/// The output of a test.
private struct TestScreen {
    let isJSON: Bool
    let chosen: ChosenAccessory
    private(set) var log = PressLog()
    private var last: AccessoryProperties

    init(isJSON: Bool, chosen: ChosenAccessory) {
        (self.isJSON, self.chosen) = (isJSON, chosen)
        last = chosen.properties
    }

    /// A line of `--json`; which names are there depends on the event.
    private struct Line: Encodable {
        var event: String
        var edge: PressLog.Edge?
        var battery: Int?
        var ready: Bool?
        var problem: String?
        var controls: [PressLog.Figures]?
        var latency: Latency?
    }

    /// Milliseconds.
    private struct Latency: Encodable {
        var count: Int
        var median, p95, longest: Double
    }

    func begin() throws {
        guard !isJSON else { return try state(last) }
        Console.say("Testing \(chosen.title): press its buttons. Nothing is transmitted meanwhile. Ctrl-C ends.")
        try state(last)
    }

    private func state(_ properties: AccessoryProperties) throws {
        if isJSON {
            return Console.say(
                try jsonText(
                    Line(
                        event: "state", battery: properties.battery, ready: properties.ready,
                        problem: properties.problem)))
        }
        if let battery = properties.battery { Console.say("battery \(battery) %") }
        if properties.ready { return }
        Console.say(properties.problem.isEmpty ? "it is not connected yet: press it" : properties.problem.plain())
    }

    mutating func edge(_ control: String, isDown: Bool, received: Instant, at now: Instant) throws {
        let edge = log.handle(control, isDown: isDown, received: received, at: now)
        if isJSON { return Console.say(try jsonText(Line(event: "control", edge: edge))) }
        Console.say("\(Monitor.clock())  \(Self.text(edge))")
    }

    static func text(_ edge: PressLog.Edge) -> String {
        let held = edge.down ? "" : edge.held.map { "held \(pttctl.seconds($0))" } ?? "(its press was not seen)"
        return "\(edge.down ? "●" : "○") \(edge.control.plain(limit: 64).fitted(12)) \(edge.down ? "DOWN" : "up  ")  "
            + "\(held.fitted(14))  latency \(tenths(edge.latency)) ms"
    }

    mutating func changed(_ new: AccessoryProperties) throws {
        defer { last = new }
        if isJSON {
            if (new.battery, new.ready, new.problem) != (last.battery, last.ready, last.problem) { try state(new) }
            return
        }
        if new.battery != last.battery, let battery = new.battery { Console.say("battery \(battery) %") }
        if new.ready != last.ready { Console.say(new.ready ? "it is ready" : "the connection was lost: press it") }
        if new.problem != last.problem, !new.problem.isEmpty { Console.say(new.problem.plain()) }
    }

    func end() throws {
        guard isJSON else { return log.summary(of: chosen.properties.id.shellWord).forEach { Console.say($0) } }
        let latency = log.latency.map {
            Latency(
                count: $0.count, median: $0.median.milliseconds, p95: $0.p95.milliseconds,
                longest: $0.longest.milliseconds)
        }
        Console.say(try jsonText(Line(event: "summary", controls: log.figures, latency: latency)))
    }
}
