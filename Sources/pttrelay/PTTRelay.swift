// pttrelay: the command line. What a relay does is in `RelayServer`.
import ArgumentParser
import Logging
import RelayProtocol
import Terminal
import Version

/// The command line of `pttrelay`.
@main
struct PTTRelay: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pttrelay",
        abstract: "A relay for push-to-talk channels: decides who may talk, and hands each packet to everyone else.",
        version: Version.text,
        subcommands: [
            RunCommand.self, InviteCommand.self, MembersCommand.self, RevokeCommand.self, ReadmitCommand.self,
            ChannelsCommand.self, ChannelCommand.self, StatusCommand.self, HealthCommand.self, CheckCommand.self,
            OperatorTokenCommand.self,
            APITokenCommand.self,
            PushCertificateCommand.self, PushServerCertificateCommand.self, ClusterCommand.self,
            BeginAnewCommand.self,
        ])

    /// Without a command nothing is done: a service that is set up so must not look as if it had ended well.
    func run() throws {
        Console.complain("pttrelay: name a command, such as 'pttrelay run'\n\n\(PTTRelay.helpMessage())")
        throw ExitCode.validationFailure
    }
}

/// The options that say which relay is meant.
struct RelayOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The configuration file.", discussion: "By default /etc/pttrelay/pttrelay.toml.", valueName: "file"))
    var config: String?

    @Option(
        help: ArgumentHelp(
            "The directory for keys and invitations.",
            discussion: "By default /var/lib/pttrelay for root, else $XDG_STATE_HOME/pttrelay.", valueName: "directory")
    )
    var state: String?

    @Option(help: ArgumentHelp("The name or address of this machine in invitations.", valueName: "name"))
    var host: String?

    func validate() throws {
        guard let host, !InvitationLink.isHost(host) else { return }
        throw ValidationError(
            "--host \"\(host)\" is neither a name nor an address; write one such as relay.example")
    }

    /// The configuration file's settings, or the defaults without one.
    func settings() throws -> RelaySettings { try Self.settings(at: config) }

    /// The same for the file that `--config` names; nil: it names none.
    static func settings(at path: String?) throws -> RelaySettings {
        guard let path = path ?? RelaySettings.defaultPath() else { return RelaySettings() }
        return try RelaySettings.read(path: path)
    }

    /// The state directory, as the options or the settings name it.
    func stateDirectory(_ settings: RelaySettings) -> String {
        state ?? settings.state ?? RelaySettings.defaultStateDirectory
    }
}

extension Logger.Level: @retroactive ExpressibleByArgument {}

/// Ends the program as a mistake of the configuration: systemd does not restart it for the same one (sysexits.h).
let configurationMistake = ExitCode(78)
