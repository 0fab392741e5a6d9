// The modules of a running daemon, and how they are connected. No rules.
import Accessories
import AccessorySetup
import Audio
import Bridge
import Calls
import ChannelService
import Cryptography
import DBus
import DaemonAPI
import Headsets
import Logging
import Nearby
import PTTBus
import PushToTalkCore
import Reactor
import RealTimeKit
import Recordings
import RelayClient
import RelayProtocol
import SystemUI
import WebSocketClient

extension Daemon {
    /// Everything between the buses, the relay and the sound devices.
    struct Parts: Sendable {
        let director: ChannelDirector
        private let channel: ChannelService
        private let bus: DBusConnection
        private let systemBus: DBusConnection
        private let api: DaemonAPI
        let publisher: StatusPublisher
        private let accessories: AccessoryService
        private let setup: AccessorySetup
        private let headsets: Headsets
        /// Held weakly by what serves it on the bus.
        private let administrator: AccessoryAdministrator
        private let calls: CallMonitor
        private let foreground: ForegroundMonitor
        private let clock: PolicyClock
        private let desktop: SystemUI?
        private let recorder: Recorder?
        private let dependencies: ChannelDirector.Dependencies
        private let realTime: RealTimeRequests
        private let nearby: NearbyChannels
        private let nearbyNetwork: NearbyNetwork
        private let nearbyBluetooth: NearbyBluetooth?

        /// The modules, connected; nothing runs before `start`.
        init(
            _ configuration: Configuration, channels: [ChannelMembership], relayCarriesPushes: Bool, state: String,
            identity: Identity, bus address: DBusAddress,
            systemBus systemAddress: DBusAddress, runsCommands: Bool, loop: EventLoop, disk: EventLoop
        ) async throws {
            let channel = ChannelService(
                configuration: configuration.sound, loop: loop, logger: Logger(label: "pttd.channel"))
            let clock = PolicyClock(configuration.policy, loop: loop)
            let records = ChannelRecords(
                store: RestorationStore(path: state + "/channel"),
                choices: RestorationStore(path: state + "/chosen-channel"), disk: disk, loop: loop,
                logger: Logger(label: "pttd.director"))
            let director = ChannelDirector(
                channels: channels, policy: configuration.policy, relayCarriesPushes: relayCarriesPushes,
                isOpen: await clock.isOpen, channel: channel, records: records, logger: Logger(label: "pttd.director"))
            recorder = try await Self.recorder(configuration, state: state, of: channel)
            let bus = DBusConnection(to: address, on: loop, logger: Logger(label: "pttd.bus"))
            // Where both are one bus there is one connection: it owns org.pttd, so the bus's policy keeps strangers from it.
            let systemBus =
                address.resolved == systemAddress.resolved
                ? bus : DBusConnection(to: systemAddress, on: loop, logger: Logger(label: "pttd.bluez"))
            realTime = Daemon.realTimeRequests(on: systemBus)
            let api = DaemonAPI(bus: bus, controls: director, logger: Logger(label: "pttd.api"))
            let nearby = NearbyChannels(
                director: director, api: api,
                store: NearbyStore(
                    path: state + "/nearby-channels", disk: disk, logger: Logger(label: "pttd.nearby")),
                identity: identity,
                creator: DisplayName(cleaning: configuration.displayName, fallback: "pttd"),
                logger: Logger(label: "pttd.nearby"))
            let bluetooth =
                configuration.nearby.usesBluetooth
                ? NearbyBluetooth(
                    bus: systemAddress, settings: configuration.nearby, loop: loop,
                    logger: Logger(label: "pttd.nearby"),
                    handler: { channels in nearby.assumeIsolated { $0.changed(byBluetooth: channels) } },
                    problem: { problem in nearby.assumeIsolated { $0.changed(bluetoothProblem: problem) } },
                    network: { interface in nearby.assumeIsolated { $0.networkChanged(interface) } }) : nil
            let publisher = StatusPublisher(api: api, director: director)
            let foreground = ForegroundMonitor(on: systemBus, logger: Logger(label: "pttd.sessions"))
            let headsets = Self.headsets(
                configuration, state: state, disk: disk, bus: systemBus, of: channel, publisher: publisher)
            let presses = PressFollowers(
                began: { source in
                    headsets.assumeIsolated { $0.pressed(accessory: source.accessory.text) }
                    bluetooth?.assumeIsolated { $0.held(true) }
                },
                channel: { intent in director.assumeIsolated { $0.accessoryWants(intent) } },
                ended: {
                    headsets.assumeIsolated { $0.released() }
                    bluetooth?.assumeIsolated { $0.held(false) }
                })
            let accessoryStore = AccessoryStore(directory: state)
            let restored = accessoryStore.restore(configuration.accessories)
            for problem in restored.problems { Logger(label: "pttd.accessories").warning("\(problem)") }
            let accessories = AccessoryService(
                settings: restored.settings, bus: systemBus, logger: Logger(label: "pttd.accessories")
            ) { event in
                switch event {
                case .intent(let intent, _): presses.wants(intent)
                case .action(let action, let source, _): director.assumeIsolated { $0.controlWants(action, source) }
                case .emergency(let source, let isActive, _):
                    if isActive { publisher.assumeIsolated { $0.emergency(source) } }
                case .changed, .removed: publisher.assumeIsolated { $0.tellHeadsets() }
                case .control: break
                }
                publisher.assumeIsolated { $0.happened(event) }
            }
            setup = AccessorySetup(
                service: accessories, restored: restored, store: accessoryStore, disk: disk,
                logger: Logger(label: "pttd.setup")
            ) { event in
                publisher.assumeIsolated { $0.happened(event) }
            }
            administrator = AccessoryAdministrator(
                api: api, service: accessories, setup: setup, headsets: headsets
            ) { await publisher.published() }
            await publisher.follow(accessories, administrator, headsets)
            await Self.follow(channel, headsets)
            self.headsets = headsets
            await api.serve(accessories: administrator)
            calls = CallMonitor(on: systemBus, logger: Logger(label: "pttd.calls")) { active in
                director.assumeIsolated { $0.callsChanged(active) }
            }
            let commands =
                runsCommands ? CommandRunner(loop: loop, logger: Logger(label: "pttd.commands")) : nil
            let network = configuration.relayNetwork { Logger(label: "pttd.relay").warning("\($0)") }
            let resumption = ResumptionFile(
                path: state + "/resumption", disk: disk, logger: Logger(label: "pttd.relay")
            ).restore()
            // Who can reach the session bus is the user.
            desktop =
                configuration.desktop ?? (address == .session)
                ? SystemUI(bus: bus, logger: Logger(label: "pttd.desktop")) { event in
                    director.assumeIsolated { $0.desktopWants(event) }
                    nearby.assumeIsolated { $0.desktopWants(event) }
                } : nil
            dependencies = ChannelDirector.Dependencies(
                makeLink: { link, mode in
                    let client = RelayClient(
                        invitation: link, identity: identity,
                        displayName: DisplayName(configuration.displayName) ?? link.channelName, mode: mode,
                        resumption: resumption, network: network, openWebSocket: WebSocketConnection.opener,
                        loop: loop, logger: Logger(label: "pttd.relay"))
                    if mode == .member { nearby.assumeIsolated { $0.linkMade(client, to: link) } }
                    return client
                },
                audio: AudioSessionDescription(
                    inputDevice: configuration.sound.microphone.programName,
                    outputDevice: configuration.sound.speaker.programName,
                    sampleRateHertz: 48_000),
                startProgram: { name throws(DBusError) in try await api.startApplication(name) },
                publish: { await publisher.published() },
                isForeground: { name in await foreground.isForeground(name, on: bus) },
                announce: { text in publisher.assumeIsolated { $0.announce(text) } },
                refused: { error in publisher.assumeIsolated { $0.refused(error) } },
                commands: commands,
                joinNextNearby: { refused in nearby.assumeIsolated { $0.joinNextByPress(refused: refused) } },
                handler: { event in
                    switch event {
                    case .changed: publisher.assumeIsolated { $0.changed() }
                    case .failed(let error): publisher.assumeIsolated { $0.failed(error) }
                    case .endedBySystem:
                        // What the accessories begin anew is told after the end.
                        presses.endedBySystem()
                        accessories.assumeIsolated { $0.transmissionEnded() }
                    case .channelEnded(let words): director.assumeIsolated { $0.channelEnded(words) }
                    }
                })
            await api.serve(nearby: nearby)
            nearbyNetwork = NearbyNetwork(bus: systemBus, logger: Logger(label: "pttd.nearby")) {
                channels in
                nearby.assumeIsolated { $0.changed(channels) }
            }
            await channel.setPrompts(configuration.prompts)
            await channel.setLevelHandler { level in publisher.assumeIsolated { $0.levelChanged(level) } }
            (self.channel, self.director, self.clock, self.bus, self.systemBus) = (
                channel, director, clock, bus, systemBus
            )
            (self.api, self.publisher, self.foreground, self.accessories) = (api, publisher, foreground, accessories)
            (self.nearby, nearbyBluetooth) = (nearby, bluetooth)
        }

        /// Starts everything. A bus that is not there may come later: no error.
        func start(_ logger: Logger) async {
            await director.start(dependencies, hosted: await nearby.restore())
            await api.update(channels: await director.channelNames)
            await clock.start { isOpen in director.assumeIsolated { $0.hoursChanged(isOpen: isOpen) } }
            do {
                try await api.start()
            } catch {
                logger.error("\(Self.advice(error))", metadata: ["why": "\(error)"])
            }
            await publisher.start()
            await director.busIsReady()
            await showOnDesktop(logger)
            do {
                try await systemBus.connect(retrying: true)
            } catch {
                logger.warning(
                    "no Bluetooth yet: BlueZ's bus cannot be reached; retrying", metadata: ["why": "\(error)"])
            }
            await attempt("no Bluetooth: the bus does not report what BlueZ does", logger) {
                try await accessories.start()
            }
            await headsets.start()
            await publisher.tellHeadsets()
            await nearby.start(nearbyNetwork, nearbyBluetooth)
            await attempt("phone calls are not detected", logger) { try await calls.start() }
            await attempt("every program counts as in the foreground", logger) {
                try await foreground.start()
            }
            await attempt("the machine's sleep is not detected", logger) {
                try await SleepMonitor.follow(systemBus) { sleeps($0) }
            }
            // Last: a service that does not answer must not keep the button waiting.
            await realTime.ask()
        }

        /// The consequence of not serving org.pttd, and what to do.
        static func advice(_ error: DBusError) -> String {
            switch error {
            case .nameTaken:
                "another pttd serves org.pttd on this bus: pttctl and programs reach that one, and both answer the same buttons; "
                    + "stop one of them, or give this one another bus with 'bus' in [daemon]"
            case .remote(let name, _) where name.hasSuffix(".AccessDenied"):
                "the bus does not let this user serve org.pttd, so pttctl and programs cannot reach pttd; run it as the user "
                    + "pttd or root, with org.pttd.conf in /usr/share/dbus-1/system.d, or on a user's session bus"
            default: "pttctl and programs cannot reach pttd until the bus is reachable; retrying"
            }
        }

        /// Ends everything. The channel is not left: the next start restores it.
        func stop() async {
            await clock.stop()
            await setup.stop()
            await accessories.stop()
            await headsets.close()
            await dependencies.commands?.stop()
            await calls.stop()
            await foreground.stop()
            await director.stop()
            // The last words of this machine go through the relay of a channel that it hosts.
            await nearby.stop()
            if systemBus !== bus { await systemBus.close() }
            await recorder?.close()
            await desktop?.stop()
            await api.stop()
        }

        /// Records the speech of the channel as files, if that is configured.
        private static func recorder(
            _ configuration: Configuration, state: String, of channel: ChannelService
        ) async throws -> Recorder? {
            guard let settings = configuration.recordingSettings(state: state) else { return nil }
            let recorder = try Recorder(settings, loop: channel.loop, logger: Logger(label: "pttd.recordings"))
            await channel.setSpeechHandler { [name = configuration.displayName] event in
                recorder.assumeIsolated { $0.take(event, of: name) }
            }
            return recorder
        }

        /// The headsets that people wear, whose microphones and speakers the channel uses.
        private static func headsets(
            _ configuration: Configuration, state: String, disk: EventLoop, bus: DBusConnection,
            of channel: ChannelService, publisher: StatusPublisher
        ) -> Headsets {
            let store = HeadsetStore(path: state + "/headsets", disk: disk, logger: Logger(label: "pttd.headsets"))
            return Headsets(
                HeadsetsStateMachine(
                    link: configuration.bluetoothLink, usesMicrophone: configuration.followsMicrophone,
                    learned: store.load()),
                bus: bus, disk: disk, logger: Logger(label: "pttd.headsets")
            ) { event in
                switch event {
                case .use(var sound):
                    if !configuration.followsSpeaker { sound.speaker = nil }
                    channel.assumeIsolated { $0.use(sound) }
                case .changed: publisher.assumeIsolated { $0.changed() }
                case .learned(let times): store.save(times)
                }
            }
        }

        /// Headsets follow what happens on the channel.
        private static func follow(_ channel: ChannelService, _ headsets: Headsets) async {
            _ = await channel.addObserver { event in
                guard case .callback(let callback) = event else { return }
                headsets.assumeIsolated { headsets in
                    switch callback {
                    case .didActivateAudioSession: headsets.sessionChanged(isActive: true)
                    case .didDeactivateAudioSession: headsets.sessionChanged(isActive: false)
                    case .didJoinChannel: headsets.channelChanged(isJoined: true)
                    case .didLeaveChannel: headsets.channelChanged(isJoined: false)
                    default: break
                    }
                }
            }
            await channel.setWornMicrophoneHandler { report in
                headsets.assumeIsolated { headsets in
                    switch report {
                    case .hears(let after, let settled): headsets.heard(after: after, settledAfter: settled)
                    case .silent: headsets.fellSilent()
                    }
                }
            }
        }

        private func showOnDesktop(_ logger: Logger) async {
            guard let desktop else { return }
            await attempt("the desktop does not show push to talk", logger) {
                try await desktop.start()
            }
            await publisher.show(on: desktop)
            await nearby.show(on: desktop)
        }

        /// What is held when the machine falls asleep must not be held when it wakes.
        private func sleeps(_ isComing: Bool) {
            accessories.assumeIsolated { isComing ? $0.prepareForSleep() : $0.machineWoke() }
            channel.assumeIsolated { $0.setInterruption(isComing ? "the machine is going to sleep" : nil) }
            if !isComing { clock.assumeIsolated { $0.look() } }
        }

        private func attempt(
            _ failure: String, _ logger: Logger, _ body: () async throws -> Void
        ) async {
            do {
                try await body()
            } catch {
                logger.warning("\(failure)", metadata: ["why": "\(error)"])
            }
        }
    }
}

extension AudioDevice {
    /// What a program opens to use the same device.
    fileprivate var programName: String {
        switch self {
        case .alsa(let name): name
        default: "\(self)"
        }
    }
}

extension ForegroundMonitor {
    /// Whether the program of this unique name is in the foreground; one that is gone is not asked about any more.
    fileprivate func isForeground(_ name: String, on bus: DBusConnection) async -> Bool {
        do throws(DBusError) {
            return await isForeground(
                processIdentifier: try await bus.processIdentifier(of: name),
                userIdentifier: try await bus.userIdentifier(of: name))
        } catch {
            return true
        }
    }
}
