// espeak-ng as a process: the text to its standard input, the sound from its standard output.
import Glibc
import MonotonicTime
import Reactor

/// Speaks by espeak-ng, which is started for each prompt and gives its sound as a WAV file. Confined to its loop.
final class EspeakVoice: PromptVoice {
    /// How long the program may take; then it is killed.
    static let limit = Duration.seconds(3)
    /// The most bytes that are taken: 15 s of 22,050 Hz and 16 bits, and a header.
    static let bytesMax = 15 * 22_050 * 2 + 4_096
    /// So many bytes of text go into a pipe at once (pipe(7)).
    static let textMax = 4_096
    private static let readMax = 32_768

    private let loop: EventLoop
    private let program: String
    private let limit: Duration
    private var running: Running?

    /// What runs, until its output and itself have ended.
    private final class Running {
        let process: Int32
        let output: Int32
        let done: (PromptOutcome) -> Void
        var watch: ProcessWatch?
        var outputWatch: EventLoop.Watch?
        var timer: EventLoop.Timer?
        var bytes: [UInt8] = []
        var status: Int32?
        var isOutputComplete = false

        init(_ process: Int32, output: Int32, _ done: @escaping (PromptOutcome) -> Void) {
            (self.process, self.output, self.done) = (process, output, done)
        }

        deinit { close(output) }
    }

    /// - Parameters:
    ///   - program: What is started in the place of espeak-ng.
    ///   - limit: How long it may take.
    init(on loop: EventLoop, program: String = PromptProgram.espeak.rawValue, limit: Duration = EspeakVoice.limit) {
        self.loop = loop
        self.program = program
        self.limit = limit
    }

    /// The arguments. The text is none of them: a name is never taken for an option, and other users do not see it.
    static func arguments(_ language: PromptLanguage) -> [String] {
        // UTF-8 (-b 1), all of the input as one text.
        ["-b", "1", "-v", language.rawValue, "--stdin", "--stdout"]
    }

    /// Even where it gives its sound to a pipe it looks for a sound server, and libpulse starts one. It is to find none.
    static let environment = [
        "PATH=\(ProgramFile.path)", "LC_ALL=C.UTF-8", "HOME=/nonexistent", "XDG_RUNTIME_DIR=/nonexistent",
        "PULSE_SERVER=unix:/dev/null",
    ]

    func say(_ text: String, _ language: PromptLanguage, _ done: @escaping (PromptOutcome) -> Void) {
        stop()
        do throws(SystemError) {
            try start(text, language, done)
        } catch {
            stop()
            loop.schedule(at: .now) { done(.failed(.starting(.espeak, error))) }
        }
    }

    func stop() {
        guard let running else { return }
        self.running = nil
        running.watch?.cancel()
        running.outputWatch?.cancel()
        running.timer?.cancel()
        if running.status == nil { SpawnedProgram.kill(running.process, on: loop) }
    }

    private func start(
        _ text: String, _ language: PromptLanguage, _ done: @escaping (PromptOutcome) -> Void
    ) throws(SystemError) {
        let input = try Pipe()
        let output = try Pipe()
        // It fits into the empty pipe, so this does not wait.
        let bytes = Array(text.utf8.prefix(Self.textMax - 1)) + [UInt8(ascii: "\n")]
        guard write(input.writing, bytes, bytes.count) == bytes.count else { throw SystemError("write") }
        let process = try SpawnedProgram.start(
            [program] + Self.arguments(language),
            environment: Self.environment, input: input.reading, output: output.writing)
        let running = Running(process, output: output.takeReading(), done)
        self.running = running
        _ = fcntl(running.output, F_SETFL, O_NONBLOCK)
        running.watch = try ProcessWatch(process, on: loop) { [weak self, weak running] in
            guard let self, let running, self.running === running else { return }
            running.status = SpawnedProgram.end(of: running.process)
            finishIfComplete(running)
        }
        running.outputWatch = try loop.watch(running.output, for: .readable) { [weak self, weak running] _ in
            guard let self, let running, self.running === running else { return }
            read(running)
        }
        running.timer = loop.schedule(after: limit) { [weak self, weak running] in
            guard let self, let running, self.running === running else { return }
            finish(running, .failed(.tooSlow(.espeak)))
        }
    }

    private func read(_ running: Running) {
        var buffer = [UInt8](repeating: 0, count: Self.readMax)
        let count = Glibc.read(running.output, &buffer, buffer.count)
        if count > 0 {
            guard running.bytes.count + count <= Self.bytesMax else {
                return finish(running, .failed(.tooMuch(.espeak)))
            }
            running.bytes.append(contentsOf: buffer[..<count])
        } else if count == 0 || (errno != EAGAIN && errno != EINTR) {
            running.outputWatch?.cancel()
            running.isOutputComplete = true
            finishIfComplete(running)
        }
    }

    private func finishIfComplete(_ running: Running) {
        guard let status = running.status, running.isOutputComplete else { return }
        finish(running, status == 0 ? .sound(running.bytes) : .failed(.ended(.espeak, status: status)))
    }

    private func finish(_ running: Running, _ outcome: PromptOutcome) {
        stop()
        running.done(outcome)
    }
}

/// A pipe(2) whose ends are closed with it, and in programs that are started.
private final class Pipe {
    private(set) var reading: Int32
    let writing: Int32

    init() throws(SystemError) {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw SystemError("pipe") }
        (reading, writing) = (ends[0], ends[1])
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    }

    /// Leaves the reading end to the caller.
    func takeReading() -> Int32 {
        defer { reading = -1 }
        return reading
    }

    deinit {
        if reading >= 0 { close(reading) }
        close(writing)
    }
}
