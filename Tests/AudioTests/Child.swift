// Programs that the tests of sound start: the probe beside the running tests, and what a test of PulseAudio needs.
import Glibc
import MonotonicTime
import Testing

@testable import Audio

/// A child process whose output is collected.
final class Child {
    let identifier: pid_t
    private let output: Int32
    private let input: Int32
    private var isOver = false
    private var bytes: [UInt8] = []

    /// Starts `arguments[0]` (a path, or a name in PATH) with an environment of its own.
    init?(_ arguments: [String], environment: [String: String] = [:]) {
        var pipeEnds: [Int32] = [0, 0]
        var inputEnds: [Int32] = [0, 0]
        guard pipe(&pipeEnds) == 0, pipe(&inputEnds) == 0 else { return nil }
        output = pipeEnds[0]
        input = inputEnds[1]
        for end in [output, input] { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipeEnds[1], 1)
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
        posix_spawn_file_actions_adddup2(&actions, inputEnds[0], 0)
        for end in [pipeEnds[1], inputEnds[0]] { posix_spawn_file_actions_addclose(&actions, end) }
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
        close(inputEnds[0])
        identifier = started
        if result != 0 {
            close(output)
            close(input)
            isOver = true
            return nil
        }
    }

    deinit { stop() }

    /// All that it printed until it ended, or until `span` is over; then it is ended.
    func finish(within span: Duration) -> String {
        _ = read(until: .now + span) { false }
        stop()
        return text
    }

    /// All that it has printed so far, as far as it was waited for.
    var text: String { String(decoding: bytes, as: UTF8.self) }

    /// Waits until it has printed `words` `times`; false when it did not within `span`, or ended before.
    func wait(for words: String, _ times: Int = 1, within span: Duration = .seconds(20)) -> Bool {
        read(until: .now + span) { text.split(separator: words, omittingEmptySubsequences: false).count > times }
    }

    /// Writes to its standard input.
    func say(_ words: String) {
        let bytes = Array(words.utf8)
        _ = write(input, bytes, bytes.count)
    }

    private func read(until end: Instant, _ isEnough: () -> Bool) -> Bool {
        var part = [UInt8](repeating: 0, count: 4_096)
        while !isEnough() {
            guard end > .now, !isOver else { return false }
            var waited = pollfd(fd: output, events: Int16(POLLIN), revents: 0)
            guard poll(&waited, 1, Int32(max(1, (end - .now).milliseconds))) > 0 else { continue }
            let count = Glibc.read(output, &part, part.count)
            if count <= 0 { return isEnough() }
            bytes += part[..<count]
        }
        return true
    }

    func stop() {
        guard !isOver else { return }
        isOver = true
        close(input)
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
var probe: String? {
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

func isInstalled(_ program: String) -> Bool {
    String(cString: getenv("PATH")).split(separator: ":").contains { access("\($0)/\(program)", X_OK) == 0 }
}

let hasPulse =
    isInstalled("pulseaudio")
    && ["x86_64-linux-gnu", "aarch64-linux-gnu", "arm-linux-gnueabihf"].contains {
        access("/usr/lib/\($0)/alsa-lib/libasound_module_pcm_pulse.so", R_OK) == 0
    }

/// A value of the probe's output: the number after `key=` in the `occurrence`th line that begins with `line`.
func number(_ key: String, _ line: String, in output: String, _ occurrence: Int = 0) -> Double? {
    let lines = output.split(separator: "\n").filter { $0.hasPrefix(line) }
    guard occurrence < lines.count else { return nil }
    for word in lines[occurrence].split(separator: " ") where word.hasPrefix(key + "=") {
        return Double(word.dropFirst(key.count + 1))
    }
    return nil
}
