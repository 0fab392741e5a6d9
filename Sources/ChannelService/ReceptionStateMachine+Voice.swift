// What a voice is asked for when a burst is given one, replays of a message, which end when somebody speaks, and the part of a burst that
// has not been heard when a press ends the reception.

import Audio
import MonotonicTime
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

    // MARK: Replays

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

    // MARK: What has not been heard

    /// What would not be heard if all were dropped now; nil: nothing is being heard, or only a replay.
    func unheard(at now: Instant) -> UnheardSpeech? {
        guard let playedSince, !isReplaying else { return nil }
        let waiting = queue.filter { $0.waitingCount > 0 }
        return UnheardSpeech(
            heard: now - playedSince, burstsWaiting: waiting.count, burst: playing, waiting: waiting.map(\.talkBurst))
    }

    mutating func follow(_ action: ReceptionAction, at now: Instant) {
        switch action {
        case .play: playedSince = playedSince ?? now
        case .setParticipant, .dropPlayback: playedSince = nil
        case .endPlayback: break
        }
    }
}
