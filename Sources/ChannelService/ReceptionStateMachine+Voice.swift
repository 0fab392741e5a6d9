// The properties by which a voice for a burst is chosen.

import PushToTalkCore

extension ReceptionStateMachine {
    /// Whether nothing comes, waits or plays.
    var isIdle: Bool { state == .idle && burstsQueued == 0 && !isDropping }

    /// Whether all of the last burst has been handed over.
    var isDraining: Bool { if case .draining = state { true } else { false } }

    /// Whether the burst that came last has not ended yet.
    var isComing: Bool {
        if isDropping { return true }
        if let newest = queue.last { return !newest.hasEnded }
        return switch state {
        case .receiving(let burst), .waiting(let burst): !burst.hasEnded
        case .idle, .draining: false
        }
    }

    /// Whether the burst that came last has ended, and not all of it has been handed over.
    var isBehind: Bool { !isComing && (burstsQueued > 0 || !(isDraining || state == .idle)) }

    /// Whose burst came last, of those that are not over.
    var newestParticipant: PTParticipant? {
        if let newest = queue.last { return newest.participant }
        return switch state {
        case .receiving(let burst), .waiting(let burst): burst.participant
        case .draining(let participant, _, _): participant
        case .idle: nil
        }
    }
}
