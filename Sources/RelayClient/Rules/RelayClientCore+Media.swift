// Sent and received media, between the rules of the floor and the keys.
import MonotonicTime
import RelayProtocol
import SFrame

extension RelayClientCore {
    // MARK: Talking

    mutating func speak(_ event: UplinkStateMachine.Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        for action in uplink.handle(event, at: now) {
            switch action {
            case .requestFloor(let requestID, let priority):
                actions += requestFloor(requestID, priority: priority, at: now)
            case .sendMedia(let requestID, let frame):
                guard let datagram = session?.seal(frame, requestID) else {
                    actions += speak(.revoked(requestID, .other("this machine cannot encrypt")), at: now)
                    continue
                }
                hearing.sent(at: now)
                doubt.sent(at: now)
                actions += repair(.sealed(packet: datagram), at: now)
                actions += send(datagram, at: now)
            case .releaseFloor(let requestID, let lastSequence):
                if session != nil {
                    actions.append(.send(.floorRelease(.init(requestID: requestID, lastSequence: lastSequence))))
                    doubt.answered()
                    guard lastSequence != nil else { continue }
                    hearing.released(at: now)
                    actions += repair(.released, at: now)
                }
            case .tell(let event): actions.append(.tell(event))
            }
        }
        return actions
    }

    private mutating func send(_ packet: [UInt8], at now: Instant) -> [Action] {
        guard !isReliable, let (datagram, number) = direct?.seal(packet, at: now) else { return [.sendMedia(packet)] }
        return [.sendOutsideQUIC(datagram)] + sent(packet, as: number, at: now)
    }

    private mutating func requestFloor(_ requestID: FloorRequestID, priority: UInt8, at now: Instant) -> [Action] {
        let keyID: KeyID
        do throws(SFrameError) {
            guard let drawn = try session?.beginBurst(requestID, using: &random) else { return [] }
            keyID = drawn
        } catch {
            return speak(.denied(requestID, .refused("this machine cannot encrypt: \(error)")), at: now)
        }
        // Everybody's priority is the member's own.
        let priority = priority == FloorPriority.normal ? floor?.priority ?? priority : priority
        let request = ClientMessage.FloorRequest(
            requestID: requestID, priority: priority, keyID: keyID.rawValue, mayQueue: true)
        return [.send(.floorRequest(request))]
    }

    mutating func repair(_ event: UplinkRepairStateMachine.Event, at now: Instant) -> [Action] {
        // Nothing is lost on the way, or everything.
        if isReliable, event != .linkLost { return [] }
        return uplinkRepair.handle(event, at: now).map { .send(.mediaRepair($0)) }
    }

    // MARK: Packets outside QUIC

    /// The relay reports on them.
    private mutating func take(_ report: UplinkReport, at now: Instant) -> [Action] {
        onDirectPackets(at: now) { $0.take(report, at: now) }
    }

    mutating func lookAfterDirectPackets(at now: Instant) -> [Action] {
        let heard = lastHeard
        return onDirectPackets(at: now) { $0.look(heard: heard, at: now) }
    }

    /// Nothing of this end's burst is waited for any more.
    mutating func concludeDirectPackets(at now: Instant) -> [Action] {
        onDirectPackets(at: now) {
            $0.conclude()
            return []
        }
    }

    private mutating func onDirectPackets(
        at now: Instant, _ work: (inout DirectUplink) -> [DirectUplink.Fate]
    ) -> [Action] {
        guard var direct else { return [] }
        let wasAwaiting = direct.awaitsAnswer
        let fates = work(&direct)
        self.direct = direct
        var actions: [Action] = direct.awaitsAnswer == wasAwaiting ? [] : [.awaitAnswer(direct.awaitsAnswer)]
        for fate in fates {
            switch fate {
            case .acknowledged(let number): actions += handle(.mediaAcknowledged(number), at: now)
            case .lost(let number): actions += handle(.mediaLost(number), at: now)
            }
        }
        return actions
    }

    // MARK: Listening

    /// Handles repaired packets.
    mutating func receiveRepaired(
        _ packets: [[UInt8]], request: UInt32, isEnd: Bool, at now: Instant
    ) -> [Action] {
        guard session != nil else { return [] }
        let actions = receive(answer: packets, at: now)
        return isEnd ? actions + listen(.answered(request: request), at: now) : actions
    }

    /// Takes packets of an answer. They came from the relay over QUIC, so there is no trailer to check.
    mutating func receive(answer packets: [[UInt8]], at now: Instant) -> [Action] {
        var actions: [Action] = []
        for packet in packets {
            actions += packet.withUnsafeBytes { receivePacket($0, receivedAt: now, isRepaired: true, at: now) }
        }
        return actions
    }

    /// Takes a datagram that came, not through QUIC, from the relay's address; or a media packet of a link over TLS, which
    /// has no trailer.
    public mutating func receive(_ datagram: UnsafeRawBufferPointer, at now: Instant) -> [Action] {
        if isReliable, session != nil {
            if doubt.isExpecting { doubt.expects(at: now) }
            return receivePacket(datagram, receivedAt: now, at: now)
        }
        guard let packet = session?.authenticated(datagram) else {
            downlink.count(.notAuthentic)
            return []
        }
        guard !UplinkReport.isOne(packet) else {
            guard let report = UplinkReport(parsing: packet), report.ssrc == session?.ssrc else {
                downlink.count(.malformed)
                return []
            }
            return take(report, at: now)
        }
        if doubt.isExpecting { doubt.expects(at: now) }
        return receivePacket(packet, receivedAt: now, at: now)
    }

    mutating func receivePacket(
        _ packet: UnsafeRawBufferPointer, receivedAt: Instant, isRepaired: Bool = false, at now: Instant
    ) -> [Action] {
        guard let read = MediaSession.Packet(packet) else {
            downlink.count(.malformed)
            return []
        }
        let header = read.header
        switch downlink.admit(
            ssrc: header.ssrc, keyID: read.keyID, sequence: header.sequence, isRepaired: isRepaired)
        {
        case .drop: return []
        case .resume:
            // Now there is a burst that it is of.
            return listen(.resumed(ssrc: header.ssrc, keyID: read.keyID), at: now)
                + receivePacket(packet, receivedAt: receivedAt, at: now)
        case .hold:
            downlink.hold(
                Array(packet), receivedAt: receivedAt, place: (header.ssrc, read.keyID, header.sequence))
            return []
        case .open:
            guard let payload = session?.open(read, at: now) else {
                downlink.count(.notOpened)
                return []
            }
            return listen(
                .opened(
                    header, payload: payload, receivedAt: receivedAt,
                    isRepaired: isRepaired), at: now)
        }
    }

    mutating func listen(_ event: DownlinkStateMachine.Event, at now: Instant) -> [Action] {
        var actions: [Action] = []
        for action in downlink.handle(event, at: now) {
            switch action {
            case .tell(let event): actions.append(.tell(event))
            case .report(let report): if session != nil { actions.append(.send(.receptionReport(report))) }
            case .ask(let request):
                guard session != nil else { continue }
                // The datagram waits for nothing; the stream is for a relay that does not read it.
                if !isReliable { actions.append(.sendLoosely(.repairRequest(request))) }
                actions.append(.send(.repairRequest(request)))
            case .fetch(let burst, let first):
                guard session != nil else { continue }
                let (request, message) = nextBurstRequest(burst, first: first)
                actions.append(.send(message))
                actions += listen(.fetchAsked(request, of: burst), at: now)
            case .conclude(let ssrc): actions += listen(.conclude(ssrc), at: now)
            case .retry(let packets):
                for packet in packets {
                    actions += packet.bytes.withUnsafeBytes {
                        receivePacket($0, receivedAt: packet.receivedAt, at: now)
                    }
                }
            }
        }
        return actions
    }
}
