// A PulseAudio of a test's own, and a second one that takes its place at once.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

/// A PulseAudio of the test's own: its socket in a temporary folder, two null sinks, no cards.
///
/// What connects goes through a link to the server's socket. A server that was started again is another one at the same address,
/// so `replace` starts a second one while the first still runs, and leads the link there: the clients see a restart that takes no
/// time, however slow the machine is.
final class PrivatePulse {
    let folder: String
    let voice = chirps(seconds: 10)
    private var server: Child
    private var generation = 0

    var environment: [String: String] { environment(server: "socket") }

    private func environment(server: String) -> [String: String] {
        [
            "ALSA_CONFIG_PATH": folder + "/asound.conf", "HOME": folder, "XDG_RUNTIME_DIR": folder,
            "PULSE_SERVER": "unix:\(folder)/\(server)",
        ]
    }

    init() throws {
        folder = temporaryPath("pulse")
        mkdir(folder, 0o700)
        server = try Self.start(folder, 0)
        symlink("socket0", folder + "/socket")
        writeFile(folder + "/voice.wav", wav(voice))
        let pcm = { [folder] (name: String, device: String) in
            "pcm.\(name) { type pulse server \"unix:\(folder)/socket\" \(device) }\n"
        }
        writeFile(
            folder + "/asound.conf",
            Array(
                (pcm("ptt_mic", "device \"mic.monitor\"") + pcm("ptt_ear", "device \"ear\"") + pcm("ptt_default", ""))
                    .utf8))
    }

    private static func start(_ folder: String, _ number: Int) throws -> Child {
        let socket = "\(folder)/socket\(number)"
        // A null sink that rewinds works in blocks of two seconds while nothing plays.
        let sink = { (name: String) in
            ["-L", "module-null-sink sink_name=\(name) rate=48000 channels=1 format=s16le norewinds=1"]
        }
        let arguments =
            [
                "pulseaudio", "-n", "--daemonize=no", "--exit-idle-time=-1", "--use-pid-file=no", "--system=false",
                "--disallow-exit=yes", "-L", "module-native-protocol-unix socket=\(socket) auth-anonymous=1",
            ] + sink("mic") + sink("ear")
        let server = try #require(Child(arguments, environment: ["HOME": folder, "XDG_RUNTIME_DIR": folder]))
        // It serves its socket when all of its modules are there, and not before.
        for _ in 0..<400 where access(socket, F_OK) != 0 { usleep(50_000) }
        try #require(access(socket, F_OK) == 0, "pulseaudio did not start")
        let asked = try #require(
            Child(["pactl", "info"], environment: ["HOME": folder, "PULSE_SERVER": "unix:\(socket)"]))
        try #require(asked.wait(for: "Server Name"), "pulseaudio does not answer")
        return server
    }

    /// The server dies, and another one is there. `prepare` is run before, with an environment that reaches the new one.
    func replace(after prepare: ([String: String]) throws -> Void) throws {
        generation += 1
        let next = try Self.start(folder, generation)
        try prepare(environment(server: "socket\(generation)"))
        symlink("socket\(generation)", folder + "/next")
        rename(folder + "/next", folder + "/socket")
        server.stop()
        server = next
    }

    func run(_ arguments: [String], environment: [String: String]? = nil) throws -> Child {
        try #require(
            Child(arguments, environment: environment ?? self.environment),
            "\(arguments[0]) is not installed (pulseaudio-utils)")
    }

    /// Asks the server for something, and waits until it was done.
    func control(_ arguments: String...) throws {
        _ = try run(["pactl"] + arguments).finish(within: .seconds(10))
    }

    /// The numbers of the streams that play; a stream that is opened anew has another one.
    func streams() throws -> [String] {
        table(try run(["pactl", "list", "short", "sink-inputs"]).finish(within: .seconds(10))).compactMap(\.first)
    }

    /// Moves all that is played to `sink` to `other`, and waits until something plays there. Returns what it saw last.
    ///
    /// A stream that ran dry meanwhile is another one by the time it is to be moved: so it is looked for again.
    func moveStreams(from sink: String, to other: String, within span: Duration = .seconds(20)) throws -> String {
        let end = Instant.now + span
        var streams = ""
        while .now < end {
            let sinks = table(try run(["pactl", "list", "short", "sinks"]).finish(within: .seconds(10)))
            streams = try run(["pactl", "list", "short", "sink-inputs"]).finish(within: .seconds(10))
            func number(_ name: String) -> String? { sinks.first { $0.count > 1 && $0[1] == name }?[0] }
            guard let from = number(sink), let to = number(other) else { break }
            let playing = table(streams).filter { $0.count > 1 }
            if playing.contains(where: { $0[1] == to }) { break }
            for stream in playing where stream[1] == from { try control("move-sink-input", stream[0], other) }
        }
        return streams
    }

    private func table(_ text: String) -> [[String]] {
        text.split(separator: "\n").map { $0.split(separator: "\t").map(String.init) }
    }

    /// Records what is played to `sink`, to be told by `isLoud`.
    func record(_ sink: String, environment: [String: String]? = nil) throws -> Child {
        try run(
            [
                "parec", "-d", sink + ".monitor", "--latency-msec=10", "--raw", "--format=s16le", "--rate=48000",
                "--channels=1", "\(folder)/\(sink).raw",
            ], environment: environment)
    }

    /// Waits until a tenth of a second of sound is in the record of `sink`.
    func isLoud(_ sink: String, within span: Duration = .seconds(20)) -> Bool {
        let end = Instant.now + span
        while .now < end {
            let bytes = readFile("\(folder)/\(sink).raw")
            var loud = 0
            for index in stride(from: 0, to: bytes.count - 1, by: 2) {
                let sample = Int16(bitPattern: UInt16(bytes[index]) | UInt16(bytes[index + 1]) << 8)
                if sample.magnitude > 1_000 { loud += 1 }
            }
            if loud > 4_800 { return true }
            usleep(50_000)
        }
        return false
    }

    func stop() {
        server.stop()
        _ = Child(["rm", "-rf", folder])?.finish(within: .seconds(5))
    }
}
