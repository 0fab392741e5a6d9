// pttctl audio test: records, says what was heard, and plays it back.
import ArgumentParser
import Audio
import Glibc
import MonotonicTime
import Terminal

/// `pttctl audio test`.
struct AudioTest: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "test", abstract: "Record for some seconds, say what was heard, and play it back.",
        discussion: """
            By default the devices are those of pttd.toml, else 'default'. The microphone is open only while it \
            records, and nothing is written to disk. The exit status is 0 when both devices work, and 1 when one does \
            not; standard error says what to do. It needs no daemon, but a sound card that pttd itself holds is busy.
            """)

    @OptionGroup var configuration: SoundConfigurationOptions
    @Option(
        help: ArgumentHelp("The microphone, as 'pttctl audio list' shows it.", valueName: "name"),
        completion: .custom { _, _, _ in SoundDevices.names(for: .microphone) })
    var microphone: String?
    @Option(
        help: ArgumentHelp("The speaker, as 'pttctl audio list' shows it.", valueName: "name"),
        completion: .custom { _, _, _ in SoundDevices.names(for: .speaker) })
    var speaker: String?
    @Option(
        name: .customLong("for"),
        help: ArgumentHelp("How many seconds to record, 0.5 to 60.", valueName: "seconds"))
    var seconds = 4.0
    @Flag(help: "Print JSON, for scripts.") var json = false

    func validate() throws {
        // A duration cannot be made of just any number.
        guard (0...3_600).contains(seconds), SoundCheck.lengths.contains(.seconds(seconds)) else {
            throw ValidationError("--for takes seconds, 0.5 to 60.")
        }
        for name in [microphone, speaker].compactMap({ $0 }) { _ = try Self.device(name) }
    }

    private static func device(_ name: String) throws -> AudioDevice {
        do throws(AudioError) { return try AudioDevice(name) } catch { throw ValidationError("\(error)") }
    }

    func run() async throws {
        let configured = try configuration.devices()
        let input = try microphone.map(Self.device) ?? configured?.testedMicrophone ?? ConfiguredSound.standard
        let output = try speaker.map(Self.device) ?? configured?.testedSpeaker ?? ConfiguredSound.standard
        var screen = SoundTestScreen(microphone: input, speaker: output, isJSON: json)
        let (news, feed) = AsyncStream.makeStream(of: News.self, bufferingPolicy: .bufferingOldest(Self.waitingMax))
        let check = SoundCheck(microphone: input, speaker: output, length: .seconds(seconds)) { feed.yield(.check($0)) }
        Interruption.watch {
            check.stop()
            feed.yield(.interrupted)
        }
        defer { Interruption.unwatch() }
        screen.begin(seconds: seconds)
        do {
            try check.start()
        } catch {
            Console.complain("pttctl: \(error)")
            throw ExitCode.failure
        }
        // A driver that hangs is left to the end of the process.
        func giveUp(after time: Duration) -> Task<Void, Never> {
            Task {
                do { try await Task.sleep(for: time) } catch { return }
                feed.yield(.overdue)
            }
        }
        var clock = giveUp(after: .seconds(2 * seconds) + Self.openingMax)
        defer { clock.cancel() }
        var isInterrupted = false
        loop: for await item in news {
            switch item {
            case .check(.ended): break loop
            case .check(let event): if !isInterrupted { screen.show(event) }
            case .overdue:
                if !isInterrupted { screen.showSilence() }
                break loop
            case .interrupted:
                isInterrupted = true
                screen.hideLevel()
                clock.cancel()
                clock = giveUp(after: Self.closingMax)
            }
        }
        guard !isInterrupted else {
            Console.complain("pttctl: interrupted before it was done; no device stays open")
            throw ExitCode.failure
        }
        if json { Console.say(try jsonText(screen.document)) }
        if !screen.works { throw ExitCode.failure }
    }

    private enum News: Sendable {
        case check(SoundCheck.Event)
        case interrupted
        case overdue
    }

    /// Events that may wait for a slow terminal; a try of a minute has about 600.
    private static let waitingMax = 1_024
    /// How long both devices may take, beyond the time for the sound.
    private static let openingMax = Duration.seconds(10)
    /// How long closing may take after Ctrl-C.
    private static let closingMax = Duration.seconds(1)
}

/// The output of a test.
private struct SoundTestScreen {
    private var microphone: SoundTestReport
    private var speaker: SoundTestReport
    private let devices: [AudioDevice.Use: AudioDevice]
    private let isJSON: Bool
    private var meter = LevelLine()
    /// The device that is at work.
    private var use = AudioDevice.Use.microphone
    private let size: TerminalSize?

    init(microphone: AudioDevice, speaker: AudioDevice, isJSON: Bool) {
        (self.microphone, self.speaker) = (SoundTestReport(microphone), SoundTestReport(speaker))
        devices = [.microphone: microphone, .speaker: speaker]
        self.isJSON = isJSON
        size = isJSON ? nil : TerminalSize.ofOutput
    }

    var document: [String: SoundTestReport] { ["microphone": microphone, "speaker": speaker] }
    /// Whether nothing was found that keeps one of the two from being used.
    var works: Bool { microphone.problem.isEmpty && speaker.problem.isEmpty }

    func begin(seconds: Double) {
        say("Microphone \(microphone.shownName): speak as usual, for \(seconds.inWords) s. Ctrl-C ends.")
    }

    mutating func show(_ event: SoundCheck.Event) {
        switch event {
        case .level(let level): if let size { Console.draw(meter.shown(Double(level), size)) }
        case .heard(let levels, let report):
            hideLevel()
            microphone.take(report)
            microphone.take(levels)
            say("Heard: \(HeardWords.text(levels))")
            say("    \(HeardWords.text(report))")
            if let advice = HeardWords.advice(levels.verdict) { fail(.microphone, advice) }
        case .plays(let isTone):
            use = .speaker
            say("Speaker \(speaker.shownName): \(isTone ? "a tone, for there is no recording" : "what was recorded").")
        case .played(let report):
            speaker.take(report)
            say("    \(HeardWords.text(report))")
        case .failed(let use, let error):
            hideLevel()
            fail(use, HeardWords.text(error, holders: devices[use].map { SoundDevices.holders(of: $0) } ?? []))
        case .ended: break
        }
    }

    /// The device that is at work does not answer.
    mutating func showSilence() {
        hideLevel()
        fail(use, "\(AudioError.unresponsive((use == .microphone ? microphone : speaker).device))")
    }

    mutating func hideLevel() { if let size { Console.draw(meter.hidden(size)) } }

    private mutating func fail(_ use: AudioDevice.Use, _ why: String) {
        switch use {
        case .microphone: microphone.problem = why
        case .speaker: speaker.problem = why
        }
        Console.complain("pttctl: \(use.word): \(why.plain(limit: 1_024))")
    }

    private func say(_ line: String) { if !isJSON { Console.say(line.plain(limit: 512)) } }
}

/// What came of one device; `--json` prints it. Levels are in dBFS, times in milliseconds.
struct SoundTestReport: Encodable {
    let device: String
    var verdict: SoundVerdict?
    var level, noiseFloor, peak, silentStart: Double?
    var rate, channels: Int?
    var firstSample: Double?
    var interruptions = 0
    /// Why it cannot be used, and what to do; empty if it works.
    var problem = ""

    init(_ device: AudioDevice) { self.device = device.shortName }

    var shownName: String { device.plain(limit: 128) }

    mutating func take(_ report: SoundDeviceReport) {
        (rate, channels) = (report.form?.rate, report.form?.channels)
        firstSample = report.firstSample.milliseconds.toTenth
        interruptions = report.interruptions
    }

    mutating func take(_ levels: SoundLevels) {
        verdict = levels.verdict
        level = Double(levels.level).toTenth
        noiseFloor = Double(levels.noiseFloor).toTenth
        peak = Double(levels.peak).toTenth
        silentStart = levels.silentStart.milliseconds
    }
}

extension Double {
    fileprivate var toTenth: Double { (self * 10).rounded() / 10 }
    fileprivate var inWords: String { self == rounded() ? "\(Int(self))" : "\(self)" }
}
