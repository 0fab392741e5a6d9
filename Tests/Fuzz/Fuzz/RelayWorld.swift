// A relay's rules under a stream of events that an input spells: connections, messages, packets, time.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import TestSupport
import Vocabulary

@testable import RelayServer

/// A relay with a few clients that say whatever the input has them say. What has to hold is checked after every event.
struct RelayWorld {
    private static let token = InvitationToken([UInt8](repeating: 2, count: 16)) ?? InvitationToken()
    private static let channel = ChannelID(bytes: [UInt8](repeating: 1, count: 16)) ?? ChannelID()
    private static let members = 5
    /// More steps at one instant than any rule has.
    private static let stepsMaximum = 64

    private var input: Input
    private var core: RelayCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var open: [ConnectionID] = []
    private var welcomes: [ConnectionID: ServerMessage.Welcome] = [:]
    private var requests: [ConnectionID: (number: UInt32, keyID: UInt64, sequence: UInt16)] = [:]
    private var burstRequests: [ConnectionID: UInt32] = [:]
    private var lastNumber: UInt64 = 0

    init(_ bytes: [UInt8]) {
        input = Input(bytes)
        let first = input.byte()
        let mode = FloorRules.Mode.allCases[Int(first & 0x7F) % FloorRules.Mode.allCases.count]
        let rules = FloorRules(mode: mode, hasQueue: input.chance(), preemptionStep: input.chance() ? 10 : nil)
        var configuration = RelayChannelConfiguration(
            id: Self.channel, name: DisplayName(cleaning: "Yard", fallback: "Yard"), token: Self.token, rules: rules,
            isEndToEnd: input.chance())
        if first & 0x80 == 0 { configuration.retention = BurstRetention(bursts: 2, time: .seconds(20)) }
        var limits = RelayLimits()
        limits.connections = 8
        limits.membersPerChannel = 4
        limits.enrolments = 2
        core = RelayCore(
            channels: [configuration], limits: limits,
            roster: input.chance() ? .open : RelayRoster(memberships: [:]), acceptsPushes: true,
            random: SeededGenerator(seed: 1))
    }

    /// Carries out all that the input says.
    mutating func run() {
        while !input.isEmpty { step() }
    }

    private mutating func step() {
        let kind = input.byte() % 18
        switch kind {
        case 0, 1:
            lastNumber += 1
            let id = ConnectionID(number: lastNumber)
            open.append(id)
            handle(kind == 0 ? .connected(id, pin()) : .greeted(id, pin()))
        case 2: if let id = anybody() { handle(.connected(id, pin())) }
        case 3: if let id = anybody() { handle(.message(id, join())) }
        case 4: if let id = anybody() { ask(id) }
        case 5:
            guard let id = anybody() else { return }
            let number = requests[id]?.number ?? 1
            let last = input.chance() ? nil : (requests[id]?.sequence ?? 0) &+ UInt16(input.byte() % 4)
            handle(.message(id, .floorRelease(.init(requestID: .init(rawValue: number), lastSequence: last))))
        case 6: if let id = anybody() { talk(id) }
        case 7:
            guard let id = anybody(), let message = try? ClientMessage(parsing: input.piece()) else { return }
            handle(.message(id, message))
        case 8: if let id = anybody() { send(input.piece(), from: id) }
        case 9:
            guard let id = anybody() else { return }
            open.removeAll { $0 == id }
            handle(.disconnected(id))
        case 10: wait(.milliseconds(Int(input.number(UInt16.self))))
        case 11: if let id = anybody() { handle(.message(id, repairRequest())) }
        case 12: administer()
        case 13:
            guard let id = anybody(), let other = anybody() else { return }
            let report = ClientMessage.ReceptionReport(
                ssrc: welcomes[other]?.ssrc ?? SSRC(rawValue: 1), received: input.number(), lost: input.number(),
                highestSequence: input.number(), jitter: input.number())
            handle(.message(id, .receptionReport(report)))
        case 14: if let id = anybody() { handle(.message(id, .leave)) }
        case 15: if let id = anybody() { handle(.violation(id, "rubbish")) }
        case 16: if let id = anybody() { handle(.message(id, .burstListRequest(burstRequest(id)))) }
        default:
            guard let id = anybody(), let other = anybody() else { return }
            let burst = BurstName(
                ssrc: welcomes[other]?.ssrc ?? SSRC(rawValue: 1), keyID: requests[other]?.keyID ?? 0)
            let from = input.chance() ? nil : (requests[other]?.sequence ?? 0) &- UInt16(input.byte())
            handle(.message(id, .burstRequest(.init(id: burstRequest(id), burst: burst, first: from))))
        }
    }

    // MARK: What clients do

    private mutating func anybody() -> ConnectionID? {
        guard !open.isEmpty else { return nil }
        return open[input.index(below: open.count)]
    }

    private mutating func pin() -> PublicKeyPin {
        PublicKeyPin(subjectPublicKeyInfo: [UInt8(input.index(below: Self.members))])
    }

    private mutating func join() -> ClientMessage {
        let byte = input.byte()
        let join = ClientMessage.Join(
            channel: byte & 0xF0 == 0xF0 ? ChannelID() : Self.channel, token: Self.token,
            displayName: DisplayName(cleaning: "Member \(byte)", fallback: "Member"), isPushOnly: byte & 0xF == 0xF)
        return .join(join)
    }

    private mutating func ask(_ id: ConnectionID) {
        let epoch = welcomes[id]?.mediaKey?.epoch ?? 0
        let number = (requests[id]?.number ?? 0) &+ UInt32(input.chance() ? 1 : input.byte())
        let keyID = UInt64(epoch) << 48 | UInt64(input.byte())
        let request = ClientMessage.FloorRequest(
            requestID: .init(rawValue: max(1, number)), priority: input.byte(), keyID: keyID, mayQueue: input.chance())
        requests[id] = (max(1, number), keyID, requests[id]?.sequence ?? 65_530)
        handle(.message(id, .floorRequest(request)))
    }

    /// A few packets of the last request, perhaps with a gap before them.
    private mutating func talk(_ id: ConnectionID) {
        guard let welcome = welcomes[id], var request = requests[id] else { return }
        let byte = input.byte()
        request.sequence &+= byte & 0x80 == 0 ? 1 : UInt16(input.byte())
        let sealed = SFrameHeader(keyID: KeyID(rawValue: request.keyID), counter: 0).bytes
        for _ in 0...(byte & 7) {
            let header = RTPHeader(
                marker: byte & 8 != 0, sequence: request.sequence, timestamp: 0, ssrc: welcome.ssrc)
            send(header.bytes + sealed + [UInt8](repeating: 0, count: 20), from: id)
            request.sequence &+= 1
        }
        requests[id] = request
    }

    /// In a datagram, or, for every other one, again on the control stream.
    private mutating func send(_ packet: [UInt8], from id: ConnectionID) {
        if input.chance(), RelayProtocolLimits.repairPacketByteCounts.contains(packet.count) {
            return handle(.message(id, .mediaRepair(packet)))
        }
        guard let header = packet.withUnsafeBytes({ MediaPacketHeader(parsing: $0) }) else { return }
        let (decision, actions) = core.media(header, bytes: packet, from: id, at: now)
        if case .forward(let channel) = decision { expect(channel == 0, "there is one channel") }
        check(actions)
    }

    private mutating func repairRequest() -> ClientMessage {
        let other = anybody() ?? ConnectionID(number: 0)
        let first = (requests[other]?.sequence ?? 0) &- UInt16(input.byte())
        return .repairRequest(
            .init(
                id: UInt32(input.byte()) + 1, ssrc: welcomes[other]?.ssrc ?? SSRC(rawValue: 1),
                keyID: requests[other]?.keyID ?? 0,
                ranges: [.init(first: first, last: first &+ UInt16(input.byte()))]))
    }

    /// The next request of that connection for what is kept; rarely an older one.
    private mutating func burstRequest(_ id: ConnectionID) -> BurstRequestID {
        let number = max(1, (burstRequests[id] ?? 0) &+ UInt32(input.byte() == 0xFF ? 0 : 1))
        burstRequests[id] = number
        return BurstRequestID(rawValue: number)
    }

    // MARK: The operator and the clock

    private mutating func administer() {
        let member = MemberID(pin())
        switch input.byte() % 7 {
        case 0: handle(.revoke([member], from: Self.channel))
        case 1:
            handle(.readmit(member, to: Self.channel, as: .init(priority: input.byte(), isListenOnly: input.chance())))
        case 2: handle(.renewMediaKey(Self.channel))
        case 3:
            let mode = FloorRules.Mode.allCases[input.index(below: FloorRules.Mode.allCases.count)]
            handle(.setRules(FloorRules(mode: mode, hasQueue: input.chance()), of: Self.channel))
        case 4:
            // Rarely: nothing is let in after it.
            if input.byte() == 0xFF {
                handle(.drain(to: input.chance() ? RelayPlace(host: "relay.example", port: 4_433) : nil))
            }
        case 5:
            let retention = BurstRetention(bursts: Int(input.byte() % 4), time: .seconds(Int(input.byte())))
            handle(.setRetention(retention, of: Self.channel))
        default: _ = core.push(pushRequest(), at: now)
        }
    }

    private mutating func pushRequest() -> PushRequest {
        guard let token = PushToken([UInt8](repeating: input.byte() % 4, count: 32)),
            let topic = PushTopic("org.example.voip-ptt"),
            let request = PushRequest(
                token: token, topic: topic, payload: [0x7B, 0x7D], priority: 10,
                lifetime: .seconds(Int(input.byte() % 3)))
        else { fatalError("a token, a topic and a payload of good lengths") }
        return request
    }

    private mutating func wait(_ duration: Duration) {
        now = now + duration
        for _ in 0..<Self.stepsMaximum {
            guard let due = core.nextDeadline, due <= now else { return }
            handle(.deadline)
        }
        fatalError("does not hold: the rules come to rest")
    }

    // MARK: What has to hold

    private mutating func handle(_ event: RelayCore.Event) {
        check(core.handle(event, at: now))
        for channel in core.channels {
            expect(channel.floor.holders.count <= channel.floor.rules.talkersMaximum, "so many talk at most")
            expect(channel.members.count <= core.limits.membersPerChannel, "so many are members at most")
        }
        let most = core.limits.connections + core.limits.connectionsRefused
        expect(core.shared.connections.ids.count <= most, "so many are connected at most")
        for id in core.shared.connections.ids { expect(open.contains(id), "nobody is kept who is gone") }
    }

    private mutating func check(_ actions: [RelayCore.Action]) {
        var enrolments: [(ConnectionID, RelayEnrolment)] = []
        for action in actions {
            switch action {
            case .send(let message, let recipients):
                _ = message.framed()
                for id in recipients {
                    expect(open.contains(id), "nothing is sent to who is gone")
                    if case .welcome(let welcome) = message { welcomes[id] = welcome }
                }
            case .sendSeries(let series, let recipients):
                for recipient in recipients {
                    expect(open.contains(recipient.connection), "nothing is sent to who is gone")
                    expect((0...series.count).contains(recipient.first), "who is told of some is told of what is there")
                }
            case .close(let id, _, _):
                expect(open.contains(id), "a connection is closed once")
                open.removeAll { $0 == id }
                (welcomes[id], requests[id], burstRequests[id]) = (nil, nil, nil)
            case .enrol(let id, let enrolment): enrolments.append((id, enrolment))
            case .startMedia(let id, let channel, _, _):
                expect(open.contains(id) && channel == 0, "media go to who is there")
            case .takeMedia(let id, _, _): expect(open.contains(id), "media are taken from who is there")
            case .answerRepair(let id, let stream):
                expect(open.contains(id), "who is there is answered")
                read(stream, isBurst: false)
            case .answerBurst(let id, let request, let stream):
                expect(open.contains(id), "who is there is answered")
                expect(request.rawValue == burstRequests[id], "the last request is answered")
                read(stream, isBurst: true)
            case .forward(_, let channel, _, _): expect(channel == 0, "there is one channel")
            default: break
            }
        }
        for (id, enrolment) in enrolments {
            let byte = input.byte()
            handle(
                .enrolled(
                    id, enrolment,
                    byte & 7 == 7
                        ? .refused(.notInvited, "no")
                        : .admitted(.init(priority: byte, isListenOnly: byte & 16 != 0))))
        }
    }

    /// A client can read what it is answered.
    private func read(_ stream: [UInt8], isBurst: Bool) {
        var decoder = RepairStreamDecoder()
        let isFine = (try? decoder.feed(stream, isEnd: true) { _ in }) != nil
        expect(isFine && decoder.isBurst == isBurst, "an answer is a stream of its kind")
    }
}
