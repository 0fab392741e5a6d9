// pttrelay operator-token and api-token: print the tokens for the operator's page and for the API.
import ArgumentParser
import RelayHTTP
import Terminal

/// Prints the token for the operator's page that the relay made.
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
        try StartFailure.reporting { try relay.printToken(for: .page, in: try relay.settings()) }
    }
}

/// Prints the token for the API that the relay made, or that the configuration names.
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
        try StartFailure.reporting {
            let settings = try relay.settings()
            if let file = settings.api?.tokenFile { return Console.say(try APISettings.token(in: file).text) }
            try relay.printToken(for: .api, in: settings)
        }
    }
}

extension RelayOptions {
    fileprivate func printToken(for use: RelayState.TokenUse, in settings: RelaySettings) throws {
        let directory = stateDirectory(settings)
        guard let token = try RelayState.existingToken(for: use, in: directory) else {
            throw RelayStateError(
                description: "the relay in \(directory) has no token yet; add [\(use.rawValue)] to its configuration, "
                    + "and start it")
        }
        Console.say(token.text)
    }
}
