// pttctl accessory learn: makes a profile for a button that nobody knows, with the person who presses it.
import ArgumentParser
import DBus
import MonotonicTime
import PTTBus
import Terminal
import Vocabulary

/// `pttctl accessory learn`.
struct AccessoryLearn: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "learn",
        abstract: "Make a profile for a button that no profile matches, by pressing it when told.",
        discussion: """
            Without a device it learns a key of any input device or serial port that a udev rule has tagged. It writes \
            the profile to a file, adds the accessory, and then lets you try the button without transmitting.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The Bluetooth address, or the name that it advertises, as 'pttctl accessory scan' shows them.")
    var device: String?
    @Option(help: "The profile's name; by default the device's own name.") var name: String?
    @Flag(help: "Only write the profile; add no accessory.") var profileOnly = false
    @Flag(help: "Print JSON, one object per line.") var json = false

    /// How long the press is waited for that tries the result.
    static let trial = 15.0

    func validate() throws {
        if let device, device.isEmpty { throw ValidationError("The device is empty; leave it out for a tagged one.") }
        try AccessoryAdd.check(name)
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            let screen = LearnScreen(isJSON: json, isTerminal: TerminalSize.ofOutput != nil)
            var address: String?
            if let device { address = try await DeviceFinder.address(device, daemon) { screen.note($0) } }
            let result = try await Self.learn(
                daemon, screen, begin: { try await daemon.startLearning(address, name: name, adds: !profileOnly) })
            try screen.done(result)
            guard let path = result.accessoryPath else {
                // The profile is there all the same.
                guard result.problem.isEmpty else { throw Failure(result.problem.plain()) }
                return
            }
            try await Self.tryOut(daemon, path, screen)
        }
    }

    private static func learn(
        _ daemon: DaemonClient, _ screen: LearnScreen, begin: () async throws -> DBusObjectPath
    ) async throws -> LearningReport {
        let live = try await LiveFeed.start(daemon, seconds: nil, tick: .seconds(1))
        defer { live.stop() }
        let session = try await begin()
        // A person without other keys, or with all of them pressed, need not wait.
        let enter =
            screen.isJSON
            ? nil
            : TerminalInput(loop: daemon.loop, isRaw: false) { bytes in
                if bytes.contains(UInt8(ascii: "\n")) { Task { try? await daemon.proceedLearning(session) } }
            }
        try? await enter?.start()
        defer { if let enter { Task { await enter.stop() } } }
        var shown: LearningReport?
        for await item in live.news {
            var now: LearningReport?
            switch item {
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event(.changed(let old, let new), _):
                now = new.learning[session]
                if now == nil, old.learning[session] != nil { throw Failure("the session ended without a profile") }
            case .event: continue
            // What was so before its first change was told.
            case .tick: now = await daemon.snapshot.learning[session]
            case .interrupted, .timeUp:
                try? await daemon.cancelLearning(session)
                throw Failure("interrupted; no profile was written")
            }
            guard let now, now != shown else { continue }
            switch now.step {
            case .done: return now
            case .failed:
                throw Failure(now.problem.isEmpty ? "learning failed; try again" : now.problem.plain())
            default: if now.isAnother(than: shown) { try screen.show(now) }
            }
            shown = now
        }
        throw Failure("interrupted; no profile was written")
    }

    /// Waits for one press and its release by the profile that was written.
    private static func tryOut(_ daemon: DaemonClient, _ path: DBusObjectPath, _ screen: LearnScreen) async throws {
        let live = try await LiveFeed.start(daemon, seconds: trial, tick: .seconds(1))
        defer { live.stop() }
        try await daemon.startTest(of: path)
        let id = await daemon.snapshot.accessories[path]?.id ?? PTTBus.accessoryID(path.rawValue) ?? ""
        screen.trial()
        var log = PressLog()
        var heard: PressLog.Edge?
        loop: for await item in live.news {
            switch item {
            case .event(.accessory(.control(path, let control, let isDown, let time)), let now):
                let edge = log.handle(control, isDown: isDown, received: time, at: now)
                if edge.held != nil {
                    heard = edge
                    break loop
                }
            case .event(.running(false), _): throw Failure.daemonLeft
            case .event, .tick: break
            case .interrupted, .timeUp: break loop
            }
        }
        try? await daemon.stopTest(of: path)
        try screen.tried(heard, id: id)
    }
}

extension LearningReport {
    /// Whether the person is to do something else than by `old`.
    func isAnother(than old: LearningReport?) -> Bool {
        guard let old else { return true }
        return (step, prompt, round) != (old.step, old.prompt, old.round)
    }
}

/// The output of a session.
struct LearnScreen {
    let isJSON: Bool
    let isTerminal: Bool

    /// A line of `--json`; which names are there depends on the event.
    private struct Line: Encodable {
        var event: String
        var step: String?
        var prompt: String?
        var round: Int?
        var profile: String?
        var file: String?
        var text: String?
        var accessory: String?
        var heard: Bool?
        var edge: PressLog.Edge?
    }

    func note(_ text: String) {
        if !isJSON { Console.say(text) }
    }

    /// What the person is to do now.
    func show(_ now: LearningReport) throws {
        if isJSON {
            return Console.say(
                try jsonText(
                    Line(event: "step", step: now.step.rawValue, prompt: now.prompt, round: now.round)))
        }
        for line in Self.lines(now) { Console.say(line) }
        if now.step == .others, isTerminal { Console.say("  Enter continues at once.") }
        // A person who looks at the button hears it.
        if isTerminal, [.press, .release, .others].contains(now.step) { Console.draw("\u{07}") }
    }

    /// Big words, and what they mean below.
    static func lines(_ now: LearningReport) -> [String] {
        let prompt = now.prompt.plain(limit: 300)
        let words: String
        switch now.step {
        case .press: words = "PRESS AND HOLD" + (now.round > 0 ? "  (\(now.round))" : "")
        case .release: words = "LET GO"
        case .quiet: words = "TOUCH NOTHING"
        case .others: words = "NOW EVERY OTHER KEY ONCE"
        case .connecting, .done, .failed: return [prompt.isEmpty ? "connecting: press the button" : prompt]
        }
        let rule = String(repeating: "━", count: words.columns + 4)
        return ["", "  ┏\(rule)┓", "  ┃  \(words)  ┃", "  ┗\(rule)┛"] + (prompt.isEmpty ? [] : ["  \(prompt)"])
    }

    func done(_ result: LearningReport) throws {
        if isJSON {
            return Console.say(
                try jsonText(
                    Line(
                        event: "done", profile: result.profile, file: result.file, text: result.text,
                        accessory: result.accessory)))
        }
        Console.say("")
        Console.say("The profile '\(result.profile.plain(limit: 64))' is in \(result.file.plain()):")
        for line in result.text.split(separator: "\n") { Console.say("    \(line.plain())") }
        if let accessory = result.accessory { Console.say("The accessory is added: \(accessory.plain(limit: 64))") }
    }

    func trial() {
        if !isJSON { Console.say("Press it once more, as you will when you talk. Nothing is transmitted.") }
        if !isJSON, isTerminal { Console.draw("\u{07}") }
    }

    func tried(_ edge: PressLog.Edge?, id: String) throws {
        if isJSON { return Console.say(try jsonText(Line(event: "tried", heard: edge != nil, edge: edge))) }
        guard let edge, let held = edge.held else {
            return Console.say("No press arrived; try again: pttctl accessory test \(id.shellWord)")
        }
        Console.say("It works: \(edge.control.plain(limit: 64)) was held for \(pttctl.seconds(held)).")
    }
}
