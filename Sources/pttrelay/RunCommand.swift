// pttrelay run: serves channels until it is told to stop.
import ArgumentParser
import Cryptography
import Glibc
import Logging
import Logs
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import ServiceLifecycle
import Settings
import Terminal
import UnixSignals

/// Serves channels until SIGTERM or SIGINT.
struct RunCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Serve channels until stopped.",
        discussion: """
            The first start makes the relay's key and an invitation for each channel. Every start prints these standing invitations on \
            standard output, then "ready". Whoever has one may join and talk; 'pttrelay invite' makes narrower ones. Without --channel \
            and without channels in the configuration, the channels of the last start are served.
            """)

    @OptionGroup var relay: RelayOptions

    @Option(
        help: ArgumentHelp(
            "The UDP address and port to listen on, '[::]:4433' by default; port 0 lets the system choose.",
            valueName: "address:port"),
        transform: ListenAddress.init(option:))
    var listen: ListenAddress?

    @Option(name: .customLong("channel"), help: ArgumentHelp("A channel to serve; may be repeated.", valueName: "name"))
    var channels: [String] = []

    @Flag(
        name: .customLong("queue"),
        help: "A press while somebody talks waits for its turn, on every channel served; otherwise it is refused.")
    var hasFloorQueue = false

    @Option(help: ArgumentHelp("How much to log.", valueName: "level"))
    var logLevel: Logger.Level = .info

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        let level = logLevel
        LoggingSystem.bootstrap { LineLogHandler(label: $0, level: level) }
        let logger = Logger(label: "pttrelay")
        let server: RelayServer
        let links: [InvitationLink]
        let endpoint: PushEndpointConfiguration?
        let registrar: Registrar
        let administration: AdministrationServer
        do {
            (server, links, endpoint, registrar, administration) = try await start(logger)
        } catch let error as SettingsError {
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        } catch let error as RelayStoreError {
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        } catch let error as RelayStateError {
            // No channel is named, or the state directory is of no use: trying again changes nothing.
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        } catch {
            // A port in use may be free again later: systemd tries once more.
            Console.complain("pttrelay: \(error)")
            throw ExitCode.failure
        }
        for link in links { Console.say(link.text) }
        var services: [ServiceGroupConfiguration.ServiceConfiguration] = [
            .init(service: RelayService(server: server), successTerminationBehavior: .gracefullyShutdownGroup)
        ]
        if let endpoint {
            services.append(.init(service: try pushes(endpoint, to: server, logger)))
        } else {
            Console.say("ready")
        }
        let group = ServiceGroup(
            configuration: .init(
                services: services, gracefulShutdownSignals: [.sigterm, .sigint],
                logger: Logger(label: "pttrelay.services") { LineLogHandler(label: $0, level: .error) }))
        do {
            try await group.run()
            await administration.stop()
            await registrar.detach()
        } catch let error as PushEndpointError {
            Console.complain("pttrelay: \(error)")
            throw ExitCode.failure
        }
    }

    /// The endpoint as a service, which says "ready" once it listens.
    private func pushes(
        _ configuration: PushEndpointConfiguration, to server: RelayServer, _ logger: Logger
    ) throws -> PushEndpoint {
        do {
            return try PushEndpoint(
                configuration: configuration, logger: logger,
                onListening: { port in
                    logger.info(
                        "pushes are taken", metadata: ["port": "\(port)", "clients": "\(configuration.clients.count)"])
                    Console.say("ready")
                }, deliver: { await server.push($0) })
        } catch {
            Console.complain("pttrelay: \(error)")
            throw configurationMistake
        }
    }

    private func start(
        _ logger: Logger
    ) async throws -> (
        RelayServer, [InvitationLink], PushEndpointConfiguration?, Registrar, AdministrationServer
    ) {
        let settings = try relay.settings()
        let directory = relay.stateDirectory(settings)
        let state = try RelayState.open(directory, logger: logger)
        var channels = try state.channels(named: self.channels + settings.channels)
        for index in channels.indices {
            if let rules = settings.floorRules[channels[index].name.text] { channels[index].rules = rules }
            if hasFloorQueue { channels[index].hasFloorQueue = true }
        }
        let listen = listen ?? settings.listen ?? ListenAddress.standard
        var configuration = RelayServerConfiguration(
            listenAddress: listen.address, listenPort: listen.port, identity: state.identity, channels: channels,
            transportKeys: state.transportKeys ?? .generate())
        configuration.limits = settings.limits
        configuration.timers = settings.timers
        configuration.acceptsPushes = settings.push != nil
        configuration.roster = try state.roster()
        let registrar = try Registrar(state: state, logger: Logger(label: "pttrelay.members"))
        configuration.enrol = { registrar.enrol($0, $1) }
        let server = try RelayServer(configuration: configuration, logger: logger)
        let port = try await server.start()
        let host = relay.host ?? settings.host ?? listen.invitationHost
        try await registrar.attach(server, host: host, port: port)
        let links = try channels.compactMap { try state.standingInvitation($0, host: host, port: port) }
        let administration = try await AdministrationServer(directory: directory, registrar: registrar, logger: logger)
        let endpoint = try settings.push?.endpoint(state, logger: logger)
        return (server, links, endpoint, registrar, administration)
    }
}

/// The relay in the form of the service group.
private struct RelayService: Service {
    let server: RelayServer

    func run() async throws {
        try await withGracefulShutdownHandler {
            try await server.run()
        } onGracefulShutdown: {
            // Told now, so that members hear it before the process ends.
            Task { await server.stop() }
        }
    }
}
