// Decides which callbacks the delegate gets: it keeps the documented order across restarts of pttd, and answers each
// request once.
import MonotonicTime
import PushToTalkCore

/// The rules between pttd's calls and the app's delegate. No I/O.
struct DelegateStateMachine {
    /// A request that an app makes without waiting. The delegate gets the outcome as a callback.
    enum Request: Hashable, Sendable {
        case join, leave, begin, stop
    }

    /// Why a request failed.
    struct Failure: Hashable, Sendable {
        var error: PTChannelError
        /// Whether pttd calls the delegate about it as well.
        var isCalledBack: Bool
    }

    /// Something that happened.
    enum Event: Sendable {
        /// pttd calls a method of the delegate.
        case called(DelegateCallback)
        /// The app's request is on its way to pttd.
        case requested(Request, UUID)
        /// pttd answered the request, or nobody did; nil: accepted.
        case answered(Request, UUID, Failure?)
        /// pttd left the bus, or the bus is gone.
        case daemonGone
        /// pttd knows this app (again), and says which channel it has.
        case registered(activeChannel: UUID?)
    }

    /// What is to be done, in this order.
    enum Action: Hashable, Sendable {
        /// Call the delegate.
        case tell(DelegateCallback)
        /// The channel is there (again), or not to be used for the time being.
        case activeChannelChanged(UUID?)
        /// pttd made a call out of order; it is not passed on.
        case refuse(String)
    }

    /// pttd reports what its rules refuse twice, as an answer and as a callback. Within this time, pttd's own limit for
    /// an answer, both count as one.
    static let repetitionLimit = Duration.seconds(10)
    /// Requests that wait for their answers; beyond it one fails at once.
    static let requestsMax = 256

    private struct Key: Hashable {
        let request: Request
        let channel: UUID
    }

    /// What is known about the requests of one kind for one channel.
    private struct Progress {
        /// Not answered yet.
        var waiting = 0
        /// Of those, the requests whose outcome the delegate already got as a callback.
        var told = 0
        /// Failures that were reported because of an answer, and that pttd calls back about. Until these times that
        /// callback is dropped.
        var repetitionsUntil: [Instant] = []
    }

    private var order = DelegateCallbackOrder()
    private var channel: UUID?
    /// The channel the app had when pttd went away: it is restored, or else has been left.
    private var lost: UUID?
    private var progress: [Key: Progress] = [:]
    private var actions: [Action] = []

    /// Takes an event in and gives what is to be done.
    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .called(let callback): called(callback, at: now)
        case .requested(let request, let uuid):
            progress[Key(request: request, channel: uuid), default: .init()].waiting += 1
        case .answered(let request, let uuid, let failure):
            answered(Key(request: request, channel: uuid), failure, at: now)
        case .daemonGone: daemonGone()
        case .registered(let active): registered(active)
        }
        forget(at: now)
        defer { actions = [] }
        return actions
    }

    /// Whether a request of this kind is not answered.
    func isWaiting(for request: Request) -> Bool {
        progress.contains { $0.key.request == request && $0.value.waiting > 0 }
    }

    /// Requests that are not answered.
    var waitingCount: Int { progress.values.reduce(0) { $0 + $1.waiting } }

    // MARK: Callbacks

    private mutating func called(_ callback: DelegateCallback, at now: Instant) {
        switch callback {
        case .didJoinChannel(let uuid, _): joined(uuid, callback)
        case .didLeaveChannel(let uuid, _):
            if channel == nil, lost == uuid {
                lost = nil
                settle(.leave, uuid)
                actions.append(.tell(callback))
            } else if accept(callback) {
                channel = nil
                settle(.leave, uuid)
                actions += [.activeChannelChanged(nil), .tell(callback)]
            }
        case .didBeginTransmitting(let uuid, let source):
            guard accept(callback) else { return }
            if source == .developerRequest { settle(.begin, uuid) }
            actions.append(.tell(callback))
        case .didEndTransmitting(let uuid, _):
            guard accept(callback) else { return }
            settle(.stop, uuid)
            actions.append(.tell(callback))
        case .didActivateAudioSession, .didDeactivateAudioSession:
            if accept(callback) { actions.append(.tell(callback)) }
        case .failedToJoinChannel(let uuid, _): failed(.join, uuid, callback, at: now)
        case .failedToLeaveChannel(let uuid, _): failed(.leave, uuid, callback, at: now)
        case .failedToBeginTransmitting(let uuid, _): failed(.begin, uuid, callback, at: now)
        case .failedToStopTransmitting(let uuid, _): failed(.stop, uuid, callback, at: now)
        // Tokens and pushes change nothing here: DaemonLink hands them over as they come.
        case .receivedEphemeralPushToken, .incomingPush, .incomingServiceUpdatePush: break
        }
    }

    private mutating func accept(_ callback: DelegateCallback) -> Bool {
        guard order.accept(callback) else {
            actions.append(.refuse("\(callback) is out of order"))
            return false
        }
        return true
    }

    private mutating func joined(_ uuid: UUID, _ callback: DelegateCallback) {
        guard accept(callback) else { return }
        leaveLost(unless: uuid)
        channel = uuid
        settle(.join, uuid)
        actions += [.activeChannelChanged(uuid), .tell(callback)]
    }

    /// The app knows a channel that did not return.
    private mutating func leaveLost(unless uuid: UUID?) {
        if let lost, lost != uuid { actions.append(.tell(.didLeaveChannel(lost, reason: .unknown))) }
        lost = nil
    }

    // MARK: Requests

    /// A callback has told the delegate the outcome of a request, so the answer to the request is not reported again.
    private mutating func settle(_ request: Request, _ uuid: UUID) {
        let key = Key(request: request, channel: uuid)
        guard let entry = progress[key], entry.waiting > entry.told else { return }
        progress[key]?.told += 1
    }

    private mutating func failed(_ request: Request, _ uuid: UUID, _ callback: DelegateCallback, at now: Instant) {
        let key = Key(request: request, channel: uuid)
        if let until = progress[key]?.repetitionsUntil.first, now < until {
            progress[key]?.repetitionsUntil.removeFirst()
            return
        }
        settle(request, uuid)
        actions.append(.tell(callback))
    }

    private mutating func answered(_ key: Key, _ failure: Failure?, at now: Instant) {
        guard var entry = progress[key], entry.waiting > 0 else { return }
        entry.waiting -= 1
        if entry.told > 0 {
            entry.told -= 1
        } else if let failure {
            if failure.isCalledBack { entry.repetitionsUntil.append(now + Self.repetitionLimit) }
            actions.append(.tell(key.request.failure(key.channel, failure.error)))
        }
        progress[key] = entry
    }

    private mutating func forget(at now: Instant) {
        for (key, var entry) in progress {
            entry.repetitionsUntil.removeAll { $0 <= now }
            progress[key] = entry.waiting == 0 && entry.repetitionsUntil.isEmpty ? nil : entry
        }
    }

    // MARK: pttd comes and goes

    private mutating func daemonGone() {
        // It calls back about nothing any more.
        for key in progress.keys { progress[key]?.repetitionsUntil = [] }
        guard let channel else { return }
        if order.isTransmitting { actions.append(.tell(.didEndTransmitting(channel, source: .unknown))) }
        if order.isSessionActive { actions.append(.tell(.didDeactivateAudioSession)) }
        actions.append(.activeChannelChanged(nil))
        order = DelegateCallbackOrder()
        lost = channel
        self.channel = nil
    }

    private mutating func registered(_ active: UUID?) {
        guard channel == nil else { return }
        if let active {
            joined(active, .didJoinChannel(active, reason: .channelRestoration))
        } else {
            leaveLost(unless: nil)
        }
    }
}

extension DelegateStateMachine.Request {
    fileprivate func failure(_ channel: UUID, _ error: PTChannelError) -> DelegateCallback {
        switch self {
        case .join: .failedToJoinChannel(channel, error)
        case .leave: .failedToLeaveChannel(channel, error)
        case .begin: .failedToBeginTransmitting(channel, error)
        case .stop: .failedToStopTransmitting(channel, error)
        }
    }
}
