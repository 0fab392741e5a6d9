// pttrelay invite: prints the invitation of a channel again.
import ArgumentParser
import Glibc
import Logging
import RelayProtocol
import Terminal

/// Prints a channel's invitation link.
struct InviteCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "invite", abstract: "Print the invitation link of a channel.",
        discussion: "Whoever has the link may join the channel and talk on it: treat it like a password.")

    @Argument(help: "The channel's name.")
    var channel: String

    @OptionGroup var relay: RelayOptions

    @Option(help: ArgumentHelp("The port in the invitation, if it is not the one the relay listens on."))
    var port: UInt16?

    func run() async throws {
        do {
            let settings = try relay.settings()
            let state = try RelayState.existing(relay.stateDirectory(settings))
            Console.say(try state.invitation(channel, host: relay.host ?? settings.host, port: port).text)
        } catch {
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        }
    }
}
