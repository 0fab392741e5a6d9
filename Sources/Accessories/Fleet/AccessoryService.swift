// Carries Bluetooth's events into the rules, and the rules' actions out. No rule lives here.
import BlueZ
import DBus
import Logging
import MonotonicTime
import Reactor

/// The accessories at work: buttons become intents to talk.
///
/// It lives on an event loop. The handler is called on that loop, in order; an actor of the same loop enters itself by
/// `assumeIsolated`, so that a press reaches it without a hop. The handler may call back into the service.
public actor AccessoryService {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop as its executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let host: any BluetoothHost
    private let logger: Logger
    private let handler: @Sendable (AccessoryEvent) -> Void
    private var machine: AccessoriesStateMachine
    private var timer: EventLoop.Timer?
    private var scheduledDeadline: Instant?
    private var isStopped = false
    /// Actions to carry out; the handler may cause more while one is carried out.
    private var pending: [AccessoriesStateMachine.Action] = []
    private var isCarryingOut = false

    /// Accessories by Bluetooth, through bluetoothd on the machine's bus.
    ///
    /// - Parameters:
    ///   - bus: A connection to the system bus, connected or not yet; the service lives on its loop.
    ///   - handler: Called on the loop for each event, in order.
    public init(
        settings: AccessorySettings, bus: DBusConnection, logger: Logger,
        handler: @escaping @Sendable (AccessoryEvent) -> Void
    ) {
        self.init(
            settings: settings, host: BlueZHost(on: bus, logger: logger), loop: bus.loop, logger: logger,
            handler: handler)
    }

    init(
        settings: AccessorySettings, host: any BluetoothHost, loop: EventLoop, logger: Logger,
        handler: @escaping @Sendable (AccessoryEvent) -> Void
    ) {
        self.host = host
        self.loop = loop
        self.logger = logger
        self.handler = handler
        machine = AccessoriesStateMachine(
            settings.accessories, library: settings.library, takesKnownDevices: settings.takesKnownDevices)
        for problem in settings.profileProblems {
            logger.warning("Profile left out", metadata: ["problem": "\(problem)"])
        }
    }

    /// Begins to look for the accessories, and to report. That bluetoothd is not there is no error: it may come.
    ///
    /// - Throws: When the bus refuses to tell of Bluetooth.
    public func start() async throws(BlueZError) {
        // Every configured accessory is told at once, also while there is no Bluetooth.
        handle(.radio(.noService), at: .now)
        try await host.start { [weak self] report in
            self?.assumeIsolated { $0.report(report) }
        }
    }

    /// Releases everything that is held and reports no more.
    public func stop() async {
        guard !isStopped else { return }
        handle(.releaseAll(.stopped), at: .now)
        isStopped = true
        timer?.cancel()
        timer = nil
        await host.stop()
    }

    /// Releases everything that is held because the machine is about to sleep.
    public func prepareForSleep() {
        handle(.releaseAll(.suspended), at: .now)
    }

    /// The transmission was refused, revoked or limited: buttons that are still down need a fresh press.
    ///
    /// No `transmitEnded` follows for it; the caller knows.
    public func transmissionEnded() {
        handle(.transmissionEnded, at: .now)
    }

    /// How every accessory is doing, in the order of the configuration; for `pttctl accessory list`.
    public var statuses: [AccessoryStatus] { machine.statuses }

    // MARK: In

    private func report(_ report: BluetoothReport) {
        switch report {
        case .radio(let state):
            logger.info("Bluetooth is \(state)")
            handle(.radio(state), at: .now)
        case .device(let facts): handle(.device(facts), at: .now)
        case .autoConnect(let isArmed): handle(.autoConnect(isArmed: isArmed), at: .now)
        case .deviceRemoved(let id): handle(.deviceRemoved(id), at: .now)
        case .streamBytes, .streamClosed, .streamOffered, .heard: break
        case .value(let characteristic, let bytes, let time):
            handle(.value(characteristic: characteristic, bytes: bytes), at: time)
        }
    }

    private func handle(_ event: AccessoriesStateMachine.Event, at now: Instant) {
        guard !isStopped else { return }
        carryOut(machine.handle(event, at: now))
    }

    // MARK: Out

    private func carryOut(_ actions: [AccessoriesStateMachine.Action]) {
        pending += actions
        guard !isCarryingOut else { return }
        isCarryingOut = true
        var index = 0
        while index < pending.count {
            carryOut(pending[index])
            index += 1
        }
        pending.removeAll(keepingCapacity: true)
        isCarryingOut = false
        schedule()
    }

    private func carryOut(_ action: AccessoriesStateMachine.Action) {
        switch action {
        case .event(let event):
            log(event)
            handler(event)
        case .command(let command):
            Task {
                let failure = await host.perform(command)
                if let failure {
                    logger.debug("Bluetooth refused", metadata: ["command": "\(command)", "reason": "\(failure)"])
                }
                handle(.completed(command, failure), at: .now)
            }
        case .ignored(let accessory, let reason, let count):
            // A flood of rubbish must not become a flood of log lines: the 1st, 2nd, 4th, 8th … are told.
            guard count & (count - 1) == 0 else { return }
            logger.warning(
                "Value not understood, ignored",
                metadata: ["accessory": "\(accessory)", "reason": "\(reason)", "count": "\(count)"])
        }
    }

    private func log(_ event: AccessoryEvent) {
        switch event {
        case .intent(.transmitBegan(let source, _), let time), .intent(.transmitEscalated(let source), let time):
            logger.info("Press", metadata: ["source": "\(source)", "t": "\(time.nanoseconds)"])
        case .intent(.transmitEnded(let source, let reason), let time):
            logger.info(
                "Release",
                metadata: ["source": "\(source)", "reason": "\(reason.rawValue)", "t": "\(time.nanoseconds)"])
        case .control(let source, let isDown, let time):
            logger.debug(
                "Control \(isDown ? "down" : "up")", metadata: ["source": "\(source)", "t": "\(time.nanoseconds)"])
        case .action(let action, let source, _):
            logger.info("Action", metadata: ["action": "\(action)", "source": "\(source)"])
        case .emergency(let source, let isActive, _):
            logger.notice("Emergency \(isActive ? "begins" : "ends")", metadata: ["source": "\(source)"])
        case .changed(let status):
            logger.debug(
                "Accessory",
                metadata: [
                    "id": "\(status.id)", "profile": "\(status.profileID ?? "")", "connected": "\(status.isConnected)",
                    "ready": "\(status.isReady)", "problem": "\(status.problem ?? "")",
                ])
        case .removed(let id):
            logger.debug("Accessory removed", metadata: ["id": "\(id)"])
        }
    }

    private func schedule() {
        guard let deadline = machine.nextDeadline, !isStopped else {
            timer?.cancel()
            timer = nil
            return
        }
        if let timer, timer.isPending, scheduledDeadline == deadline { return }
        timer?.cancel()
        scheduledDeadline = deadline
        timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.handle(.deadline, at: .now) }
        }
    }
}
