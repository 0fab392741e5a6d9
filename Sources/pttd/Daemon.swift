// The daemon: which modules there are and how they are connected. No rules.
import Accessories
import Audio
import Bridge
import ChannelService
import Cryptography
import DBus
import DaemonAPI
import Files
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import RealTimeKit
import RelayClient
import RelayProtocol
import RelayServer
import Synchronization

/// Everything of `pttd`, from its start to its end.
///
/// It runs on its event loop and not on Swift's global executor, whose worker pool on Linux (libdispatch) looks after itself once a
/// second as soon as it exists: an idle daemon would wake up for that.
actor Daemon {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// How long a disk that does not answer may delay the end.
    private static let diskLimit = Duration.seconds(2)

    /// The loop that waits for the disk, so that `loop` does not.
    private let disk: EventLoop
    private let configuration: Configuration
    private let logger: Logger
    private let identity: Identity
    private let stateDirectory: String
    /// No other process has the state directory.
    private let lock: DirectoryLock
    private var parts: Parts?
    private let watchdog: ServiceWatchdog?
    private let startedAt = Instant.now
    private var ending: CheckedContinuation<Void, Never>?
    private var isEnding = false
    private nonisolated let outcome = Mutex<Result<Void, any Error>?>(nil)

    /// A daemon with its key, its state directory and its thread, before anything else is set up.
    ///
    /// A damaged key is set aside and replaced by a new one: a device in the field that can talk again after a new
    /// invitation, or with its link if that is still valid, is better than one that does not start.
    ///
    /// - Throws: `FileError` with the cause `.inUse` while another process has the state directory; `FileError`,
    ///   `IdentityError`.
    init(_ configuration: Configuration, logger: Logger) throws {
        self.configuration = configuration
        self.logger = logger
        let directory = configuration.stateDirectory
        try AtomicFile.makeDirectory(directory, mode: 0o700)
        lock = try DirectoryLock(directory, timeout: .seconds(1))
        AtomicFile.removeLeftovers(in: directory)
        let (identity, notices) = try Identity.loadOrCreate(
            at: directory + "/identity.pem", commonName: configuration.displayName, replacesDamaged: true)
        for notice in notices {
            if case .replaced = notice {
                logger.warning(
                    "\(notice); relays treat this device as a new one; if its link is used up or withdrawn, it needs a new link"
                )
            } else {
                logger.notice("\(notice)")
            }
        }
        self.identity = identity
        loop = try EventLoop(name: "pttd")
        disk = try EventLoop(name: "pttd-disk", mayWait: true)
        stateDirectory = directory
        watchdog = ServiceWatchdog.request.flatMap { [loop] in ServiceWatchdog(watching: [loop], for: $0) }
    }

    /// Starts everything. What keeps it from running ends the process like SIGTERM, and is thrown by `end`.
    nonisolated func start() {
        loop.becomeGlobalExecutor()
        loop.execute { self.assumeIsolated { $0.begin() } }
    }

    private func begin() {
        Task {
            let result: Result<Void, any Error>
            do {
                try await run()
                result = .success(())
            } catch {
                result = .failure(error)
            }
            outcome.withLock { $0 = result }
            // Wakes `sigwait` when nobody asked for the end, and `end` when somebody did.
            kill(getpid(), SIGTERM)
        }
    }

    /// Ends everything in order and waits for it, ten seconds at most; for the main thread.
    ///
    /// - Throws: Why it could not run.
    nonisolated func end() throws {
        if outcome.withLock({ $0 == nil }) {
            loop.execute { self.assumeIsolated { $0.askToEnd() } }
            var signals = sigset_t()
            sigemptyset(&signals)
            sigaddset(&signals, SIGTERM)
            var limit = timespec(tv_sec: 10, tv_nsec: 0)
            while outcome.withLock({ $0 == nil }), sigtimedwait(&signals, nil, &limit) > 0 {}
        }
        try outcome.withLock { $0 }?.get()
    }

    private func askToEnd() {
        isEnding = true
        ending?.resume()
        ending = nil
    }

    private func untilAskedToEnd() async {
        guard !isEnding else { return }
        await withCheckedContinuation { ending = $0 }
    }

    private func run() async throws {
        let relay = try await embeddedRelay()
        let parts = try await Parts(
            configuration,
            channels: relay.map { [ChannelMembership(configured: $0.invitation)] }
                ?? configuration.channels.map { ChannelMembership($0) },
            relayCarriesPushes: relay == nil, state: stateDirectory, identity: identity,
            bus: busAddress(configuration.bus), systemBus: busAddress(configuration.blueZBus),
            runsCommands: configuration.isUsersOwn, loop: loop, disk: disk)
        // What the bus asks is held weakly by what serves it.
        self.parts = parts
        await parts.start(logger)
        FailedStarts.ofService.succeeded()
        let shown = await parts.director.shown
        logger.notice(
            "pttd is ready",
            metadata: [
                "ms": "\((Instant.now - startedAt).nanoseconds / 1_000_000)",
                "channel": "\(shown.snapshot.channel?.descriptor.name ?? "none")",
            ])
        loop.schedule(after: ProgramMemory.startsWithin) { ProgramMemory.giveBackCode() }

        await untilAskedToEnd()
        logger.notice("pttd stops")
        await parts.stop()
        await relay?.server.stop()
        if await !disk.drained(within: Self.diskLimit, countedBy: loop) {
            logger.warning("the disk does not answer; the last change of a setting may be lost")
        }
    }

    // MARK: What the parts are made with

    private func busAddress(_ bus: Configuration.Bus) -> DBusAddress {
        switch bus {
        // A service's user and root own no session: theirs is the machine's bus.
        case .automatic: getuid() < 1_000 ? .system : .session
        case .system: .system
        case .session: .session
        case .address(let address): .address(address)
        }
    }

    /// The relay of a machine that was not invited anywhere: on loopback, with one channel.
    private func embeddedRelay() async throws -> (server: RelayServer, invitation: InvitationLink)? {
        guard configuration.link == nil else { return nil }
        logger.notice("no channel is configured; pttd runs its own relay with the channel 'Local' on loopback")
        let local = RelayChannelConfiguration.local(of: identity)
        let server = try RelayServer(
            configuration: RelayServerConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, identity: identity, channels: [local]),
            logger: Logger(label: "pttd.embedded-relay"))
        _ = try await server.start()
        let invitation = try await server.invitation(for: local.id, host: "127.0.0.1")
        return (server, invitation)
    }
}

extension Daemon {
    // Priority for the control loop and the audio threads, and memory locked in RAM, as far as this machine permits.

    /// Raises the control loop, whose thread calls this, and asks rtkit on `bus` for every thread of sound that was started without real-time
    /// priority, from now on.
    static func realTimeRequests(on bus: DBusConnection) -> RealTimeRequests {
        let logger = Logger(label: "pttd.realtime")
        let requests = RealTimeRequests(RealTimeKit(on: bus), logger: logger)
        AudioThreads.whenOrdinary { thread in
            requests.add(thread: thread.identifier, priority: .realTime(thread.priority))
        }
        requests.raiseThisThread()
        let refusal = LockedMemory.lockAll()
        logger.debug(
            refusal == 0
                ? "memory is locked in RAM"
                : "only audio buffers are locked in RAM; LimitMEMLOCK=infinity locks all memory",
            metadata: refusal == 0 ? [:] : ["errno": "\(refusal)"])
        return requests
    }
}

extension RelayChannelConfiguration {
    /// The channel "Local" of a machine that was not invited anywhere. Its UUID and its secret follow from the machine's key, so that it is
    /// the same after each start, and can be restored.
    static func local(of identity: Identity) -> RelayChannelConfiguration {
        var id = derive("channel", identity, ChannelID.byteCount)
        // A UUID of one's own making (RFC 9562, version 8).
        id[6] = id[6] & 0x0F | 0x80
        id[8] = id[8] & 0x3F | 0x80
        return RelayChannelConfiguration(
            id: ChannelID(bytes: id) ?? ChannelID(), name: DisplayName(cleaning: "Local", fallback: "Local"),
            token: InvitationToken(derive("token", identity, InvitationToken.byteCountDefault)) ?? InvitationToken())
    }

    private static func derive(_ purpose: String, _ identity: Identity, _ byteCount: Int) -> [UInt8] {
        Array(hmacSHA256(Array("pttd's own relay: \(purpose)".utf8), key: identity.privateKeyDER).prefix(byteCount))
    }
}
