// A running relay: its thread, its QUIC port, and its life cycle. `RelayEngine` handles the packets.
import Cryptography
import Logging
import MonotonicTime
import QUIC
import Reactor
import RelayProtocol

/// What a relay is started with.
public struct RelayServerConfiguration: Sendable {
    /// The numeric address to listen on; `0.0.0.0` or `::` for every one.
    public var listenAddress: String
    /// The UDP port; 0 lets the kernel choose, and `RelayServer.port` has the result.
    public var listenPort: UInt16
    /// The key that invitations name.
    public var identity: Identity
    /// The channels, with their secrets.
    public var channels: [RelayChannelConfiguration]
    /// How much is taken on.
    public var limits = RelayLimits()
    /// The floor's timers, the talk-time limit among them.
    public var timers = FloorControlStateMachine.Timers()
    /// The members of `channels`; those of other channels are not looked at. By default anyone who has a channel's token may join it.
    public var roster = RelayRoster.open
    /// Told, on the relay's loop, of a client without a membership; answer with `RelayServer.enrolled`. Needed unless the
    /// roster is open.
    public var enrol: (@Sendable (ConnectionID, RelayEnrolment) -> Void)?
    /// Whether clients can register push tokens: whether somebody is going to call `RelayServer.push`.
    public var acceptsPushes = false
    /// Where channels of the cluster are that other relays serve.
    public var places = ChannelPlaces.alone
    /// Threads that have a socket on the port, a share of the connections and a share of the channels each, 1 to `workersMaximum`.
    /// With one, everything is on the relay's own loop. See `workers(forProcessors:)`.
    public var workers = 1
    /// The number of connections from which new ones are spread over the workers; those before are the first worker's. While few
    /// are connected, one thread serves them at less cost.
    public var spreadFrom = 64
    /// Threads that help a worker which has a packet for hundreds of listeners, 0 to `helpersMaximum`: the last of them hears it sooner.
    /// They help one worker at a time, and sleep otherwise. See `helpers(forProcessors:)`.
    public var helpers = 0
    /// Has the connections that come over TLS; nil: none do.
    public var web: RelayWebWorker?
    /// Where clients reach that, for `Welcome`; nil: they are not told.
    public var webPlace: WebPlace?
    /// Secrets of the transport; keep them across restarts (`RelayTransportKeys.bytes`), so that clients learn of a
    /// restart with their next packet.
    public var transportKeys: RelayTransportKeys
    /// Called on the relay's loop when connections have come, gone or moved: 50 ms later, or, after five times in a row, at most every
    /// `placesInterval`. Its argument makes the text to keep: a line of 200 bytes at most for each connection. That takes a while for
    /// thousands, so call the argument on a thread that may wait. The next start gets the text as `formerPlaces`. Nil: nobody keeps it.
    public var keepPlaces: (@Sendable (_ text: @escaping @Sendable () -> String) -> Void)?
    /// See `keepPlaces`.
    public var placesInterval: Duration = .seconds(2)
    /// The last text that `keepPlaces` was to keep before an earlier relay with the same `transportKeys` ended or was killed.
    /// The relay informs the former connections, so that idle clients reconnect, too. Invalid parts of the text are
    /// ignored.
    public var formerPlaces = ""

    /// See `workers`.
    public static let workersMaximum = 16

    /// The recommended number of workers for `count` processors: one for each.
    public static func workers(forProcessors count: Int) -> Int { max(1, min(count, workersMaximum)) }

    /// See `helpers`.
    public static let helpersMaximum = ThreadPool.sizeMaximum

    /// The recommended number of helper threads for `count` processors: one for each other processor, at most 3. A channel
    /// is one worker's, however many workers there are.
    public static func helpers(forProcessors count: Int) -> Int { max(0, min(count - 1, 3)) }

    /// The port of a relay when nothing else is said.
    public static let defaultPort: UInt16 = 4_433

    /// A relay on `listenAddress`.
    public init(
        listenAddress: String = "::", listenPort: UInt16 = defaultPort, identity: Identity,
        channels: [RelayChannelConfiguration], transportKeys: RelayTransportKeys = .generate()
    ) {
        self.listenAddress = listenAddress
        self.listenPort = listenPort
        self.identity = identity
        self.channels = channels
        self.transportKeys = transportKeys
    }
}

/// The secrets by which a restarted relay can tell its former clients that their connections are gone.
public typealias RelayTransportKeys = ServerKeys

extension RelayTransportKeys {
    /// The secrets of a relay that runs on several machines, all of which have its key: a member returns to any of them with the ticket
    /// of another one.
    ///
    /// They are derived from that key, so whoever has it can forge tickets. The key of the tickets is another one every
    /// `ticketPeriod`, for machines that start in it.
    ///
    /// - Parameters:
    ///   - identity: The relay's key.
    ///   - seconds: The time of day, since 1970.
    /// - Throws: `CryptographyError`.
    public static func shared(by identity: Identity, at seconds: Int64) throws(CryptographyError) -> RelayTransportKeys
    {
        let hash = HashFunction.sha256
        let secret = try hash.extract(keyMaterial: identity.privateKeyDER)
        func derive(_ purpose: String, _ count: Int) throws(CryptographyError) -> [UInt8] {
            try hash.expand(
                pseudorandomKey: secret, info: Array("pttrelay cluster \(purpose)".utf8), byteCount: count)
        }
        let period = seconds / ticketPeriod
        let tickets = try derive("tickets \(period)", ServerKeys.ticketKeyLength)
        guard let keys = ServerKeys(bytes: tickets + (try derive("tokens", ServerKeys.tokenKeyLength))) else {
            preconditionFailure("both keys have their length")
        }
        return keys
    }

    /// How long a key of tickets is in use, in seconds: a week.
    public static let ticketPeriod: Int64 = 7 * 86_400
}

/// A relay: lets members into its channels, arbitrates their floors and forwards what the holder says to the others.
///
/// It has its own event loop and thread. Embed it in a daemon or run it alone. Cancel `run` or call `stop` to end it:
/// members are informed, and reconnect when it is back.
public actor RelayServer {
    /// The loop that everything of the relay runs on.
    public nonisolated let loop: EventLoop
    /// Jobs of the actor run on the loop.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    var configuration: RelayServerConfiguration
    private let logger: Logger
    var engine: RelayEngine?
    private var milestoneHandler: (@Sendable (RelayMilestone, Instant) -> Void)?
    var moveHandler: (@Sendable (ChannelID) -> Void)?
    private var waiters: [CheckedContinuation<Void, Never>] = []
    private var drains: [CheckedContinuation<Void, Never>] = []
    private var lastCounters = RelayCounters()

    /// A relay that does not listen yet.
    ///
    /// - Throws: `RelayServerError` for a configuration that cannot work.
    public init(configuration: RelayServerConfiguration, logger: Logger) throws(RelayServerError) {
        guard configuration.channels.count <= configuration.limits.channels else {
            throw .tooManyChannels(limit: configuration.limits.channels)
        }
        var seen: Set<ChannelID> = []
        for channel in configuration.channels where !seen.insert(channel.id).inserted {
            throw .repeatedChannel(channel.id)
        }
        guard SocketAddress(configuration.listenAddress, port: configuration.listenPort) != nil else {
            throw .badAddress(configuration.listenAddress)
        }
        do {
            loop = try EventLoop(name: "relay")
        } catch {
            throw .system(error)
        }
        self.configuration = configuration
        self.logger = logger
    }

    deinit {
        // Who forgets a relay stops it. The loop does what is queued before it ends.
        if let engine { loop.execute { _ = engine.shutDown() } }
        loop.stop()
    }

    /// The UDP port it listens on; `nil` while it does not.
    public var port: UInt16? { engine?.endpoint.localAddress.port }

    /// The event loops that do the relay's work: its own, and one for each further worker.
    public var loops: [EventLoop] { [loop] + (engine?.workers.map(\.endpoint.loop).filter { $0 !== loop } ?? []) }

    /// Begins to listen; returns the port.
    ///
    /// - Throws: `RelayServerError.listen`, `.alreadyRunning`.
    @discardableResult
    public func start() throws(RelayServerError) -> UInt16 {
        guard engine == nil else { throw .alreadyRunning }
        guard let address = SocketAddress(configuration.listenAddress, port: configuration.listenPort) else {
            throw .badAddress(configuration.listenAddress)
        }
        let engine = try makeEngine(address)
        engine.milestoneHandler = milestoneHandler
        engine.movedHandler = moveHandler
        engine.drainedHandler = { [weak self] in self?.assumeIsolated { $0.endDrains() } }
        self.engine = engine
        logger.info(
            "relay listens",
            metadata: [
                "address": "\(engine.endpoint.localAddress)", "channels": "\(configuration.channels.count)",
                "workers": "\(engine.workers.count)", "helpers": "\(engine.helpers?.size ?? 0)",
                "key": "\(configuration.identity.pin)",
            ])
        configuration.formerPlaces = ""
        return engine.endpoint.localAddress.port
    }

    private func makeEngine(_ address: SocketAddress) throws(RelayServerError) -> RelayEngine {
        let count = max(1, min(configuration.workers, RelayServerConfiguration.workersMaximum))
        do {
            return try RelayEngine(on: loop, at: address, workers: count, configuration: configuration, logger: logger)
        } catch {
            guard count > 1 else { throw error }
            // What only several workers need may be what is missing.
            let engine = try RelayEngine(
                on: loop, at: address, workers: 1, configuration: configuration, logger: logger)
            logger.warning("the relay runs on one thread only", metadata: ["why": "\(error)"])
            return engine
        }
    }

    /// Runs until the task is cancelled or `stop` is called; starts before, unless `start` was called.
    public func run() async throws {
        if engine == nil { try start() }
        await untilStopped()
    }

    /// Waits until `stop` or `drain` has ended it, or until the task is cancelled, which ends it; not at all when it does not run.
    public func untilStopped() async {
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                if engine == nil || Task.isCancelled {
                    continuation.resume()
                } else {
                    waiters.append(continuation)
                }
            }
        } onCancel: {
            // Keeps the relay until it has said goodbye.
            Task { await self.stop() }
        }
        stop()
    }

    /// Stops it: members are told that the relay is going down. `start` or `run` starts it again with new media keys.
    public func stop() {
        if let engine {
            // Who was removed stays out, and channels that were added stay, when it starts again.
            configuration.channels = engine.exchange.directory.configurations
            let remains = engine.shutDown()
            lastCounters = remains.counters
            configuration.roster = remains.roster ?? configuration.roster
            self.engine = nil
            logger.info("relay stopped")
        }
        endDrains()
        for waiter in exchange(&waiters, with: []) { waiter.resume() }
    }

    /// Drains the relay and stops it when nobody talks. New members are refused, and only emergencies are granted the
    /// floor. Members of idle channels are sent away at once, or half a second after they were told of the successor; the others when the
    /// burst ends.
    ///
    /// - Parameters:
    ///   - time: It stops after this time at the latest, even if somebody talks.
    ///   - successor: The address of a relay with the same key and channels, where the members continue. Without one
    ///     they keep reconnecting here.
    public func drain(for time: Duration, to successor: RelayPlace? = nil) async {
        guard let engine else { return }
        logger.info(
            "relay draining: it stops when nobody talks",
            metadata: successor.map { ["successor": "\($0)"] })
        engine.handle(.drain(to: successor))
        if !engine.isDrained {
            let timer = loop.schedule(after: time) { [weak self] in self?.assumeIsolated { $0.endDrains() } }
            await withCheckedContinuation { drains.append($0) }
            timer.cancel()
        }
        stop()
    }

    private func endDrains() {
        for drain in exchange(&drains, with: []) { drain.resume() }
    }

    /// The link that lets somebody into `channel`; who has it may enter.
    ///
    /// - Parameters:
    ///   - channel: One that the relay serves or, while it does not run, one that it is going to serve.
    ///   - host: The name or address by which clients reach this machine.
    ///   - port: The port by which they do; by default the one it listens on.
    /// - Throws: `RelayServerError.unknownChannel`, `.notRunning` when the port is not known, `.invitation`.
    public func invitation(
        for channel: ChannelID, host: String, port: UInt16? = nil
    ) throws(RelayServerError) -> InvitationLink {
        let entry = engine == nil ? configuration.channels.first { $0.id == channel } : configuration(of: channel)
        guard let entry else { throw .unknownChannel(channel) }
        let configured = configuration.listenPort == 0 ? nil : configuration.listenPort
        guard let port = port ?? self.port ?? configured else { throw .notRunning }
        do {
            return try InvitationLink(
                host: host, port: port, channelName: entry.name, channel: entry.id, token: entry.token,
                pin: configuration.identity.pin)
        } catch {
            throw .invitation(error)
        }
    }

    /// Gives the channel a new media key, after somebody was removed from it, say.
    public func renewMediaKey(of channel: ChannelID) {
        engine?.handle(.renewMediaKey(channel))
    }

    /// Hands a push to the client that registered its token.
    public func push(_ request: PushRequest) -> PushVerdict { engine?.push(request) ?? .shutDown }

    /// The number of live push tokens.
    public var pushTokenCount: Int { engine?.pushTokenCount ?? 0 }

    /// All statistics for the operator; `nil` while it does not run.
    public var statistics: RelayStatistics? {
        get async {
            let parts = await askAll { RelayEngine.ShardStatistics($0) }
            return parts.flatMap { engine?.statistics(of: $0) }
        }
    }

    /// Whether members can join: it runs and is not going down.
    public var isServing: Bool { engine.map { !$0.isDraining } ?? false }

    /// What was counted since the start.
    public var counters: RelayCounters {
        get async {
            let parts = await askAll { $0.core.counters }
            return parts.flatMap { engine?.counters(of: $0) } ?? lastCounters
        }
    }

    /// Sets the handler for milestones. It runs on the loop and gets the time; for metrics and tests.
    public func setMilestoneHandler(_ handler: (@Sendable (RelayMilestone, Instant) -> Void)?) {
        milestoneHandler = handler
        engine?.milestoneHandler = handler
    }
}
