// Carries what sound services show into the rules of worn headsets, and the rules' actions out. No rules.
import Audio
import DBus
import Logging
import MonotonicTime
import Reactor

/// The headsets that people wear on this machine. Sound services are asked only once an accessory may have sound.
public actor Headsets {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// What the owner is told, on the loop.
    public enum Event: Sendable {
        /// The next transmission and received speech use this.
        case use(WornSound)
        /// `summary(of:)` may be different.
        case changed
        /// The times to be given to the next start, by address.
        case learned([String: [Duration]])
    }

    private let bus: DBusConnection
    private let disk: EventLoop
    private let logger: Logger
    private let handler: @Sendable (Event) -> Void
    private var machine: HeadsetsStateMachine
    private var isStarted = false
    private var isFollowing = false
    private var blueALSA: BlueALSAPCMs?
    private var server: PulseServer?
    private var timer: (deadline: Instant, timer: EventLoop.Timer)?

    /// - Parameters:
    ///   - bus: The system bus, where BlueALSA is.
    ///   - disk: A loop that may wait: libpulse is read there.
    ///   - handler: Called on the bus's loop.
    public init(
        _ machine: HeadsetsStateMachine, bus: DBusConnection, disk: EventLoop, logger: Logger,
        handler: @escaping @Sendable (Event) -> Void
    ) {
        self.machine = machine
        self.bus = bus
        self.disk = disk
        self.logger = logger
        self.handler = handler
        loop = bus.loop
    }

    /// Begins: sound services are followed as soon as an accessory may have sound.
    public func start() {
        isStarted = true
        followIfNeeded()
    }

    /// Ends the connection to the sound server.
    public func close() {
        isStarted = false
        timer?.timer.cancel()
        timer = nil
        server?.close()
        server = nil
    }

    /// What an accessory's sound is, in words; nil: it has none.
    public func summary(of accessory: String) -> String? { machine.summary(of: accessory) }

    /// The accessories, whenever one is different.
    public func accessoriesChanged(_ accessories: [WornAccessory]) {
        handle(.accessories(accessories))
        followIfNeeded()
    }

    /// Somebody asks to talk, by an accessory's control. Before the press is handed over.
    public func pressed(accessory: String) { handle(.pressed(accessory: accessory)) }

    /// No accessory's press counts any more: it is over, or the system has ended what it began.
    public func released() { handle(.released) }

    /// Somebody talks or is heard, or not any more.
    public func sessionChanged(isActive: Bool) { handle(.sessionChanged(isActive: isActive)) }

    /// A channel is joined, or none any more.
    public func channelChanged(isJoined: Bool) { handle(.channelChanged(isJoined: isJoined)) }

    /// The worn microphone hears, so long after the press. It gave something else for a while before its room's sound.
    public func heard(after press: Duration, settledAfter: Duration?) {
        handle(.heard(after: press, settledAfter: settledAfter))
    }

    /// The worn microphone gives no sound within a transmission.
    public func fellSilent() { handle(.fellSilent) }

    // MARK: Services

    private func followIfNeeded() {
        guard isStarted, !isFollowing, machine.isNeeded else { return }
        isFollowing = true
        let blueALSA = BlueALSAPCMs(on: bus) { [weak self] facts in
            self?.assumeIsolated { $0.handle(.listed(facts, by: .blueALSA)) }
        }
        self.blueALSA = blueALSA
        Task { [logger] in
            do { try await blueALSA.start() } catch {
                logger.warning("headsets of BlueALSA are not detected", metadata: ["why": "\(error)"])
            }
        }
        // libpulse may be read from a slow disk.
        let reported: @Sendable (PulseReport) -> Void = { [loop, weak self] report in
            loop.execute { [weak self] in self?.assumeIsolated { $0.reported(report) } }
        }
        Task { [disk] in
            let server = await disk.perform { PulseServer(handler: reported) }
            self.opened(server)
        }
    }

    private func opened(_ server: PulseServer?) {
        guard isStarted else {
            server?.close()
            return
        }
        self.server = server
        if server == nil {
            logger.info("headsets of a sound server are not detected: libpulse is not installed (package libpulse0)")
        }
    }

    private func reported(_ report: PulseReport) {
        guard isStarted else { return }
        switch report {
        case .listed(let facts):
            logger.info(
                "headsets of the sound server",
                metadata: [
                    "headsets": "\(facts.map { "\($0.address) \($0.microphone ?? "-") \($0.speaker ?? "-")" })"
                ])
            handle(.listed(facts, by: .soundServer))
        case .lost(let reason):
            logger.info(
                "no sound server to ask for headsets; retrying", metadata: ["why": "\(reason)"])
            handle(.listed([], by: .soundServer))
        case .profileSet(let card, let problem):
            logger.info(
                problem == nil ? "headset switched" : "headset not switched",
                metadata: ["card": "\(card)", "why": "\(problem ?? "")", "t": "\(Instant.now.nanoseconds)"])
            handle(.profileSet(card: card, problem: problem))
        }
    }

    // MARK: The rules

    private func handle(_ event: HeadsetsStateMachine.Event) {
        for action in machine.handle(event, at: .now) {
            switch action {
            case .use(let sound): handler(.use(sound))
            case .setProfile(let card, let profile): setProfile(card, profile)
            case .renewLink(let headset):
                logger.info(
                    "a headset's link is opened anew",
                    metadata: ["headset": "\(headset.address)", "t": "\(Instant.now.nanoseconds)"])
                server?.renewLink(of: headset)
            case .changed: handler(.changed)
            case .learned(let times): handler(.learned(times))
            }
        }
        schedule()
    }

    private func setProfile(_ card: UInt32, _ profile: String) {
        logger.info(
            "switching a headset",
            metadata: ["card": "\(card)", "profile": "\(profile)", "t": "\(Instant.now.nanoseconds)"])
        if let server {
            server.setProfile(card: card, profile)
        } else {
            handle(.profileSet(card: card, problem: "the sound server cannot be reached"))
        }
    }

    private func schedule() {
        guard machine.nextDeadline != timer?.deadline else { return }
        timer?.timer.cancel()
        timer = machine.nextDeadline.map { deadline in
            let timer = loop.schedule(at: deadline) { [weak self] in
                self?.assumeIsolated { headsets in
                    headsets.timer = nil
                    headsets.handle(.deadlineReached)
                }
            }
            return (deadline, timer)
        }
    }
}
