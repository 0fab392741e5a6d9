// Forwarding: which packets go to whom, under which key, and from which source.
import MonotonicTime
import RelayProtocol

extension RelayCore {
    /// Decides on a media packet that came from `id`, in a datagram or, when its datagram was lost, on the control stream. It is
    /// kept when it is forwarded.
    ///
    /// - Returns: What to do with the packet, and what else there is to do afterwards (empty in the middle of a burst).
    public mutating func media(
        _ packet: MediaPacketHeader, bytes: [UInt8], isRepaired: Bool = false, from id: ConnectionID, at now: Instant
    ) -> (MediaDecision, [Action]) {
        counters.packetsIn += 1
        guard case .member(let number)? = connections[id]?.state, channels[number].members.keys.contains(id) else {
            return drop(.notJoined)
        }
        // Each packet of a talker becomes one for every listener.
        let (depth, perSecond) = (limits.mediaBurst, limits.mediaPerSecond)
        let refusal = channels[number].members[id]?.refuse(packet.ssrc, depth: depth, perSecond: perSecond, at: now)
        if let refusal { return drop(refusal) }
        let ssrc = packet.ssrc
        let overdue = endOverdue(channel: number, at: now)
        switch channels[number].floor.media(
            ssrc: ssrc, keyID: packet.keyID, sequence: packet.sequence, marker: packet.marker, at: now)
        {
        case .noFloor where isKept(packet, channel: number), .wrongKeyID where isKept(packet, channel: number),
            .duplicate where isKept(packet, channel: number):
            // Talkers send the end of a burst again in doubt: it comes twice, maybe behind the end of the burst, or in the next one.
            counters.packetsSpare += 1
            return (.drop(.duplicate), overdue)
        case .noFloor: return (drop(.noFloor).0, overdue + remind(id, channel: number, at: now))
        case .wrongKeyID: return (drop(.wrongKeyID).0, overdue)
        case .duplicate: return (drop(.duplicate).0, overdue)
        case .afterRelease: return (drop(.afterRelease).0, overdue)
        case .forward(let isFirst, let endsBurst):
            counters.packetsForwarded += 1
            channels[number].noteForwarded(ssrc, bytes: bytes.count, isRepaired: isRepaired)
            keep(bytes, packet, of: id, channel: number, at: now)
            var actions = isFirst ? firstPacket(packet, channel: number, at: now) : []
            if now >= channels[number].nextReportCheck {
                let silent = channels[number].stopSilentListeners(
                    number: number, timeout: limits.reportTimeout, at: now)
                counters.listenersStopped += silent.count / RelayChannel.actionsPerSilentListener
                actions += silent
            }
            if endsBurst { actions += apply(.deadline, channel: number, at: now) }
            return (.forward(channel: number), overdue + actions)
        }
    }

    /// Ends what is due on a floor. A relay that was held up may read a packet, or a message, before its timers run.
    mutating func endOverdue(channel number: Int, at now: Instant) -> [Action] {
        guard let due = channels[number].floor.nextDeadline, due <= now else { return [] }
        return apply(.deadline, channel: number, at: now)
    }

    private func isKept(_ packet: MediaPacketHeader, channel number: Int) -> Bool {
        channels[number].store.has(packet.sequence, of: BurstName(ssrc: packet.ssrc, keyID: packet.keyID))
    }

    private mutating func keep(
        _ bytes: [UInt8], _ packet: MediaPacketHeader, of id: ConnectionID, channel number: Int, at now: Instant
    ) {
        let burst = BurstName(ssrc: packet.ssrc, keyID: packet.keyID)
        let isKnown = channels[number].store.isKeeping(burst)
        let talker = isKnown ? nil : channels[number].members[id].map { (id: $0.id, name: $0.name) }
        changeStore(number) { store in
            if let talker { store.begin(burst, of: talker.id, named: talker.name, at: now) }
            store.keep(bytes, of: burst, sequence: packet.sequence, at: now)
        }
    }

    private mutating func drop(_ reason: MediaDrop) -> (MediaDecision, [Action]) {
        counters.count(reason)
        return (.drop(reason), [])
    }

    /// Counts a packet that could not be read as media.
    public mutating func countMalformedMedia() {
        counters.packetsIn += 1
        counters.count(.malformed)
    }

    private mutating func firstPacket(_ packet: MediaPacketHeader, channel number: Int, at now: Instant) -> [Action] {
        let milestone = RelayMilestone.firstPacket(
            channel: channels[number].name, ssrc: packet.ssrc, sequence: packet.sequence)
        return [.note(milestone)]
            + channels[number].beginListening(
                to: packet.ssrc, number: number, at: now)
    }

    // MARK: Keys and sources

    mutating func renewMediaKey(of id: ChannelID, at now: Instant) -> [Action] {
        guard let number = channelNumbers[id], !channels[number].configuration.isEndToEnd else { return [] }
        let key = Self.mediaKey(epoch: channels[number].mediaKey.epoch &+ 1, &random)
        channels[number].keys.renew(
            key, keepingPrevious: limits.previousEpochTime, inUse: channels[number].epochsInUse,
            connected: channels[number].connectionOfMember, roster: roster.members(of: id), at: now)
        let note = Action.note(.mediaKeyRenewed(channel: channels[number].name, epoch: key.epoch))
        let everyone = channels[number].everyone
        let isTold = !everyone.isEmpty && !seededFault("a-new-key-is-not-told")
        return !isTold ? [note] : [.send(.mediaKey(key), to: everyone), note]
    }

    /// Counts a granted burst. After the maximum under one key, the next bursts get a new one.
    mutating func countBurst(_ keyID: UInt64, channel number: Int, at now: Instant) -> [Action] {
        channels[number].keys.noteBurst(UInt16(keyID >> 48))
        guard channels[number].keys.bursts >= limits.burstsPerMediaKey else { return [] }
        return renewMediaKey(of: channels[number].configuration.id, at: now)
    }

    mutating func freshSource() -> SSRC {
        while true {
            let candidate = SSRC(rawValue: UInt32.random(in: 1...UInt32.max, using: &random))
            if sources.insert(candidate).inserted { return candidate }
        }
    }

    static func mediaKey(epoch: UInt16, _ random: inout any RandomNumberGenerator & Sendable) -> MediaKey {
        guard let key = MediaKey(epoch: epoch, baseKey: bytes(MediaKey.byteCountDefault, &random)) else {
            preconditionFailure("a media key of the default size is one")
        }
        return key
    }

    static func downlinkKey(_ random: inout any RandomNumberGenerator & Sendable) -> DownlinkKey {
        guard let key = DownlinkKey(bytes(DownlinkKey.byteCount, &random)) else {
            preconditionFailure("a down-link key of the fixed size is one")
        }
        return key
    }

    private static func bytes(_ count: Int, _ random: inout any RandomNumberGenerator & Sendable) -> [UInt8] {
        (0..<count).map { _ in UInt8.random(in: 0...UInt8.max, using: &random) }
    }
}
