// Carries Bluetooth's events into the rules, and the rules' actions out. No rule lives here.
import BlueZ
import DBus
import Logging
import MonotonicTime
import Reactor

/// What comes in from Bluetooth and the machine's devices: `AccessoryService` hands it on to setup.
package enum AccessoryReport: Sendable {
    case bluetooth(BluetoothReport)
    case local(LocalDeviceReport)
}

/// The accessories at work: buttons become intents to talk.
///
/// It lives on an event loop. The handler is called on that loop, in order; an actor of the same loop enters itself by
/// `assumeIsolated`, so that a press reaches it without a hop. The handler may call back into the service.
public actor AccessoryService {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop as its executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    /// A flood of presses is no flood of log lines.
    static let logLinesPerSecondMax = 40
    private static var logRate: TokenBucket {
        TokenBucket(depth: logLinesPerSecondMax, perSecond: logLinesPerSecondMax, at: .zero)
    }

    private let host: any BluetoothHost
    private let inputs: (any InputHost)?
    private let logger: Logger
    private let handler: @Sendable (AccessoryEvent) -> Void
    private var machine: AccessoriesStateMachine
    private var timer: EventLoop.Timer?
    private var scheduledDeadline: Instant?
    private var isStopped = false
    /// Actions to carry out; the handler may cause more while one is carried out.
    private var pending: [AccessoriesStateMachine.Action] = []
    private var isCarryingOut = false
    /// Setup's: what comes in is told to it too.
    private var observer: (@Sendable (AccessoryReport) -> Void)?
    private var pressLog = AccessoryService.logRate
    /// The press that goes on is in the log, so that its release will be, too.
    private var isPressLogged = false
    private var controlLog = AccessoryService.logRate
    /// Lines that were left out since the last one.
    private var linesMissed = 0
    private var missedLog = TokenBucket(depth: 1, perSecond: 1, at: .zero)

    /// Accessories by Bluetooth, through bluetoothd on the machine's bus, and by the machine's own devices.
    ///
    /// - Parameters:
    ///   - bus: A connection to the system bus, connected or not yet; the service lives on its loop.
    ///   - handler: Called on the loop for each event, in order.
    public init(
        settings: AccessorySettings, bus: DBusConnection, logger: Logger,
        handler: @escaping @Sendable (AccessoryEvent) -> Void
    ) {
        let inputs = LocalInputHost(
            registersMediaPlayer: settings.registersMediaPlayer, systemBus: bus, logger: logger)
        self.init(
            settings: settings, host: BlueZHost(on: bus, logger: logger), inputs: inputs, loop: bus.loop,
            logger: logger, handler: handler)
    }

    init(
        settings: AccessorySettings, host: any BluetoothHost, inputs: (any InputHost)? = nil, loop: EventLoop,
        logger: Logger,
        handler: @escaping @Sendable (AccessoryEvent) -> Void
    ) {
        self.host = host
        self.inputs = inputs
        self.loop = loop
        self.logger = logger
        self.handler = handler
        machine = AccessoriesStateMachine(
            settings.accessories, library: settings.library, takesKnownDevices: settings.takesKnownDevices,
            isBondedOnly: settings.isBondedOnly)
        for problem in settings.profileProblems {
            logger.warning("Profile left out", metadata: ["problem": "\(problem)"])
        }
    }

    /// Begins to look for the accessories, and to report. That bluetoothd is not there is no error: it may come.
    ///
    /// - Throws: When the bus refuses to tell of Bluetooth.
    public func start() async throws(BlueZError) {
        // Every configured accessory is told at once, also while there is no Bluetooth.
        handle(.bluetooth(.radio(.noService)), at: .now)
        await inputs?.start { [weak self] report in
            self?.assumeIsolated { $0.report(.local(report)) }
        }
        try await host.start { [weak self] report in
            self?.assumeIsolated { $0.report(.bluetooth(report)) }
        }
    }

    /// Releases everything that is held and reports no more.
    public func stop() async {
        guard !isStopped else { return }
        handle(.releaseAll(.stopped), at: .now)
        isStopped = true
        timer?.cancel()
        timer = nil
        observer = nil
        await inputs?.stop()
        await host.stop()
    }

    /// Releases everything that is held because the machine is about to sleep.
    public func prepareForSleep() {
        handle(.releaseAll(.suspended), at: .now)
    }

    /// The machine has slept. What bluetoothd had to tell before tells of no press.
    public func machineWoke() {
        handle(.woke, at: .now)
    }

    /// The transmission was refused, revoked or limited: buttons that are still down need a fresh press.
    ///
    /// No `transmitEnded` follows for it; the caller knows.
    public func transmissionEnded() {
        handle(.transmissionEnded, at: .now)
    }

    /// How every accessory is doing, in the order of the configuration; for `pttctl accessory list`.
    public var statuses: [AccessoryStatus] { machine.statuses }

    // MARK: What people do

    /// Every accessory as it is configured, those that were taken without being configured too.
    public var configurations: [AccessoryConfiguration] { machine.configurations }

    /// The profiles that are known.
    public var library: ProfileLibrary { machine.library }

    /// Adds an accessory, or replaces the one of its name: what it holds is released first, then it is found anew.
    /// More than 64 are not added, which the log says.
    public func configure(_ configuration: AccessoryConfiguration) {
        handle(.configure(configuration), at: .now)
    }

    /// Takes an accessory out; what it holds is released first.
    public func unconfigure(_ id: AccessoryID) {
        handle(.unconfigure(id), at: .now)
    }

    /// Adds a profile, or replaces the one of its id. Accessories that have it, or none, are recognised anew.
    public func add(_ profile: AccessoryProfile) {
        handle(.profile(profile), at: .now)
    }

    /// A person wants to see what is in reach: there is a scan until it is switched off, with pauses while links are made.
    public func setScanning(_ isOn: Bool) {
        handle(.scan(isOn), at: .now)
    }

    /// While an accessory is tested its controls are reported, but do nothing. What it holds is released; after the test a
    /// fresh press is needed.
    public func setTesting(_ id: AccessoryID, _ isOn: Bool) {
        handle(.test(id, isOn), at: .now)
    }

    /// The same for all accessories.
    public func setQuiet(_ isOn: Bool) {
        handle(.quiet(isOn), at: .now)
    }

    /// What the lights of the accessories show. `refused` is shown for a moment, then what was shown before.
    public func setFeedback(_ feedback: AccessoryFeedback) {
        handle(.feedback(feedback), at: .now)
    }

    // MARK: For setup

    /// Tells everything that comes in, after the rules have had it. There is one observer; nil: none any more.
    ///
    /// - Parameter observer: Called on the loop, in order.
    /// - Returns: What is known.
    @discardableResult
    package func observe(_ observer: (@Sendable (AccessoryReport) -> Void)?) -> [AccessoryReport] {
        self.observer = observer
        return machine.reports
    }

    /// The device as bluetoothd knows it now.
    package func device(address: String) -> DeviceFacts? { machine.device(address: address) }

    /// How often a scan has begun, and whether one is on.
    package var scans: (count: Int, isOn: Bool) { machine.scans }

    /// Does something for a person, beside the rules' own commands. Scans pause while a device is connected or paired.
    ///
    /// - Returns: Nil is success.
    package func perform(_ command: BluetoothCommand) async -> BluetoothFailure? {
        let isConnecting: Bool
        switch command {
        case .connect, .pair, .openStream: isConnecting = true
        default: isConnecting = false
        }
        if isConnecting { handle(.connecting(true), at: .now) }
        let failure = await host.perform(command)
        if isConnecting { handle(.connecting(false), at: .now) }
        return failure
    }

    // MARK: In

    private func report(_ report: AccessoryReport) {
        switch report {
        case .bluetooth(let report):
            if case .radio(let state) = report { logger.info("Bluetooth is \(state)") }
            handle(.bluetooth(report), at: report.time ?? .now)
        case .local(let report): handle(.local(report), at: report.time ?? .now)
        }
        if !isStopped { observer?(report) }
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
            // Carried out first, logged second.
            handler(event)
            log(event)
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
        case .note(let accessory, let text):
            logger.warning("\(text)", metadata: ["accessory": "\(accessory)"])
        }
    }

    private func admits(_ bucket: inout TokenBucket, at time: Instant, lines: Int = 1) -> Bool {
        guard bucket.take(lines, at: time) else {
            linesMissed += lines
            return false
        }
        guard linesMissed > 0, missedLog.take(at: time) else { return true }
        logger.warning("Too many presses to log each", metadata: ["missed": "\(linesMissed)"])
        linesMissed = 0
        return true
    }

    private func log(_ event: AccessoryEvent) {
        switch event {
        case .intent(.transmitBegan(let source, _), let time), .intent(.transmitEscalated(let source), let time):
            guard admits(&pressLog, at: time, lines: 2) else { return }
            isPressLogged = true
            logger.info("Press", metadata: ["source": "\(source)", "t": "\(time.nanoseconds)"])
        case .intent(.transmitEnded, _) where !isPressLogged:
            // Counted with its press.
            return
        case .intent(.transmitEnded(let source, let reason), let time):
            isPressLogged = false
            logger.info(
                "Release",
                metadata: ["source": "\(source)", "reason": "\(reason.rawValue)", "t": "\(time.nanoseconds)"])
        case .control(let source, let isDown, let time):
            guard logger.logLevel <= .debug, admits(&controlLog, at: time) else { return }
            logger.debug(
                "Control \(isDown ? "down" : "up")", metadata: ["source": "\(source)", "t": "\(time.nanoseconds)"])
        case .action(let action, let source, let time):
            guard admits(&pressLog, at: time) else { return }
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
