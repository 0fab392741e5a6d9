// Passes the channel service's events to the program behind the channel, to the relay, and to the user interface.
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import RelayProtocol
import Vocabulary

extension ChannelDirector {
    func observed(_ event: ChannelServiceEvent) {
        switch event {
        case .callback(let callback):
            if let owner = seat?.owner { tell(callback, to: owner) } else { unanswered(callback) }
            if case .didLeaveChannel(let uuid, _) = callback { left(uuid) }
        case .notice(let notice): noticed(notice)
        case .remoteParticipantsChanged, .soundProblemsChanged: break
        }
        dependencies?.handler(.changed)
    }

    private func noticed(_ notice: ChannelManagerStateMachine.Notice) {
        switch notice {
        case .pushTokenChanged(let token): tokenChanged(token)
        case .programWanted: programWanted()
        case .channelDescriptorChanged, .transmissionModeChanged, .accessoryButtonEventsEnabledChanged: remember()
        case .transmissionAudioFinished, .activeRemoteParticipantChanged(nil):
            records.assumeIsolated { $0.talkEnded() }
        case .audioSessionInterrupted(let reason): changed(.interruptionBegan(reason: reason))
        case .audioSessionInterruptionEnded: changed(.interruptionEnded(reason: ""))
        default: break
        }
    }

    // MARK: To the program

    func tell(_ callback: DelegateCallback, to program: BusProgram, told: (@Sendable () -> Void)? = nil) {
        if let due = programs.tell(callback, to: program.busName, told: told) { tell(due) }
    }

    private func tell(_ due: ProgramCalls.Due) {
        guard let delegate = due.delegate else {
            unanswered(due.callback)
            due.told?()
            return
        }
        let call = DelegateCall(due.callback, session: dependencies?.audio)
        let interruption = interruption
        delegate.assumeIsolated { delegate in
            delegate.tell(call) { [channel] outcome in
                if let identifier = due.callback.pushDelivery {
                    // What the program asked for while it was asked came before its answer, and is begun by the next turn:
                    // "stop, then receive" is one.
                    channel.loop.execute { channel.assumeIsolated { $0.push(.init(outcome, to: identifier)) } }
                }
                due.told?()
            }
            // A program that comes during a call has not been told of it.
            if case .didJoinChannel = due.callback, let interruption {
                delegate.tell(.audioSessionChanged(.interruptionBegan(reason: interruption)))
            }
        }
    }

    /// Why the audio is not the channel's now.
    private var interruption: String? {
        channel.assumeIsolated { $0.snapshot.calls.first }.map { "a call is active: \($0.description)" }
    }

    /// A channel that was joined is on the bus, or was not joined: callbacks need not wait for it any more.
    func joinIsOver() { for due in programs.joinEnds() { tell(due) } }

    /// Sends a registering program the restoration callbacks of its channel.
    func tellRestoration(_ callbacks: [DelegateCallback], to program: BusProgram) {
        guard let first = callbacks.first else { return }
        programs.restorationBegins(of: program.busName)
        tell(first, to: program) { [weak self] in
            self?.assumeIsolated { $0.programs.restorationEnds(of: program.busName) }
        }
        for callback in callbacks.dropFirst() { tell(callback, to: program) }
    }

    /// Returns when the program has answered to the restoration of its channel, or does not answer.
    func restorationTold(to busName: String) async {
        if programs.mustWait(busName) { await withCheckedContinuation { programs.wait(busName, $0) } }
    }

    /// A question about a push that nobody is there to be asked.
    private func unanswered(_ callback: DelegateCallback) {
        guard let identifier = callback.pushDelivery else { return }
        channel.assumeIsolated { $0.push(.notAnswered(identifier, reason: "the program is gone")) }
    }

    private func changed(_ change: AudioSessionChange) {
        guard let owner = seat?.owner, let delegate = programs[owner.busName] else { return }
        delegate.assumeIsolated { $0.tell(.audioSessionChanged(change)) }
    }

    /// The record knew no name to show: the program does.
    func askDescriptor(_ uuid: UUID, _ program: BusProgram) {
        programs[program.busName]?.assumeIsolated { delegate in
            delegate.tell(.channelDescriptor(uuid)) { [channel] outcome in
                guard case .success(.descriptor(let descriptor)) = outcome else { return }
                channel.assumeIsolated { $0.request(.setChannelDescriptor(descriptor, channelUUID: uuid)) }
            }
        }
    }

    // MARK: Pushes

    private func tokenChanged(_ token: PushToken?) {
        guard let seat else { return }
        self.seat?.token = token
        seat.client?.assumeIsolated { client in
            if let old = seat.token { client.unregister(token: old) }
            if let token { client.register(token: token, topic: seat.topic) }
        }
    }

    func pushed(_ event: PushLinkEvent) {
        guard case .push(let incoming) = event else { return }
        guard let push = Push(incoming) else {
            logger.warning("push dropped: its payload is not a JSON object")
            return
        }
        channel.assumeIsolated { $0.push(.received(push)) }
    }
}

extension DelegateCallback {
    /// The delivery that the program's answer is about.
    fileprivate var pushDelivery: PushDeliveryIdentifier? {
        switch self {
        case .incomingPush(_, let delivery), .incomingServiceUpdatePush(_, let delivery, _, _): delivery.identifier
        default: nil
        }
    }
}

extension ChannelManagerStateMachine.PushEvent {
    /// What the program's answer to a push means.
    fileprivate init(_ outcome: ApplicationDelegate.Outcome, to identifier: PushDeliveryIdentifier) {
        switch outcome {
        case .success(.pushResult(let result)): self = .answered(identifier, result)
        case .success: self = .completed(identifier)
        case .failure(let failure): self = .notAnswered(identifier, reason: "\(failure)")
        }
    }
}

extension PushTopic {
    /// The topic of pushes to the program of this name; programs without one share one.
    init(program name: String) {
        // Bus names are printing ASCII and at most 255 bytes long.
        let topic = PushTopic(application: name.isEmpty ? "org.pttd" : name) ?? PushTopic(application: "org.pttd")
        guard let topic else { preconditionFailure("a topic that is one") }
        self = topic
    }
}

extension Push {
    /// A push as the relay delivers it; nil when its payload is none, which the relay should have refused.
    init?(_ push: RelayPush) {
        guard let payload = try? PushPayload(validating: push.payload) else { return nil }
        self.init(
            identifier: "relay at \(push.receivedAt.nanoseconds)", token: push.token, payload: payload,
            isHighPriority: push.priority > 5, expiry: push.expiresAt.map { .at($0) } ?? .immediate)
    }
}
