// pttctl audio …: without a daemon, on files, on real alsa-lib, and on a real PulseAudio.
import Audio
import BusTestSupport
import FoundationEssentials
import Glibc
import MonotonicTime
import PTTBus
import TestSupport
import Testing

@testable import pttctl

@Suite(.serialized) struct AudioCommandTests {
    /// The folder of a test, in which pttctl finds an ALSA configuration of its own.
    private struct Place {
        var folder: String
        var environment: [String: String]

        func start(_ arguments: [String]) throws -> ChildProcess {
            try ChildProcess([try Program.path(), "audio"] + arguments, environment: environment)
        }

        func run(_ arguments: String...) async throws -> Outcome {
            let process = try start(arguments)
            let status = try await process.end(within: .seconds(60))
            return Outcome(status: status, output: process.output, errors: process.errors)
        }

        func write(_ text: String, _ name: String) throws -> String {
            try Data(text.utf8).write(to: URL(filePath: "\(folder)/\(name)"))
            return "\(folder)/\(name)"
        }
    }

    private func withPlace(_ asound: String = "", _ body: (Place) async throws -> Void) async throws {
        let folder = "\(FileManager.default.temporaryDirectory.path)/pttctl-audio-\(UUID().uuidString)"
        try FileManager.default.createDirectory(
            atPath: folder, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        defer { try? FileManager.default.removeItem(atPath: folder) }
        var place = Place(folder: folder, environment: [:])
        let configuration = try place.write("pcm.null { type null }\n" + asound, "asound.conf")
        place.environment = [
            "ALSA_CONFIG_PATH": configuration, "HOME": folder, "XDG_CONFIG_HOME": folder, "XDG_RUNTIME_DIR": folder,
            "PULSE_SERVER": "unix:\(folder)/server", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere",
            "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere",
        ]
        try await body(place)
    }

    /// A WAV file of four syllables a second in some noise, or of silence.
    private func wav(_ seconds: Double, volume: Float) -> Data {
        var generator = SeededGenerator(seed: 7)
        let rate = 48_000
        var bytes: [UInt8] = []
        func put(_ value: Int, _ count: Int) {
            for index in 0..<count { bytes.append(UInt8((value >> (8 * index)) & 255)) }
        }
        let count = Int(seconds * Double(rate))
        bytes += Array("RIFF".utf8)
        put(36 + 2 * count, 4)
        bytes += Array("WAVEfmt ".utf8)
        for (value, size) in [(16, 4), (1, 2), (1, 2), (rate, 4), (2 * rate, 4), (2, 2), (16, 2)] { put(value, size) }
        bytes += Array("data".utf8)
        put(2 * count, 4)
        for index in 0..<count {
            let time = Float(index) / Float(rate)
            let syllable = powf(max(0, sinf(2 * .pi * 4 * time)), 2) * sinf(2 * .pi * 180 * time)
            let noise = volume == 0 ? 0 : Float.random(in: -0.001...0.001, using: &generator)
            let sample = Int(max(-1, min(1, volume * syllable + noise)) * 32_767)
            put(sample & 0xFFFF, 2)
        }
        return Data(bytes)
    }

    private struct Report: Decodable {
        var device: String
        var verdict: String?
        var level, noiseFloor, firstSample: Double?
        var rate, channels: Int?
        var problem: String
    }

    private struct Listed: Decodable {
        var name, kind, problem: String
        var configured: [String]
    }

    // MARK: The list

    @Test
    func `devices are listed by name, with what the configuration uses; a device that does not open says why`()
        async throws
    {
        let asound = """
            pcm.radio { type null hint { show on description "The radio's sound" } }
            pcm.broken { type hw card 99 hint { show on description "A card that is not there" } }
            """
        try await withPlace(asound) { place in
            let file = try place.write(
                "[daemon]\nname = \"x\"\n[audio]\nmicrophone = \"radio\"\nspeaker = \"hw:7,0\"\nfallback-speaker = \"radio\"\ngain = \"off\"\n",
                "x.toml")
            let outcome = try await place.run("list", "--config", file)
            #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
            let lines = outcome.output.split(separator: "\n").map(String.init)
            #expect(
                lines.contains {
                    $0.hasPrefix("radio ")
                        && $0.hasSuffix("The radio's sound  [pttd.toml: microphone, fallback-speaker]")
                })
            #expect(lines.contains { $0.hasPrefix("hw:7,0 ") && $0.hasSuffix("[pttd.toml: speaker]") }, "\(outcome)")
            #expect(lines.contains("    there is no such device"), "\(outcome)")
            #expect(lines.last == "To try one: pttctl audio test --microphone NAME --speaker NAME")
            let entries = try await place.run("list", "--json", "--config", file).json([Listed].self)
            #expect(entries.first { $0.name == "radio" }?.configured == ["microphone", "fallback-speaker"])
            #expect(entries.first { $0.name == "broken" }?.problem.isEmpty == false)
            #expect(entries.first { $0.name == "hw:7,0" }?.kind == "other")
            #expect(entries.contains { $0.name == "default" } && !entries.contains { $0.name == "null" })
        }
    }

    @Test func `"accessory" is no device: what stands in for what is worn is shown and tried`() async throws {
        try await withPlace("pcm.radio { type null hint { show on description \"The radio's sound\" } }") { place in
            let file = try place.write(
                "[audio]\nmicrophone = \"accessory\"\nspeaker = \"accessory\"\nfallback-microphone = \"radio\"\n",
                "x.toml")
            let entries = try await place.run("list", "--json", "--config", file).json([Listed].self)
            #expect(entries.first { $0.name == "radio" }?.configured == ["fallback-microphone"])
            #expect(!entries.contains { $0.name == "accessory" || $0.configured.contains("microphone") })
            let sound = try ConfiguredSound(path: file)
            #expect(sound.testedMicrophone == .alsa("radio") && sound.testedSpeaker == .alsa("default"))
            let wrong = try place.write("[audio]\nfallback-speaker = \"accessory\"\n", "wrong.toml")
            #expect(try ConfiguredSound(path: wrong).fallbackSpeaker == .alsa("accessory"), "a name of ALSA's there")
        }
    }

    @Test
    func `without a configuration nothing is marked; one that is named must be readable`() async throws {
        try await withPlace { place in
            let entries = try await place.run("list", "--json").json([Listed].self)
            let isMarked = entries.contains { !$0.configured.isEmpty }
            #expect(!isMarked || access("/etc/pttd/pttd.toml", F_OK) == 0, "\(entries)")
            let missing = try await place.run("list", "--config", "\(place.folder)/none.toml")
            #expect(missing.status == 1 && missing.errors.contains("none.toml: cannot be read"), "\(missing)")
            let wrong = try place.write("[audio]\nspeaker = \"/dev/dsp\"\n", "wrong.toml")
            let refused = try await place.run("list", "--config", wrong)
            #expect(refused.status == 1 && refused.errors.contains("wrong.toml:2:11: audio.speaker"), "\(refused)")
        }
    }

    // MARK: The test

    @Test
    func `a file is heard and played into another, and the devices of the configuration are the default`() async throws
    {
        try await withPlace { place in
            let (from, to) = ("\(place.folder)/said.wav", "\(place.folder)/played.wav")
            try wav(2, volume: 0.3).write(to: URL(filePath: from))
            let file = try place.write("[audio]\nmicrophone = \"wav:\(from)\"\nspeaker = \"wav:\(to)\"\n", "x.toml")
            let outcome = try await place.run("test", "--config", file, "--for", "1.5")
            #expect(outcome.status == 0 && outcome.errors.isEmpty, "\(outcome)")
            #expect(outcome.output.contains("Heard: speech. Level -14 dBFS, noise floor -6"), "\(outcome)")
            #expect(outcome.output.contains("    48000 Hz, 1 channel, first sample after "), "\(outcome)")
            #expect(outcome.output.contains("Speaker wav:\(to): what was recorded."), "\(outcome)")
            #expect(try Data(contentsOf: URL(filePath: to)).count > 2 * 48_000)
            let reports = try await place.run(
                "test", "--json", "--microphone", "wav:\(from)", "--speaker", "null", "--for", "1.5"
            ).json([String: Report].self)
            #expect(reports["microphone"]?.verdict == "speech" && reports["microphone"]?.rate == 48_000)
            #expect(reports["speaker"]?.device == "null" && reports["speaker"]?.problem == "")
        }
    }

    @Test
    func `silence, and sound that is clipped, fail with what to do`() async throws {
        try await withPlace { place in
            let file = "\(place.folder)/said.wav"
            try wav(1, volume: 0).write(to: URL(filePath: file))
            let silent = try await place.run("test", "--microphone", "wav:\(file)", "--speaker", "null", "--for", "1")
            #expect(silent.status == 1 && silent.output.contains("Heard: only digital silence"), "\(silent)")
            #expect(silent.errors.contains("Bluetooth link is not up") && silent.output.contains("a tone"), "\(silent)")
            try wav(1, volume: 4).write(to: URL(filePath: file))
            let clipped = try await place.run("test", "--microphone", "wav:\(file)", "--speaker", "null", "--for", "1")
            #expect(clipped.status == 1 && clipped.output.contains("the gain is too high"), "\(clipped)")
            #expect(clipped.errors.contains("lower its volume"), "\(clipped)")
        }
    }

    @Test
    func `a device that is not there fails with the names that are; the other one is tried all the same`() async throws
    {
        try await withPlace { place in
            let outcome = try await place.run("test", "--microphone", "hw:99", "--speaker", "null", "--for", "0.5")
            #expect(outcome.status == 1, "\(outcome)")
            #expect(
                outcome.errors.contains("pttctl: microphone: hw:99: no such device")
                    && outcome.errors.contains("pttctl audio list") && !outcome.errors.contains("speaker:"),
                "\(outcome)")
            for wrong in [
                ["--for", "0"], ["--for", "61"], ["--for", "nan"], ["--for", "1e300"], ["--microphone", "/dev/dsp"],
                ["--speaker", ""],
            ] {
                let refused = try place.start(["test"] + wrong)
                #expect(try await refused.end() == 64, "\(wrong)")
            }
        }
    }

    @Test
    func `Ctrl-C ends it at once`() async throws {
        try await withPlace { place in
            let process = try place.start(["test", "--microphone", "null", "--speaker", "null", "--for", "60"])
            try await waitUntil { process.output.contains("speak as usual") }
            try await Task.sleep(for: .milliseconds(300))
            let began = Instant.now
            process.signal(SIGINT)
            #expect(try await process.end() == 1)
            #expect(Instant.now - began < .seconds(2))
            #expect(process.errors.contains("interrupted") && !process.output.contains("Heard"), "\(process.output)")
        }
    }

    /// The plug-in for OSS opens a file as its device, and waits while somebody else has a lease on that.
    @Test
    func `a driver that hangs does not keep it from ending`() async throws {
        try await withPlace { place in
            let device = try place.write("", "dsp")
            let asound = "pcm.stuck { type oss device \"\(device)\" }\n"
            _ = try place.write(asound, "asound.conf")
            let lease = open(device, O_RDWR | O_CLOEXEC)
            defer { close(lease) }
            // Else the one who has the lease is ended when another wants the file.
            signal(SIGIO, SIG_IGN)
            let setLease: Int32 = 1_024
            guard fcntl(lease, setLease, Int32(F_WRLCK)) == 0 else { return }
            let process = try place.start(["test", "--microphone", "stuck", "--speaker", "stuck"])
            try await waitUntil { process.output.contains("speak as usual") }
            try await Task.sleep(for: .milliseconds(300))
            let began = Instant.now
            process.signal(SIGINT)
            #expect(try await process.end() == 1)
            #expect(Instant.now - began < .seconds(4))
        }
    }

    @Test
    func `a monitor of a real PulseAudio is heard, and played into another sink`() async throws {
        let asound = { (folder: String) in
            """
            pcm.radio { type pulse server "unix:\(folder)/server" device "mic.monitor" hint { show on description "Radio" } }
            pcm.ear { type pulse server "unix:\(folder)/server" device "ear" }

            """
        }
        try await withPlace { place in
            _ = try place.write(asound(place.folder), "asound.conf")
            let sink = { (name: String) in
                ["-L", "module-null-sink sink_name=\(name) rate=48000 channels=1 format=s16le norewinds=1"]
            }
            let server = try ChildProcess(
                [
                    "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--system=false",
                    "-L", "module-native-protocol-unix socket=\(place.folder)/server auth-anonymous=1",
                ] + sink("mic") + sink("ear"), environment: place.environment, package: "pulseaudio")
            defer { server.signal(SIGTERM) }
            // It makes its socket when all of its modules are there.
            try await waitUntil { access("\(place.folder)/server", F_OK) == 0 }
            let muted = try await place.run("test", "--microphone", "radio", "--speaker", "ear", "--for", "0.5")
            #expect(muted.status == 1 && muted.errors.contains("only digital silence"), "\(muted)")
            try wav(10, volume: 0.3).write(to: URL(filePath: "\(place.folder)/said.wav"))
            let player = try ChildProcess(
                ["paplay", "-d", "mic", "\(place.folder)/said.wav"], environment: place.environment,
                package: "pulseaudio-utils")
            defer { player.signal(SIGTERM) }
            let heard = try await place.run("test", "--microphone", "radio", "--speaker", "ear", "--for", "2", "--json")
            #expect(heard.status == 0, "\(heard)")
            let reports = try heard.json([String: Report].self)
            #expect(reports["microphone"]?.verdict == "speech", "\(heard)")
            #expect(abs((reports["microphone"]?.level ?? 0) + 14) < 3, "\(heard)")
            #expect(reports["speaker"]?.rate == 48_000 && reports["speaker"]?.problem == "", "\(heard)")
            let entries = try await place.run("list", "--json").json([Listed].self)
            #expect(entries.first { $0.name == "radio" }?.problem == "", "\(entries)")
        }
    }

    private func waitUntil(_ isTrue: () -> Bool) async throws {
        let deadline = Instant.now + .seconds(20)
        while !isTrue(), .now < deadline { try await Task.sleep(for: .milliseconds(20)) }
        #expect(isTrue())
    }
}

@Suite struct AudioWordsTests {
    private let jabra = SoundEntry(
        name: "plughw:CARD=Headset", title: "Jabra SPEAK 510", kind: "card", usb: true, microphone: true, speaker: true)

    @Test
    func `the list is aligned, and its marks and notes are with their device`() {
        var held = jabra
        held.configured = ["microphone", "speaker"]
        held.holders = [.init(SoundHolder(program: "pttd", process: 812, use: .microphone))]
        held.numberedName = "hw:1,0"
        let server = SoundEntry(
            name: "default", title: "PulseAudio", kind: "server", microphone: true, speaker: false, problem: "gone")
        #expect(
            AudioList.lines([server, held]) == [
                "default              microphone           PulseAudio", "    gone",
                "plughw:CARD=Headset  microphone, speaker  Jabra SPEAK 510  [pttd.toml: microphone, speaker]",
                "    held by pttd (process 812) as a microphone",
                "    pttd.toml says hw:1,0, a number that may change; write plughw:CARD=Headset",
                "To try one: pttctl audio test --microphone NAME --speaker NAME",
            ])
        #expect(AudioList.lines([server]).contains("There is no sound card."))
    }

    @Test
    func `what is worn is marked, and an accessory without sound is not there`() throws {
        var accessory = AccessoryProperties()
        accessory.name = "AINA PTT"
        #expect(SoundEntry(worn: accessory) == nil)
        accessory.sound = "PipeWire, heard 420 ms after the press"
        let worn = try #require(SoundEntry(worn: accessory))
        #expect(worn.kind == "worn")
        #expect(
            AudioList.lines([jabra, worn]).prefix(2) == [
                "plughw:CARD=Headset  microphone, speaker  Jabra SPEAK 510",
                "accessory            microphone, speaker  AINA PTT: PipeWire, heard 420 ms after the press",
            ])
    }

    @Test
    func `names from devices cannot control the terminal`() {
        var evil = jabra
        evil.title = "Jabra\u{1B}[2J\nx"
        #expect(AudioList.lines([evil])[0].hasSuffix("Jabra\u{FFFD}[2J\u{FFFD}x"))
    }

    @Test
    func `a device that pttd itself holds says how to stop the daemon that has it`() {
        let busy = AudioError.deviceBusy("alsa:plughw:CARD=Headset", holders: ["pttd (process 812, card 1)"])
        func text(_ user: UInt32?, _ program: String = "pttd") -> String {
            HeardWords.text(busy, holders: [SoundHolder(program: program, process: 812, user: user, use: .microphone)])
        }
        #expect(text(1_000).contains("held by pttd itself (process 812)") && text(1_000).contains("pttctl status"))
        #expect(
            text(1_000).contains("systemctl --user stop pttd") && text(1_000).contains("systemctl --user start pttd"))
        #expect(text(0).contains("sudo systemctl stop pttd") && text(nil).contains("sudo systemctl start pttd"))
        #expect(text(1_000, "aplay") == "\(busy)")
        #expect(HeardWords.text(.deviceStalled("x"), holders: []) == "\(AudioError.deviceStalled("x"))")
    }

    @Test
    func `only what cannot be used has advice`() {
        for verdict in SoundVerdict.allCases {

            let isUsable = HeardWords.advice(verdict) == nil
            #expect(isUsable == verdict.isUsable, "\(verdict)")

        }
    }

    @Test
    func `what a device did is told in one line`() {
        var report = SoundDeviceReport()
        report.firstSample = .milliseconds(31)
        #expect(HeardWords.text(report) == "first sample after 31 ms")
        report.form = SoundDeviceForm(rate: 16_000, channels: 1)
        report.interruptions = 2
        #expect(HeardWords.text(report) == "16000 Hz, 1 channel, first sample after 31 ms, 2 interruptions")
    }
}
