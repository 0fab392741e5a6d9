// pttrelay health: whether the relay accepts members, for a supervisor such as a container's health check.
import ArgumentParser
import Terminal

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
