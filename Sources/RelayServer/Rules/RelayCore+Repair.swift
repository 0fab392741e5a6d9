// Repair of lost packets: packets that talkers send again, packets that listeners request, and loss reports to talkers.
import MonotonicTime
import RelayProtocol

extension ClientMessage {
    /// Whether it is about lost packets: such messages come as fast as packets are lost, and have bounds of their own.
    var isRepair: Bool {
        switch self {
        case .mediaRepair, .repairRequest: true
        default: false
        }
    }
}

extension RelayCore {
    /// A packet whose datagram was lost: taken as if that had come now.
    mutating func repaired(_ packet: [UInt8], from id: ConnectionID, at now: Instant) -> [Action] {
        guard packet.count <= limits.datagramBytes,
            let header = packet.withUnsafeBytes({ MediaPacketHeader(parsing: $0) })
        else {
            countMalformedMedia()
            return []
        }
        let (decision, actions) = media(header, bytes: packet, isRepaired: true, from: id, at: now)
        guard case .forward(let channel) = decision else { return actions }
        counters.packetsRepaired += 1
        // Who starts to listen with this packet gets it; everything else can wait until it is out.
        return actions.filter(\.isMediaSwitch) + [.forward(packet, channel: channel, except: id)]
            + actions.filter { !$0.isMediaSwitch }
    }

    /// A listener asks for packets. An answer is whole or there is none: then the listener asks again.
    mutating func answer(
        _ request: ClientMessage.RepairRequest, from id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        guard var member = channels[number].members[id] else { return [] }
        // The same request comes in a datagram and on the stream: the quicker one counts.
        guard request.id > member.lastRepairID else { return [] }
        member.lastRepairID = request.id
        var requests =
            member.repairRequests
            ?? TokenBucket(depth: limits.repairBurst, perSecond: limits.repairsPerSecond, at: now)
        var bytes =
            member.repairBytes
            ?? TokenBucket(depth: limits.repairBytes, perSecond: limits.repairBytesPerSecond, at: now)
        var packets: [[UInt8]] = []
        var isTaken = requests.take(at: now)
        if isTaken {
            packets = channels[number].store.packets(
                ssrc: request.ssrc, keyID: request.keyID, ranges: request.ranges, byteLimit: limits.repairBytes)
            isTaken = bytes.take(max(limits.repairBytesMinimum, packets.reduce(0) { $0 + $1.count }), at: now)
        }
        member.repairRequests = requests
        member.repairBytes = bytes
        channels[number].members[id] = member
        guard isTaken else {
            counters.repairsRefused += 1
            return []
        }
        counters.repairsAnswered += 1
        counters.packetsSentAgain += packets.count
        return [.answerRepair(id, RepairStream.encode(id: request.id, packets: packets))]
    }

    /// A listener reports; the talker hears of it when it makes a difference.
    mutating func reported(
        _ report: ClientMessage.ReceptionReport, by id: ConnectionID, channel number: Int, at now: Instant
    ) -> [Action] {
        if let new = channels[number].members[id]?.reception.note(report) {
            channels[number].counters.note(heard: new.received, lost: new.lost)
        }
        let actions = channels[number].reported(id, number: number, at: now)
        guard let speaker = channels[number].speakers.firstIndex(where: { $0.ssrc == report.ssrc }),
            channels[number].speakers[speaker].loss.isDue(limits.listenerLossInterval, at: now),
            let talker = channels[number].member(of: report.ssrc)
        else { return actions }
        let worst = channels[number].worstLoss(of: report.ssrc)
        guard
            let percent = channels[number].speakers[speaker].loss.update(
                worst: worst, interval: limits.listenerLossInterval, at: now)
        else { return actions }
        channels[number].members[talker.connection]?.toldLoss = percent
        return actions + [.send(.listenerLoss(percent: percent), to: [talker.connection])]
    }

    /// A short burst is over before listeners have reported on it: what its talker has not heard of it, it hears with its next one.
    mutating func tellLossOfLastBurst(to id: ConnectionID, channel number: Int) -> [Action] {
        guard let talker = channels[number].members[id], var loss = talker.lossOfLastBurst else { return [] }
        channels[number].members[id]?.lossOfLastBurst = nil
        let percent = loss.percent(worst: channels[number].worstLoss(of: talker.ssrc))
        guard percent != talker.toldLoss else { return [] }
        channels[number].members[id]?.toldLoss = percent
        return [.send(.listenerLoss(percent: percent), to: [id])]
    }
}

extension RelayCore.Action {
    /// Whether it changes who gets media.
    var isMediaSwitch: Bool {
        switch self {
        case .startMedia, .stopMedia: true
        case .send, .sendSeries, .close, .enrol, .forward, .answerRepair, .answerBurst, .note: false
        }
    }
}
