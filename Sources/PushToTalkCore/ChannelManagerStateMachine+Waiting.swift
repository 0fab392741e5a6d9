// Begins while somebody else is speaking: they are refused or wait, and the talker is heard to the end. Replays, which
// other members' speech stops.

import FoundationEssentials
import MonotonicTime
import Vocabulary

extension ChannelManagerStateMachine {
    /// A begin that waits for the floor. Nothing is recorded meanwhile, and no delegate callback precedes its begin.
    public struct Waiting: Hashable, Sendable {
        /// Who wants to begin.
        public let source: PTChannelTransmitRequestSource
        /// Since when.
        public let since: Instant
        /// The position in the relay's queue, counted from 1; nil: not reported yet.
        public internal(set) var position: Int?
        /// The floor is this device's: it begins when nobody is heard any more, and at this time at the latest.
        var beginsBy: Instant?
        /// Nobody is known to stand there waiting for longer than that; nil: a finger is on a button.
        let endsAt: Instant?
    }

    mutating func wait(
        _ source: PTChannelTransmitRequestSource, _ request: RequestIdentifier?, position: Int?, at now: Instant
    ) {
        let endsAt = source == .handsfreeButton ? nil : now + configuration.waitingLimit
        waiting = Waiting(source: source, since: now, position: position, endsAt: endsAt)
        pendingTone = .waiting
        actions.append(.notice(.waitingForFloor(position: position)))
        // Nobody is to wait for an answer for as long as others talk.
        complete(request)
    }

    mutating func waitingIsTooLong() {
        let explanation = "the floor was not free within \(configuration.waitingLimit); try again"
        endWaiting(.refused(PTChannelError(.transmissionInProgress, explanation: explanation)))
    }

    /// The relay lets the begin wait.
    mutating func floorQueued(_ position: Int, at now: Instant) {
        if let waiting {
            guard waiting.position != position, waiting.beginsBy == nil else { return }
            self.waiting?.position = position
            actions.append(.notice(.waitingForFloor(position: position)))
        } else if let transmission {
            // Two pressed at once and the relay chose the other one: they are heard now, and this one begins anew.
            self.transmission?.request = nil
            endTransmission(.queued, capture: .discarding, at: now)
            wait(transmission.source, transmission.request, position: position, at: now)
        } else {
            // Whoever has let go is not there when the floor is free.
            let error = PTChannelError(.transmissionInProgress, explanation: "somebody else is speaking")
            refused(error, .refused(error), at: now)
        }
    }

    /// The floor is granted to the waiting begin. The previous talker's last words are played first.
    mutating func floorGranted(at now: Instant) {
        guard waiting != nil, waiting?.beginsBy == nil else { return }
        if seededFault("a-grant-after-waiting-begins-nothing") { return }
        let beginsBy = now + configuration.playOutLimit
        waiting?.beginsBy = beginsBy
    }

    /// Begins what waited, when it has got the floor and nobody is heard any more.
    mutating func beginIfFloorIsFree(at now: Instant) {
        guard let waiting, waiting.beginsBy != nil,
            activeRemoteParticipant == nil || channel?.transmissionMode == .fullDuplex
        else { return }
        self.waiting = nil
        cutTail()
        pendingTone = nil
        activationBlocked = false
        begin(waiting.source, nil, .afterGoAhead, at: now)
    }

    /// It does not begin any more.
    mutating func endWaiting(_ cause: TransmissionEndCause) {
        if seededFault("waiting-has-no-end") { return }
        guard let ended = waiting else { return }
        waiting = nil
        pendingTone = tone(after: cause, captureBegan: false)
        actions.append(.notice(.waitingEnded(cause)))
        // The request was answered when it began to wait; its program is told how it went.
        guard ended.source == .developerRequest, let error = cause.error, let uuid = channel?.uuid else { return }
        tell(.failedToBeginTransmitting(uuid, error))
    }

    /// Why a message cannot be played again now; nil: it can.
    public func refusalToReplay(_ uuid: UUID) -> PTChannelError? {
        if let error = errorUnlessActive(uuid) { return error }
        if let call = calls.first {
            let explanation = "a call is active (\(call.description)); try again when it is over"
            return PTChannelError(.callActive, explanation: explanation)
        }
        if isInterrupted {
            let explanation = "something else has the audio; try again when it is free"
            return PTChannelError(.transmissionNotAllowed, explanation: explanation)
        }
        guard channel?.media == .daemon else {
            let explanation = "a program carries the sound of this channel, and pttd keeps none of it"
            return PTChannelError(.transmissionNotAllowed, explanation: explanation)
        }
        if transmission != nil {
            return PTChannelError(.transmissionInProgress, explanation: "this device is transmitting; stop that first")
        }
        return nil
    }
}
