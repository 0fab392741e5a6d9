// The talkers on a channel, as granted, seen from outside of the floor's rules.
import MonotonicTime
import RelayProtocol

extension RelayChannel {
    /// One who was granted the floor, and what it has sent since.
    struct Speaker: Sendable, Equatable {
        let ssrc: SSRC
        var bytes = 0
        /// Packets of the burst that came, and those of them that had been lost at first.
        var loss = TalkerLoss()
    }

    /// What is known of a source that was granted the floor.
    func speaker(_ ssrc: SSRC) -> Speaker? { speakers.first { $0.ssrc == ssrc } }

    /// Whether a source was granted the floor.
    func isSpeaking(_ ssrc: SSRC) -> Bool { speakers.contains { $0.ssrc == ssrc } }

    /// Checks invariant I4: nobody is granted the floor while it is full.
    mutating func noteSpeaker(_ ssrc: SSRC) {
        guard !isSpeaking(ssrc) else { return }
        precondition(speakers.count < floor.rules.talkersMaximum, "more members hold the floor than may")
        speakers.append(Speaker(ssrc: ssrc))
    }

    mutating func noteIdle(of ssrc: SSRC) {
        guard let index = speakers.firstIndex(where: { $0.ssrc == ssrc }) else {
            preconditionFailure("a floor that was not granted ends")
        }
        let speaker = speakers.remove(at: index)
        guard let id = member(of: ssrc)?.connection, speaker.bytes > 0 else { return }
        members[id]?.lossOfLastBurst = speaker.loss
    }

    /// How much the listener with the worst reception misses of what that source said last, 0…1.
    func worstLoss(of ssrc: SSRC) -> Double {
        var worst = 0.0
        for member in members.values where !member.isSilent { worst = max(worst, member.reception.loss(of: ssrc) ?? 0) }
        return worst
    }

    /// A packet of a talker is forwarded for the first time.
    mutating func noteForwarded(_ ssrc: SSRC, bytes: Int, isRepaired: Bool) {
        guard let index = speakers.firstIndex(where: { $0.ssrc == ssrc }) else {
            preconditionFailure("only the holders' media are forwarded")
        }
        speakers[index].bytes += bytes
        speakers[index].loss.note(isRepaired: isRepaired)
    }

    /// Who talks, the longest first.
    var floorsTaken: [ServerMessage.FloorTaken] {
        floor.holders.compactMap { holder in
            member(of: holder.ssrc).map {
                .init(talker: $0.id, ssrc: holder.ssrc, keyID: holder.keyID, priority: holder.priority)
            }
        }
    }

    /// Who talks; an older connection of the member itself does not count.
    func floorsTaken(for member: MemberID) -> [ServerMessage.FloorTaken] {
        floorsTaken.filter { $0.talker != member }
    }
}
