// speech-dispatcher by its socket. It plays by itself, on the sound server of the user's desktop.
import Glibc
import MonotonicTime
import Reactor

/// Where speech-dispatcher listens.
enum DispatcherAddress {
    /// Its socket, as its own clients look for it; nil: this program has no session of a user.
    static var path: String? {
        if let address = value("SPEECHD_ADDRESS") {
            let prefix = "unix_socket:"
            return address.hasPrefix(prefix) ? String(address.dropFirst(prefix.count)) : nil
        }
        return value("XDG_RUNTIME_DIR").map { "\($0)/speech-dispatcher/speechd.sock" }
    }

    static let advice =
        "it runs in a user's session only (XDG_RUNTIME_DIR is not set); set voice = \"espeak-ng\" in [audio]"

    private static func value(_ name: String) -> String? {
        guard let value = getenv(name).map({ String(cString: $0) }), !value.isEmpty else { return nil }
        return value
    }
}

/// Speaks by speech-dispatcher, over a connection for each prompt. Confined to its loop.
final class DispatcherVoice: PromptVoice {
    /// How long speech-dispatcher may take to start, and to say a prompt.
    static let limit = Duration.seconds(18)

    private let loop: EventLoop
    private var running: Running?
    /// The program that starts speech-dispatcher. It goes on when the prompt is cut off: the next one finds speech-dispatcher there.
    private var starter: (process: Int32, watch: ProcessWatch)?

    /// What is being said, or is to be said when speech-dispatcher has started.
    private final class Running {
        let done: (PromptOutcome) -> Void
        var dialogue: DispatcherDialogue
        var socket: Int32 = -1
        var watch: EventLoop.Watch?
        var timer: EventLoop.Timer?
        /// Whether speech-dispatcher was started for it.
        var hasStarted = false

        init(_ dialogue: DispatcherDialogue, _ done: @escaping (PromptOutcome) -> Void) {
            (self.dialogue, self.done) = (dialogue, done)
        }

        deinit { if socket >= 0 { close(socket) } }
    }

    init(on loop: EventLoop) { self.loop = loop }

    func say(_ text: String, _ language: PromptLanguage, _ done: @escaping (PromptOutcome) -> Void) {
        stop()
        let running = Running(DispatcherDialogue(text, language), done)
        self.running = running
        running.timer = loop.schedule(after: Self.limit) { [weak self, weak running] in
            guard let self, let running, self.running === running else { return }
            cancelStart()
            finish(running, .failed(.tooSlow(.speechDispatcher)))
        }
        connect(running)
    }

    func stop() {
        guard let running else { return }
        if running.socket >= 0 { send(DispatcherDialogue.cancelling, on: running) }
        end(running)
    }

    // MARK: The connection

    private func connect(_ running: Running) {
        guard let path = DispatcherAddress.path else {
            return later(running, .failed(.unreachable(.speechDispatcher, reason: DispatcherAddress.advice)))
        }
        let error = connect(running, to: path)
        let isAbsent = error == ENOENT || error == ECONNREFUSED
        if error == 0 || isAbsent && starter != nil { return }
        if isAbsent, !running.hasStarted { return startDispatcher(running) }
        let reason = "\(path): \(SystemError("connect", code: error))"
        later(running, .failed(.unreachable(.speechDispatcher, reason: reason)))
    }

    /// Returns the errno of the failure, or 0. A Unix socket connects at once or not at all.
    private func connect(_ running: Running, to path: String) -> Int32 {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let isWhole = withUnsafeMutableBytes(of: &address.sun_path) { target in
            guard path.utf8.count < target.count else { return false }
            target.copyBytes(from: path.utf8)
            return true
        }
        guard isWhole else { return ENAMETOOLONG }
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let socket = socket(AF_UNIX, type, 0)
        guard socket >= 0 else { return errno }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(socket, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else {
            defer { close(socket) }
            return errno
        }
        running.socket = socket
        do throws(SystemError) {
            running.watch = try loop.watch(socket, for: .readable) { [weak self, weak running] _ in
                guard let self, let running, self.running === running else { return }
                read(running)
            }
        } catch {
            return error.code
        }
        send(running.dialogue.beginning, on: running)
        return 0
    }

    private func read(_ running: Running) {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = recv(running.socket, &buffer, buffer.count, 0)
        guard count > 0 else {
            if count < 0, errno == EAGAIN || errno == EINTR { return }
            let reason = "it has closed the connection"
            return finish(running, .failed(.unreachable(.speechDispatcher, reason: reason)))
        }
        for action in running.dialogue.received(buffer[..<count]) {
            switch action {
            case .send(let text): send(text, on: running)
            case .heard:
                send(DispatcherDialogue.ending, on: running)
                finish(running, .heard)
            case .failed(let answer):
                send(DispatcherDialogue.ending, on: running)
                finish(running, .failed(.refused(.speechDispatcher, answer: answer)))
            }
        }
    }

    /// A command is short and the socket's buffer empty; one that does not fit is missed like one that gets no answer.
    private func send(_ text: String, on running: Running) {
        let bytes = Array(text.utf8)
        _ = Glibc.send(running.socket, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }

    // MARK: The program

    /// Starts speech-dispatcher, as its own clients do. It goes into the background when it listens.
    private func startDispatcher(_ running: Running) {
        running.hasStarted = true
        let environment = Self.inherited.compactMap { name in getenv(name).map { "\(name)=\(String(cString: $0))" } }
        do throws(SystemError) {
            let process = try SpawnedProgram.start(
                [PromptProgram.speechDispatcher.rawValue, "--spawn"],
                environment: ["PATH=\(ProgramFile.path)"] + environment)
            do throws(SystemError) {
                let watch = try ProcessWatch(process, on: loop) { [weak self] in self?.started() }
                starter = (process, watch)
            } catch {
                SpawnedProgram.kill(process, on: loop)
                throw error
            }
        } catch {
            later(running, .failed(.starting(.speechDispatcher, error)))
        }
    }

    private func started() {
        guard let process = starter?.process else { return }
        starter = nil
        let status = SpawnedProgram.end(of: process)
        // Whoever waits for it now, and may not be the one that it was started for.
        guard let running, running.socket < 0 else { return }
        guard status == 0 else { return finish(running, .failed(.ended(.speechDispatcher, status: status))) }
        running.hasStarted = true
        connect(running)
    }

    private func cancelStart() {
        guard let starter else { return }
        self.starter = nil
        starter.watch.cancel()
        SpawnedProgram.kill(starter.process, on: loop)
    }

    // MARK: The end

    private func later(_ running: Running, _ outcome: PromptOutcome) {
        loop.schedule(at: .now) { [weak self] in self?.finish(running, outcome) }
    }

    private func finish(_ running: Running, _ outcome: PromptOutcome) {
        guard self.running === running else { return }
        end(running)
        running.done(outcome)
    }

    private func end(_ running: Running) {
        self.running = nil
        running.watch?.cancel()
        running.timer?.cancel()
    }

    /// Variables that speech-dispatcher needs of this program's: where it keeps its files and finds the sound server.
    private static let inherited = [
        "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_MESSAGES", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME",
        "DBUS_SESSION_BUS_ADDRESS", "PULSE_SERVER", "SPEECHD_ADDRESS",
    ]
}
