// pttctl inhibit: keeps push-to-talk silent while a command runs.
import ArgumentParser
import DBus
import Glibc
import PTTBus
import Terminal

/// `pttctl inhibit`.
struct Inhibit: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Run a command, and keep push-to-talk silent meanwhile, as during a phone call.",
        discussion: """
            A transmission in progress ends, and none begins before the command has ended; received speech is silent. \
            Write options of pttctl before the command. The exit status is the command's: 127 when there is no such \
            command, 126 when it cannot be executed, 128 plus the signal's number when a signal ended it. After a \
            restart of pttd the lock is taken again.
            """)

    @OptionGroup var options: BusOptions
    @Option(help: "The name of the program that uses the audio; by default the command's name.") var who: String?
    @Option(help: "The reason to show.") var why = "a call"
    @Flag(help: "List the held locks, and run nothing.") var list = false
    @Flag(help: "With --list: print JSON, for scripts.") var json = false
    @Argument(help: "The command and its arguments.", completion: .shellCommand(""))
    var command: [String] = []

    func validate() throws {
        if list, !command.isEmpty { throw ValidationError("--list runs no command; leave '\(command[0])' out.") }
        if json, !list { throw ValidationError("--json needs --list.") }
        if !list, command.isEmpty {
            throw ValidationError(
                "Give the command that uses the audio, as in: pttctl inhibit --who Linphone linphone.")
        }
        for (option, text, maximum) in [
            ("--who", name, PTTBusLimits.whoBytes), ("--why", why, PTTBusLimits.whyBytes),
        ] where text.utf8.count > maximum {
            throw ValidationError("\(option) has \(text.utf8.count) bytes; at most \(maximum) are accepted.")
        }
        if let who, who.isEmpty { throw ValidationError("--who is empty; leave it out for the command's name.") }
    }

    private var name: String {
        who ?? command.first.flatMap { $0.split(separator: "/").last.map(String.init) } ?? "pttctl"
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            guard !list else {
                let locks = try await daemon.inhibitors()
                return json ? Console.say(try jsonText(locks)) : Self.lines(locks).forEach { Console.say($0) }
            }
            let keeper = LockKeeper(daemon, who: name, why: why)
            try await keeper.take()
            let status = await ChildCommand.run(command, on: daemon.loop)
            await keeper.release()
            await daemon.close()
            throw ExitCode(status)
        }
    }

    /// The command line with the command's own part behind `--`, so that its options are not taken for pttctl's.
    ///
    /// - Parameter arguments: Those of pttctl, without its name.
    static func separated(_ arguments: [String]) -> [String] {
        let withValue: Set = ["--bus", "--who", "--why"]
        var isInhibit = false
        var index = 0
        while index < arguments.count {
            let argument = arguments[index]
            if argument == "--" { return arguments }
            if argument.hasPrefix("-") {
                index += withValue.contains(argument) ? 2 : 1
            } else if isInhibit {
                return arguments[..<index] + ["--"] + arguments[index...]
            } else {
                guard argument == "inhibit" else { return arguments }
                isInhibit = true
                index += 1
            }
        }
        return arguments
    }

    /// An option of pttctl behind the command's name, where no `--` says that it is the command's.
    ///
    /// - Parameter arguments: Those of pttctl, without its name.
    static func misplacedOption(_ arguments: [String]) -> String? {
        guard !arguments.contains("--") else { return nil }
        let separated = separated(arguments)
        guard let place = separated.firstIndex(of: "--") else { return nil }
        let own = ["--bus", "--who", "--why"]
        return separated[place...].lazy.map { String($0.prefix { $0 != "=" }) }.first { own.contains($0) }
    }

    static func lines(_ locks: [Inhibitor]) -> [String] {
        guard !locks.isEmpty else { return ["No locks are held."] }
        return locks.map { "\($0.who)  \($0.why)  (process \($0.processID))" }
    }
}

/// Holds the lock, and takes it again when the daemon was restarted.
private actor LockKeeper {
    private let daemon: DaemonClient
    private let (who, why): (String, String)
    private var lock: DBusDescriptor?
    private var isReleased = false

    init(_ daemon: DaemonClient, who: String, why: String) {
        self.daemon = daemon
        (self.who, self.why) = (who, why)
    }

    func take() async throws {
        // First, so that no restart is missed.
        try await daemon.watch { [weak self] event in
            guard case .running(true) = event else { return }
            Task { await self?.takeAgain() }
        }
        let first = try await daemon.inhibit(who: who, why: why)
        // One that was taken again meanwhile is newer.
        if lock == nil { lock = first }
    }

    private func takeAgain() async {
        guard !isReleased else { return }
        do {
            let new = try await daemon.inhibit(who: who, why: why)
            if !isReleased { lock = new }
        } catch {
            Console.complain("pttctl: pttd was restarted, and the lock is lost: \(error)")
        }
    }

    func release() {
        isReleased = true
        lock = nil
    }
}
