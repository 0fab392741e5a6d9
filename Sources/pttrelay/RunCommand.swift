// pttrelay run: serves channels until it is stopped.
import ArgumentParser
import Cryptography
import Files
import Glibc
import Logging
import Logs
import QUIC
import Reactor
import RelayCluster
import RelayHTTP
import RelayProtocol
import RelayServer
import RelayStore
import RelayWeb
import ServiceLifecycle
import Settings
import Synchronization
import Terminal
import Version

/// Serves channels until SIGTERM or SIGINT.
struct RunCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "run", abstract: "Serve channels until stopped.",
        discussion: """
            The first start makes the relay's key and an invitation for each channel. Every start prints these \
            standing invitations on standard output, then "ready". Anyone who has one may join and talk; 'pttrelay \
            invite' makes restricted ones. Without --channel and without channels in the configuration, the relay \
            serves the channels of its last start.
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
        help: "Queue a press while somebody talks, on every channel served; without this it is refused.")
    var hasFloorQueue = false

    @Option(help: ArgumentHelp("How much to log.", valueName: "level"))
    var logLevel: Logger.Level = .info

    /// What ends it, or has it read its configuration again.
    private static let signals = [SIGHUP, SIGTERM, SIGINT]

    func run() throws {
        // The call's error tells that a peer has closed a pipe or socket, or that a file may not grow (LimitFSIZE=).
        signal(SIGPIPE, SIG_IGN)
        signal(SIGXFSZ, SIG_IGN)
        // Before the first thread starts.
        SignalWatch.hold(Self.signals)
        do {
            try EventLoop.runProgram(named: "pttrelay") { try await serve(on: $0) }
        } catch let status as ExitCode {
            ServiceEnd.now(status.rawValue)
        }
        ServiceEnd.now(EXIT_SUCCESS)
    }

    private func serve(on loop: EventLoop) async throws {
        let parts: Parts
        let logger: Logger
        do {
            let settings = try relay.settings()
            let (level, format) = (logLevel, settings.logFormat)
            LoggingSystem.bootstrap { LineLogHandler(label: $0, level: level, format: format) }
            logger = Logger(label: "pttrelay")
            parts = try await start(settings, on: loop, logger)
        } catch {
            ServiceConsole.complain("pttrelay: \(error)")
            throw StartFailure.pausedStatus(error, orUntil: [SIGTERM, SIGINT])
        }
        FailedStarts.ofService.succeeded()
        for link in parts.links { ServiceConsole.say(link.text) }
        let readiness = Readiness(
            waitingFor: [parts.pushes != nil, parts.operatorPage != nil, parts.web != nil, parts.api != nil].count {
                $0
            })
        let page = parts.operatorPage.map { page in
            OperatorEndpoint(
                configuration: page, version: Version.text,
                source: .init(parts.server, cluster: parts.watch.map { .init($0) }), logger: logger,
                onListening: { port in
                    logger.info("serving the operator's page", metadata: ["port": "\(port)"])
                    readiness.listens()
                })
        }
        let api = parts.api.map { endpoint(of: $0, parts.registrar, readiness) }
        let ending = CurrentShutdownSettings(parts.settings.ending)
        let pushes = try parts.pushes.map { try self.pushes($0, to: parts, readiness, logger) }
        let web = parts.web?.listening { port in
            logger.info("taking links over TLS", metadata: ["port": "\(port)"])
            readiness.listens()
        }
        let path = relay.config
        let reloader = Reloader(
            started: parts.settings, channels: channels, allHaveQueues: hasFloorQueue, registrar: parts.registrar,
            pushes: pushes, web: web, api: api, ending: ending, logger: logger,
            read: { try RelayOptions.settings(at: path) })
        let (hangUps, hangUp) = AsyncStream.makeStream(of: Void.self, bufferingPolicy: .bufferingNewest(1))
        func retrying(_ service: (any Service)?) -> (any Service)? {
            service.map { RetryingService(service: $0, loop: loop, logger: logger, onFailure: readiness.listens) }
        }
        let services = RelayServices(
            administration: AdministrationService(administration: parts.administration, registrar: parts.registrar),
            page: retrying(page), api: retrying(api), pushes: retrying(pushes), web: retrying(web),
            reload: ReloadService(hangUps: hangUps, reloader: reloader),
            relay: RelayService(server: parts.server, ending: ending, node: parts.node))
        let group = ServiceGroup(
            configuration: .init(
                services: services.all,
                logger: Logger(label: "pttrelay.services") {
                    LineLogHandler(label: $0, level: .error, format: parts.settings.logFormat)
                }))
        do {
            let watched = await [loop] + parts.server.loops + (parts.node?.loops ?? [])
            let watchdog = ServiceWatchdog.request.flatMap { ServiceWatchdog(watching: watched, for: $0) }
            defer { withExtendedLifetime(watchdog) {} }
            try await loop.run { [loop] in
                _ = loop.schedule(after: ProgramMemory.startsWithin) { ProgramMemory.giveBackCode() }
            }
            let signals = try await loop.run {
                try SignalWatch(Self.signals, on: loop) { signal in
                    if signal == SIGHUP { hangUp.yield() } else { Task { await group.triggerGracefulShutdown() } }
                }
            }
            try await group.run()
            try await loop.run { signals.cancel() }
        } catch is CancellationError {
            // It was told to end while something was still starting.
        } catch {
            ServiceConsole.complain("pttrelay: \(error)")
            throw ExitCode.failure
        }
    }

    /// A relay that has been started, and what it is to be started with it.
    private struct Parts {
        let settings: RelaySettings
        let server: RelayServer
        let links: [InvitationLink]
        let pushes: PushEndpointConfiguration?
        let operatorPage: PlainHTTPConfiguration?
        let web: WebEndpoint?
        let api: PlainHTTPConfiguration?
        let registrar: Registrar
        let administration: AdministrationServer
        let node: ClusterNode?
        let watch: ClusterWatch?
    }

    private func pushes(
        _ configuration: PushEndpointConfiguration, to parts: Parts, _ readiness: Readiness, _ logger: Logger
    ) throws -> PushEndpoint {
        let (server, registrar, node) = (parts.server, parts.registrar, parts.node)
        do {
            return try PushEndpoint(
                configuration: configuration, logger: logger,
                onListening: { port in
                    logger.info(
                        "accepting pushes", metadata: ["port": "\(port)", "clients": "\(configuration.clients.count)"])
                    readiness.listens()
                },
                deliver: { request in
                    guard let node else { return await server.push(request) }
                    return await registrar.push(request, server, node)
                })
        } catch {
            ServiceConsole.complain("pttrelay: \(error)")
            throw configurationMistake
        }
    }

    private func start(_ settings: RelaySettings, on loop: EventLoop, _ logger: Logger) async throws -> Parts {
        let directory = relay.stateDirectory(settings)
        let state = try RelayState.open(directory, isClusterNode: settings.cluster != nil, logger: logger)
        let place = settings.web.flatMap { $0.place(port: $0.listen.port) }
        let floors = Floors(
            rules: settings.floorRules, retentions: settings.retentions, allHaveQueues: hasFloorQueue)
        let registrar = try Registrar(
            state: state, web: place, floors: floors, channelsMaximum: settings.limits.channels,
            logger: Logger(label: "pttrelay.members"))
        var administration: AdministrationServer?
        var joined: (node: ClusterNode, shares: ClusterShares)?
        if let cluster = settings.cluster {
            let commands = try await AdministrationServer(directory: directory, registrar: registrar, logger: logger)
            administration = commands
            let start = ClusterStart(
                settings: cluster, state: state, registrar: registrar, administration: commands, loop: loop,
                logger: logger)
            joined = try await start.untilServing()
            // Once the cluster has records: `cluster import` takes over the channels of the configuration.
            guard (self.channels + settings.channels).isEmpty else { throw RelayStateError.channelsOfCluster }
        }
        let served =
            joined == nil
            ? try state.servedChannels(named: self.channels + settings.channels, mayBeNone: settings.api != nil) : []
        let channels = try state.configurations(served, floors)
        if channels.isEmpty, joined == nil {
            logger.notice("there is no channel yet: 'pttrelay channel add NAME' makes one")
        }
        let listen = listen ?? settings.listen ?? ListenAddress.standard
        var configuration = RelayServerConfiguration(
            listenAddress: listen.address, listenPort: listen.port, identity: state.identity, channels: channels,
            transportKeys: joined == nil
                ? state.transportKeys ?? .generate() : try .shared(by: state.identity, at: Int64(time(nil))))
        configuration.limits = settings.limits
        StartNeeds(
            connections: settings.limits.connections, keptBytes: settings.limits.keptBytes,
            hasLinks: settings.web != nil, mayPassOn: joined != nil
        ).check(logger)
        configuration.timers = settings.timers
        configuration.workers = settings.workers
        configuration.helpers = settings.helpers
        // Another relay of the cluster may take them.
        configuration.acceptsPushes = settings.push != nil || joined != nil
        configuration.roster = joined == nil ? try state.roster() : RelayRoster(memberships: [:])
        if joined != nil {
            configuration.places = ChannelPlaces(shares: Array(repeating: .nowhere, count: ChannelID.shareCount))
        }
        let web = try settings.web.map { web in
            try WebEndpoint(
                configuration: web.endpoint(state, settings.limits, logger: logger), identity: state.identity,
                logger: logger)
        }
        configuration.web = web?.worker
        configuration.webPlace = place
        configuration.enrol = { registrar.enrol($0, $1) }
        let places = PlacesFile(state.placesFile, on: registrar.loop, logger: logger)
        configuration.formerPlaces = places.read()
        configuration.keepPlaces = { places.keep($0) }
        let server = try RelayServer(configuration: configuration, logger: logger)
        await registrar.connect(server)
        let port = try await server.start()
        let host = relay.host ?? settings.host ?? listen.invitationHost
        let watch = await joined?.node.lookout().map { ClusterWatch($0, server, passages: { web?.passedOn }) }
        if let joined, let cluster = settings.cluster {
            let place = RelayPlace(cluster.configuration.place)
            guard let place else { throw RelayStateError(description: "'place' in [cluster] is no place") }
            let part = ClusterPart(
                node: joined.node, shares: joined.shares, place: place,
                fail: { error in
                    ServiceConsole.complain("pttrelay: \(error)")
                    ServiceEnd.now(EXIT_FAILURE)
                }, linkPlaces: { web?.setPlaces($0) }, watch: watch)
            await registrar.join(part, server, host: host, port: port)
        } else {
            try await registrar.started(
                host: host, port: port, channels: channels.map(\.id),
                declared: Set(served.filter(\.isDeclared).map(\.id)))
        }
        // Of those that commands have made, links are printed where they are asked for.
        let links = try zip(served, channels).filter { $0.0.isDeclared || !$0.0.isAdded }.compactMap {
            try state.standingInvitation($0.1, host: host, port: port, web: place)
        }
        await registrar.setWaitsForRecords(false)
        let commands: AdministrationServer =
            if let administration { administration } else {
                try await AdministrationServer(directory: directory, registrar: registrar, logger: logger)
            }
        return Parts(
            settings: settings, server: server, links: links,
            pushes: try settings.push?.endpoint(state, logger: logger),
            operatorPage: settings.operatorListen.map { page($0, state, logger) }, web: web,
            api: try settings.api?.configuration(state, logger), registrar: registrar,
            administration: commands, node: joined?.node, watch: watch)
    }

    private func endpoint(
        of configuration: PlainHTTPConfiguration, _ registrar: Registrar, _ readiness: Readiness
    ) -> APIEndpoint {
        let logger = Logger(label: "pttrelay.api")
        let responder = APIResponder(logger: logger) { try await registrar.perform($0) }
        return APIEndpoint(
            configuration: configuration, logger: logger,
            onListening: { port in
                logger.info("serving the API", metadata: ["port": "\(port)"])
                readiness.listens()
            }, answer: { await responder.answer($0) })
    }

    private func page(
        _ listen: ListenAddress, _ state: RelayState, _ logger: Logger
    ) -> PlainHTTPConfiguration {
        listen.warnOfNoTLS("the operator's page", logger)
        return PlainHTTPConfiguration(
            listenAddress: listen.address, listenPort: listen.port, token: state.token(for: .page, logger))
    }
}

/// Says "ready" once everything listens, or waits for its address: the relay itself does not wait for the rest.
private final class Readiness: Sendable {
    private let missing: Mutex<Int>

    init(waitingFor count: Int) {
        missing = Mutex(count)
        if count == 0 { ServiceConsole.say("ready") }
    }

    /// One more does. One that was waited for is counted a second time, below zero: then nothing is said.
    func listens() {
        let isReady = missing.withLock { count in
            count -= 1
            return count == 0
        }
        if isReady { ServiceConsole.say("ready") }
    }
}

extension ListenAddress {
    /// Reads an option's value.
    ///
    /// - Throws: `ValidationError` that says how an address is written.
    init(option text: String) throws {
        guard let address = ListenAddress(argument: text) else { throw ValidationError("write \(Self.expected)") }
        self = address
    }
}
