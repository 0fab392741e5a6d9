// Calling the app: its delegates, one call at a time, on the queue it chose.
import PushToTalkCore
import Reactor
import Synchronization

/// The app's delegates. They are not `Sendable`: only `DelegateCaller` calls them, and only on its queue.
struct Delegates: @unchecked Sendable {
    let manager: any PTChannelManagerDelegate
    let restoration: any PTChannelRestorationDelegate
}

/// A serial executor on top of the app's queue, whatever that is.
final class DelegateQueue: SerialExecutor {
    private let queue: DispatchQueue

    /// Serial also when `target` is not.
    init(target: DispatchQueue) { queue = DispatchQueue(label: "PushToTalk.delegate", target: target) }

    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }

    func async(_ work: @escaping @Sendable () -> Void) { queue.async(execute: work) }

    /// Whether the queue runs anything within `limit`: a main queue does so only if the main thread serves it.
    func runs(within limit: Duration, on loop: EventLoop) async -> Bool {
        let (answers, answer) = AsyncStream.makeStream(of: Bool.self, bufferingPolicy: .bufferingOldest(1))
        queue.async { answer.yield(true) }
        loop.execute { loop.schedule(after: limit) { answer.yield(false) } }
        for await runs in answers { return runs }
        return false
    }
}

/// Calls the delegates of one channel manager.
actor DelegateCaller {
    nonisolated let queue: DelegateQueue
    nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
    private nonisolated let delegates: Mutex<Delegates>
    private nonisolated let owner = Mutex<Owner>(Owner())

    private struct Owner {
        weak var manager: PTChannelManager?
    }

    init(_ delegates: Delegates, queue: DelegateQueue) {
        self.delegates = Mutex(delegates)
        self.queue = queue
    }

    /// The manager that calls are in the name of. It holds this caller, not the other way round.
    nonisolated func setManager(_ manager: PTChannelManager) { owner.withLock { $0.manager = manager } }

    /// From the next call on others are called.
    nonisolated func setDelegates(_ new: Delegates) { delegates.withLock { $0 = new } }

    /// Hands calls over in order; whatever is handed over after this is called after this.
    ///
    /// - Parameter done: Called on the queue when the delegate has returned.
    nonisolated func post(
        _ actions: [DelegateStateMachine.Action], route: PTAudioSession.Route? = nil,
        done: (@Sendable () -> Void)? = nil
    ) {
        guard !actions.isEmpty || done != nil else { return }
        queue.async {
            self.assumeIsolated { caller in
                for action in actions { caller.perform(action, route) }
            }
            done?()
        }
    }

    /// Hands a call over as `post` does, and waits for its result.
    nonisolated func result<Value: Sendable>(
        _ body: @escaping @Sendable (isolated DelegateCaller, PTChannelManager, Delegates) -> Value
    ) async -> Value? {
        await withCheckedContinuation { continuation in
            queue.async {
                continuation.resume(
                    returning: self.assumeIsolated { caller in
                        guard let manager = caller.manager else { return nil }
                        return body(caller, manager, caller.current)
                    })
            }
        }
    }

    private var manager: PTChannelManager? { owner.withLock { $0.manager } }
    private var current: Delegates { delegates.withLock { $0 } }

    private func perform(_ action: DelegateStateMachine.Action, _ route: PTAudioSession.Route?) {
        guard let manager else { return }
        switch action {
        case .activeChannelChanged(let uuid): manager.setActiveChannel(uuid)
        case .tell(let callback): tell(callback, route, manager, current.manager)
        case .refuse: break
        }
    }

    private func tell(
        _ callback: DelegateCallback, _ route: PTAudioSession.Route?, _ manager: PTChannelManager,
        _ delegate: any PTChannelManagerDelegate
    ) {
        switch callback {
        case .didJoinChannel(let uuid, let reason):
            delegate.channelManager(manager, didJoinChannel: uuid, reason: reason)
        case .failedToJoinChannel(let uuid, let error):
            delegate.channelManager(manager, failedToJoinChannel: uuid, error: error)
        case .didLeaveChannel(let uuid, let reason):
            delegate.channelManager(manager, didLeaveChannel: uuid, reason: reason)
        case .failedToLeaveChannel(let uuid, let error):
            delegate.channelManager(manager, failedToLeaveChannel: uuid, error: error)
        case .didBeginTransmitting(let uuid, let source):
            delegate.channelManager(manager, channelUUID: uuid, didBeginTransmittingFrom: source)
        case .failedToBeginTransmitting(let uuid, let error):
            delegate.channelManager(manager, failedToBeginTransmittingInChannel: uuid, error: error)
        case .didEndTransmitting(let uuid, let source):
            delegate.channelManager(manager, channelUUID: uuid, didEndTransmittingFrom: source)
        case .failedToStopTransmitting(let uuid, let error):
            delegate.channelManager(manager, failedToStopTransmittingInChannel: uuid, error: error)
        case .didActivateAudioSession:
            manager.audioSession.activated(route)
            delegate.channelManager(manager, didActivate: manager.audioSession)
        case .didDeactivateAudioSession:
            manager.audioSession.deactivated()
            delegate.channelManager(manager, didDeactivate: manager.audioSession)
        // These have their own ways, for they have answers or no order.
        case .receivedEphemeralPushToken, .incomingPush, .incomingServiceUpdatePush: break
        }
    }

    /// Tells of a push without a speaker, and waits until the app is done with it.
    func serviceUpdate(_ push: IncomingPush, isHighPriority: Bool, remainingHighPriorityBudget: Int) async {
        guard let manager, let payload = push.payload else { return }
        await current.manager.incomingServiceUpdatePush(
            channelManager: manager, channelUUID: push.channelUUID, pushPayload: payload,
            isHighPriority: isHighPriority, remainingHighPriorityBudget: remainingHighPriorityBudget)
    }
}
