// The rules that connect button, channel manager and relay. Pure.
import Accessories
import ChannelService
import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import RelayClient
import Vocabulary

/// The rules that join the talk key, the channel manager and the relay's link on one channel.
///
/// Edges of the talk key become begin and stop requests. Callbacks of the channel manager become bursts on the link.
/// Events of the link become the service status, refusals and the active remote participant. Events go in and actions
/// come out. Carry the actions out in order before the next event. At `nextDeadline`, send `Event.deadlineReached`.
public struct BridgeStateMachine: Sendable {
    /// Somebody else who talks.
    struct Speaker: Sendable {
        let member: RelayMember
        /// Tells the burst from others at the same time; nil where one talks at a time.
        let burst: TalkBurst?
        /// A frame has come, so the burst ends when the link says so, not when the floor is idle.
        var isHearing = false
    }

    private let hasLink: Bool
    var key = TalkKey()
    /// An emergency that has not begun yet because somebody else speaks.
    var emergencyRetry: EmergencyRetry?
    /// Somebody else is being heard, perhaps still after the floor is free.
    var isParticipantActive = false
    /// Somebody else has the floor, by the relay's word. What they said may be heard for longer than that.
    var isFloorTaken = false
    /// A request for a taken floor waits and is not refused.
    var hasFloorQueue = false
    /// What a request would meet now, by the relay's word; `nil` when it does not tell.
    var outlook: (normal: FloorOutlook, emergency: FloorOutlook)?
    /// The channel manager waits for the floor, for which the burst has been begun.
    var isWaiting = false
    /// What waits has got the floor: it begins in a moment.
    var hasFloor = false
    var burst: BurstID?
    /// Members that have the floor or are being heard, the longest first. At most as many as may talk at once.
    var speakers: [Speaker] = []
    /// How many may talk at once.
    var talkersAllowed = 1
    /// Counts the bursts on channels where several may talk at once.
    var talkBursts: UInt32 = 0
    /// What the link has become during a burst that it has not ended.
    var heldStatus: PTServiceStatus?
    var linkStatus: PTServiceStatus
    /// The link is not ready but connecting: speech recorded now may still be sent.
    var isLinkComing: Bool
    /// What the program behind the channel says of its own service.
    private var programStatus = PTServiceStatus.ready
    /// Why the link is not ready, in words for the user; empty when it is.
    var linkDetail = ""
    /// The loss in percent that the encoder prepares for, as listeners have reported it.
    var expectedLoss = 0
    /// Why the link was lost or not made, until it is ready.
    var lastFailure: String?
    /// A relay that has not answered for so long is reported. One that is only far away has answered by then.
    static let unansweredAfter = Duration.seconds(2)
    /// When it is reported that the relay does not answer; nil: that is reported, or there is nothing to report.
    var unansweredAt: Instant?
    /// Why the service is not ready, in words for the user; empty when it is.
    public var serviceDetail: String {
        linkDetail.isEmpty && programStatus != .ready ? "the channel's program says so" : linkDetail
    }
    var actions: [Action] = []

    /// A bridge before its first event.
    ///
    /// - Parameter hasLink: Whether speech goes over a link. Without one the service status is the one that the program
    ///   reports.
    public init(hasLink: Bool = true) {
        self.hasLink = hasLink
        linkStatus = hasLink ? .connecting : .ready
        isLinkComing = hasLink
    }

    /// How the service is: no better than the link, nor than the program says.
    public var serviceStatus: PTServiceStatus {
        linkStatus.rawValue > programStatus.rawValue ? linkStatus : programStatus
    }

    /// What a begin finds. Without a link the program behind the channel knows, and this module does not.
    var floorOutlook: FloorOutlook {
        guard hasLink else { return .unknown }
        if isLinkComing, programStatus == .ready { return .reconnecting }
        let told = key.isUrgent ? outlook?.emergency : outlook?.normal
        if told == .listenOnly { return .listenOnly }
        // A taken floor may be shared, or may be taken from who has it.
        return isFloorTaken ? told ?? (hasFloorQueue ? .queueable : .unknown) : .idle
    }

    /// Whether `holder` presses the talk key.
    public func isPressed(by holder: TalkKey.Holder) -> Bool { key.isPressed(by: holder) }

    /// When the machine wants `Event.deadlineReached`; nil: it waits for events only.
    public var nextDeadline: Instant? {
        guard let retry = emergencyRetry?.nextDeadline else { return unansweredAt }
        return min(retry, unansweredAt ?? retry)
    }

    /// Handles an event and returns the actions to carry out, in order.
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
            // Told again it is no news, and not to end what waits for the link.
            guard status != programStatus else { break }
            programStatus = status
            tellStatus()
        case .callback(let callback): told(callback)
        case .notice(let notice): noticed(notice, at: now)
        case .link(let event):
            heard(event, at: now)
            if event.mayFreeTheFloor { retryEmergency(at: now) }
        case .burstBegun(let burst): self.burst = burst
        case .deadlineReached:
            emergencyRetryIsDue(at: now)
            reportUnanswered(at: now)
        case .closed: if key.isHeld { endedBySystem() }
        }
        defer { actions.removeAll(keepingCapacity: true) }
        return actions
    }

    private mutating func pressed(_ holder: TalkKey.Holder, _ urgency: TransmitUrgency = .normal) {
        if let emergencyRetry, !emergencyRetry.isTrying, holder != .accessories {
            let explanation = "an emergency of this device waits until it can begin; try again afterwards"
            return actions.append(.answer(holder, PTChannelError(.transmissionInProgress, explanation: explanation)))
        }
        switch key.press(holder, urgency) {
        case .began: actions.append(.beginTransmitting(holder.source, floor: floorOutlook))
        case .escalated, .ended, nil:
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
            if urgency == .emergency { askMoreUrgently() }
        }
    }

    /// The running burst keeps the priority that it was granted with; what is asked for from now on is urgent.
    private mutating func escalated() {
        guard key.holders.contains(.accessories) else { return pressed(.accessories, .emergency) }
        _ = key.press(.accessories, .emergency)
        askMoreUrgently()
    }

    /// What waits for the floor asks again, before those that matter less.
    private mutating func askMoreUrgently() {
        guard isWaiting, !hasFloor else { return }
        actions.append(.abortBurst)
        beginBurst()
    }

    private mutating func beginBurst() {
        burst = nil
        hasFloor = false
        actions.append(.beginBurst(priority: key.isUrgent ? FloorPriority.emergency : FloorPriority.normal))
    }

    private mutating func released(_ holder: TalkKey.Holder) {
        guard key.release(holder) != nil else { return }
        let isTransmitting = emergencyRetry?.isTrying ?? true
        emergencyRetry = nil
        // What never began has no end.
        if isTransmitting { actions.append(.stopTransmitting(holder.source)) }
    }

    private mutating func requestedStop(_ source: PTChannelTransmitRequestSource) {
        // First of all it stops, as at a release. What is held now does not count any more, whatever comes of that.
        actions.append(.stopTransmitting(source))
        if key.isHeld { endedBySystem() }
    }

    /// Everything that is held is used up.
    mutating func endedBySystem() {
        key.transmissionEnded()
        emergencyRetry = nil
        if seededFault("accessories-are-not-told-of-an-end") { return }
        actions.append(.endedBySystem)
    }

    // MARK: From the channel manager

    private mutating func beginRefused(_ error: PTChannelError, at now: Instant) {
        // A transmission that ended before the microphone recorded has been reported by its notice.
        guard key.isHeld else { return }
        let isServiceAway = error.code == .transmissionNotAllowed && !serviceDetail.isEmpty
        let told = isServiceAway ? PTChannelError(error.code, explanation: serviceDetail) : error
        guard !retriesEmergency(after: told, at: now) else { return }
        endedBySystem()
        actions.append(.report(told))
    }

    private mutating func told(_ callback: DelegateCallback) {
        guard case .didBeginTransmitting = callback else { return }
        // What waited has its burst, and the floor.
        guard !isWaiting else { return isWaiting = false }
        beginBurst()
    }

    private mutating func noticed(_ notice: ChannelManagerStateMachine.Notice, at now: Instant) {
        switch notice {
        // The burst goes on, waiting.
        case .transmissionEnding(.queued): isWaiting = true
        case .transmissionEnding(let cause): ended(cause, at: now)
        case .waitingForFloor:
            guard !isWaiting else { break }
            isWaiting = true
            emergencyRetry = nil
            beginBurst()
        case .waitingEnded(let cause):
            isWaiting = false
            actions.append(.abortBurst)
            ended(cause, at: now)
        case .transmissionAudioFinished where isWaiting: break
        case .transmissionAudioFinished(let erased):
            // The burst stays known: a denial may come after everything has been handed over.
            actions.append(erased ? .abortBurst : .endBurst)
        case .lastTransmissionNotCarried(let error): actions.append(.report(error))
        case .activeRemoteParticipantChanged(let participant):
            isParticipantActive = participant != nil
            retryEmergency(at: now)
        default: break
        }
    }

    /// The transmission, or the waiting for one, is over.
    private mutating func ended(_ cause: TransmissionEndCause, at now: Instant) {
        switch cause {
        case .stopped: break
        case .refused(let error) where retriesEmergency(after: error, at: now): break
        default:
            endedBySystem()
            if let error = cause.error { actions.append(.report(error)) }
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
