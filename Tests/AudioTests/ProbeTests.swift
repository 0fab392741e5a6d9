// Tests that need a process of their own: allocations by thread, and a private PulseAudio through ALSA's plug-in.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

/// A child process whose output is collected.
final class Child {
    let identifier: pid_t
    private let output: Int32
    private var isOver = false

    /// Starts `arguments[0]` (a path, or a name in PATH) with an environment of its own.
    init?(_ arguments: [String], environment: [String: String] = [:]) {
        var pipeEnds: [Int32] = [0, 0]
        guard pipe(&pipeEnds) == 0 else { return nil }
        output = pipeEnds[0]
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipeEnds[1], 1)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
        var variables = ["PATH": String(cString: getenv("PATH")), "LANG": "C.UTF-8"]
        variables.merge(environment) { $1 }
        if let libraries = getenv("LD_LIBRARY_PATH") { variables["LD_LIBRARY_PATH"] = String(cString: libraries) }
        var texts = arguments.map { strdup($0) }
        var settings = variables.map { strdup("\($0)=\($1)") }
        texts.append(nil)
        settings.append(nil)
        defer { for text in texts + settings { free(text) } }
        var started: pid_t = 0
        let result = posix_spawnp(&started, arguments[0], &actions, nil, texts, settings)
        close(pipeEnds[1])
        identifier = started
        if result != 0 {
            close(output)
            isOver = true
            return nil
        }
    }

    deinit { stop() }

    /// All that it printed until it ended, or until `span` is over; then it is ended.
    func finish(within span: Duration) -> String {
        let end = Instant.now + span
        var bytes: [UInt8] = []
        var part = [UInt8](repeating: 0, count: 4_096)
        while end > .now {
            var waited = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            guard poll(&waited, 1, Int32(max(1, (end - .now).milliseconds))) > 0 else { continue }
            let count = read(output, &part, part.count)
            if count <= 0 { break }
            bytes += part[..<count]
        }
        stop()
        return String(decoding: bytes, as: UTF8.self)
    }

    func stop() {
        guard !isOver else { return }
        isOver = true
        kill(identifier, SIGTERM)
        var status: Int32 = 0
        for _ in 0..<100 {
            if waitpid(identifier, &status, WNOHANG) != 0 {
                close(output)
                return
            }
            usleep(20_000)
        }
        kill(identifier, SIGKILL)
        waitpid(identifier, &status, 0)
        close(output)
    }
}

/// The probe beside the running tests. It is an executable of this package, which `swift build --build-tests` builds.
private var probe: String? {
    var path = [CChar](repeating: 0, count: 4_096)
    guard readlink("/proc/self/exe", &path, path.count - 1) > 0 else { return nil }
    var folder = path.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
    // `swift test` may run the tests from a helper program; their folder is then in the arguments.
    let candidates = CommandLine.arguments + [folder]
    for candidate in candidates {
        folder = candidate
        while let slash = folder.lastIndex(of: "/") {
            folder = String(folder[..<slash])
            if access(folder + "/AudioProbe", X_OK) == 0 { return folder + "/AudioProbe" }
        }
    }
    return nil
}

private func isInstalled(_ program: String) -> Bool {
    String(cString: getenv("PATH")).split(separator: ":").contains { access("\($0)/\(program)", X_OK) == 0 }
}

private let hasPulse =
    isInstalled("pulseaudio")
    && ["x86_64-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf"].contains {
        access("/usr/lib/\($0)/alsa-lib/libasound_module_pcm_pulse.so", R_OK) == 0
    }

/// A value of the probe's output: the number after `key=` in the `occurrence`th line that begins with `line`.
private func number(_ key: String, _ line: String, in output: String, _ occurrence: Int = 0) -> Double? {
    let lines = output.split(separator: "\n").filter { $0.hasPrefix(line) }
    guard occurrence < lines.count else { return nil }
    for word in lines[occurrence].split(separator: " ") where word.hasPrefix(key + "=") {
        return Double(word.dropFirst(key.count + 1))
    }
    return nil
}

@Suite(.serialized) struct ProbeTests {
    @Test func theRealTimeThreadsAllocateNothingAndLockNothingWhileTheyRun() throws {
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let (source, sink) = (temporaryPath("mic.wav"), temporaryPath("ear.wav"))
        writeFile(source, wav(chirps(seconds: 3, rate: 44_100), rate: 44_100))
        defer {
            unlink(source)
            unlink(sink)
        }
        for (microphone, speaker) in [("wav:\(source)", "wav:\(sink)"), ("null", "null")] {
            // alsa-lib's own mutex around each call of a PCM that is no card: here a PCM has one thread.
            // A device that ran dry because the machine was halted is opened anew, which does allocate: then once more.
            var output = ""
            for _ in 1...6 where number("interruptions", "allocations", in: output) != 0 {
                let child = try #require(
                    Child(
                        [program, "allocations", microphone, speaker, "200"],
                        environment: ["LIBASOUND_THREAD_SAFE": "0"]))
                output = child.finish(within: .seconds(30))
            }
            #expect((number("frames", "allocations", in: output) ?? 0) >= 200, "\(output)")
            #expect(number("capture", "allocations", in: output) == 0, "\(output)")
            #expect(number("playback", "allocations", in: output) == 0, "\(output)")
            #expect(number("capture_locks", "allocations", in: output) == 0, "\(output)")
            #expect(number("playback_locks", "allocations", in: output) == 0, "\(output)")
            // That the count counts: the threads' preparations and the owner's frames do allocate.
            #expect((number("capture_before", "allocations", in: output) ?? 0) > 0)
            #expect((number("main", "allocations", in: output) ?? 0) > 200)
        }
    }

    @Test(.enabled(if: hasPulse, "needs pulseaudio and libasound2-plugins"))
    func throughPulseAudioWhatIsSpokenIsHeardAndNoStreamIsLeftOpen() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        // The microphone hears what is played to its sink. Both monitors are read in small pieces, which makes the null
        // sinks work in small pieces, as a card does.
        let keeper = try pulse.run(["parec", "-d", "mic.monitor", "--latency-msec=2", "/dev/null"])
        let recorder = try pulse.run([
            "parec", "-d", "ear.monitor", "--latency-msec=2", "--file-format=wav", "--rate=48000", "--channels=1",
            pulse.folder + "/ear.wav",
        ])
        let voice = try pulse.run(["paplay", "-d", "mic", pulse.folder + "/voice.wav"])
        usleep(2_500_000)
        let child = try #require(
            Child([program, "loop", "ptt_mic", "ptt_ear", "700", "2", "200"], environment: pulse.environment))
        let output = child.finish(within: .seconds(30))
        let streams = try pulse.run(["pactl", "list", "short", "source-outputs"]).finish(within: .seconds(5))
        for process in [voice, recorder, keeper] { process.stop() }
        let heard = try readWAV(pulse.folder + "/ear.wav")
        for burst in 0..<2 {
            let frame = number("after_start_ms", "first-frame", in: output, burst)
            let packet = number("after_packet_ms", "playback-began", in: output, burst)
            print("pulse: start to first frame \(frame ?? -1) ms, packet to speaker \(packet ?? -1) ms")
            #expect((frame ?? 1_000) < 200, "\(output)")
            #expect((packet ?? 1_000) < 300, "\(output)")
            // I1: nothing from before the press.
            #expect((number("after_ms", "capture-began", in: output, burst) ?? -100) > -15, "\(output)")
        }
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        // The keeper's own stream is all that is left.
        #expect(streams.split(separator: "\n").count <= 2, "\(streams)")
        // The middle of the first burst is somewhere in what was spoken.
        let loud = heard.indices.filter { abs(heard[$0]) > 0.05 }
        let first = try #require(loud.first)
        #expect(Double(loud.count) > 0.3 * 48_000)
        let part = heard[first + 14_400..<first + 15_840]
        let found = find(part, in: pulse.voice, 0..<pulse.voice.count - part.count)
        #expect(found.likeness > 0.6, "likeness \(found.likeness)")
    }

    @Test(.enabled(if: hasPulse, "needs pulseaudio and libasound2-plugins"))
    func aSpeakerThatGoesAndComesBackPlaysTheRestOfTheBurst() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let voice = pulse.folder + "/voice.wav"
        let child = try #require(
            Child([program, "loop", "wav:\(voice)", "ptt_ear", "4000", "1", "100"], environment: pulse.environment))
        // The probe speaks half a second after its start; its stream is killed with its sink.
        usleep(2_000_000)
        _ = try pulse.run(["pactl", "unload-module", "module-null-sink"]).finish(within: .seconds(5))
        usleep(200_000)
        // A null sink that rewinds works in blocks of two seconds at first.
        _ = try pulse.run([
            "pactl", "load-module", "module-null-sink", "sink_name=ear", "rate=48000", "channels=1", "norewinds=1",
        ]).finish(within: .seconds(5))
        let output = child.finish(within: .seconds(30))
        #expect(output.contains("reason=complete") && !output.contains("failed"), "\(output)")
        #expect(!output.contains("underruns: 0"), "\(output)")
    }

    @Test(.enabled(if: hasPulse, "needs pulseaudio and libasound2-plugins"))
    func whenTheSoundServerDiesTheBurstEndsWithItsLastFrame() throws {
        let pulse = try PrivatePulse()
        defer { pulse.stop() }
        let program = try #require(probe, "AudioProbe was not built: swift build --build-tests")
        let keeper = try pulse.run(["parec", "-d", "mic.monitor", "--latency-msec=2", "/dev/null"])
        defer { keeper.stop() }
        usleep(300_000)
        let child = try #require(
            Child([program, "loop", "ptt_mic", "ptt_ear", "5000", "1", "200"], environment: pulse.environment))
        usleep(1_800_000)
        pulse.stop()
        let output = child.finish(within: .seconds(15))
        #expect(output.contains("microphone-failed") || output.contains("speaker-failed"), "\(output)")
        #expect(output.contains("capture-ended burst=1"), "\(output)")
        #expect(output.contains("statistics"), "\(output)")
    }
}

/// A PulseAudio of the test's own: its socket in a temporary folder, two null sinks, no cards.
private final class PrivatePulse {
    let folder: String
    let voice = chirps(seconds: 10)
    private let server: Child

    var environment: [String: String] {
        [
            "ALSA_CONFIG_PATH": folder + "/asound.conf", "HOME": folder, "XDG_RUNTIME_DIR": folder,
            "PULSE_SERVER": "unix:" + folder + "/socket",
        ]
    }

    init() throws {
        folder = temporaryPath("pulse")
        mkdir(folder, 0o700)
        let socket = folder + "/socket"
        let sink = { (name: String) in
            ["-L", "module-null-sink sink_name=\(name) rate=48000 channels=1 format=s16le"]
        }
        let arguments =
            [
                "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--system=false",
                "--disallow-exit=yes", "-L", "module-native-protocol-unix socket=\(socket) auth-anonymous=1",
            ] + sink("mic") + sink("ear")
        server = try #require(Child(arguments, environment: ["HOME": folder, "XDG_RUNTIME_DIR": folder]))
        writeFile(folder + "/voice.wav", wav(voice))
        let pcm = { (name: String, device: String) in
            "pcm.\(name) { type pulse server \"unix:\(socket)\" device \"\(device)\" }\n"
        }
        writeFile(folder + "/asound.conf", Array((pcm("ptt_mic", "mic.monitor") + pcm("ptt_ear", "ear")).utf8))
        for _ in 0..<100 where access(socket, F_OK) != 0 { usleep(50_000) }
        try #require(access(socket, F_OK) == 0, "pulseaudio did not start")
        usleep(300_000)
    }

    func run(_ arguments: [String]) throws -> Child {
        try #require(Child(arguments, environment: environment), "\(arguments[0]) is not installed (pulseaudio-utils)")
    }

    func stop() {
        server.stop()
        _ = Child(["rm", "-rf", folder])?.finish(within: .seconds(5))
    }
}
