// pttrelay operator-token: prints the token for the operator's page.
import ArgumentParser
import RelayHTTP
import Terminal

/// Prints the token that the relay made.
struct OperatorTokenCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "operator-token", abstract: "Print the token for the operator's page and metrics.",
        discussion: """
            Anyone who has the token sees who is on the channels and who talks. In a browser open \
            http://127.0.0.1:9464/#token=TOKEN; for Prometheus it is the credentials of 'authorization'. To replace \
            it, remove operator.token from the state directory and restart the relay.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        do {
            let directory = relay.stateDirectory(try relay.settings())
            guard let token = try RelayState.existingOperatorToken(directory) else {
                throw RelayStateError(
                    description: "the relay in \(directory) has no token yet; add [operator] to its configuration, "
                        + "and start it")
            }
            Console.say(token.text)
        } catch {
            Console.complain("pttrelay: \(error)")
            throw StartFailure.status(error)
        }
    }
}
