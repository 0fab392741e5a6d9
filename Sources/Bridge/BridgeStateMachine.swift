// Between button, channel manager and relay: what each hears of the others. Pure.
import Accessories
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayClient

/// The rules that join the talk key, the channel manager and the relay's link on one channel.
///
/// The talk key's edges become begin and stop requests; what the channel manager tells becomes bursts on the link; what
/// the link tells becomes service status, refusals and the active remote participant. Events go in, actions come out,
/// to be carried out in order before the next event. When `nextDeadline` has come, it wants `Event.deadlineReached`.
public struct BridgeStateMachine: Sendable {
    /// Something that happened in one of the rooms it joins.
    public enum Event: Sendable {
        /// A holder of the talk key pressed.
        case pressed(TalkKey.Holder, TransmitUrgency = .normal)
        /// The accessories hold the key already, and an emergency control of theirs went down.
        case escalated
        /// A holder let go, or is gone.
        case released(TalkKey.Holder)
        /// The program behind the channel asks to transmit; unlike a press it does not join a transmission of others.
        case requestedBegin(program: String)
        /// It asks for the end of the transmission, whoever began it.
        case requestedStop(PTChannelTransmitRequestSource)
        /// The channel manager refused the begin that a press asked for.
        case beginRefused(PTChannelError)
        /// `Action.refuseBegin` was, against expectation, granted: the holder is the one who talks.
        case beganAfterAll(TalkKey.Holder)
        /// The program behind the channel tells how its own service is.
        case programStatus(PTServiceStatus)
        /// The channel manager's delegate was told something.
        case callback(DelegateCallback)
        /// The channel manager noticed something.
        case notice(ChannelManagerStateMachine.Notice)
        /// The link told something.
        case link(RelayLinkEvent)
        /// `Action.beginBurst` was done: this is the burst.
        case burstBegun(BurstID)
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    /// What is to be done.
    public enum Action: Equatable, Sendable {
        /// Ask the channel manager to begin transmitting for this holder, who is answered with what comes of it; a refusal comes
        /// back as `beginRefused`.
        case beginTransmitting(PTChannelTransmitRequestSource)
        /// Ask it to begin though somebody transmits, so that it refuses and tells the program's delegate so.
        case refuseBegin(TalkKey.Holder)
        /// Answer a press that asked for nothing: nil when another holder talks already.
        case answer(TalkKey.Holder, PTChannelError?)
        /// Ask it to stop.
        case stopTransmitting(PTChannelTransmitRequestSource)
        /// Tell it how the service is.
        case setServiceStatus(PTServiceStatus)
        /// Tell it that the relay refused what it began.
        case transmissionRefused(PTChannelError)
        /// Tell it that the relay took the floor back.
        case transmissionRevoked(PTChannelError)
        /// A burst of this participant begins.
        case beginReception(PTParticipant)
        /// A frame of it.
        case play(ReceivedFrame)
        /// Everything of it has come.
        case endReception
        /// Begin a burst on the link; answered by `burstBegun`.
        case beginBurst(priority: UInt8)
        /// End the burst: everything has been handed over.
        case endBurst
        /// Erase what is held of the burst.
        case abortBurst
        /// Tell the accessories that the transmission ended without them: a fresh press is needed.
        case endedBySystem
        /// Tell those who watch that a begin was refused, or a transmission ended by something else than a release.
        case report(PTChannelError)
    }

    var key = TalkKey()
    /// An emergency control is, or was, among those who hold the key.
    var isUrgent = false
    /// An emergency that has not begun yet because somebody else speaks.
    var insistence: Insistence?
    /// Somebody else is being heard, perhaps still after the floor is free.
    var isParticipantActive = false
    private var burst: BurstID?
    /// Who has the floor or is being heard.
    private(set) var speaker: RelayMember?
    /// A frame of the speaker has come, so the burst ends when the link says so, not when the floor is idle.
    private var isHearing = false
    /// What the link has become during a burst that it has not ended.
    private var heldStatus: PTServiceStatus?
    private(set) var linkStatus: PTServiceStatus
    /// What the program behind the channel says of its own service.
    private var programStatus = PTServiceStatus.ready
    /// Why the link is not ready, in words for the user; empty when it is.
    private var linkDetail = ""
    /// Why the link was lost or not made, until it is ready.
    private var lastFailure: String?
    /// Why the service is not ready, in words for the user; empty when it is.
    public var serviceDetail: String {
        linkDetail.isEmpty && programStatus != .ready ? "the channel's program says so" : linkDetail
    }
    var actions: [Action] = []

    /// A bridge of which nothing has been told yet.
    ///
    /// - Parameter hasLink: Whether speech goes over a link; else only the program's word counts for the service.
    public init(hasLink: Bool = true) { linkStatus = hasLink ? .connecting : .ready }

    /// How the service is: no better than the link, nor than the program says.
    public var serviceStatus: PTServiceStatus {
        linkStatus.rawValue > programStatus.rawValue ? linkStatus : programStatus
    }

    /// Whether `holder` presses the talk key.
    public func isPressed(by holder: TalkKey.Holder) -> Bool { key.isPressed(by: holder) }

    /// When the machine wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? { insistence?.nextDeadline }

    /// Takes an event in, and tells what is to be done about it, in order.
    public mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch event {
        case .pressed(let holder, let urgency): pressed(holder, urgency)
        case .escalated: escalated()
        case .released(let holder): released(holder)
        case .requestedBegin(let program):
            if key.isHeld { actions.append(.refuseBegin(.program(program))) } else { pressed(.program(program)) }
        case .requestedStop(let source): requestedStop(source)
        case .beginRefused(let error): beginRefused(error, at: now)
        case .beganAfterAll(let holder): _ = key.press(holder)
        case .programStatus(let status):
            programStatus = status
            tellStatus()
        case .callback(let callback): told(callback)
        case .notice(let notice): noticed(notice, at: now)
        case .link(let event):
            heard(event)
            if event.mayFreeTheFloor { insist(at: now) }
        case .burstBegun(let burst): self.burst = burst
        case .deadlineReached: insistenceIsDue(at: now)
        }
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    private mutating func pressed(_ holder: TalkKey.Holder, _ urgency: TransmitUrgency = .normal) {
        if let insistence, !insistence.isTrying, holder != .accessories {
            let explanation = "an emergency of this device waits until it can begin; try again afterwards"
            return actions.append(.answer(holder, PTChannelError(.transmissionInProgress, explanation: explanation)))
        }
        if urgency == .emergency { isUrgent = true }
        switch key.press(holder) {
        case .begin: actions.append(.beginTransmitting(holder.source))
        case .stop, .none:
            let error: PTChannelError? =
                if key.holders.contains(holder) {
                    nil
                } else if key.isPressed(by: holder) {
                    PTChannelError(
                        .transmissionNotFound, explanation: "the transmission has ended; let go and press again")
                } else {
                    PTChannelError(.unknown, explanation: "too many hold the talk key; try again")
                }
            actions.append(.answer(holder, error))
        }
    }

    /// The running burst keeps the priority that it was granted with; what is asked for from now on is urgent.
    private mutating func escalated() {
        if key.holders.contains(.accessories) { isUrgent = true } else { pressed(.accessories, .emergency) }
    }

    private mutating func released(_ holder: TalkKey.Holder) {
        guard key.release(holder) == .stop else { return }
        let isTransmitting = insistence?.isTrying ?? true
        calm()
        // What never began has no end.
        if isTransmitting { actions.append(.stopTransmitting(holder.source)) }
    }

    private mutating func requestedStop(_ source: PTChannelTransmitRequestSource) {
        // Told before the channel manager is asked: what is held now does not count any more, whatever comes of it.
        if key.isHeld { endedBySystem() }
        actions.append(.stopTransmitting(source))
    }

    /// Everything that is held is used up.
    mutating func endedBySystem() {
        key.transmissionEnded()
        calm()
        actions.append(.endedBySystem)
    }

    private mutating func calm() {
        isUrgent = false
        insistence = nil
    }

    // MARK: From the channel manager

    private mutating func beginRefused(_ error: PTChannelError, at now: Instant) {
        // A transmission that ended before the microphone recorded has been reported by its notice.
        guard key.isHeld else { return }
        let isServiceAway = error.code == .transmissionNotAllowed && !serviceDetail.isEmpty
        let told = isServiceAway ? PTChannelError(error.code, explanation: serviceDetail) : error
        guard !insists(on: told, at: now) else { return }
        endedBySystem()
        actions.append(.report(told))
    }

    private mutating func told(_ callback: DelegateCallback) {
        guard case .didBeginTransmitting = callback else { return }
        burst = nil
        actions.append(.beginBurst(priority: isUrgent ? FloorPriority.emergency : FloorPriority.normal))
    }

    private mutating func noticed(_ notice: ChannelManagerStateMachine.Notice, at now: Instant) {
        switch notice {
        case .transmissionEnding(.stopped): break
        case .transmissionEnding(.refused(let error)) where insists(on: error, at: now): break
        case .transmissionEnding(let cause):
            endedBySystem()
            if let error = cause.error { actions.append(.report(error)) }
        case .transmissionAudioFinished(let erased):
            // The burst stays known: a denial may come after everything has been handed over.
            actions.append(erased ? .abortBurst : .endBurst)
        case .lastTransmissionNotCarried(let error): actions.append(.report(error))
        case .activeRemoteParticipantChanged(let participant):
            isParticipantActive = participant != nil
            insist(at: now)
        default: break
        }
    }

    // MARK: From the link

    private mutating func heard(_ event: RelayLinkEvent) {
        switch event {
        case .state(let state): linkChanged(to: state)
        case .transmissionEnded(let ended, let end, _) where ended == burst: burstEnded(end)
        // The floor is taken before the first packet comes: the sound device opens meanwhile.
        case .floorTaken(let member), .burstBegan(let member): hear(member)
        case .floorIdle: if !isHearing { silence() }
        case .frame(let frame):
            isHearing = true
            actions.append(.play(frame))
        case .burstEnded: silence()
        case .floorGranted: insistence = nil
        case .transmissionEnded, .members, .memberJoined, .memberLeft, .firstPacketSent, .floorQueued, .listenerLoss:
            break
        }
    }

    private mutating func linkChanged(to state: RelayLinkState) {
        let status: PTServiceStatus
        switch state {
        case .ready:
            lastFailure = nil
            (status, linkDetail) = (.ready, "")
        case .connecting:
            let last = lastFailure.map { "; the last try: \($0)" } ?? ""
            (status, linkDetail) = (.connecting, "connecting to the relay\(last)")
        case .unavailable(let error, _):
            lastFailure = "\(error)"
            (status, linkDetail) = (.unavailable, "\(error)")
        case .stopped: (status, linkDetail) = (.unavailable, "the channel has been left")
        }
        defer { if status != .ready { silence() } }
        // A burst may outlive the connection that it began on: the link tells its end, or goes on with it.
        guard burst == nil || status == .ready else {
            heldStatus = status
            return
        }
        heldStatus = nil
        linkStatus = status
        tellStatus()
    }

    private mutating func tellStatus() { actions.append(.setServiceStatus(serviceStatus)) }

    private mutating func burstEnded(_ end: TransmissionEnd) {
        burst = nil
        defer {
            if let status = heldStatus {
                linkStatus = status
                tellStatus()
            }
            heldStatus = nil
        }
        switch end {
        case .completed, .aborted: break
        case .revoked(let reason):
            actions.append(.transmissionRevoked(PTChannelError(.transmissionNotAllowed, explanation: reason.words)))
        case .denied(.taken):
            let talker = speaker.map { "\($0.name) is" } ?? "somebody else is"
            actions.append(
                .transmissionRefused(PTChannelError(.transmissionInProgress, explanation: "\(talker) speaking")))
        case .denied(.refused(let words)): refuse(words)
        case .notAnswered: refuse("the relay did not answer in time")
        case .linkUnavailable: refuse(serviceDetail.isEmpty ? "the connection to the relay was lost" : serviceDetail)
        case .tooManyBursts: refuse("earlier bursts are still on their way")
        }
    }

    private mutating func refuse(_ words: String) {
        actions.append(.transmissionRefused(PTChannelError(.transmissionNotAllowed, explanation: words)))
    }

    private mutating func hear(_ member: RelayMember) {
        guard speaker != member else { return }
        silence()
        speaker = member
        actions.append(.beginReception(PTParticipant(name: member.name, image: nil)))
    }

    private mutating func silence() {
        guard speaker != nil else { return }
        speaker = nil
        isHearing = false
        actions.append(.endReception)
    }
}

extension FloorRevocation {
    /// Why, for the user.
    var words: String {
        switch self {
        case .talkTimeLimit: "the relay's talk-time limit was reached"
        case .noMedia: "the relay received no sound"
        case .other(let words): words
        }
    }
}

extension TalkKey.Holder {
    /// Apple's name for who asks.
    var source: PTChannelTransmitRequestSource {
        switch self {
        case .accessories: .handsfreeButton
        case .caller, .userInterface: .userRequest
        case .program: .developerRequest
        }
    }
}
