// pttrelay health: whether the relay takes members, for who watches over it: a container's health check, say.
import ArgumentParser
import Terminal

/// Asks the relay that runs.
struct HealthCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health", abstract: "Say whether members can join; it fails when they cannot.",
        discussion: """
            Asks the relay that runs through its state directory, so that nothing has to listen for it. It fails when none runs, when it \
            is going down, and when it does not answer within ten seconds.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try relay.administer { administration in
            guard let answer = try AdministrationClient.ask(.health, in: administration.directory) else {
                throw RelayStateError(description: "no relay runs in \(administration.directory)")
            }
            if case .failed(let why) = answer { throw RelayStateError(description: why) }
            Console.say("members can join")
        }
    }
}
