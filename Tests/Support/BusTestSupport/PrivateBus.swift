// A real dbus-daemon of a test's own, which can be killed and started again at the same address.
import Glibc
import Synchronization

/// A private message bus. It ends, and its folder goes, with the object.
public final class PrivateBus: Sendable {
    /// Where to connect.
    public let address: String
    /// A folder of this bus's own, for sockets and the like of the test.
    public let directory: String
    private let process = Mutex<pid_t?>(nil)
    private let services = Mutex<[String]>([])

    /// Whether it starts services by their names: dbus-broker, which Tests/DBusBroker/run puts in its place, leaves that to systemd.
    public static let startsServices = getenv("PTTD_TEST_BUS").map { String(cString: $0) } != "dbus-broker"

    /// What went wrong while starting.
    public struct Failure: Error, CustomStringConvertible {
        /// The words.
        public let description: String
    }

    /// A running bus.
    public init() throws {
        var template = Array("/tmp/pttd-bus-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(description: "mkdtemp: \(errno)") }
        directory = String(decoding: template.dropLast().map { UInt8(truncatingIfNeeded: $0) }, as: UTF8.self)
        address = "unix:path=\(directory)/bus"
        let configuration = """
            <!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
             "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
            <busconfig>
              <type>session</type>
              <listen>\(address)</listen>
              <auth>EXTERNAL</auth>
              <servicedir>\(directory)/services</servicedir>
              <policy context="default">
                <allow send_destination="*" eavesdrop="false"/>
                <allow eavesdrop="false"/>
                <allow own="*"/>
              </policy>
              <limit name="max_replies_per_connection">50000</limit>
              <limit name="max_message_unix_fds">4096</limit>
              <limit name="max_incoming_unix_fds">8192</limit>
              <limit name="max_outgoing_unix_fds">8192</limit>
            </busconfig>
            """
        mkdir(directory + "/services", 0o700)
        try write(configuration, to: directory + "/bus.conf")
        try start()
    }

    private func write(_ text: String, to path: String) throws {
        guard let file = fopen(path, "w") else { throw Failure(description: "fopen \(path): \(errno)") }
        fputs(text, file)
        fclose(file)
    }

    /// Lets the bus start `command` when somebody wants the well-known `name`.
    public func addService(_ name: String, command: String) throws {
        try write(
            "[D-BUS Service]\nName=\(name)\nExec=\(command)\n", to: "\(directory)/services/\(name).service")
        services.withLock { $0.append(name) }
    }

    deinit {
        stop()
        for name in services.withLock({ $0 }) { unlink("\(directory)/services/\(name).service") }
        rmdir(directory + "/services")
        for name in ["bus", "bus.conf"] { unlink("\(directory)/\(name)") }
        rmdir(directory)
    }

    /// Starts the daemon (again) and waits until it listens.
    public func start() throws {
        unlink(directory + "/bus")
        var pipeEnds: [Int32] = [0, 0]
        guard pipe(&pipeEnds) == 0 else { throw Failure(description: "pipe: \(errno)") }
        defer { close(pipeEnds[0]) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, pipeEnds[1], 1)
        posix_spawn_file_actions_addclose(&actions, pipeEnds[0])
        // It complains about limits that only root may raise.
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0)
        let arguments = [
            "dbus-daemon", "--config-file=\(directory)/bus.conf", "--nofork", "--nopidfile", "--nosyslog",
            "--print-address=1",
        ]
        var vector: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
        defer { for string in vector { free(string) } }
        var identifier: pid_t = 0
        let result = posix_spawnp(&identifier, "dbus-daemon", &actions, nil, &vector, environ)
        close(pipeEnds[1])
        guard result == 0 else { throw Failure(description: "dbus-daemon does not start: \(result)") }
        process.withLock { $0 = identifier }
        var byte: UInt8 = 0
        while read(pipeEnds[0], &byte, 1) == 1 {
            if byte == UInt8(ascii: "\n") { return }
        }
        stop()
        throw Failure(description: "dbus-daemon ended at once")
    }

    /// Kills the daemon and waits for its end.
    public func stop() {
        let identifier = process.withLock { process in
            defer { process = nil }
            return process
        }
        guard let identifier else { return }
        kill(identifier, SIGKILL)
        var status: Int32 = 0
        waitpid(identifier, &status, 0)
    }
}
