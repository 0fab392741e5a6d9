// The channel manager's rules: who may talk when, and what the audio session does. No I/O, no clock.
// The state and the events live here; requests, transmissions and the audio session have a file each.

import FoundationEssentials
import MonotonicTime
import Vocabulary

/// The one channel manager of a device, after Apple's PushToTalk, as a state machine without I/O.
///
/// Events go in with the time they happened at; what is to be done comes out, to be carried out in order
/// before the next event goes in. When `nextDeadline` has come, it wants `Event.deadlineReached`.
/// docs/push-to-talk.md has the state table and every decision that Apple's documentation leaves open.
public struct ChannelManagerStateMachine: Sendable {
    /// The active channel.
    public struct Channel: Hashable, Sendable {
        /// Names the channel for as long as it is active.
        public let uuid: UUID
        /// How it is shown.
        public internal(set) var descriptor: PTChannelDescriptor
        /// When the local participant may transmit.
        public internal(set) var transmissionMode: PTTransmissionMode
        /// Whether its service can be used.
        public internal(set) var serviceStatus: PTServiceStatus
        /// Whether buttons of hands-free devices begin transmissions.
        public internal(set) var accessoryButtonEventsEnabled: Bool
        /// Whose the microphone and the speaker are.
        public let media: MediaOwner
        /// How long one transmission may last here; nil: as the configuration says.
        public let talkTimeLimit: Duration?
    }

    /// The transmission in progress.
    public struct Transmission: Hashable, Sendable {
        /// Who began it.
        public let source: PTChannelTransmitRequestSource
        /// When the begin was requested, or granted after waiting.
        public let begunAt: Instant
        /// How recording starts.
        public let captureStart: CaptureStart
        /// Whether recording has been asked for.
        public internal(set) var captureStarted = false
        /// Whether the microphone is known to record.
        public internal(set) var captureBegan = false
        /// When the talk-time limit ends it.
        public let endsAt: Instant?
        var warnsAt: Instant?
        var captureBeginsBy: Instant?
        var request: RequestIdentifier?
    }

    /// What the sound device is doing.
    public enum AudioSessionState: Hashable, Sendable {
        /// Closed.
        case inactive
        /// Being opened; counts as failed after this time.
        case activating(until: Instant)
        /// Open.
        case active
        /// Playing out and being closed; counts as closed after this time.
        case deactivating(until: Instant)
    }

    enum Capture: Hashable, Sendable {
        case idle
        case running
        case tail(until: Instant)
    }

    /// Calls at the same time; further ones are not taken note of. More than all inhibitor locks and telephone calls together
    /// (256 and 64 for each telephone service), so that each lock counts.
    public static let callsMax = 512

    /// The numbers in the rules.
    public let configuration: Configuration
    /// The active channel; at most one.
    public internal(set) var channel: Channel?
    /// The transmission in progress; its tail is not part of it.
    public internal(set) var transmission: Transmission?
    /// The begin that waits for the floor; never beside a transmission.
    public internal(set) var waiting: Waiting?
    /// The remote participant who is speaking.
    public internal(set) var activeRemoteParticipant: PTParticipant?
    /// What the sound device is doing.
    public internal(set) var audioSession: AudioSessionState = .inactive
    /// The calls that have the audio, the oldest first.
    public internal(set) var calls: [CallHold] = []
    /// The pushes, and the program behind the channel.
    public internal(set) var pushes: PushStateMachine
    /// Whether something other than a call has the audio.
    public internal(set) var isInterrupted = false
    /// Whether `Event.shutdown` has come.
    public internal(set) var isShutDown = false

    var capture: Capture = .idle
    /// The delegate knows the session as active. It may lag behind and run ahead of the device (see `dropSession`).
    var sessionTold = false
    /// The device failed for the present purpose: it is tried again for the next one, not in a loop.
    var activationBlocked = false
    /// The tones of the active channel's connection.
    var link = LinkSignal()
    /// The current begin was made before the service was ready. It ends if the service is reported as not ready again.
    var isServiceAwaited = false
    /// Sounds as soon as the session is active and nothing is being recorded.
    var pendingTone: Tone?
    /// A begin was reported, but its `transmissionAudioFinished` was not.
    var audioUnfinished = false
    /// The tone before a program gets the audio is sounding; it counts as heard after this time.
    var tonesUntil: Instant?
    var actions: [Action] = []
    var order = DelegateCallbackOrder()

    /// Where tokens come from.
    var generator: any RandomNumberGenerator & Sendable

    /// A channel manager without a channel.
    ///
    /// - Parameters:
    ///   - configuration: The numbers in the rules.
    ///   - generator: Where push tokens come from; anything but the default is for tests.
    public init(
        configuration: Configuration = Configuration(),
        generator: any RandomNumberGenerator & Sendable = SystemRandomNumberGenerator()
    ) {
        self.configuration = configuration
        self.generator = generator
        pushes = PushStateMachine(configuration: configuration.pushes)
    }

    /// Whether a call has the audio.
    public var isCallActive: Bool { !calls.isEmpty }

    /// Whether the microphone is recording, a transmission's tail included.
    public var isCapturing: Bool { capture != .idle }

    /// Whether something other than push-to-talk has the audio.
    var isSuspended: Bool { isCallActive || isInterrupted }

    /// When the machine wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? {
        var deadlines: [Instant] = []
        if let transmission {
            if let warnsAt = transmission.warnsAt { deadlines.append(warnsAt) }
            if let endsAt = transmission.endsAt { deadlines.append(endsAt) }
            if let beginsBy = transmission.captureBeginsBy { deadlines.append(beginsBy) }
        }
        if let waiting, let due = waiting.beginsBy ?? waiting.endsAt { deadlines.append(due) }
        switch audioSession {
        case .activating(let until), .deactivating(let until): deadlines.append(until)
        case .active, .inactive: break
        }
        if case .tail(let until) = capture { deadlines.append(until) }
        if let tonesUntil { deadlines.append(tonesUntil) }
        if let deadline = pushes.nextDeadline { deadlines.append(deadline) }
        if let deadline = link.deadline { deadlines.append(deadline) }
        return deadlines.min()
    }

    /// Handles an event and returns the actions to carry out, in order.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .request(let request, let identifier): handle(request, identifier, at: now)
        case .audioSessionActivated: sessionActivated()
        case .audioSessionDeactivated: sessionDeactivated()
        case .audioSessionFailed(let reason): sessionFailed(reason, at: now)
        case .captureBegan: captureBegan()
        case .captureFailed(let reason): captureFailed(reason, at: now)
        case .captureEnded: tailEnded()
        case .playbackFailed(let reason):
            tonesUntil = nil
            actions.append(.notice(.audioSessionFailed(reason: reason)))
        case .transmissionRefused(let error): refused(error, .refused(error), at: now)
        case .transmissionRevoked(let error): refused(error, .revoked(error), at: now)
        case .floorQueued(let position): floorQueued(position, at: now)
        case .floorGranted: floorGranted(at: now)
        case .audioSessionInterrupted(let reason): interrupted(reason, at: now)
        case .audioSessionInterruptionEnded: interruptionEnded()
        case .callBegan(let call): callBegan(call, at: now)
        case .callEnded(let holder): callEnded(holder)
        case .tonesFinished: tonesUntil = nil
        case .signal(let tone): signal(tone)
        case .push(let event): handle(event, at: now)
        case .deadlineReached: deadlineReached(at: now)
        case .shutdown: shutdown(at: now)
        }
        beginIfFloorIsFree(at: now)
        settle(at: now)
        checkInvariants()
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    private mutating func deadlineReached(at now: Instant) {
        if let warnsAt = transmission?.warnsAt, warnsAt <= now { warnOfTalkTimeLimit(at: now) }
        if let endsAt = transmission?.endsAt, endsAt <= now {
            endTransmission(.talkTimeLimit, capture: .immediately, at: now)
        }
        if let beginsBy = transmission?.captureBeginsBy, beginsBy <= now {
            let reason = "the microphone did not start within \(configuration.activationLimit)"
            endTransmission(.audioFailed(reason: reason), capture: .discarding, at: now)
        }
        if case .tail(let until) = capture, until <= now { cutTail() }
        if let beginsBy = waiting?.beginsBy {
            if beginsBy <= now { clearParticipant() }
        } else if let endsAt = waiting?.endsAt, endsAt <= now {
            waitingIsTooLong()
        }
        if let tonesUntil, tonesUntil <= now { self.tonesUntil = nil }
        handlePushes(.deadlineReached, at: now)
        if let tone = link.due(at: now) { signal(tone) }
        switch audioSession {
        case .activating(let until) where until <= now: activationTimedOut(at: now)
        case .deactivating(let until) where until <= now: deactivationTimedOut()
        default: break
        }
    }

    private mutating func shutdown(at now: Instant) {
        guard !isShutDown else { return }
        endTransmission(.shutdown, capture: .immediately, at: now)
        clearParticipant()
        dropSession(at: now)
        handlePushes(.shutdown, at: now)
        isShutDown = true
    }

    // MARK: Telling

    mutating func tell(_ callback: DelegateCallback) {
        precondition(order.accept(callback), "I6: \(callback) is out of order")
        actions.append(.callback(callback))
    }

    mutating func complete(_ request: RequestIdentifier?, _ error: PTChannelError? = nil) {
        guard let request else { return }
        actions.append(.complete(request, error))
    }
}
