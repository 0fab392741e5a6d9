// pttctl join: makes a channel the active one.
import ArgumentParser
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Terminal

/// `pttctl join`.
struct Join: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Join a channel, by the ptt:// link of an invitation or by its UUID.",
        discussion: """
            It returns when the relay has admitted this machine. If the relay does not answer within 3 s, it says so, \
            and pttd keeps trying. A channel of pttd.toml is left, and joined again after 'pttctl leave'. Anyone who \
            has the link may enter the channel: give '-' to read it from standard input, where other users' 'ps' does \
            not show it. A UUID is enough for a channel whose link pttd knows.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The link (in quotes: it has characters that the shell takes for its own), a UUID, or '-'.")
    var channel: String
    @Option(help: "The channel's name; by default the name in the link.") var name: String?
    @Option(help: "Who may talk at once, as in 'pttctl mode'.") var mode: ModeName?
    @Flag(help: "Print the channel as JSON, for scripts.") var json = false

    func validate() throws {
        if channel != "-" { try Self.check(channel) }
        if let name {
            guard !name.isEmpty else { throw ValidationError("--name is empty; leave it out to keep the link's name.") }
            guard name.utf8.count <= PTTBusLimits.nameBytes else {
                throw ValidationError(
                    "--name has \(name.utf8.count) bytes; at most \(PTTBusLimits.nameBytes) are accepted.")
            }
        }
    }

    static func check(_ channel: String) throws {
        guard !channel.lowercased().hasPrefix("ptt:"), UUID(uuidString: channel) == nil else { return }
        throw ValidationError(
            "'\(channel.prefix(64))' is neither a ptt:// link nor a UUID like 127face1-cb21-11e5-93d0-0002a5d5c51b.")
    }

    func run() async throws {
        var channel = channel
        if channel == "-" {
            // A link has no spaces; they come with copying.
            channel = String((readLine() ?? "").drop { $0.isWhitespace }.prefix { !$0.isWhitespace })
            guard !channel.isEmpty else {
                throw ValidationError("standard input has no link; paste one that you were given.")
            }
            try Self.check(channel)
        }
        let uuid = UUID(uuidString: channel)
        let (link, text) = (uuid == nil ? channel : nil, name ?? "")
        try await options.withDaemon { daemon in
            try await daemon.watch { _ in }
            let joined = try await daemon.joinChannel(uuid, name: text, link: link, media: .pttd)
            if let mode {
                do {
                    try await daemon.setTransmissionMode(mode.mode, joined)
                } catch {
                    throw Failure("the channel is joined, but its mode is not \(mode.rawValue): \(error)")
                }
            }
            try await daemon.refresh()
            guard let (_, properties) = await daemon.snapshot.activeChannel else {
                throw Failure("joined \(joined.uuidString.lowercased()), and left it again at once")
            }
            var shown = properties
            let deadline = ContinuousClock.now + Self.timeout
            while shown.serviceStatus != "ready", !Enrol.isRefusal(shown.serviceStatusDetail),
                ContinuousClock.now < deadline
            {
                try await Task.sleep(for: .milliseconds(50))
                guard let now = await daemon.snapshot.activeChannel?.properties, now.uuid == properties.uuid else {
                    throw Failure("joined \(properties.name) (\(properties.uuid)), and left it again at once")
                }
                shown = now
            }
            try Self.tell(shown, json: json)
            let problem = await daemon.snapshot.manager.restorationProblem
            guard problem.isEmpty else { throw Failure("\(shown.name) is joined, but \(problem)") }
            if await !daemon.snapshot.manager.channels.contains(shown.name) { Self.tellOfRestart(shown.name) }
        }
    }

    /// A channel of pttd.toml is there for good; this one is there until somebody leaves it.
    private static func tellOfRestart(_ name: String) {
        Console.complain(
            "pttctl: \(name) is not in pttd.toml: pttd joins it again after a restart, until 'pttctl leave'; to have it always, "
                + "write its link there, as 'link' in [channel]")
    }

    /// How long the relay's answer is waited for.
    private static let timeout = Duration.seconds(3)

    /// Says how far the join has come.
    ///
    /// - Throws: `Failure` when the channel cannot be used.
    private static func tell(_ channel: ChannelProperties, json: Bool) throws {
        let name = "\(channel.name) (\(channel.uuid))"
        let why = channel.serviceStatusDetail
        guard !Enrol.isRefusal(why) else {
            throw Failure(
                "\(name) is chosen, but the relay refuses this machine: \(why); 'pttctl leave' leaves the channel")
        }
        let isReady = channel.serviceStatus == "ready"
        if json {
            Console.say(try jsonText(channel))
        } else {
            Console.say("joined \(name)" + (isReady ? "" : "; the relay has not admitted this machine yet"))
        }
        // Of a channel that is ready it is something else that is wrong, such as a sound device.
        if isReady, !why.isEmpty { Console.complain("pttctl: \(why)") }
        guard !isReady else { return }
        Console.complain(
            "pttctl: \(why.isEmpty ? "the relay has not answered yet" : why); pttd keeps trying; 'pttctl status' shows the state"
        )
    }
}

/// `pttctl leave`.
struct Leave: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Leave the channel.", discussion: "pttd then joins its channel of pttd.toml again.")

    @OptionGroup var options: BusOptions
    @Argument(help: "The UUID of the channel to leave; by default the joined channel.")
    var channel: String?
    @Flag(help: "Print the channel that was left as JSON, for scripts.") var json = false

    func validate() throws {
        guard let channel, UUID(uuidString: channel) == nil else { return }
        throw ValidationError(
            "'\(channel.prefix(64))' is not a UUID; write it like 127face1-cb21-11e5-93d0-0002a5d5c51b, as 'pttctl status' shows it."
        )
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            guard let (_, properties) = await daemon.snapshot.activeChannel else { throw Failure.noChannel }
            let uuid = channel.flatMap { UUID(uuidString: $0) }
            if let uuid, uuid != UUID(uuidString: properties.uuid) {
                throw Failure(
                    "another channel is joined: \(properties.name) (\(properties.uuid)); "
                        + "'pttctl leave' without a UUID leaves it")
            }
            try await daemon.leaveChannel(uuid ?? UUID(uuidString: properties.uuid))
            Console.say(json ? try jsonText(properties) : "left \(properties.name) (\(properties.uuid))")
            try await daemon.refresh()
            let problem = await daemon.snapshot.manager.restorationProblem
            guard problem.isEmpty else { throw Failure("\(properties.name) is left, but \(problem)") }
        }
    }
}
