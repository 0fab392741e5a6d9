// A real nats-server with JetStream, in a directory of its own.
import FoundationEssentials
import Glibc

/// Runs until it is dropped.
public final class NATSServer: @unchecked Sendable {
    /// It could not be started.
    public struct Failure: Error, CustomStringConvertible {
        /// What it said.
        public let description: String
    }

    private static let program = "/var/tmp/pttd-tests/nats-server/usr/sbin/nats-server"

    /// Its directory.
    public let folder: TemporaryFolder
    /// Its TCP port, the same after a restart.
    public private(set) var port: UInt16 = 0
    private var process: pid_t = 0

    /// Starts it.
    ///
    /// - Parameter configuration: Lines for its configuration file.
    public init(configuration: String = "") throws {
        folder = try TemporaryFolder()
        try start(configuration)
    }

    private var log: String { "\(folder.path)/log" }

    /// Starts it again.
    public func start(_ configuration: String = "") throws {
        let file = "\(folder.path)/nats.conf"
        let listen = port == 0 ? -1 : Int(port)
        try Data(
            """
            host: 127.0.0.1
            port: \(listen)
            jetstream { store_dir: "\(folder.path)", max_file_store: 64MB }
            \(configuration)
            """.utf8
        ).write(to: URL(filePath: file))
        unlink(log)
        let arguments = ["nats-server", "-c", file, "-l", log]
        var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for word in words { free(word) } }
        // Unpacked, not installed (`make test-deps`): Debian's package starts a service.
        guard posix_spawn(&process, Self.program, nil, nil, &words, environ) == 0 else {
            throw Failure(description: "\(Self.program) cannot be started; 'make test-deps' unpacks it")
        }
        for _ in 0..<500 {
            usleep(20_000)
            guard let text = try? String(contentsOfFile: log, encoding: .utf8), text.contains("Server is ready") else {
                continue
            }
            guard let line = text.firstRange(of: "client connections on 127.0.0.1:") else { continue }
            port = UInt16(text[line.upperBound...].prefix { $0.isNumber }) ?? 0
            return
        }
        throw Failure(description: (try? String(contentsOfFile: log, encoding: .utf8)) ?? "nats-server says nothing")
    }

    /// Sends a signal, and gives it the time to reach all threads of the server.
    public func send(_ signal: Int32) {
        guard process > 0 else { return }
        kill(process, signal)
        usleep(50_000)
    }

    /// Kills it.
    public func stop() {
        guard process > 0 else { return }
        kill(process, SIGKILL)
        waitpid(process, nil, 0)
        process = 0
    }

    deinit { stop() }

    /// Its address.
    public var url: String { "nats://127.0.0.1:\(port)" }
}
