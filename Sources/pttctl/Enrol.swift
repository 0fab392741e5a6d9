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
            pttd presents the invitation to the relay under its own key, which makes this device a member. From then \
            on the key counts, and the link can be withdrawn. pttd joins the channel, and keeps the invitation over \
            restarts. The link is passed to pttd, whose key and files nobody else can read; pttctl does not keep it.

            Without a link, or with '-', the link is read from standard input. It may be broken into several lines; an \
            empty line or the end of the input ends it. Spaces, line breaks, and the case of 'ptt://' and of the \
            channel's UUID do not matter. The case of token, pin and key does.
            """)

    @OptionGroup var options: BusOptions
    @Argument(help: "The link (in quotes: it has characters that the shell takes for its own), or '-'.")
    var link: [String] = []
    @Option(help: "The channel's name; by default the name in the link.") var name: String?
    @Option(
        help: ArgumentHelp("How many seconds to wait for the relay.", valueName: "seconds"))
    var wait: Int = 20
    @Flag(help: "Print the channel as JSON, for scripts.") var json = false

    /// The longest link that pttd reads, in bytes.
    static let linkBytesMax = 2_048
    /// How often the channel's state, which the daemon publishes on its own, is checked.
    private static let interval: Duration = .milliseconds(100)

    func validate() throws {
        guard (1...600).contains(wait) else { throw ValidationError("--wait must be 1 to 600.") }
        if let name {
            guard !name.isEmpty, name.utf8.count <= PTTBusLimits.nameBytes else {
                throw ValidationError("--name must have 1 to \(PTTBusLimits.nameBytes) bytes.")
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
                "'\(text.plain(limit: 24))' is not an invitation; it begins with ptt://, as 'pttrelay invite' prints it."
            )
        }
        guard text.utf8.count <= linkBytesMax else {
            throw ValidationError("the link has more than \(linkBytesMax) bytes; paste only the link")
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
                        "the relay has not answered yet (\(why)); pttd keeps trying, and 'pttctl status' shows when it is "
                            + "ready; 'pttctl leave' stops it")
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
