// pttrelay api-token: prints the token for the API.
import ArgumentParser
import RelayHTTP
import Terminal

/// Prints the token that the relay made, or that the configuration names.
struct APITokenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "api-token", abstract: "Print the token for the API.",
        discussion: """
            Anyone who has the token can do what the commands of pttrelay do: make channels and links, and remove \
            members. Send it as 'Authorization: Bearer TOKEN'. To replace it, remove api.token from the state directory \
            and reload the relay.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        do {
            let settings = try relay.settings()
            if let file = settings.api?.tokenFile { return Console.say(try APISettings.token(in: file).text) }
            let directory = relay.stateDirectory(settings)
            guard let token = try RelayState.existingAPIToken(directory) else {
                throw RelayStateError(
                    description: "the relay in \(directory) has no token yet; add [api] to its configuration, "
                        + "and start it")
            }
            Console.say(token.text)
        } catch {
            Console.complain("pttrelay: \(error)")
            throw StartFailure.status(error)
        }
    }
}
