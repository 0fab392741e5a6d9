// Finds the part of a burst that has not been heard when a press ends the reception.

import Audio
import MonotonicTime

extension ReceptionStateMachine {
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
