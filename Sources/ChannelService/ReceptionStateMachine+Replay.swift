// Replays of a message, which end when somebody speaks.

import MonotonicTime

extension ReceptionStateMachine {
    /// Whether a message can be heard again: nobody speaks, not even unheard, and nothing waits.
    var canReplay: Bool { isReplaying || state == .idle }

    mutating func replay(_ burst: ReceivedBurst, at now: Instant) -> [ReceptionAction] {
        guard canReplay else { return [] }
        let dropped: [ReceptionAction] = isReplaying ? [.dropPlayback(voice: voice)] : []
        isReplaying = true
        state = .receiving(burst)
        return dropped + [.setParticipant(burst.participant)] + catchUp(at: now)
    }

    /// Handles an event of the link during a replay; nil for other events.
    mutating func interruptReplay(_ event: ReceptionEvent, at now: Instant) -> [ReceptionAction]? {
        switch event {
        case .began(let participant, let talkBurst):
            // Whoever speaks now is heard, at once.
            isReplaying = false
            state = .idle
            return [.dropPlayback(voice: voice)] + began(participant, talkBurst, at: now)
        case .packet:
            packetsDropped += 1
            return []
        case .ended: return []
        default: return nil
        }
    }

    mutating func stopReplay() -> [ReceptionAction] {
        guard isReplaying else { return [] }
        isReplaying = false
        state = .idle
        return [.dropPlayback(voice: voice), .setParticipant(nil)]
    }
}
