// pttd: arguments and configuration; `Daemon` connects the modules.
import Accessories
import ArgumentParser
import Cryptography
import Files
import Glibc
import Logging
import Logs
import Settings
import Terminal
import Version

/// The command line of `pttd`.
@main
struct Pttd: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pttd", abstract: "Push-to-talk for this machine: buttons in, speech out.",
        discussion: """
            Without --config it reads ~/.config/pttd/pttd.toml (not as root) and then /etc/pttd/pttd.toml; without any of them it hosts a \
            relay of its own on loopback and joins its channel "Local".
            """,
        version: Version.text)

    @Option(help: ArgumentHelp("The configuration file.", valueName: "file"))
    var config: String?

    @Option(
        help: ArgumentHelp("The directory for this machine's key and the channel to restore.", valueName: "directory"))
    var state: String?

    @Option(help: "The lowest level to log.")
    var logLevel: Logger.Level = .info

    @Flag(
        help:
            "Check the configuration, the added accessories, the microphone, the speaker and the voice; report problems, and exit."
    )
    var check = false

    @Flag(help: "Check the configuration only; report problems, and exit.")
    var checkConfiguration = false

    func run() throws {
        // The call's error tells that a peer has closed a pipe or socket, or that a file may not grow (LimitFSIZE=).
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
        let level = logLevel
        LoggingSystem.bootstrap { LineLogHandler(label: $0, level: level) }
        let logger = Logger(label: "pttd")
        let (settings, path) = try load()
        guard !checkConfiguration else { return }
        if check {
            let problems = settings.problems() + settings.deviceProblems() + settings.promptProblems()
            for problem in problems { Console.complain(problem) }
            // Running, the daemon leaves such things out and says so; who asks wants to know.
            guard problems.isEmpty else { throw ExitCode(78) }
            print(path.map { "\($0) is valid" } ?? "no configuration file; the defaults are used")
            return
        }
        logger.notice(
            "pttd starts",
            metadata: [
                "version": "\(Version.text)", "configuration": "\(path ?? "defaults")",
                "state": "\(settings.stateDirectory)",
            ])
        do {
            // Each PCM belongs to one thread, so that alsa-lib needs no lock of its own around every call.
            setenv("LIBASOUND_THREAD_SAFE", "0", 1)
            // Blocked before the first thread starts, so that only `sigwait` takes them.
            var endings = StartFailure.endings
            pthread_sigmask(SIG_BLOCK, &endings, nil)
            let daemon = try Daemon(settings, logger: logger)
            daemon.start()
            var ending: Int32 = 0
            sigwait(&endings, &ending)
            try daemon.end()
        } catch {
            logger.critical("pttd cannot run", metadata: ["why": "\(error)"])
            ServiceEnd.now(StartFailure.status(error).rawValue)
        }
        ServiceEnd.now(EXIT_SUCCESS)
    }

    private func load() throws -> (Configuration, String?) {
        let path = config ?? SettingsPlaces.first(of: Configuration.defaultPaths)
        guard let path else { return (Configuration(state: state), nil) }
        do {
            return (try Configuration.read(path: path, state: state), path)
        } catch {
            // Who asks waits for the answer; a service waits for nobody.
            if check || checkConfiguration { Console.complain("\(error)") } else { ServiceConsole.complain("\(error)") }
            throw StartFailure.status(error)
        }
    }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}

/// The reason of a failed start, for the supervisor of the program: permanent where a person has to repair something, after a pause where a
/// retry may help.
enum StartFailure {
    /// EX_CONFIG (sysexits.h): systemd does not start it again.
    static let mistake = ExitCode(78)
    /// What ends the pause before an end.
    static let endingSignals = [SIGTERM, SIGINT]

    /// The signals that end pttd.
    static var endings: sigset_t {
        var signals = sigset_t()
        sigemptyset(&signals)
        for signal in endingSignals { sigaddset(&signals, signal) }
        return signals
    }

    /// The exit status: `mistake` where trying again changes nothing until a person mends something; else failure, after a pause (see
    /// `FailedStarts`), for systemd starts it again after a tenth of a second.
    static func status(_ error: any Error) -> ExitCode {
        guard mayPass(error) else { return mistake }
        FailedStarts.wait(FailedStarts.ofService.failed(), orUntil: endingSignals)
        return .failure
    }

    static func mayPass(_ error: any Error) -> Bool {
        switch error {
        case let error as SettingsError: error.mayPass
        case let error as FileError: error.mayPass
        case let error as IdentityError: error.mayPass
        default: true
        }
    }
}
