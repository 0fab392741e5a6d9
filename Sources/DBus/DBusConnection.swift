// A connection to a bus: connecting, reconnecting, and calls.
import Logging
import MonotonicTime
import Reactor

/// Whether there is a bus.
public enum DBusConnectionState: Hashable, Sendable {
    /// Not connected. With the reason when it was lost; nil when it was closed or never opened.
    case disconnected(DBusError?)
    /// Connected under this unique name, with all matches, names and objects in place.
    case connected(uniqueName: String)
}

/// A connection to a message bus, pinned to an event loop.
///
/// Everything it calls (signal handlers, method handlers, state changes) it calls on the loop, in order of arrival.
/// When the bus goes away, calls in flight fail with `DBusError.disconnected`; with `reconnects` the connection comes
/// back by itself, with bounded backoff, and restores matches, names and exported objects. Call `close()` at the end.
public actor DBusConnection {
    /// The loop it lives on.
    public nonisolated let loop: EventLoop
    /// The loop, as the actor's executor.
    public nonisolated var unownedExecutor: UnownedSerialExecutor { loop.asUnownedSerialExecutor() }
    /// The bus.
    public nonisolated let address: DBusAddress

    static let busName = "org.freedesktop.DBus"
    static let busPath: DBusObjectPath = "/org/freedesktop/DBus"
    /// The time-out of calls that name none: libdbus's own default.
    public static let defaultTimeout = Duration.seconds(25)
    private static let handshakeTimeout = Duration.seconds(10)
    /// The delays before attempts to reach a bus that went away.
    static let reconnecting = Backoff(first: .milliseconds(50), longest: .seconds(10))

    nonisolated let logger: Logger
    private let reconnects: Bool
    private var transport: BusTransport?
    /// Counts transports, so that what was awaited on an old one is not taken for news of the new one.
    private(set) var generation = 0
    private var isWanted = false
    private let opener: BusOpener
    /// The attempt to connect that is under way.
    private var attempt: (number: Int, task: Task<Result<Void, DBusError>, Never>)?
    private var attempts = 0
    private var backoff = DBusConnection.reconnecting
    private var reconnectTimer: EventLoop.Timer?
    private var pending: [UInt32: PendingCall] = [:]
    private var serialOfCall: [UInt64: UInt32] = [:]
    private var nextCall: UInt64 = 1
    private var stateHandler: (@Sendable (DBusConnectionState) -> Void)?

    /// Whether there is a bus.
    public private(set) var state = DBusConnectionState.disconnected(nil)

    var matches = MatchTable()
    var names: [String: WatchedName] = [:]
    /// The names that we want to own, and how they are asked for.
    var requestedNames: [String: UInt32] = [:]
    var objects = ObjectTree()
    var runningHandlers = 0
    var floodGate: SignalFloodGate?
    var callFloods: CallFloods?
    var runningHandlersOfCaller: [String: Int] = [:]
    var ledger = AnswerLedger()
    /// Our questions whether a caller reads, by their serial numbers.
    private var pings: [UInt32: String] = [:]
    private var warned = OncePerSender()
    private var congestion = Congestion()

    private struct PendingCall {
        let continuation: CheckedContinuation<Result<DBusMessage, DBusError>, Never>
        let timer: EventLoop.Timer
        let identifier: UInt64
        let destination: String
        let description: String
    }

    /// A connection that is not connected yet.
    ///
    /// - Parameters:
    ///   - address: The bus.
    ///   - loop: Where it lives and calls its handlers.
    ///   - reconnects: Whether to come back by itself after the bus was lost.
    @_semantics("optimize.no.crossmodule")  // Swift 6.3: "circular reference" where an importer inlines this.
    public init(to address: DBusAddress, on loop: EventLoop, logger: Logger, reconnects: Bool = true) {
        self.address = address
        self.loop = loop
        self.logger = logger
        self.reconnects = reconnects
        opener = BusOpener(on: loop)
    }

    isolated deinit {
        reconnectTimer?.cancel()
        transport?.close()
        for call in pending.values {
            call.timer.cancel()
            call.continuation.resume(returning: .failure(.disconnected))
        }
    }

    // MARK: Connecting

    /// The handler for changes of `state`, called on the loop.
    public func onStateChange(_ handler: (@Sendable (DBusConnectionState) -> Void)?) { stateHandler = handler }

    /// The name the bus gave us; nil while not connected.
    public var uniqueName: String? {
        if case .connected(let name) = state { return name }
        return nil
    }

    /// Connects. No effect when connected; several callers at once share one attempt.
    ///
    /// - Parameter retrying: Whether a bus that cannot be reached is tried again in the background, as after a loss;
    ///   the error is thrown all the same.
    /// - Throws: `DBusError.connectFailed`, or what made the handshake fail.
    public func connect(retrying: Bool = false) async throws(DBusError) {
        guard uniqueName == nil else { return }
        isWanted = true
        reconnectTimer?.cancel()
        do throws(DBusError) {
            try await establish()
        } catch {
            if retrying, reconnects { scheduleReconnect() } else { isWanted = transport != nil }
            throw error
        }
    }

    /// Disconnects for good: calls in flight fail, nothing is restored until the next `connect()`.
    public func close() {
        isWanted = false
        reconnectTimer?.cancel()
        reconnectTimer = nil
        // An attempt that is under way finds that it is not wanted any more.
        generation += 1
        attempt = nil
        if transport != nil { drop(reason: nil) }
    }

    /// Returns when the bus has answered the handshake, of an attempt that is under way, too.
    private func establish() async throws(DBusError) {
        if let attempt { return try await attempt.task.value.get() }
        attempts += 1
        let number = attempts
        let task = Task { () -> Result<Void, DBusError> in
            defer { if attempt?.number == number { attempt = nil } }
            do throws(DBusError) { return .success(try await shakeHands()) } catch { return .failure(error) }
        }
        attempt = (number, task)
        try await task.value.get()
    }

    private func open(_ address: String) async throws(DBusError) -> OpenedBus {
        try await withCheckedContinuation { continuation in
            opener.open(address, within: Self.handshakeTimeout) { continuation.resume(returning: $0) }
        }.get()
    }

    private func shakeHands() async throws(DBusError) {
        guard let resolved = address.resolved else {
            throw .connectFailed(
                address: address.description, reason: "DBUS_SESSION_BUS_ADDRESS is not set")
        }
        generation += 1
        let current = generation
        let opened = try await open(resolved)
        guard current == generation else {
            opened.close()
            throw .disconnected
        }
        transport = try BusTransport(
            opened, loop: loop,
            admits: { [weak self] message in
                nonisolated(unsafe) let message = message
                return self?.assumeIsolated { $0.admits(message) } ?? true
            },
            onMessage: { [weak self] message in self?.assumeIsolated { $0.received(message, generation: current) } },
            onClosed: { [weak self] in self?.assumeIsolated { $0.lost(generation: current) } })
        do throws(DBusError) {
            let reply = try await callBus("Hello", [], timeout: Self.handshakeTimeout)
            let name: String = try reply.argument(0)
            try await restoreMatches(generation: current)
            try await restoreNames(generation: current)
            guard current == generation, transport != nil else { throw .disconnected }
            backoff.reset()
            change(to: .connected(uniqueName: name))
        } catch {
            if current == generation, transport != nil { drop(reason: error) }
            if case .disconnected = error {
                throw .connectFailed(address: resolved, reason: "the bus closed the connection during the handshake")
            }
            throw error
        }
    }

    private func change(to new: DBusConnectionState) {
        guard new != state else { return }
        state = new
        switch new {
        case .connected(let name):
            logger.debug("bus connected", metadata: ["bus": "\(address)", "name": "\(name)"])
        case .disconnected(let reason?):
            logger.warning("bus lost", metadata: ["bus": "\(address)", "reason": "\(reason)"])
        case .disconnected(nil): logger.debug("bus closed", metadata: ["bus": "\(address)"])
        }
        stateHandler?(new)
    }

    private func lost(generation: Int) {
        guard generation == self.generation, transport != nil else { return }
        let wasUp = uniqueName != nil
        drop(reason: .disconnected)
        // A loss during the handshake fails `establish`, whose caller decides.
        if wasUp, isWanted, reconnects { scheduleReconnect() }
    }

    private func drop(reason: DBusError?) {
        let old = transport
        transport = nil
        generation += 1
        old?.close()
        resetFloodGate()
        resetCallFloods()
        let calls = pending.values.sorted { $0.identifier < $1.identifier }
        pending = [:]
        serialOfCall = [:]
        pings = [:]
        ledger = AnswerLedger()
        congestion = Congestion()
        for call in calls {
            call.timer.cancel()
            call.continuation.resume(returning: .failure(.disconnected))
        }
        forgetOwners()
        change(to: .disconnected(reason))
    }

    private func scheduleReconnect() {
        reconnectTimer?.cancel()
        reconnectTimer = loop.schedule(after: backoff.delay()) { [weak self] in
            self?.assumeIsolated { connection in
                _ = Task { await connection.reconnect() }
            }
        }
    }

    private func reconnect() async {
        guard isWanted, uniqueName == nil else { return }
        do throws(DBusError) {
            try await establish()
        } catch {
            logger.debug("bus still unreachable", metadata: ["bus": "\(address)", "reason": "\(error)"])
            if isWanted, transport == nil { scheduleReconnect() }
        }
    }

    /// A number that this connection has not used yet.
    func newIdentifier() -> UInt64 {
        defer { nextCall += 1 }
        return nextCall
    }

    // MARK: Calls

    /// Calls a method and returns the answer's arguments.
    ///
    /// - Parameters:
    ///   - destination: The unique or well-known name of the service.
    ///   - timeout: How long to wait for the answer.
    ///   - startsService: Whether the bus may start the service when it is not running.
    /// - Throws: `DBusError.remote` when the service answers with an error, `.timedOut`, `.cancelled` when the task
    ///   is cancelled (the answer is then ignored), `.disconnected`, `.invalid` for bad names or values.
    @discardableResult
    public func call(
        destination: String, path: DBusObjectPath, interface: String, method: String, arguments: [DBusValue] = [],
        timeout: Duration = DBusConnection.defaultTimeout, startsService: Bool = true
    ) async throws(DBusError) -> [DBusValue] {
        try await callForMessage(
            destination: destination, path: path, interface: interface, method: method, arguments: arguments,
            timeout: timeout, startsService: startsService
        ).arguments
    }

    /// Calls a method and returns the whole answer. Its serial number tells which of the service's signals were sent
    /// before it (smaller) and which after.
    public func callForMessage(
        destination: String, path: DBusObjectPath, interface: String, method: String, arguments: [DBusValue] = [],
        timeout: Duration = DBusConnection.defaultTimeout, startsService: Bool = true
    ) async throws(DBusError) -> DBusMessage {
        let message = OutgoingMessage(
            kind: .call(destination: destination, path: path, interface: interface, member: method),
            arguments: arguments, startsService: startsService)
        let identifier = newIdentifier()
        let description = "\(interface).\(method) of \(destination)"
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                begin(
                    message, identifier: identifier, destination: destination, description: description,
                    timeout: timeout, continuation)
            }
        } onCancel: {
            loop.execute { [weak self] in self?.assumeIsolated { $0.cancel(identifier) } }
        }
        return try result.get()
    }

    /// Sends a call whose answer nobody waits for.
    public func send(
        destination: String, path: DBusObjectPath, interface: String, method: String, arguments: [DBusValue] = []
    ) throws(DBusError) {
        try send(
            OutgoingMessage(
                kind: .call(destination: destination, path: path, interface: interface, member: method),
                arguments: arguments))
    }

    func callBus(
        _ method: String, _ arguments: [DBusValue], timeout: Duration = DBusConnection.defaultTimeout
    ) async throws(DBusError) -> [DBusValue] {
        try await call(
            destination: Self.busName, path: Self.busPath, interface: Self.busName, method: method,
            arguments: arguments, timeout: timeout)
    }

    @discardableResult
    func send(_ message: OutgoingMessage) throws(DBusError) -> UInt32 {
        guard let transport else { throw .disconnected }
        do throws(DBusError) {
            let serial = try transport.send(message)
            congestion.sent()
            return serial
        } catch {
            if case .limitReached = error, transport.isCongested, congestion.failed(at: .now) { giveUp() }
            throw error
        }
    }

    /// The bus has accepted nothing for `Congestion.timeout`: recipients that do not read have used up this
    /// connection's quota. A new connection starts with an empty quota.
    private func giveUp() {
        logger.error(
            "the bus accepts no more messages; reconnecting",
            metadata: ["bus": "\(address)", "seconds": "\(Congestion.timeout.components.seconds)"])
        let current = generation
        loop.execute { [weak self] in self?.assumeIsolated { $0.lost(generation: current) } }
    }

    private func begin(
        _ message: OutgoingMessage, identifier: UInt64, destination: String, description: String, timeout: Duration,
        _ continuation: CheckedContinuation<Result<DBusMessage, DBusError>, Never>
    ) {
        guard pending.count < DBusLimits.pendingCalls else {
            continuation.resume(returning: .failure(.limitReached("\(DBusLimits.pendingCalls) calls waiting")))
            return
        }
        do throws(DBusError) {
            let serial = try send(message)
            let timer = loop.schedule(after: timeout) { [weak self] in
                self?.assumeIsolated { $0.finish(serial, .failure(.timedOut(description))) }
            }
            pending[serial] = PendingCall(
                continuation: continuation, timer: timer, identifier: identifier, destination: destination,
                description: description)
            serialOfCall[identifier] = serial
        } catch {
            continuation.resume(returning: .failure(error))
        }
    }

    private func cancel(_ identifier: UInt64) {
        if let serial = serialOfCall[identifier] { finish(serial, .failure(.cancelled)) }
    }

    private func finish(_ serial: UInt32, _ result: Result<DBusMessage, DBusError>) {
        guard let call = pending.removeValue(forKey: serial) else { return }
        serialOfCall[call.identifier] = nil
        call.timer.cancel()
        call.continuation.resume(returning: result)
    }

    // MARK: What arrives

    /// Takes up a message that was kept.
    func takeUp(_ message: KeptMessage) { transport?.handOn(message.pointer) }

    /// Keeps the message that has just arrived, to take it up later.
    func keepCurrent() -> KeptMessage? { transport?.keepCurrent() }

    private func received(_ head: DBusMessage, generation: Int) {
        guard generation == self.generation else { return }
        switch head.kind {
        case .methodReturn, .error: answered(head)
        case .signal: deliver(head)
        case .methodCall: if admitsCall(head) { serve(head) }
        }
    }

    /// Reads the message that has just arrived, whose head is known.
    ///
    /// - Throws: `.limitReached` and `.invalid`; it has been logged with sender and size.
    func read(_ head: DBusMessage) throws(DBusError) -> DBusMessage {
        guard let transport else { throw .disconnected }
        var message = head
        do throws(DBusError) {
            message.arguments = try transport.readArguments()
        } catch {
            warn("message refused", of: head, ["bytes": "\(transport.measureArguments())", "why": "\(error)"])
            throw error
        }
        return message
    }

    /// Nobody here asked for this signal, but it was sent to us alone.
    func ignored(_ head: DBusMessage) {
        guard head.destination != nil, let transport else { return }
        warn("signal ignored", of: head, ["bytes": "\(transport.measureArguments())"])
    }

    /// Logs a warning about a message, at most once a minute per sender.
    func warn(_ what: Logger.Message, of message: DBusMessage, _ details: Logger.Metadata) {
        guard warned.mayTell(of: message.sender ?? "", at: .now) else { return }
        var metadata = details
        metadata["sender"] = "\(message.sender ?? "")"
        if let member = message.member { metadata["member"] = "\(message.interface.map { "\($0)." } ?? "")\(member)" }
        logger.warning(what, metadata: metadata)
    }

    /// Accepts an answer only from the recipient of the call, as far as that can be checked: any client can send an
    /// "answer".
    private func answered(_ head: DBusMessage) {
        let isFromBus = head.sender == Self.busName
        if let caller = pings[head.replySerial] {
            guard isFromBus || head.sender == caller else { return }
            pings[head.replySerial] = nil
            return ledger.answered(caller, PingAnswer(head, isFromBus: isFromBus))
        }
        guard let call = pending[head.replySerial] else { return }
        if DBusName.isUnique(call.destination), head.sender != call.destination, !isFromBus {
            return warn("answer from an unexpected sender dropped", of: head, [:])
        }
        let result: Result<DBusMessage, DBusError>
        do throws(DBusError) {
            let message = try read(head)
            guard head.kind == .error else { return finish(head.replySerial, .success(message)) }
            result = .failure(
                .remote(
                    name: head.errorName ?? "org.freedesktop.DBus.Error.Failed",
                    message: message.arguments.first?.stringValue ?? ""))
        } catch {
            result = .failure(error)
        }
        finish(head.replySerial, result)
    }

    /// Asks a caller for a sign that it has read what was sent to it.
    func ping(_ caller: String) {
        let message = OutgoingMessage(
            kind: .call(destination: caller, path: "/", interface: "org.freedesktop.DBus.Peer", member: "Ping"),
            startsService: false)
        guard let serial = try? send(message) else { return ledger.answered(caller, .unknown) }
        pings[serial] = caller
    }
}

extension PingAnswer {
    /// What the answer to a ping says.
    fileprivate init(_ answer: DBusMessage, isFromBus: Bool) {
        // Whatever the caller itself answers, it has read the question.
        guard isFromBus else {
            self = .read
            return
        }
        switch answer.errorName {
        case "org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.ServiceUnknown",
            "org.freedesktop.DBus.Error.NameHasNoOwner":
            self = .gone
        default: self = .unknown
        }
    }
}
