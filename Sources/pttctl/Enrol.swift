// pttctl enrol: makes this device a member of a channel, by an invitation.
import ArgumentParser
import FoundationEssentials
import PTTBus
import PushToTalkCore
import Terminal

/// `pttctl enrol`.
struct Enrol: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Enrol this device in a channel with the link of an invitation, pasted or typed.",
        discussion: """
            pttd shows the invitation to the relay under its own key, which makes this device a member: from then on the key is what \
            counts, and the link can be withdrawn. pttd joins the channel, and keeps what it needs for that over restarts. The link is \
            handed to pttd, whose key and files nobody else can read, and is not kept here.

            Without a link, or with '-', it is read from standard input, where it may be broken into several lines; an empty line \
            or the end of the input ends it. Spaces, line breaks, and the case of 'ptt://' and of the channel's UUID do not matter; \
            that of token, pin and key does.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The link (in quotes: it has characters that the shell takes for its own), or '-'.")
    var link: [String] = []
    @Option(help: "What to call the channel; the link has a name of its own.") var name: String?
    @Option(
        help: ArgumentHelp("For how many seconds to wait for the relay.", valueName: "seconds"))
    var wait: Int = 20
    @Flag(help: "Print the channel as JSON, for scripts.") var json = false

    /// The longest link that pttd reads, in bytes.
    static let linkBytesMax = 2_048
    /// How often the channel's state is looked at, which the daemon tells of by itself.
    private static let interval: Duration = .milliseconds(100)

    func validate() throws {
        guard (1...600).contains(wait) else { throw ValidationError("--wait is 1 to 600.") }
        if let name {
            guard !name.isEmpty, name.utf8.count <= PTTBusLimits.nameBytes else {
                throw ValidationError("--name has 1 to \(PTTBusLimits.nameBytes) bytes.")
            }
        }
    }

    /// The link in `pieces`, as they were pasted or typed, without what a link never has.
    ///
    /// - Throws: `ValidationError` when it is none.
    static func link(in pieces: [String]) throws -> String {
        // Signs that do not show come along with copying, too.
        let text = pieces.joined().filter { character in
            !character.isWhitespace && !character.unicodeScalars.allSatisfy(\.isTerminalControl)
        }
        guard !text.isEmpty else {
            throw ValidationError("standard input has no link; paste one that 'pttrelay invite' printed.")
        }
        guard text.lowercased().hasPrefix("ptt://") else {
            throw ValidationError(
                "'\(text.plain(limit: 24))' is no invitation; it begins with ptt://, as 'pttrelay invite' prints it.")
        }
        guard text.utf8.count <= linkBytesMax else {
            throw ValidationError("the link has more than \(linkBytesMax) bytes; was something else pasted along?")
        }
        return text
    }

    func run() async throws {
        let link = try Self.link(in: link.isEmpty || link == ["-"] ? Self.typed() : link)
        try await options.withDaemon { daemon in
            try await daemon.watch { _ in }
            let joined = try await daemon.joinChannel(nil, name: name ?? "", link: link, media: .pttd)
            let deadline = ContinuousClock.now + .seconds(wait)
            while true {
                guard let (_, channel) = await daemon.snapshot.activeChannel,
                    UUID(uuidString: channel.uuid) == joined
                else { throw Failure("another channel was joined in the meantime; enrol again") }
                if channel.serviceStatus == "ready" { return try tell(channel) }
                if Self.isRefusal(channel.serviceStatusDetail) {
                    // The channel that yielded returns.
                    try await daemon.leaveChannel(joined)
                    throw Failure("the device is not enrolled: \(channel.serviceStatusDetail)")
                }
                guard ContinuousClock.now < deadline else {
                    let why = channel.serviceStatusDetail.isEmpty ? channel.serviceStatus : channel.serviceStatusDetail
                    throw Failure(
                        "the relay has not answered yet (\(why)); pttd goes on trying, and 'pttctl status' tells when it is "
                            + "ready. 'pttctl leave' ends it")
                }
                try await Task.sleep(for: Self.interval)
            }
        }
    }

    private func tell(_ channel: ChannelProperties) throws {
        if json { return Console.say(try jsonText(channel)) }
        Console.say("enrolled in \(channel.name) (\(channel.uuid))")
    }

    /// How the daemon's words begin when trying again changes nothing (`RelayLinkError`, which this program does not link).
    static let refusals = [
        "the relay refused the invitation", "the relay at this address has another key",
        "the relay speaks another version",
    ]

    static func isRefusal(_ detail: String) -> Bool { refusals.contains { detail.hasPrefix($0) } }

    /// The lines of standard input up to an empty one behind the link.
    private static func typed() -> [String] {
        var lines: [String] = []
        var bytes = 0
        while let line = readLine(), bytes <= linkBytesMax {
            if line.allSatisfy(\.isWhitespace) {
                if lines.isEmpty { continue }
                break
            }
            lines.append(line)
            bytes += line.utf8.count
        }
        return lines
    }
}
