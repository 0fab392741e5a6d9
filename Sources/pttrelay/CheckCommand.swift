// pttrelay check: shows what a configuration means and reports its problems, without a relay.
import ArgumentParser
import Cryptography
import Logging
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayWeb
import Settings
import Terminal

/// Checks the configuration.
struct CheckCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "check", abstract: "Check the configuration, and show what it means.",
        discussion: """
            It reports every problem with its position, and then exits with status 78. A running relay is not \
            affected. 'systemctl reload pttrelay' applies a changed configuration.
            """)

    @OptionGroup var relay: RelayOptions

    func run() throws {
        try StartFailure.reporting {
            let settings = try relay.settings()
            let path = relay.config ?? RelaySettings.defaultPath()
            try Self.checkPushes(settings)
            try Self.checkWeb(settings)
            if let file = settings.api?.tokenFile { _ = try APISettings.token(in: file) }
            Console.say(path.map { "\($0) is valid" } ?? "there is no configuration file; these are the defaults")
            for line in Self.summary(settings, state: relay.stateDirectory(settings)) { Console.say(line) }
        }
    }

    /// Reads the certificate and key that [push] names, as a start would.
    static func checkPushes(_ settings: RelaySettings) throws {
        guard let push = settings.push, let files = push.files else { return }
        let (certificate, key) = try PushSettings.contents(files)
        _ = try PushEndpoint(
            configuration: PushEndpointConfiguration(
                listenAddress: push.listen.address, listenPort: push.listen.port,
                certificatePEM: certificate, privateKeyPEM: key, clients: push.clients),
            logger: Logger(label: "pttrelay") { _ in SwiftLogNoOpLogHandler() }, deliver: { _ in .shutDown })
    }

    /// The same of [web].
    static func checkWeb(_ settings: RelaySettings) throws {
        guard let files = settings.web?.files else { return }
        let (certificate, key) = try PushSettings.contents(files)
        _ = try WebEndpoint.certificate(certificate, privateKeyPEM: key)
    }

    private static func threads(_ settings: RelaySettings) -> String {
        let workers = settings.workers == 1 ? "runs one worker thread" : "runs \(settings.workers) worker threads"
        switch settings.helpers {
        case 0: return workers
        case 1: return workers + ", and one helper thread for channels with hundreds of listeners"
        default: return workers + ", and \(settings.helpers) helper threads for channels with hundreds of listeners"
        }
    }

    /// The effects of the configuration, one per line. Warnings begin with "warning".
    static func summary(_ settings: RelaySettings, state: String) -> [String] {
        let listen = settings.listen ?? .standard
        var lines = [
            "listens on UDP \(listen.text), in links as \(settings.host ?? listen.invitationHost)",
            "keeps its state in \(state)",
            threads(settings),
        ]
        if let successor = settings.ending.successor {
            lines.append(
                "sends its members to \(successor) when it stops: a relay with the same state must be running there by then"
            )
        }
        if let cluster = settings.cluster?.configuration {
            lines.append(
                "is the node '\(cluster.node)' of the cluster '\(cluster.name)', at \(cluster.place), and serves a part of its channels"
            )
            if !settings.channels.isEmpty {
                lines.append(
                    "warning: the channels of a cluster are in its records only: 'pttrelay cluster import' takes over those of [[channel]], "
                        + "and then a relay with [[channel]] does not start")
            }
            if cluster.replicas < 3 {
                lines.append(
                    "warning: with 'replicas' below 3 the cluster stands still when the NATS server with its records does"
                )
            }
        }
        for name in settings.channels {
            lines.append("serves '\(name)': \(floor(settings.floorRules[name] ?? FloorRules()))")
            lines.append("keeps \((settings.retentions[name] ?? FloorSettings.standardRetention).words) of '\(name)'")
        }
        if settings.channels.isEmpty, settings.cluster == nil {
            lines.append("serves the channels of its last start, or of the command line")
        }
        if let push = settings.push {
            lines.append(
                "accepts pushes on TCP \(push.listen.text), from \(push.clients.count == 1 ? "1 certificate" : "\(push.clients.count) certificates")"
            )
            if push.clients.isEmpty { lines.append("warning: nobody may push: [push] has no client") }
        }
        if let web = settings.web {
            let place = web.place(port: web.listen.port).map { ", in links as \($0)" } ?? ""
            lines.append("takes links over TLS on TCP \(web.listen.text)\(place)")
            if !web.hasTLS {
                lines.append(
                    "leaves TLS to a reverse proxy: keep TCP \(web.listen.text) closed for everybody else"
                        + (settings.cluster == nil ? "" : ", except the other relays of the cluster"))
            } else if web.files == nil {
                lines.append("warning: browsers do not trust the certificate that the relay makes; name one in [web]")
            }
        }
        if settings.cluster != nil, settings.web?.listen.isLoopback == true {
            lines.append(
                "warning: the other relays of the cluster cannot pass links over TLS on to this one: 'listen' in [web] is "
                    + "an address of this machine only")
        }
        for (what, address) in [("the API", settings.api?.listen), ("the operator's page", settings.operatorListen)] {
            guard let address else { continue }
            lines.append("serves \(what) on TCP \(address.text)")
            if !address.isLoopback {
                lines.append(
                    "warning: \(what) has no TLS, and \(address.text) can be reached from other machines: "
                        + "anyone on the path can read the token")
            }
        }
        return lines
    }

    static func floor(_ rules: FloorRules) -> String {
        let talkers =
            switch rules.mode {
            case .halfDuplex: "one member talks at a time"
            case .fullDuplex: "up to \(FloorRules.fullDuplexTalkers) talk at once"
            case .cutIn: "whoever presses last talks"
            case .listenOnly: "one of the members invited with a priority talks at a time"
            }
        var words = ["\(rules.mode.rawValue): \(talkers)"]
        if rules.mode == .cutIn {
            words.append("and takes the floor from whoever talks, unless that is an emergency")
            let unused = [rules.hasQueue ? "'queue'" : nil, rules.preemptionStep.map { _ in "'preemption-step'" }]
                .compactMap(\.self)
            if !unused.isEmpty {
                let verb = unused.count == 1 ? "has" : "have"
                words.append("\(unused.joined(separator: " and ")) \(verb) no effect in this mode")
            }
        } else {
            words.append(rules.hasQueue ? "others wait for their turn" : "others are refused meanwhile")
            words.append(
                rules.preemptionStep.map { "a priority higher by \($0), or an emergency, takes the floor" }
                    ?? "only an emergency takes the floor")
        }
        return words.joined(separator: ", ")
    }
}
