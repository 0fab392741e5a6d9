// Listens to the services on the bus and reports the user's calls.
import DBus
import Logging
import MonotonicTime
import Reactor

/// The current phone calls on this machine, as oFono, ModemManager and BlueZ report them.
///
/// It uses whichever of them is on the bus, now or later, and starts none. It asks once when a service appears and then
/// listens: nothing is polled, and a machine without telephony costs nothing. A service that leaves the bus takes its
/// calls with it. Invalid messages are logged and ignored. What counts as being in a call: `CallState.isInProgress`.
public actor CallMonitor {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }

    private let bus: DBusConnection
    private let services: [CallService]
    private let logger: Logger
    private let handler: @Sendable ([ActiveCall]) -> Void
    private var machine = CallsStateMachine()
    private var owners: [CallService: String] = [:]
    private var matches: [DBusMatch] = []
    private var watches: [DBusNameWatch] = []
    private var timer: EventLoop.Timer?
    private var isStarted = false

    /// How long a service may take to answer. The retries are the state machine's.
    private static let answerTimeout = Duration.seconds(5)
    /// Complaints written to the log for one event.
    private static let complaintsMaximum = 8

    /// A monitor that does nothing before `start()`.
    ///
    /// - Parameters:
    ///   - bus: A connection to the system bus; connected or not yet.
    ///   - services: Which services to hear.
    ///   - handler: Called on the loop whenever the set of calls that the user is in changes, with the whole set, ordered by
    ///     service and object path.
    public init(
        on bus: DBusConnection, services: [CallService] = CallService.allCases, logger: Logger,
        handler: @escaping @Sendable ([ActiveCall]) -> Void
    ) {
        self.bus = bus
        loop = bus.loop
        self.services = services
        self.logger = logger
        self.handler = handler
    }

    isolated deinit { timer?.cancel() }

    /// The calls that the user is in.
    public var calls: [ActiveCall] { machine.active }

    /// Begins to listen. Neither a service nor the bus has to be present.
    /// - Throws: When the bus refuses the signal matches; then nothing is heard.
    public func start() async throws(DBusError) {
        guard !isStarted else { return }
        isStarted = true
        do throws(DBusError) {
            for service in services {
                for rule in service.dialect.rules {
                    matches.append(
                        try await bus.addMatch(rule) { [weak self] message in
                            self?.assumeIsolated { $0.received(message, from: service) }
                        })
                }
                watches.append(
                    try await bus.watchName(service.busName) { [weak self] owner in
                        self?.assumeIsolated { $0.ownerChanged(owner, of: service) }
                    })
            }
        } catch {
            await stop()
            throw error
        }
    }

    /// Ends it. Calls that went on are reported as over.
    public func stop() async {
        guard isStarted else { return }
        isStarted = false
        for watch in watches { await bus.unwatchName(watch) }
        for match in matches { await bus.removeMatch(match) }
        watches = []
        matches = []
        timer?.cancel()
        for service in owners.keys.sorted() { ownerChanged(nil, of: service) }
    }

    // MARK: Between the bus and the rules

    private func ownerChanged(_ new: String?, of service: CallService) {
        let old = owners[service]
        guard new != old else { return }
        owners[service] = new
        if old != nil {
            logger.info("a call service has left the bus", metadata: ["service": "\(service.rawValue)"])
            carryOut(machine.handle(.vanished(service), at: .now))
        }
        if new != nil {
            logger.info("a call service is on the bus", metadata: ["service": "\(service.rawValue)"])
            carryOut(machine.handle(.appeared(service), at: .now))
        }
    }

    private func received(_ message: DBusMessage, from service: CallService) {
        guard let path = message.path, let interface = message.interface, let member = message.member else { return }
        let signal = CallSignal(
            serial: message.serial, path: path, interface: interface, member: member, arguments: message.arguments)
        carryOut(machine.handle(.signal(service, signal), at: message.receivedAt))
    }

    private func carryOut(_ actions: [CallsStateMachine.Action]) {
        var complaints = 0
        for action in actions {
            switch action {
            case .ask(let service, let question, let number): ask(service, question, number)
            case .report(let calls): handler(calls)
            case .complain(let service, let what):
                complaints += 1
                guard complaints <= Self.complaintsMaximum else { continue }
                logger.warning(
                    "calls of a service cannot be followed in full",
                    metadata: ["service": "\(service.rawValue)", "reason": "\(what)"])
            }
        }
        timer?.cancel()
        guard isStarted, let deadline = machine.nextDeadline else { return }
        timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.carryOut($0.machine.handleTimeout(at: .now)) }
        }
    }

    private func ask(_ service: CallService, _ question: CallQuestion, _ number: UInt64) {
        Task { [weak self, bus] in
            let event: CallsStateMachine.Event
            do throws(DBusError) {
                let answer = try await bus.callForMessage(
                    destination: service.busName, path: question.path, interface: question.interface,
                    method: question.method, arguments: question.arguments, timeout: Self.answerTimeout,
                    startsService: false)
                event = .answered(service, number: number, serial: answer.serial, arguments: answer.arguments)
            } catch {
                event = .failed(
                    service, number: number, reason: Self.words(error, service), isFinal: Self.isFinal(error))
            }
            await self?.finish(event)
        }
    }

    private func finish(_ event: CallsStateMachine.Event) { carryOut(machine.handle(event, at: .now)) }

    /// Whether asking again cannot help. A service that says "not now" will signal when it can.
    private static func isFinal(_ error: DBusError) -> Bool {
        switch error {
        case .timedOut, .limitReached: false
        default: true
        }
    }

    private static func words(_ error: DBusError, _ service: CallService) -> String {
        guard error.remoteName?.hasSuffix(".AccessDenied") == true else { return "\(error)" }
        return
            "the bus does not let pttd ask \(service.busName), so calls that began before pttd are not seen; allow it "
            + "in a policy file below /etc/dbus-1/system.d (\(error))"
    }
}
