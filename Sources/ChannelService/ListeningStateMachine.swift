// Assigns concurrent talkers to the speaker's voices, and decides which of them the channel manager knows as its
// participant. No I/O.

import Audio
import MonotonicTime
import PushToTalkCore

/// Tells a talk burst from others at the same time, on channels where several may talk at once.
public struct TalkBurst: Hashable, Sendable {
    /// Never used twice while the channel is joined.
    public let number: UInt32
    /// Burst `number`.
    public init(number: UInt32) { self.number = number }
}

/// Reception of other members: one `ReceptionStateMachine` per voice of the speaker.
///
/// If one member talks at a time, bursts have no `TalkBurst` and are played one after the other on the first voice.
/// Members that talk at once are played at once, each on its own voice. A burst that has ended but was not played yet
/// is played before the bursts that follow it. The channel manager knows one remote participant: the one that has been
/// heard for the longest time.
struct ListeningStateMachine: Sendable {
    private struct Voice: Sendable {
        var reception: ReceptionStateMachine
        /// The bursts that came to it last: several only where one waits behind another one that still comes.
        var bursts: [TalkBurst] = []
        static let burstsMax = 2 * ReceptionStateMachine.burstsQueuedMax
        /// The participant that is heard on it, and its number in the order of the begins.
        var heard: (participant: PTParticipant, order: UInt64)?
    }

    private var voices = (0..<PlaybackEngine.voicesMax).map { Voice(reception: ReceptionStateMachine(voice: $0)) }
    /// The voice whose participant was reported to the channel manager.
    private var told: Int?
    private var beginnings: UInt64 = 0
    /// Bursts that a press has cut off and that still continue. Their rest is played after the press. Nil: the burst of
    /// a single talker.
    private var cut: [(burst: TalkBurst?, participant: PTParticipant)] = []
    /// The own transmission is over, and its last words are still being recorded.
    private var isOwnTailGoing = false
    private var strays = 0

    /// Whether others are heard while this device records. Otherwise a recording, its tail included, ends when another
    /// member is heard.
    var hearsWhileRecording = false
    /// Packets that the speaker holds: what waits is handed to it only while it has room.
    var speakerHolds = 0

    /// Packets that were dropped.
    var packetsDropped: Int { voices.reduce(strays) { $0 + $1.reception.packetsDropped } }

    /// Whether a message is being heard again.
    var isReplaying: Bool { voices[0].reception.isReplaying }

    /// Whether a message can be heard again: nobody speaks, not even unheard, and nothing waits.
    var canReplay: Bool { voices.allSatisfy(\.reception.canReplay) }

    /// The participants that are heard, the longest first.
    var participants: [PTParticipant] {
        voices.compactMap { $0.heard }.sorted { $0.order < $1.order }.map { $0.participant }
    }

    /// When the machine wants `Event.deadlineReached`.
    var nextDeadline: Instant? { voices.lazy.compactMap(\.reception.nextDeadline).min() }

    /// What would not be heard if all were dropped now.
    func unheard(at now: Instant) -> [UnheardSpeech] { voices.compactMap { $0.reception.unheard(at: now) } }

    mutating func handle(_ event: ReceptionEvent, at now: Instant) -> [ReceptionAction] {
        switch event {
        case .began(let participant, let burst): return began(participant, burst, at: now)
        case .packet(_, let burst):
            guard let voice = voice(of: burst) else {
                strays += 1
                return []
            }
            return pass(event, to: voice, at: now)
        case .ended(_, let burst):
            cut.removeAll { $0.burst == burst }
            guard let voice = voice(of: burst) else { return [] }
            return pass(event, to: voice, at: now)
        case .replay: return canReplay ? pass(event, to: 0, at: now) : []
        case .replayStopped: return pass(event, to: 0, at: now)
        case .played(let voice): return pass(event, to: voice, at: now)
        case .refused: return refused(at: now)
        case .transmissionEnded:
            isOwnTailGoing = true
            return transmissionEnded(isComplete: false, at: now)
        case .ownSpeechComplete:
            isOwnTailGoing = false
            return transmissionEnded(isComplete: true, at: now)
        case .cleared: return cleared(at: now)
        case .left:
            cut = []
            return []
        case .deadlineReached: return voices.indices.flatMap { pass(event, to: $0, at: now) }
        }
    }

    // MARK: Voices

    private func voice(of burst: TalkBurst?) -> Int? {
        guard let burst else { return 0 }
        return voices.firstIndex { $0.bursts.contains(burst) }
    }

    private mutating func began(_ participant: PTParticipant, _ burst: TalkBurst?, at now: Instant) -> [ReceptionAction]
    {
        // One at a time: what was cut off is over, whether that was told or not.
        cut.removeAll { $0.burst == burst }
        let voice = burst == nil ? 0 : voice(for: participant)
        let isBehindOthers = voices[voice].reception.isComing && voices[voice].reception.isBehindOwn(participant)
        let known = isBehindOthers ? voices[voice].bursts.suffix(Voice.burstsMax) : []
        voices[voice].bursts = known + (burst.map { [$0] } ?? [])
        let actions = pass(.began(participant, burst), to: voice, at: now)
        // Who talks beside others has not stopped this device: its last words are said whole, and theirs are heard behind them.
        return burst != nil && isOwnTailGoing && !hearsWhileRecording ? refused(at: now) : actions
    }

    /// The voice for a burst that overlaps others.
    private func voice(for participant: PTParticipant) -> Int {
        // Whoever speaks now ends a replay.
        if isReplaying { return 0 }
        // Nobody talks beside themselves. A burst that goes on over another relay comes as one of its own, whoever talks meanwhile.
        let own = voices.firstIndex { $0.reception.isBehindOwn(participant) }
        // What was said one after the other is heard one after the other.
        return own ?? voices.firstIndex(where: \.reception.isBehind) ?? voices.firstIndex(where: \.reception.isIdle)
            ?? voices.firstIndex { !$0.reception.isComing } ?? 0
    }

    private mutating func pass(_ event: ReceptionEvent, to voice: Int, at now: Instant) -> [ReceptionAction] {
        voices[voice].reception.speakerHolds = speakerHolds
        return voices[voice].reception.handle(event, at: now).flatMap { action in
            if case .setParticipant(let participant) = action { hear(participant, on: voice) } else { [action] }
        }
    }

    // MARK: The channel manager

    /// Somebody, or nobody any more, is heard on a voice.
    private mutating func hear(_ participant: PTParticipant?, on voice: Int) -> [ReceptionAction] {
        beginnings += 1
        voices[voice].heard = participant.map { (participant: $0, order: beginnings) }
        let active = voices.indices.filter { voices[$0].heard != nil }
            .min { (voices[$0].heard?.order ?? 0) < (voices[$1].heard?.order ?? 0) }
        // Those who talk beside others, come and go untold.
        guard active == voice || told == voice || active == nil else { return [] }
        told = active
        return [.setParticipant(active.flatMap { voices[$0].heard?.participant })]
    }

    private mutating func refused(at now: Instant) -> [ReceptionAction] {
        let actions = voices.indices.flatMap { pass(.refused, to: $0, at: now) }
        for voice in voices.indices where !voices[voice].reception.isDraining { voices[voice].heard = nil }
        if let told, voices[told].heard == nil { self.told = nil }
        return actions
    }

    /// Where one talks at a time the next one is heard as soon as this device talks no more; where others talk all the time, its own
    /// last words come first. So they do before what a press has cut off and the relay did not grant: that may yet be granted.
    private mutating func transmissionEnded(isComplete: Bool, at now: Instant) -> [ReceptionAction] {
        var actions: [ReceptionAction] = []
        for voice in voices.indices where voices[voice].bursts.isEmpty != isComplete {
            actions += pass(.transmissionEnded, to: voice, at: now)
        }
        guard isComplete else { return actions }
        let goingOn = cut
        cut = []
        for each in goingOn { actions += began(each.participant, each.burst, at: now) }
        return actions
    }

    private mutating func cleared(at now: Instant) -> [ReceptionAction] {
        for voice in voices {
            for burst in voice.reception.coming { cut.append((burst.talkBurst, burst.participant)) }
        }
        let actions = voices.indices.flatMap { pass(.cleared, to: $0, at: now) }
        for voice in voices.indices {
            voices[voice].bursts = []
            voices[voice].heard = nil
        }
        told = nil
        return actions
    }
}
