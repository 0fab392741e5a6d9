// Retries an emergency while somebody else is speaking, for as long as the control is held. Pure.
import MonotonicTime
import PushToTalkCore
import RelayClient
import Vocabulary

/// An emergency that has not begun yet.
struct EmergencyRetry: Hashable, Sendable {
    /// How long it is retried. After that its control has to be pressed again.
    static let limit = Duration.seconds(30)
    /// Maximum time from a refusal to the next try, even if nothing reports that the floor is free.
    static let interval = Duration.seconds(2)

    let until: Instant
    var nextTry: Instant
    /// A request was sent again and is not answered yet.
    var isTrying = false

    var nextDeadline: Instant? { isTrying ? nil : min(nextTry, until) }
}

extension BridgeStateMachine {
    /// A begin was refused.
    ///
    /// - Returns: Whether it is an emergency that asks again as soon as that may help. The channel manager has sounded the deny tone:
    ///   the person knows that it does not record yet.
    mutating func retriesEmergency(after error: PTChannelError, at now: Instant) -> Bool {
        let mayHelp =
            error.code == .transmissionInProgress
            || (error.code == .transmissionNotAllowed && serviceStatus != .ready)
        guard key.isUrgent, key.holders.contains(.accessories), mayHelp else { return false }
        let until = emergencyRetry?.until ?? now + EmergencyRetry.limit
        guard now < until else { return false }
        // Only the emergency goes on: what else was held with it has had its transmission.
        if !seededFault("a-program-holds-an-emergency") { key.transmissionEnded(keepingEmergency: true) }
        if emergencyRetry == nil { actions.append(.report(error)) }
        emergencyRetry = EmergencyRetry(until: until, nextTry: now + EmergencyRetry.interval)
        return true
    }

    /// The floor may be free now.
    mutating func retryEmergency(at now: Instant) {
        let isOpen = (speakers.isEmpty && !isParticipantActive) || outlook?.emergency == .idle
        guard let emergencyRetry, !emergencyRetry.isTrying, key.isHeld, isOpen, serviceStatus == .ready else { return }
        self.emergencyRetry?.isTrying = true
        actions.append(.beginTransmitting(TalkKey.Holder.accessories.source, floor: floorOutlook))
    }

    mutating func emergencyRetryIsDue(at now: Instant) {
        guard let emergencyRetry, let due = emergencyRetry.nextDeadline, due <= now else { return }
        guard now < emergencyRetry.until else {
            endedBySystem()
            let explanation = "the emergency could not begin within \(EmergencyRetry.limit); press again"
            return actions.append(.report(PTChannelError(.transmissionInProgress, explanation: explanation)))
        }
        self.emergencyRetry?.nextTry = now + EmergencyRetry.interval
        retryEmergency(at: now)
    }
}

extension RelayLinkEvent {
    /// Whether what was refused a moment ago may be granted after it.
    var mayFreeTheFloor: Bool {
        switch self {
        case .floorIdle, .floorReleased, .burstEnded, .state(.ready): true
        default: false
        }
    }
}
