// pttrelay push-certificate and push-server-certificate: the certificates of both ends of the HTTP endpoint.
import ArgumentParser
import Cryptography
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
