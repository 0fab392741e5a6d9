// pttctl: the daemon from a terminal or a script. It speaks only org.pttd.
import ArgumentParser
import DBus
import Logging
import Logs
import PTTBus
import Reactor
import Terminal

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
            Console.complain("pttctl: \(error)")
            throw ExitCode.failure
        }
    }
}
