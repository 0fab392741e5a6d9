// Passes the channel service's events to the program behind the channel, to the relay, and to the user interface.
import Bridge
import ChannelService
import DaemonAPI
import FoundationEssentials
import Logging
import PTTBus
import PushToTalkCore
import Reactor
import RelayClient
import RelayProtocol

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
        case .transmissionAudioFinished, .activeRemoteParticipantChanged(nil): rememberIfDue()
        case .audioSessionInterrupted(let reason): changed(.interruptionBegan(reason: reason))
        case .audioSessionInterruptionEnded: changed(.interruptionEnded(reason: ""))
        default: break
        }
    }

    // MARK: To the program

    func tell(_ callback: DelegateCallback, to program: BusProgram, told: (@Sendable () -> Void)? = nil) {
        guard joinsUnderWay == 0 else {
            heldCallbacks.append(HeldCallback(callback: callback, program: program, told: told))
            return
        }
        guard let delegate = delegates[program.busName] else {
            unanswered(callback)
            told?()
            return
        }
        let call = call(callback)
        let interruption = interruption
        delegate.assumeIsolated { delegate in
            delegate.tell(call) { [channel] outcome in
                if let identifier = callback.pushDelivery {
                    // What the program asked for while it was asked came before its answer, and is begun by the next turn:
                    // "stop, then receive" is one.
                    channel.loop.execute { channel.assumeIsolated { $0.push(.init(outcome, to: identifier)) } }
                }
                told?()
            }
            // A program that comes during a call has not been told of it.
            if case .didJoinChannel = callback, let interruption {
                delegate.tell(.audioSessionChanged(.interruptionBegan(reason: interruption)))
            }
        }
    }

    /// Why the audio is not the channel's now.
    private var interruption: String? {
        channel.assumeIsolated { $0.snapshot.calls.first }.map { "a call is active: \($0.description)" }
    }

    /// A channel that was joined is on the bus, or was not joined: callbacks need not wait for it any more.
    func joinIsOver() {
        joinsUnderWay -= 1
        guard joinsUnderWay == 0 else { return }
        let held = heldCallbacks
        heldCallbacks = []
        for next in held { tell(next.callback, to: next.program, told: next.told) }
    }

    /// Sends a registering program the restoration callbacks of its channel.
    func tellRestoration(_ callbacks: [DelegateCallback], to program: BusProgram) {
        guard let first = callbacks.first else { return }
        restorations[program.busName] = .untold
        tell(first, to: program) { [weak self] in
            self?.assumeIsolated { $0.restorationWasTold(to: program.busName) }
        }
        for callback in callbacks.dropFirst() { tell(callback, to: program) }
    }

    private func restorationWasTold(to busName: String) {
        guard case .awaited(let continuation)? = restorations.updateValue(.told, forKey: busName) else { return }
        restorations[busName] = nil
        continuation.resume()
    }

    /// Returns when the program has answered to the restoration of its channel, or does not answer.
    func restorationTold(to busName: String) async {
        if case .untold? = restorations[busName] {
            await withCheckedContinuation { restorations[busName] = .awaited($0) }
        }
        restorations[busName] = nil
    }

    /// A question about a push that nobody is there to be asked.
    private func unanswered(_ callback: DelegateCallback) {
        guard let identifier = callback.pushDelivery else { return }
        channel.assumeIsolated { $0.push(.notAnswered(identifier, reason: "the program is gone")) }
    }

    private func changed(_ change: AudioSessionChange) {
        guard let owner = seat?.owner, let delegate = delegates[owner.busName] else { return }
        delegate.assumeIsolated { $0.tell(.audioSessionChanged(change)) }
    }

    /// The record knew no name to show: the program does.
    func askDescriptor(_ uuid: UUID, _ program: BusProgram) {
        delegates[program.busName]?.assumeIsolated { delegate in
            delegate.tell(.channelDescriptor(uuid)) { [channel] outcome in
                guard case .success(.descriptor(let descriptor)) = outcome else { return }
                channel.assumeIsolated { $0.request(.setChannelDescriptor(descriptor, channelUUID: uuid)) }
            }
        }
    }

    private func call(_ callback: DelegateCallback) -> DelegateCall {
        switch callback {
        case .didJoinChannel(let uuid, let reason): .didJoinChannel(uuid, reason: reason)
        case .failedToJoinChannel(let uuid, let error): .failedToJoinChannel(uuid, error)
        case .didLeaveChannel(let uuid, let reason): .didLeaveChannel(uuid, reason: reason)
        case .failedToLeaveChannel(let uuid, let error): .failedToLeaveChannel(uuid, error)
        case .didBeginTransmitting(let uuid, let source): .didBeginTransmitting(uuid, source: source)
        case .failedToBeginTransmitting(let uuid, let error): .failedToBeginTransmitting(uuid, error)
        case .didEndTransmitting(let uuid, let source): .didEndTransmitting(uuid, source: source)
        case .failedToStopTransmitting(let uuid, let error): .failedToStopTransmitting(uuid, error)
        case .receivedEphemeralPushToken(let token): .receivedEphemeralPushToken(token.bytes)
        case .didActivateAudioSession: .didActivateAudioSession(audio)
        case .didDeactivateAudioSession: .didDeactivateAudioSession
        case .incomingPush(let uuid, let delivery): .incomingPush(uuid, payload: delivery.push.payload.text)
        case .incomingServiceUpdatePush(let uuid, let delivery, let isHighPriority, let remaining):
            .incomingServiceUpdatePush(
                uuid, payload: delivery.push.payload.text, isHighPriority: isHighPriority,
                remainingHighPriorityBudget: Int32(clamping: remaining))
        }
    }

    private var audio: AudioSessionDescription {
        dependencies?.audio ?? AudioSessionDescription(inputDevice: "", outputDevice: "", sampleRateHertz: 0)
    }

    // MARK: Pushes

    private func tokenChanged(_ token: PushToTalkCore.PushToken?) {
        guard let seat else { return }
        let (old, new) = (seat.token.flatMap(\.forRelay), token.flatMap(\.forRelay))
        self.seat?.token = token
        seat.client?.assumeIsolated { client in
            if let old { client.unregister(token: old) }
            if let new { client.register(token: new, topic: seat.topic) }
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

/// A callback that waits until its channel is on the bus.
struct HeldCallback {
    let callback: DelegateCallback
    let program: BusProgram
    let told: (@Sendable () -> Void)?
}

/// Whether a program that registers knows of its channel.
enum Restoration {
    case untold
    case told
    /// Its registration waits.
    case awaited(CheckedContinuation<Void, Never>)
}

extension PushToTalkCore.PushToken {
    /// The same bytes, as the relay's protocol has them.
    fileprivate var forRelay: RelayProtocol.PushToken? { RelayProtocol.PushToken(bytes) }
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
