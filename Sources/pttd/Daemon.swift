// The daemon: which rooms there are and how they are joined. No rules.
import Accessories
import Audio
import Bridge
import ChannelService
import Cryptography
import DBus
import DaemonAPI
import FoundationEssentials
import Glibc
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
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

    private let configuration: Configuration
    private let logger: Logger
    private let identity: Identity
    private let startedAt = Instant.now
    private var ending: CheckedContinuation<Void, Never>?
    private var isEnding = false
    /// `DaemonAPI` holds it weakly.
    private var controls: ConfiguredChannelControls?
    private nonisolated let outcome = Mutex<Result<Void, any Error>?>(nil)

    /// A daemon that has its key and its thread, and nothing else yet.
    init(_ configuration: Configuration, state: String?, logger: Logger) throws {
        self.configuration = configuration
        self.logger = logger
        loop = try EventLoop(name: "pttd")
        let directory = state ?? configuration.state ?? Configuration.defaultStateDirectory
        let (identity, notices) = try Identity.loadOrCreate(
            at: directory + "/identity.pem", commonName: configuration.displayName)
        for notice in notices { logger.notice("\(notice)") }
        self.identity = identity
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
        let link = relay?.invitation ?? configuration.link
        guard let link else { return }
        let channel = ChannelService(
            configuration: channelConfiguration, loop: loop, logger: Logger(label: "pttd.channel"))
        let client = RelayClient(
            invitation: link, identity: identity,
            displayName: DisplayName(configuration.displayName) ?? link.channelName,
            loop: loop, logger: Logger(label: "pttd.relay"))
        let channelUUID = link.channel.uuid
        let bridge = Bridge(
            channelUUID: channelUUID, channel: channel, link: client, logger: Logger(label: "pttd.bridge"))
        let controls = ConfiguredChannelControls(bridge: bridge, channel: channel, loop: loop)
        self.controls = controls
        let api = DaemonAPI(
            bus: DBusConnection(to: busAddress(configuration.bus), on: loop, logger: Logger(label: "pttd.bus")),
            controls: controls, logger: Logger(label: "pttd.api"))
        let publisher = StatusPublisher(api: api, bridge: bridge, channel: channel, loop: loop)

        let bluetooth = DBusConnection(
            to: busAddress(configuration.blueZBus), on: loop, logger: Logger(label: "pttd.bluez"))
        let accessories = AccessoryService(
            settings: configuration.accessories, bus: bluetooth, logger: Logger(label: "pttd.accessories")
        ) { event in
            if case .intent(let intent, _) = event { bridge.assumeIsolated { $0.accessoryWants(intent) } }
            publisher.assumeIsolated { $0.changed() }
        }
        await publisher.follow(accessories)
        try await bridge.start(descriptor: PTChannelDescriptor(name: link.channelName.text, image: nil)) { event in
            switch event {
            case .changed: publisher.assumeIsolated { $0.changed() }
            case .failed(let error): publisher.assumeIsolated { $0.failed(error) }
            case .endedBySystem: accessories.assumeIsolated { $0.transmissionEnded() }
            }
        }
        do {
            try await api.start()
        } catch {
            logger.error(
                "org.pttd is not on the bus; buttons work all the same",
                metadata: ["why": "\(error)", "bus": "\(busAddress(configuration.bus))"])
        }
        await start(accessories, on: bluetooth)
        await endBeforeSleep(accessories, channel, on: bluetooth)
        logger.notice(
            "pttd is ready",
            metadata: ["ms": "\((Instant.now - startedAt).nanoseconds / 1_000_000)", "channel": "\(link)"])

        await untilAskedToEnd()
        logger.notice("pttd ends")
        await accessories.stop()
        await bluetooth.close()
        await bridge.stop()
        await api.stop()
        await relay?.server.stop()
    }

    // MARK: Parts

    /// A bus or a bluetoothd that is not there may come later: neither is an error.
    private func start(_ accessories: AccessoryService, on bluetooth: DBusConnection) async {
        do {
            try await bluetooth.connect(retrying: true)
        } catch {
            logger.warning("no Bluetooth yet: BlueZ's bus is tried again and again", metadata: ["why": "\(error)"])
        }
        do {
            try await accessories.start()
        } catch {
            logger.error("no Bluetooth: the bus does not tell of BlueZ", metadata: ["why": "\(error)"])
        }
    }

    /// What is held when the machine falls asleep must not be held when it wakes.
    private func endBeforeSleep(
        _ accessories: AccessoryService, _ channel: ChannelService, on systemBus: DBusConnection
    ) async {
        do {
            try await SleepMonitor.follow(systemBus) { isComing in
                if isComing { accessories.assumeIsolated { $0.prepareForSleep() } }
                channel.assumeIsolated { $0.setInterruption(isComing ? "the machine is going to sleep" : nil) }
            }
        } catch {
            logger.warning("the machine's sleep is not noticed", metadata: ["why": "\(error)"])
        }
    }

    private var channelConfiguration: ChannelServiceConfiguration {
        var rules = ChannelManagerStateMachine.Configuration()
        rules.talkTimeLimit = configuration.talkTimeLimit
        return ChannelServiceConfiguration(
            microphone: configuration.microphone, speaker: configuration.speaker, rules: rules,
            tail: configuration.releaseTail, playsTones: configuration.tones)
    }

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
        logger.notice("no channel is configured: a relay of this daemon's own serves channel 'Local' on loopback")
        let local = RelayChannelConfiguration(
            id: ChannelID(), name: DisplayName(cleaning: "Local", fallback: "Local"), token: InvitationToken())
        let server = try RelayServer(
            configuration: RelayServerConfiguration(
                listenAddress: "127.0.0.1", listenPort: 0, identity: identity, channels: [local]),
            logger: Logger(label: "pttd.embedded-relay"))
        _ = try await server.start()
        let invitation = try await server.invitation(for: local.id, host: "127.0.0.1")
        return (server, invitation)
    }
}
