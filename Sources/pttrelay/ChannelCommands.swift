// pttrelay channel: makes, lists, changes and removes channels, while the relay runs or not. pttrelay status and health: how it is.
import ArgumentParser
import Glibc
import RelayProtocol
import RelayServer
import RelayStore
import Settings
import Terminal

/// Everything about channels.
struct ChannelCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "channel", abstract: "Add, list, change and remove channels.",
        discussion: """
            It works while the relay runs and while it is stopped. Channels that pttrelay.toml or the command line of \
            the relay names are changed and removed there.
            """,
        subcommands: [ChannelAdd.self, ChannelList.self, ChannelChangeCommand.self, ChannelRemove.self])
}

/// What is chosen for a channel.
struct ChannelOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Who may talk at the same time: half-duplex, full-duplex, cut-in or listen-only.", valueName: "mode"))
    var mode: ChannelSettings.Mode?

    @Flag(inversion: .prefixedNo, help: "Whether a press waits in a queue while somebody talks.")
    var queue: Bool?

    @Option(
        help: ArgumentHelp(
            "A priority that is higher by this takes the floor, from 1 to 254; 0: only an emergency does.",
            valueName: "number"))
    var preemptionStep: UInt8?

    @Option(help: ArgumentHelp("Messages that can be requested again, from 0 to 64.", valueName: "number"))
    var keepBursts: Int?

    @Option(
        help: ArgumentHelp("How long they are stored, as in 10min, up to 24h.", valueName: "time"),
        transform: { text in
            guard let time = parseDuration(text) else {
                throw ValidationError("'\(text)' is not a time; write one such as 30s, 10min or 24h")
            }
            return time
        })
    var keepTime: Duration?

    func validate() throws {
        if let preemptionStep, preemptionStep > 254 { throw ValidationError("--preemption-step is 0 to 254") }
        if let keepBursts, !FloorSettings.retainedBursts.contains(keepBursts) {
            throw ValidationError("--keep-bursts is 0 to \(FloorSettings.retainedBursts.upperBound)")
        }
        if let keepTime, !FloorSettings.retentionTimes.contains(keepTime) {
            throw ValidationError("--keep-time is 0s to 24h")
        }
    }

    /// What is to be different.
    func change(name: String? = nil) -> ChannelChange {
        ChannelChange(
            name: name, mode: mode, hasQueue: queue, preemptionStep: preemptionStep, keptBursts: keepBursts,
            keptMilliseconds: keepTime?.wholeMilliseconds)
    }
}

extension ChannelSettings.Mode: ExpressibleByArgument {}

/// Makes a channel.
struct ChannelAdd: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Add a channel; a relay that runs serves it at once.",
        discussion: """
            The channel is kept in the relay's records, and served whatever the configuration names. A channel that the \
            records keep, and that is not served any more, is served again with its invitations and members.
            """)

    @Argument(help: "The channel's name.") var name: String
    @OptionGroup var options: ChannelOptions
    @Flag(help: "The media key is in the links, and the relay never has it; 'invite --end-to-end' makes the first.")
    var endToEnd = false
    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            let request = AdministrationRequest.addChannel(name: name, options.change(), isEndToEnd: endToEnd)
            guard case .added(let channel, let isNew) = try await administration.ask(request) else { return }
            let name = channel.name.plain(limit: 128)
            let again = "'\(name)' is back, with \(ChannelRemove.contents(channel))"
            let end = endToEnd ? " --end-to-end" : ""
            Console.say(
                (isNew ? "'\(name)' is added" : again)
                    + (channel.connected == nil
                        ? "; the relay serves it when it runs" : isNew ? " and served" : ", and is served"))
            Console.say("'pttrelay invite \(name)\(end)' prints a link to it")
        }
    }
}

/// Lists channels with what is chosen for them.
struct ChannelList: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "List the channels and their settings.",
        discussion: """
            FROM says where a channel is changed: 'file' for those that the configuration or the command line of the \
            relay names, 'records' for the others. ON is '-' for a channel that this relay does not serve now. In a cluster, \
            RELAY says where its members are.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            let channels = try await administration.channels()
            var rows = [
                ["CHANNEL", "MEMBERS", "ON", "INVITATIONS", "MODE", "QUEUE", "STEP", "KEEPS", "MEDIA KEY", "FROM"]
            ]
            rows += channels.map { channel in
                let time = durationText(.milliseconds(channel.keptMilliseconds))
                return [
                    channel.name, "\(channel.members)", channel.connected.map { "\($0)" } ?? "-",
                    "\(channel.openInvitations)", channel.mode.rawValue, channel.hasQueue ? "yes" : "no",
                    channel.preemptionStep.map { "\($0)" } ?? "-", "\(channel.keptBursts) for \(time)",
                    channel.isEndToEnd ? "the members'" : "the relay's",
                    channel.isDeclared ? "file" : channel.isServed ? "records" : "records (kept)",
                ]
            }
            if channels.contains(where: { $0.servedAt != nil }) {
                let places = ["RELAY"] + channels.map { $0.servedAt ?? "-" }
                rows = zip(rows, places).map { $0 + [$1] }
            }
            for line in table(rows) { Console.say(line) }
        }
    }
}

/// Changes a channel.
struct ChannelChangeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "change", abstract: "Rename a channel, or change its settings.",
        discussion: """
            What is not named stays as it is. New rules hold as soon as nobody talks, and members are told. Members \
            read a new name when they connect again; links with the old one stay valid.
            """)

    @Argument(help: "The channel's name.") var channel: String
    @Option(help: ArgumentHelp("The new name.", valueName: "name")) var name: String?
    @OptionGroup var options: ChannelOptions
    @OptionGroup var relay: RelayOptions

    func validate() throws {
        guard options.change(name: name) != ChannelChange() else {
            throw ValidationError("say what is to change, such as --name or --mode")
        }
    }

    func run() throws {
        try relay.administer { administration in
            let request = AdministrationRequest.changeChannel(.named(channel), options.change(name: name))
            guard case .channel(let line) = try await administration.ask(request) else { return }
            let floor = CheckCommand.floor(
                FloorRules(mode: line.mode.floorMode, hasQueue: line.hasQueue, preemptionStep: line.preemptionStep))
            let retention = BurstRetention(bursts: line.keptBursts, time: .milliseconds(line.keptMilliseconds))
            Console.say("'\(line.name.plain(limit: 128))': \(floor)")
            Console.say("it keeps \(retention.words)")
        }
    }
}

/// Removes a channel with its invitations and members.
struct ChannelRemove: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove a channel with its invitations and members.",
        discussion: """
            Connected members are told that the channel has ended, and do not come back. No link to it is valid any \
            more, not even if a channel of that name is added later. It asks first; --yes is the answer for scripts.
            """)

    @Argument(help: "The channel's name.") var channel: String
    @Flag(help: "Do not ask.") var yes = false
    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            let known = AdministrationRequest.channel(.named(channel))
            guard case .channel(let line) = try await administration.ask(known) else { return }
            guard yes || Self.confirms(line) else {
                throw RelayStateError(description: "nothing was removed; answer 'yes', or use --yes")
            }
            // By its identifier and as it was shown: not another one that has the name meanwhile.
            let request = AdministrationRequest.removeChannel(.id(line.id), tag: line.tag)
            guard case .channel(let gone) = try await administration.ask(request) else { return }
            Console.say("'\(gone.name.plain(limit: 128))' is removed, with \(Self.contents(gone))")
        }
    }

    static func contents(_ channel: AdministrationResponse.ChannelLine) -> String {
        "\(channel.members == 1 ? "1 member" : "\(channel.members) members") and "
            + "\(channel.openInvitations == 1 ? "1 open invitation" : "\(channel.openInvitations) open invitations")"
    }

    private static func confirms(_ channel: AdministrationResponse.ChannelLine) -> Bool {
        guard isatty(STDIN_FILENO) == 1 else { return false }
        Console.complain("remove '\(channel.name.plain(limit: 128))' with \(contents(channel))? [yes/no]")
        return readLine().map { ["y", "yes"].contains($0.lowercased()) } ?? false
    }
}

/// Shows how a running relay is, and who talks.
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show how the running relay is, and who talks now.")

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            guard case .status(let status) = try await administration.ask(.status) else { return }
            let state = status.isDraining ? "draining" : status.isServing ? "serving" : "starting"
            Console.say(
                "\(state) since \(durationText(.seconds(status.uptimeSeconds))); channels: \(status.channels), "
                    + "members on: \(status.members), connections: \(status.connections)")
            if status.isPartial == true {
                Console.complain("pttrelay: other relays of the cluster do not answer; what is on them is not counted")
            }
            guard !status.talkers.isEmpty else { return Console.say("nobody talks") }
            let rows = [["CHANNEL", "TALKER", "MEMBER"]] + status.talkers.map { [$0.channelName, $0.name, $0.member] }
            for line in table(rows) { Console.say(line) }
        }
    }
}

/// Asks the relay that runs.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Check whether members can join; fail if they cannot.",
        discussion: """
            It asks the running relay through its state directory, so no port is needed. It fails when no relay runs, \
            when the relay is draining, and when it does not answer within ten seconds. It succeeds for a relay that \
            waits for the records of its cluster.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            guard let answer = try AdministrationClient.ask(.health, in: administration.directory) else {
                throw RelayStateError(description: "no relay runs in \(administration.directory)")
            }
            switch answer {
            case .failed(let why): throw RelayStateError(description: why)
            case .waits(let words): Console.say(words)
            default: Console.say("members can join")
            }
        }
    }
}
