// When a remote participant counts as speaking: from the first packet until the last one has been heard. No I/O.

import MonotonicTime
import PushToTalkCore

/// One received talk burst after the other, as a state machine without I/O.
///
/// A burst ends for the listener not when the talker releases, but when the jitter buffer has played it out; and it
/// ends in any case, also when nobody ever says that it does.
struct ReceptionStateMachine: Sendable {
    enum Event: Hashable, Sendable {
        /// A participant's burst begins.
        case began(PTParticipant)
        /// A packet came.
        case packet(sequence: UInt16)
        /// The burst ends with this packet; nil: with the last one that came.
        case ended(lastSequence: UInt16?)
        /// The speaker has played a burst to its end.
        case played
        /// The channel manager does not take the participant now: this device is transmitting.
        case refused
        /// The own transmission has ended.
        case transmissionEnded
        /// The channel manager has dropped the participant, or cannot take any (left, shut down).
        case cleared
        /// The time of `nextDeadline` has come.
        case deadlineReached
    }

    enum Action: Hashable, Sendable {
        /// Tell the channel manager who is speaking; nil: nobody any more.
        case setParticipant(PTParticipant?)
        /// Play the packet that was just handed in.
        case play
        /// Tell the speaker where the burst ends.
        case endPlayback(lastSequence: UInt16)
        /// Drop what has not been heard.
        case dropPlayback
    }

    private enum State: Hashable, Sendable {
        case idle
        /// The burst goes on unheard behind an own transmission.
        case waiting(PTParticipant, lastHeard: Instant)
        case receiving(PTParticipant, highest: UInt16?, lastHeard: Instant)
        case draining(PTParticipant, until: Instant)
    }

    /// How long nothing may come of a burst before it counts as over (T1 of the relay is 5 s; this is behind it).
    static let silenceLimit = Duration.seconds(10)
    /// How long playing out may take after the end.
    static let drainLimit = Duration.seconds(3)

    private var state = State.idle
    /// Packets that came outside of a burst, and were dropped.
    private(set) var packetsDropped = 0

    /// When the machine wants `Event.deadlineReached`.
    var nextDeadline: Instant? {
        switch state {
        case .idle: nil
        case .waiting(_, let lastHeard), .receiving(_, _, let lastHeard): lastHeard + Self.silenceLimit
        case .draining(_, let until): until
        }
    }

    mutating func handle(_ event: Event, at now: Instant) -> [Action] {
        switch (event, state) {
        case (.began(let participant), _):
            state = .receiving(participant, highest: nil, lastHeard: now)
            return [.setParticipant(participant)]

        case (.refused, .receiving(let participant, _, _)):
            state = .waiting(participant, lastHeard: now)
            return []
        case (.refused, _): return []
        case (.transmissionEnded, .waiting(let participant, _)):
            // Two pressed at once and the relay chose the other one: the rest of their burst is heard.
            state = .receiving(participant, highest: nil, lastHeard: now)
            return [.setParticipant(participant)]
        case (.transmissionEnded, _): return []

        case (.packet(let sequence), .receiving(let participant, let highest, _)):
            // RFC 1982 order: the wrap of 16 bits is no step back.
            let isNewer = highest.map { Int16(bitPattern: sequence &- $0) > 0 } ?? true
            state = .receiving(participant, highest: isNewer ? sequence : highest, lastHeard: now)
            return [.play]
        case (.packet, .draining): return [.play]
        case (.packet, .waiting(let participant, _)):
            state = .waiting(participant, lastHeard: now)
            packetsDropped += 1
            return []
        case (.packet, .idle):
            packetsDropped += 1
            return []

        case (.ended(let lastSequence), .receiving(let participant, let highest, _)):
            guard let last = lastSequence ?? highest, highest != nil else { return finish() }
            state = .draining(participant, until: now + Self.drainLimit)
            return [.endPlayback(lastSequence: last)]
        case (.ended, .waiting):
            state = .idle
            return []
        case (.ended, _): return []

        case (.played, .draining): return finish()
        // Silence within the burst: the talker is still there.
        case (.played, _): return []

        case (.cleared, .idle): return []
        case (.cleared, .waiting):
            state = .idle
            return []
        case (.cleared, _):
            state = .idle
            return [.dropPlayback]

        case (.deadlineReached, _):
            guard let nextDeadline, nextDeadline <= now else { return [] }
            if case .waiting = state {
                state = .idle
                return []
            }
            return [.dropPlayback] + finish()
        }
    }

    private mutating func finish() -> [Action] {
        state = .idle
        return [.setParticipant(nil)]
    }
}
