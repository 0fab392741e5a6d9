// The app's requests to pttd. They are sent in order, and before the answer to the call during which the app made them.
import DBus
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import Synchronization

extension DaemonLink {
    /// Has `work` done on the loop, in order. What the app asks for inside a delegate method goes out before the
    /// method's answer.
    ///
    /// - Returns: Whether the queue had space for it.
    nonisolated func submit(_ work: @escaping @Sendable (isolated DaemonLink) -> Void) -> Bool {
        let fits = outbox.withLock { outbox in
            guard outbox.count < Self.outboxMax else { return false }
            outbox.append(work)
            return true
        }
        if fits { loop.execute { [weak self] in self?.assumeIsolated { $0.emptyOutbox() } } }
        return fits
    }

    private func emptyOutbox() {
        let work = outbox.withLock { outbox in
            defer { outbox = [] }
            return outbox
        }
        for item in work { item(self) }
    }

    /// Returns when everything that was submitted before has been handed to the bus.
    func sendOutbox() async {
        emptyOutbox()
        // The tasks that were made are queued before this, and each sends as soon as it runs.
        await withCheckedContinuation { continuation in loop.execute { continuation.resume() } }
    }

    /// Sends pttd a request whose outcome the delegate gets as a callback.
    nonisolated func request(
        _ request: DelegateStateMachine.Request, _ uuid: UUID,
        _ send: @escaping @Sendable (isolated DaemonLink) async throws(DBusError) -> Void
    ) {
        let fits = submit { link in
            link.caller.post(link.machine.handle(.requested(request, uuid), at: .now))
            guard link.machine.waitingCount <= DelegateStateMachine.requestsMax else {
                return link.answered(request, uuid, Self.notSent)
            }
            Task {
                do throws(DBusError) {
                    try await send(link)
                    link.answered(request, uuid, nil)
                } catch {
                    link.answered(request, uuid, DelegateStateMachine.Failure(error))
                }
            }
        }
        if !fits {
            loop.execute { [weak self] in
                self?.assumeIsolated { link in
                    link.caller.post(link.machine.handle(.requested(request, uuid), at: .now))
                    link.answered(request, uuid, Self.notSent)
                }
            }
        }
    }

    static let tooMany = PTChannelError(.unknown, explanation: "too many requests wait for their answers")
    private static let notSent = DelegateStateMachine.Failure(error: tooMany, isCalledBack: false)

    private func answered(
        _ request: DelegateStateMachine.Request, _ uuid: UUID, _ failure: DelegateStateMachine.Failure?
    ) {
        caller.post(machine.handle(.answered(request, uuid, failure), at: .now))
        if !machine.isWaiting(for: .stop) { resumeStopWaiters() }
    }

    private func resumeStopWaiters() {
        let waiters = stopWaiters
        stopWaiters = []
        for waiter in waiters { waiter.resume() }
    }

    /// "Stop, then receive" is one thing to pttd only when it has taken the stop before it gets the answer.
    func stopsTaken() async {
        guard machine.isWaiting(for: .stop) else { return }
        let limit = loop.schedule(after: Self.stopLimit) { [weak self] in
            self?.assumeIsolated { $0.resumeStopWaiters() }
        }
        await withCheckedContinuation { stopWaiters.append($0) }
        limit.cancel()
    }

    /// Calls a method of a channel, in order with the other things the app wants.
    ///
    /// - Parameter done: Called once, on the loop or here.
    nonisolated func inform(
        _ uuid: UUID, _ method: String, _ arguments: [DBusValue],
        done: @escaping @Sendable (Result<Void, PTChannelError>) -> Void
    ) {
        let fits = submit { link in
            Task {
                do throws(DBusError) {
                    try await link.callChannel(uuid, method, arguments)
                    done(.success(()))
                } catch {
                    done(.failure(PTChannelError(error)))
                }
            }
        }
        if !fits { done(.failure(Self.tooMany)) }
    }

    func callChannel(_ uuid: UUID, _ method: String, _ arguments: [DBusValue]) async throws(DBusError) {
        guard let bus else { throw .disconnected }
        try await bus.call(
            destination: PTTBus.name, path: try DBusObjectPath(PTTBus.channelPath(uuid)),
            interface: PTTBus.channelInterface, method: method, arguments: arguments)
    }

    func callManager(_ method: String, _ arguments: [DBusValue]) async throws(DBusError) {
        guard let bus else { throw .disconnected }
        try await bus.call(
            destination: PTTBus.name, path: Self.rootPath, interface: PTTBus.managerInterface, method: method,
            arguments: arguments)
    }
}
