// Pushes and the program behind the channel: what `PushStateMachine` says, and what it means for who talks.

import MonotonicTime

extension ChannelManagerStateMachine {
    mutating func handle(_ event: PushEvent, at now: Instant) {
        switch event {
        case .received(let push): handlePushes(.received(push), at: now)
        case .programCame: handlePushes(.programCame, at: now)
        case .programLeft:
            programLeft(at: now)
            handlePushes(.programLeft, at: now)
        case .programNotStarted(let reason): handlePushes(.programNotStarted(reason: reason), at: now)
        case .answered(let identifier, let result): handlePushes(.answered(identifier, result), at: now)
        case .completed(let identifier): handlePushes(.completed(identifier), at: now)
        case .notAnswered(let identifier, let reason):
            handlePushes(.notAnswered(identifier, reason: reason), at: now)
        }
    }

    mutating func handlePushes(_ event: PushStateMachine.Event, at now: Instant) {
        for action in pushes.handle(event, at: now) { perform(action, at: now) }
    }

    private mutating func perform(_ action: PushStateMachine.Action, at now: Instant) {
        switch action {
        case .startProgram: actions.append(.notice(.programWanted))
        case .ask(let delivery):
            guard let uuid = channel?.uuid else { return }
            tell(.incomingPush(uuid, delivery))
        case .update(let delivery, let isHighPriority, let remaining):
            guard let uuid = channel?.uuid else { return }
            tell(
                .incomingServiceUpdatePush(
                    uuid, delivery, isHighPriority: isHighPriority, remainingHighPriorityBudget: remaining))
        case .perform(let result, let delivery):
            let error = perform(result, at: now)
            actions.append(.notice(.pushSettled(delivery.push, error.map { .refused($0) } ?? .delivered)))
        case .settled(let push, let outcome): actions.append(.notice(.pushSettled(push, outcome)))
        }
    }

    /// Does what a program answered to a push, which was asked about the active channel.
    private mutating func perform(_ result: PTPushResult, at now: Instant) -> PTChannelError? {
        guard let uuid = channel?.uuid else { return PTChannelError(.channelNotFound) }
        switch result {
        case .leaveChannel: return leave(uuid, .developerRequest, at: now)
        case .activeRemoteParticipant(let participant): return setActiveRemoteParticipant(participant, uuid)
        }
    }

    /// The program is needed now: it is started if it does not run and can be started.
    mutating func wantProgram(at now: Instant) {
        for action in pushes.wantProgram(at: now) { perform(action, at: now) }
    }

    private mutating func programLeft(at now: Instant) {
        guard let channel, pushes.program == .present else { return }
        switch channel.media {
        case .application:
            // Nobody records or plays any more, and nobody would ever say that a participant is done.
            endTransmission(.programLeft, capture: .immediately, at: now)
            clearParticipant()
        case .daemon:
            guard (transmission?.source ?? waiting?.source) == .developerRequest else { return }
            endTransmission(.programLeft, capture: .immediately, at: now)
        }
    }

    /// The first callbacks for a program that registers for its channel: the restored membership, its token, and the
    /// current state. Deliver them before `PushEvent.programCame`, so that later callbacks make sense.
    public var restorationCallbacks: [DelegateCallback] {
        guard let channel else { return [] }
        var callbacks: [DelegateCallback] = [.didJoinChannel(channel.uuid, reason: .channelRestoration)]
        if let token = pushes.token { callbacks.append(.receivedEphemeralPushToken(token)) }
        if let transmission { callbacks.append(.didBeginTransmitting(channel.uuid, source: transmission.source)) }
        if sessionTold { callbacks.append(.didActivateAudioSession) }
        return callbacks
    }
}
