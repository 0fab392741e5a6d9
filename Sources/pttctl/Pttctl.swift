// pttctl: the daemon from a terminal or a script. It speaks only org.pttd.
import ArgumentParser
import DBus
import Glibc
import Logging
import Logs
import PTTBus
import Reactor

/// The command line of `pttctl`.
@main
struct Pttctl: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pttctl", abstract: "Talk, listen and look after push-to-talk on this machine.",
        discussion: "The daemon is looked for on the session bus, then on the system bus.",
        version: PTTBus.version,
        subcommands: [Status.self, Monitor.self, Talk.self, AccessoryCommand.self], defaultSubcommand: Status.self)
}

/// What every sub-command takes.
struct BusOptions: ParsableArguments {
    @Option(help: "The bus to use: 'session', 'system', or an address such as unix:path=/run/bus.")
    var bus: String?

    private var address: DBusAddress? {
        switch bus {
        case nil: nil
        case "session": .session
        case "system": .system
        case let address?: .address(address)
        }
    }

    /// Runs `body` with the daemon; what goes wrong is told on standard error, with exit status 1.
    func withDaemon(_ body: (DaemonClient) async throws -> Void) async throws {
        let logger = Logger(label: "pttctl") { LineLogHandler(label: $0, level: .error) }
        do {
            let loop = try EventLoop(name: "pttctl")
            defer { loop.stop() }
            let daemon = try await DaemonClient.find(on: address, loop: loop, logger: logger)
            try await body(daemon)
            await daemon.close()
        } catch let error as ExitCode {
            throw error
        } catch {
            Output.complain("pttctl: \(error)")
            throw ExitCode.failure
        }
    }
}

/// Lines for the user.
enum Output {
    /// A line on standard output, at once, also into a pipe.
    static func line(_ text: String) { put(text, STDOUT_FILENO) }

    /// A line on standard error.
    static func complain(_ text: String) { put(text, STDERR_FILENO) }

    private static func put(_ text: String, _ descriptor: Int32) {
        let bytes = Array((text + "\n").utf8)
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 || errno == EINTR else { return }
            sent += max(0, count)
        }
    }
}
