// pttrelay push-certificate, push-server-certificate, operator-token and api-token: print what lets others in.
import ArgumentParser
import Cryptography
import RelayHTTP
import RelayProtocol
import Terminal

/// Makes a client's certificate.
struct PushCertificateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push-certificate", abstract: "Make a certificate for a program that sends pushes.",
        discussion: """
            It prints the certificate and its key as one PEM text, for curl's --cert. On standard error it prints the \
            lines that allow pushes to the topics: add them to pttrelay.toml and reload the relay, or restart it if \
            [push] is new. Anyone who has the PEM text may push: keep it secret. To revoke it, remove the lines and \
            reload the relay.
            """)

    @Argument(
        help: ArgumentHelp(
            "What the pushes are for: the application's identifier and .voip-ptt; may be repeated.", valueName: "topic"),
        transform: { text in
            do throws(TopicRefusal) {
                return try PushTopic(written: text)
            } catch {
                throw ValidationError("\(error.problem); \(error.advice)")
            }
        })
    var topics: [PushTopic]

    func run() throws {
        try StartFailure.reporting({ _ in .failure }) {
            let identity = try Identity(generating: topics[0].text)
            // The PEM text ends with a line's end of its own.
            Console.say(identity.pem.hasSuffix("\n") ? String(identity.pem.dropLast()) : identity.pem)
            let list = topics.map { "\"\($0)\"" }.joined(separator: ", ")
            Console.complain(
                """
                # Add to pttrelay.toml, and 'systemctl reload pttrelay' (restart it when it took no pushes before):

                [[push.client]]
                pin = "\(Base64URL.encode(identity.pin.bytes))"
                topics = [\(list)]
                """)
        }
    }
}

/// Prints the certificate that the relay made for itself.
struct PushServerCertificateCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "push-server-certificate",
        abstract: "Print the certificate by which programs that send pushes know the relay.",
        discussion: """
            It is the certificate that the relay makes when [push] names none. Give it to curl with --cacert. It is \
            not secret.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try StartFailure.reporting {
            let directory = relay.stateDirectory(try relay.settings())
            _ = try RelayState.existingIdentity(directory)
            let text = try RelayState.existingPushServerIdentity(directory).certificatePEM
            Console.say(text.hasSuffix("\n") ? String(text.dropLast()) : text)
        }
    }
}

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
