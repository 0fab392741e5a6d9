// The properties by which a voice for a burst is chosen.

import PushToTalkCore

extension ReceptionStateMachine {
    /// Whether nothing comes, waits or plays.
    var isIdle: Bool { state == .idle && burstsQueued == 0 && !isDropping }

    /// Whether all of the last burst has been handed over.
    var isDraining: Bool { if case .draining = state { true } else { false } }

    /// Whether a burst has not ended yet.
    var isComing: Bool { isDropping || !coming.isEmpty }

    /// Whether all bursts have ended, and not all of the last one has been handed over.
    var isBehind: Bool { !isComing && (burstsQueued > 0 || !(isDraining || state == .idle)) }

    /// The bursts that have not ended yet, and that have a place.
    var coming: [ReceivedBurst] { bursts.filter { !$0.hasEnded } }

    /// Whether somebody's words wait or play here, and no more of them come.
    func isBehindOwn(_ participant: PTParticipant) -> Bool {
        if bursts.contains(where: { $0.participant == participant }) {
            return !coming.contains { $0.participant == participant }
        }
        if case .draining(participant, _, _) = state { return true }
        return false
    }

    /// The burst that plays, or whose turn it is; nil: none, or one of a single talker.
    var playing: TalkBurst? {
        switch state {
        case .receiving(let burst), .waiting(let burst): burst.talkBurst
        case .draining(_, _, let talkBurst): talkBurst
        case .idle: nil
        }
    }

    /// Those of which not all has been handed over, in their order.
    private var bursts: [ReceivedBurst] {
        switch state {
        case .receiving(let burst), .waiting(let burst): [burst] + queue
        case .idle, .draining: queue
        }
    }
}
