// pttctl channel: which of the configured channels is the active one.
import ArgumentParser
import PTTBus
import Terminal

/// `pttctl channel`.
struct Channel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Change to another configured channel; without a channel, list them.",
        discussion:
            "'up' is the next one in the order of pttd.toml, and 'down' the one before; after the last comes the first."
    )

    @OptionGroup var options: BusOptions
    @Argument(
        help: "'up', 'down', or the channel's name.",
        completion: .custom { _, _, _ in await Completion.channels() })
    var channel: String?
    @Flag(help: "Print JSON, for scripts.") var json = false

    func validate() throws {
        if let channel, channel.isEmpty { throw ValidationError("Give 'up', 'down', or a channel's name.") }
    }

    /// The shape of `--json`.
    struct Document: Codable, Equatable {
        /// The configured ones, in their order.
        var channels: [String]
        /// The name of the channel that is joined, configured or not; absent while there is none.
        var active: String?
    }

    func run() async throws {
        try await options.withDaemon { daemon in
            if let channel {
                let known = await daemon.snapshot.manager.channels
                if channel != "up", channel != "down", !known.contains(channel) {
                    throw Failure(Self.unknown(channel, known))
                }
                try await daemon.changeChannel(channel)
                try await daemon.refresh()
            }
            let snapshot = await daemon.snapshot
            let document = Document(
                channels: snapshot.manager.channels, active: snapshot.activeChannel?.properties.name)
            if json { return Console.say(try jsonText(document)) }
            if channel == nil {
                Self.lines(document).forEach { Console.say($0) }
            } else {
                Console.say((document.active ?? "none joined").plain())
            }
        }
    }

    static func unknown(_ channel: String, _ known: [String]) -> String {
        guard !known.isEmpty else { return "no channel is configured; add one to pttd.toml" }
        return "there is no configured channel '\(channel.plain(limit: 64))'; "
            + NearestName.hint(channel, among: known).plain() + "there are: "
            + known.map(\.shellWord).joined(separator: ", ")
    }

    static func lines(_ document: Document) -> [String] {
        var lines = document.channels.map { "\($0 == document.active ? "*" : " ") \($0.plain())" }
        if document.channels.isEmpty { lines.append("No channel is configured.") }
        if let active = document.active, !document.channels.contains(active) {
            lines.append("* \(active.plain()) (joined; not one of the configured ones)")
        }
        return lines
    }
}
