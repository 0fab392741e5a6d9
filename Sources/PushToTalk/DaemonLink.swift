// The app's side of org.pttd: it finds pttd, registers with it, and registers again after pttd restarts.
import DBus
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import Synchronization

/// What a channel manager needs to know before it is made.
struct LinkSettings: Sendable {
    /// The buses to look for pttd on, in this order.
    var buses: [DBusAddress] = [.session, .system]
    /// The app's well-known bus name.
    var applicationName: String?
    /// Where the delegates are called.
    var delegateQueue: DispatchQueue = .main
    /// How long the app may take to complete a service update. pttd waits no longer.
    var serviceUpdateLimit = PTTBusLimits.serviceUpdateAnswer
}

/// One app's connection to pttd.
actor DaemonLink {
    /// The loop it lives on.
    nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    nonisolated let caller: DelegateCaller

    static let delegatePath: DBusObjectPath = "/org/pttd/application"
    static let rootPath: DBusObjectPath = "/org/pttd"
    /// How long the app's queue may take to run anything before it counts as not running.
    static let queueLimit = Duration.seconds(5)
    /// Requests that have not been handed to the bus; beyond it they fail.
    static let outboxMax = 256
    /// How long the answer to a push waits for pttd to take a stop that the app asked for before it.
    static let stopLimit = Duration.seconds(1)
    static let firstRetry = Duration.milliseconds(100)
    static let longestRetry = Duration.seconds(10)

    private let settings: LinkSettings
    private let logger: Logger
    nonisolated let outbox = Mutex<[@Sendable (isolated DaemonLink) -> Void]>([])
    private(set) var bus: DBusConnection?
    var machine = DelegateStateMachine()
    /// pttd's unique name while it is there.
    private(set) var daemon: String?
    /// The one that knows this app.
    private var registered: String?
    /// Whether the first registration is over: from then on pttd's coming and going is this actor's business.
    private var isStarted = false
    private var retry: EventLoop.Timer?
    var stopWaiters: [CheckedContinuation<Void, Never>] = []
    private var retryDelay = DaemonLink.firstRetry
    var nearby = NearbyFollowers()

    init(settings: LinkSettings, caller: DelegateCaller, logger: Logger) throws(PTInstantiationError) {
        self.settings = settings
        self.caller = caller
        self.logger = logger
        do {
            loop = try EventLoop(name: "pushtotalk")
        } catch {
            throw PTInstantiationError(.unknown, explanation: "no thread for the channel manager: \(error)")
        }
    }

    // MARK: Starting

    /// Finds pttd, and registers with it; when this returns the app's channel is restored.
    func start() async throws(PTInstantiationError) {
        guard await caller.queue.runs(within: Self.queueLimit, on: loop) else {
            throw PTInstantiationError(
                .unknown,
                explanation:
                    "the delegates' queue does not run: have the main thread call dispatchMain() or RunLoop.main.run(), "
                    + "or set PTChannelManager.delegateQueue to a queue of your own before asking for the channel manager"
            )
        }
        let bus = try await findBus()
        self.bus = bus
        do throws(DBusError) {
            try await bus.export([try delegateExport()], at: Self.delegatePath)
        } catch {
            throw PTInstantiationError(.unknown, explanation: "\(error)")
        }
        if let name = settings.applicationName { try await own(name, on: bus) }
        do throws(DBusError) {
            _ = try await bus.watchName(PTTBus.name) { [weak self] owner in
                self?.assumeIsolated { $0.ownerChanged(owner) }
            }
            try await bus.addMatch(
                DBusMatchRule(
                    sender: PTTBus.name, path: Self.rootPath, interface: PTTBus.managerInterface,
                    member: PTTBus.registrationEnded)
            ) { [weak self] _ in
                guard let self else { return }
                Task {
                    // The calls that came before it have begun when the bus has answered a question.
                    _ = try? await bus.owner(of: PTTBus.name)
                    await self.registrationEnded()
                }
            }
            try await register(on: bus)
        } catch {
            throw PTInstantiationError(registering: error)
        }
        isStarted = true
        // It may have been restarted since.
        if daemon != registered, daemon != nil { registerAgain() }
    }

    private func findBus() async throws(PTInstantiationError) -> DBusConnection {
        var refusal: DBusError?
        for address in settings.buses {
            let bus = DBusConnection(to: address, on: loop, logger: logger)
            do throws(DBusError) {
                try await bus.connect()
                if try await bus.owner(of: PTTBus.name) != nil { return bus }
            } catch {
                // A refusal by policy says more than an absent bus.
                if error.remoteName != nil { refusal = error }
            }
            await bus.close()
        }
        if let refusal { throw PTInstantiationError(registering: refusal) }
        let looked = settings.buses.map { "\($0)" }.joined(separator: " and the ")
        throw PTInstantiationError(
            .invalidPlatform,
            explanation: "pttd is not running (looked for \(PTTBus.name) on the \(looked)); "
                + "start it: 'systemctl --user start pttd', or 'sudo systemctl start pttd' for the whole machine")
    }

    private func own(_ name: String, on bus: DBusConnection) async throws(PTInstantiationError) {
        do throws(DBusError) {
            try await bus.requestName(name)
        } catch {
            let reason =
                switch error {
                case .nameTaken:
                    "it belongs to another process or connection (a toolkit may own the desktop file's name: take one of its own, "
                        + "such as \(name).PushToTalk)"
                case .invalid: "it is not a bus name: write one such as org.example.Radio"
                default: "the bus refuses it (\(error)); its policy has to allow owning it"
                }
            throw PTInstantiationError(.missingEntitlement, explanation: "cannot own the bus name \(name): \(reason)")
        }
    }

    private func register(on bus: DBusConnection) async throws(DBusError) {
        let asked = daemon
        let answer = try await bus.call(
            destination: PTTBus.name, path: Self.rootPath, interface: PTTBus.managerInterface,
            method: "RegisterApplication",
            arguments: [
                .string(settings.applicationName ?? ""), .objectPath(Self.delegatePath), .properties([:]),
            ])
        // The answer of one that is gone is no news.
        guard asked == daemon else { throw .disconnected }
        registered = asked
        let state = answer.first?.propertiesValue ?? [:]
        let channel = state["ActiveChannel"]?.stringValue.flatMap { UUID(uuidString: $0) }
        await tell(.registered(activeChannel: channel))
    }

    /// Takes the app off pttd's list and ends the thread.
    nonisolated func stop() {
        loop.execute { self.assumeIsolated { $0.close() } }
        loop.stop()
    }

    private func close() {
        isStarted = false
        retry?.cancel()
        bus?.assumeIsolated { $0.close() }
    }

    // MARK: pttd comes and goes

    private func ownerChanged(_ owner: String?) {
        guard owner != daemon else { return }
        let wasThere = daemon != nil
        daemon = owner
        retry?.cancel()
        if wasThere {
            logger.notice("pttd has left the bus; the channel returns when pttd does")
            caller.post(machine.handle(.daemonGone, at: .now))
            if !nearby.continuations.isEmpty { nearby.tell(PTNearbyList(problem: "pttd is not running")) }
        }
        guard isStarted, owner != nil else { return }
        retryDelay = Self.firstRetry
        registerAgain()
    }

    /// pttd calls this app's delegate no more, because it has not answered for long.
    private func registrationEnded() {
        logger.warning(
            "pttd has ended the registration: the delegate left too many calls unanswered; registering again")
        registered = nil
        caller.post(machine.handle(.daemonGone, at: .now))
        retry?.cancel()
        retryDelay = Self.firstRetry
        registerAgain()
    }

    private func registerAgain() {
        guard let bus, let expected = daemon, isStarted else { return }
        Task {
            do {
                try await register(on: bus)
                logger.notice("registered with pttd again")
                if !nearby.continuations.isEmpty { await browse() }
            } catch {
                guard expected == daemon, isStarted else { return }
                logger.warning("pttd does not register this app yet", metadata: ["why": "\(error)"])
                retry = loop.schedule(after: retryDelay) { [weak self] in
                    self?.assumeIsolated { $0.registerAgain() }
                }
                retryDelay = min(retryDelay * 2, Self.longestRetry)
            }
        }
    }

    // MARK: What pttd calls

    /// Tells the delegate, and waits for its return.
    private func tell(_ event: DelegateStateMachine.Event, route: PTAudioSession.Route? = nil) async {
        let actions = machine.handle(event, at: .now)
        guard !actions.isEmpty else { return }
        await withCheckedContinuation { continuation in
            caller.post(actions, route: route) { continuation.resume() }
        }
    }

    /// Tells the delegate what pttd calls, and waits for its return.
    func called(_ callback: DelegateCallback, route: PTAudioSession.Route? = nil) async throws {
        let actions = machine.handle(.called(callback), at: .now)
        for case .refuse(let why) in actions {
            logger.error("call of pttd refused", metadata: ["why": "\(why)"])
            throw DBusErrorReply.failed(why)
        }
        await withCheckedContinuation { continuation in
            caller.post(actions, route: route) { continuation.resume() }
        }
        await sendOutbox()
    }

    /// Asks the delegate something; what it wants done meanwhile is on its way when this returns.
    func asked<Value: Sendable>(
        _ body: @escaping @Sendable (isolated DelegateCaller, PTChannelManager, Delegates) -> Value
    ) async throws -> Value {
        guard let value = await caller.result(body) else {
            throw DBusErrorReply.failed("the channel manager is gone")
        }
        await sendOutbox()
        return value
    }

    /// Tells of a push without a speaker, and waits until the app is done with it, within the limit.
    func serviceUpdate(_ push: IncomingPush, isHighPriority: Bool, remainingHighPriorityBudget: Int) async throws {
        let work = Task { [caller] in
            await caller.serviceUpdate(
                push, isHighPriority: isHighPriority, remainingHighPriorityBudget: remainingHighPriorityBudget)
        }
        let limit = loop.schedule(after: settings.serviceUpdateLimit) { work.cancel() }
        await work.value
        await sendOutbox()
        guard limit.isPending else {
            throw DBusErrorReply.failed("the app did not complete the service update in time")
        }
        limit.cancel()
    }
}
