// pttctl: the daemon from a terminal or a script. It speaks only org.pttd; `audio` and `profile` work without it.
import ArgumentParser
import DBus
import Logging
import Logs
import PTTBus
import Reactor
import Terminal
import Version

/// The command line of `pttctl`.
@main
struct Pttctl: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pttctl", abstract: "Talk, listen and look after push-to-talk on this machine.",
        discussion: """
            pttctl looks for the daemon on the session bus, then on the system bus.

            Exit status: 0 on success, 1 on failure (standard error says why and what to do), 64 when the command line \
            is wrong. 'pttctl inhibit' exits with the status of its command.
            """,
        version: Version.text,
        subcommands: [
            Status.self, Monitor.self, Enrol.self, Join.self, Leave.self, Channel.self, Talk.self, Replay.self,
            History.self, Mode.self,
            Inhibit.self, WaitQuiet.self,
            Nearby.self, AccessoryCommand.self, AudioCommand.self, ProfileCommand.self,
        ], defaultSubcommand: Status.self)

    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        if let option = Inhibit.misplacedOption(arguments) {
            exit(
                withError: ValidationError(
                    "\(option) comes after the command, which would get it; write it before the command, or write '--' before the command "
                        + "if it is the command's own."))
        }
        await main(Inhibit.separated(arguments))
    }

    // Here, too, so that it may stand before the sub-command.
    @OptionGroup var options: BusOptions
}

/// What every sub-command takes.
struct BusOptions: ParsableArguments {
    @Option(
        help: "The bus to use: 'session', 'system', or an address such as unix:path=/run/bus.",
        completion: .list(["session", "system"]))
    var bus: String?

    func validate() throws {
        guard let bus, bus != "session", bus != "system" else { return }
        guard bus.contains(":"), bus.contains("=") else {
            throw ValidationError(
                "'\(bus)' is not a bus address; give 'session', 'system', or an address such as unix:path=/run/bus.")
        }
    }

    private var address: DBusAddress? {
        switch bus {
        case nil: nil
        case "session": .session
        case "system": .system
        case let address?: .address(address)
        }
    }

    /// How long pttd may take before a message about its silence.
    private static let timeout = Duration.seconds(3)

    /// Runs `body` with the daemon. An error is printed on standard error, with exit status 1.
    func withDaemon(_ body: (DaemonClient) async throws -> Void) async throws {
        let logger = Logger(label: "pttctl") { LineLogHandler(label: $0, level: .error) }
        do {
            let loop = try EventLoop(name: "pttctl")
            defer { loop.stop() }
            let timer = Task {
                try await Task.sleep(for: Self.timeout)
                Console.complain("pttctl: pttd does not answer yet; waiting (Ctrl-C stops)")
            }
            defer { timer.cancel() }
            let daemon = try await DaemonClient.find(on: address, loop: loop, logger: logger)
            timer.cancel()
            try await body(daemon)
            await daemon.close()
        } catch let error as DBusError {
            Console.complain("pttctl: \(DaemonClientError.bus(error))")
            throw ExitCode.failure
        } catch let error as ExitCode {
            throw error
        } catch is CancellationError {
            Console.complain("pttctl: interrupted before it was done; 'pttctl status' shows the state")
            throw ExitCode.failure
        } catch {
            Console.complain("pttctl: \(error)")
            throw ExitCode.failure
        }
    }
}

extension BusOptions {
    /// The accessories of the daemon, if one runs and answers within a second; none otherwise, and nothing is said.
    func accessoriesIfRunning() async -> [AccessoryProperties] {
        await DaemonClient.ask(on: address, within: .seconds(1)) { daemon in
            daemon.snapshot.accessories.sorted { $0.key < $1.key }.map(\.value)
        } ?? []
    }
}

extension DaemonClient {
    /// What `body` answers with the daemon; nil when there is none, or when that takes too long. Nothing is said.
    static func ask<Answer: Sendable>(
        on address: DBusAddress? = nil, within limit: Duration,
        _ body: @escaping @Sendable (isolated DaemonClient) async throws -> Answer
    ) async -> Answer? {
        let (answers, feed) = AsyncStream.makeStream(of: Answer?.self, bufferingPolicy: .bufferingOldest(1))
        let asking = Task {
            defer { feed.finish() }
            let silent = Logger(label: "pttctl") { _ in SwiftLogNoOpLogHandler() }
            guard let loop = try? EventLoop(name: "pttctl") else { return }
            defer { loop.stop() }
            guard let daemon = try? await find(on: address, loop: loop, logger: silent) else { return }
            feed.yield(try? await body(daemon))
            await daemon.close()
        }
        let clock = Task {
            try? await Task.sleep(for: limit)
            feed.finish()
        }
        defer {
            asking.cancel()
            clock.cancel()
        }
        for await answer in answers { return answer }
        return nil
    }
}

/// An error, and what to do: printed on standard error, with exit status 1.
struct Failure: Error, CustomStringConvertible {
    var description: String

    init(_ description: String) { self.description = description }

    /// For everything that needs a channel.
    static let noChannel = Failure(
        "no channel is joined; join one: 'pttctl join LINK', with the ptt:// link that you were given")
}
