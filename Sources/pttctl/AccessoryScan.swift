// pttctl accessory scan: the buttons in sight, as they come.
import ArgumentParser
import MonotonicTime
import PTTBus
import Terminal
import Vocabulary

/// `pttctl accessory scan`.
struct AccessoryScan: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "scan",
        abstract: "Show Bluetooth buttons in range and the profiles that match, until interrupted.",
        discussion: """
            On a terminal it shows a list that is redrawn in place, the strongest signal first. Elsewhere it prints a \
            line for each device that appears, changes or is lost. Press the button: most advertise only for a short \
            while after a press.
            """)

    @OptionGroup var options: BusOptions
    @Option(help: "Stop after this many seconds, at most 86400.") var seconds: Double?
    @Flag(help: "Also show devices that have neither a name nor a profile.") var all = false
    @Flag(help: "Print JSON, one object per line.") var json = false

    static let advice = "press the button now: most advertise only for a short while after a press"
    /// How long nothing fitting may be found before the advice is given again.
    static let adviceDelay = Duration.seconds(10)

    func validate() throws { try Self.check(seconds) }

    static func check(_ seconds: Double?) throws {
        guard let seconds, !(seconds > 0 && seconds <= LiveFeed.secondsMax) else { return }
        throw ValidationError("--seconds takes seconds, more than 0 and at most \(Int(LiveFeed.secondsMax)).")
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            let live = try await LiveFeed.start(daemon, seconds: seconds)
            defer { live.stop() }
            try await daemon.startScan()
            var screen = ScanScreen(isAll: all, isJSON: json, size: json ? nil : TerminalSize.ofOutput)
            screen.begin()
            loop: for await item in live.news {
                switch item {
                case .event(.accessory(.found(let device)), let time): try screen.found(device, at: time)
                case .event(.accessory(.lost(let address)), let time): try screen.lost(address, at: time)
                case .event(.running(false), _): throw Failure.daemonLeft
                case .event: break
                case .tick: screen.tick(at: .now)
                case .interrupted, .timeUp: break loop
                }
            }
            // Leaving the bus ends it as well; asked for, it has ended when this command has.
            try? await daemon.stopScan()
            screen.end()
        }
    }
}

extension Failure {
    /// For commands that need it all the time.
    static let daemonLeft = Failure("pttd has left the bus; see 'systemctl status pttd', and try again when pttd runs")
}

/// Where the scan's list goes.
private struct ScanScreen {
    let isAll: Bool
    let isJSON: Bool
    /// nil: not a terminal.
    let size: TerminalSize?
    private var list = ScanList()
    private var block = LiveBlock()
    private var isDrawn = false
    private var lastAdvice = Instant.now

    init(isAll: Bool, isJSON: Bool, size: TerminalSize?) {
        (self.isAll, self.isJSON, self.size) = (isAll, isJSON, size)
    }

    /// A line of `--json`.
    private struct Line: Encodable {
        var event: ScanList.News
        var device: DiscoveredDevice
        var t: Int64
    }

    mutating func begin() {
        if size != nil { draw() } else if !isJSON { Console.complain("Scanning; \(AccessoryScan.advice).") }
    }

    mutating func found(_ device: DiscoveredDevice, at time: Instant) throws {
        let news = list.found(device)
        isDrawn = false
        if let news { try tell(news, device, time) }
    }

    mutating func lost(_ address: String, at time: Instant) throws {
        guard let device = list.lost(address) else { return }
        isDrawn = false
        try tell(.lost, device, time)
    }

    private func tell(_ news: ScanList.News, _ device: DiscoveredDevice, _ time: Instant) throws {
        if isJSON {
            Console.say(try jsonText(Line(event: news, device: device, t: time.nanoseconds)))
        } else if size == nil, isAll || device.rank != .nameless {
            Console.say(ScanList.line(news, device))
        }
    }

    mutating func tick(at now: Instant) {
        if size != nil {
            if !isDrawn { draw() }
        } else if !isJSON, !list.hasCandidate, now - lastAdvice >= AccessoryScan.adviceDelay {
            lastAdvice = now
            Console.complain("No button in range matches a profile yet; \(AccessoryScan.advice).")
        }
    }

    private mutating func draw() {
        isDrawn = true
        // Asked for again: windows change.
        let size = TerminalSize.ofOutput ?? TerminalSize(columns: 80, rows: 24)
        let hint =
            list.hasCandidate
            ? "To add one: pttctl accessory add ADDRESS"
            : AccessoryScan.advice.prefix(1).uppercased() + AccessoryScan.advice.dropFirst()
        let room = TerminalSize(columns: size.columns, rows: size.rows - 1)
        Console.draw(
            block.draw(list.lines(size: room, all: isAll, hints: [hint, "Ctrl-C ends."]), size: size))
    }

    mutating func end() {
        if size != nil { draw() }
        guard !isJSON, !list.hasCandidate else { return }
        Console.complain("No button in range matched a profile; scan again and \(AccessoryScan.advice).")
    }
}
