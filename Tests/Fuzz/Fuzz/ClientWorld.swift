// A client's rules under a stream of events that an input spells: what its user does, what its relay says, and packets.
import Cryptography
import MonotonicTime
import RelayProtocol
import SFrame
import Vocabulary

@testable import RelayClient

/// A client whose relay, and whoever else sends, say whatever the input has them say. What has to hold is checked after every event.
struct ClientWorld {
    private static let secret = [UInt8](repeating: 7, count: 32)
    private static let uplinkKey = TrailerKey([UInt8](repeating: 8, count: TrailerKey.byteCount)) ?? TrailerKey()
    /// The source that the relay gives this end.
    private static let ownSource = SSRC(rawValue: 9)
    /// More steps at one instant than any rule has.
    private static let stepsMaximum = 64

    private var input: Input
    private let isEndToEnd: Bool
    private var core: RelayClientCore
    private var now = Instant(nanoseconds: 1_000_000_000)
    private var epoch: UInt16 = 0
    private var downlink: TrailerSealer?
    /// What the relay checks packets outside QUIC with, where this end may send them; and how many it has.
    private var uplink: TrailerOpener?
    private var outside: UInt32 = 0
    private var awaitsAnswer = false
    private var talkers: [UInt64: SFrameSealer] = [:]
    private var sequence: UInt16 = 65_500
    private var datagrams: UInt64 = 0
    /// The last request that went out, and whether the relay has granted it.
    private var asked: FloorRequestID?
    private var isGranted = false
    private var begun: UInt32 = 0
    private var ended: Set<BurstID> = []
    /// The last request for kept bursts that went out.
    private var askedForBurst: BurstRequestID?
    private var queries: UInt64 = 0
    private var answered: Set<BurstQueryID> = []

    init(_ bytes: [UInt8]) {
        input = Input(bytes)
        let first = input.byte()
        isEndToEnd = first & 1 != 0
        guard
            let token = InvitationToken(Self.secret), let pin = PublicKeyPin(Self.secret),
            let link = try? InvitationLink(
                host: "h", port: 1, channelName: DisplayName(cleaning: "Yard", fallback: "Yard"),
                channel: ChannelID(), token: token, pin: pin,
                mediaKey: isEndToEnd ? MediaKey(epoch: 0, baseKey: Self.secret) : nil)
        else { fatalError("the link is one") }
        core = RelayClientCore(
            invitation: link, displayName: DisplayName(cleaning: "Ann", fallback: "Ann"), timestampAtZero: 7)
        core.sendsOutsideQUIC = first & 2 != 0
    }

    /// Carries out all that the input says, and leaves.
    mutating func run() {
        while !input.isEmpty { step() }
        handle(.leave)
        expect(ended.count == Int(begun), "every burst ends")
        expect(answered.count == Int(queries), "every question is answered")
    }

    private mutating func step() {
        let byte = input.byte()
        // These came later, without a change to what the inputs of the corpus say.
        if byte >= 0xF0 { return byte & 1 == 0 ? report() : hearByQUIC() }
        switch byte % 24 {
        case 0: handle(.join)
        case 1: handle(.earlyDataOffered)
        case 2: handle(.connected)
        case 3:
            handle(.connectionEnded(input.chance() ? .lost("gone") : .replaced))
            expect(core.direct == nil, "nothing goes outside QUIC without a connection")
        case 4: handle(.networkChanged)
        case 5: welcome()
        case 6: if let message = try? ServerMessage(parsing: input.piece()) { say(message) }
        case 7:
            say(.floorGranted(.init(requestID: request(), duration: .milliseconds(Int(input.number(UInt16.self))))))
        case 8: say(.floorDeny(.init(requestID: request(), cause: .anotherClientHasPermission, phrase: "no")))
        case 9: say(.floorRevoke(.init(requestID: request(), cause: .preempted, phrase: "no")))
        case 10: say(.floorQueuePosition(.init(requestID: request(), position: Int(input.byte()) + 1)))
        case 11:
            say(.floorTaken(.init(talker: MemberID(pin()), ssrc: source(), keyID: keyID(), priority: input.byte())))
        case 12:
            say(
                .floorIdle(
                    .init(ssrc: source(), lastSequence: input.chance() ? nil : sequence &+ UInt16(input.byte() % 4))))
        case 13: hear()
        case 14: receive(input.piece())
        case 15: speak()
        case 16: wait(.milliseconds(Int(input.number(UInt16.self) / (input.chance() ? 64 : 4))))
        case 17:
            handle(
                .repaired(request: UInt32(input.byte() % 8), packets: [packet(), input.piece()], isEnd: input.chance()))
        case 18: say(.mediaKey(MediaKey(epoch: UInt16(input.byte() % 4), baseKey: Self.secret) ?? MediaKey(epoch: 0)))
        case 19: fate()
        case 20:
            queries += 1
            let id = BurstQueryID(number: queries)
            handle(input.chance() ? .fetchBurst(id, burst()) : .listBursts(id))
        case 21:
            let packets = (0..<(input.byte() & 7)).map { _ in packet() } + [input.piece()]
            let isEnd = input.chance()
            handle(.burst(request: burstRequest(), packets: packets, isWhole: isEnd && input.chance(), isEnd: isEnd))
        case 22:
            let kept = (0..<(input.byte() & 3)).map { _ in
                ServerMessage.KeptBurst(
                    burst: burst(), talker: MemberID(pin()), name: DisplayName(cleaning: "Bob", fallback: "Bob"),
                    age: .milliseconds(Int(input.byte())), duration: .milliseconds(Int(input.byte())),
                    packets: UInt32(input.byte()), isGoingOn: input.chance())
            }
            say(.burstList(.init(id: burstRequest(), bursts: kept)))
        default:
            let cause = BurstRefusal.allCases[input.index(below: BurstRefusal.allCases.count)]
            say(
                .burstRefused(
                    .init(id: burstRequest(), cause: cause, phrase: "no", retryAfter: .milliseconds(Int(input.byte()))))
            )
        }
    }

    // MARK: What the relay says

    private mutating func burst() -> BurstName { BurstName(ssrc: source(), keyID: keyID()) }

    /// The request that waits for an answer, more often than not.
    private mutating func burstRequest() -> BurstRequestID {
        let byte = input.byte()
        return byte < 200 ? askedForBurst ?? .init(rawValue: 1) : BurstRequestID(rawValue: UInt32(byte))
    }

    private mutating func pin() -> PublicKeyPin { PublicKeyPin(subjectPublicKeyInfo: [input.byte() % 4]) }
    private mutating func source() -> SSRC { SSRC(rawValue: UInt32(input.byte() % 3) + 1) }
    private mutating func keyID() -> UInt64 { UInt64(epoch) << 48 | UInt64(input.byte() % 4) + 8 }

    /// The request that waits for an answer, more often than not.
    private mutating func request() -> FloorRequestID {
        let byte = input.byte()
        return byte < 200 ? asked ?? .first : FloorRequestID(rawValue: UInt32(byte))
    }

    private mutating func welcome() {
        let key = TrailerKey(Self.secret.prefix(TrailerKey.byteCount)) ?? TrailerKey()
        epoch = isEndToEnd ? 0 : UInt16(input.byte() % 4)
        let mediaKey = isEndToEnd && !input.chance() ? nil : MediaKey(epoch: epoch, baseKey: Self.secret)
        var welcome = ServerMessage.Welcome(
            ssrc: Self.ownSource, downlinkKey: key, mediaKey: mediaKey,
            channelName: DisplayName(cleaning: "Yard", fallback: "Yard"), members: [],
            floor: input.chance() ? .init(talker: MemberID(pin()), ssrc: source(), keyID: keyID()) : nil,
            memberID: MemberID(pin()), talkTimeLimit: .seconds(60))
        welcome.floorMode = FloorMode.allCases[input.index(below: FloorMode.allCases.count)]
        let byte = input.byte()
        welcome.isListenOnly = byte == 0xFF
        welcome.offersLateEntry = byte & 1 == 0
        welcome.uplinkKey = byte & 2 == 0 ? nil : Self.uplinkKey
        downlink = try? TrailerSealer(key: key)
        uplink = core.sendsOutsideQUIC ? welcome.uplinkKey.flatMap { try? TrailerOpener(key: $0) } : nil
        outside = 0
        say(.welcome(welcome))
    }

    private mutating func say(_ message: ServerMessage) {
        if case .floorGranted(let granted) = message, granted.requestID == asked { isGranted = true }
        handle(.message(message))
    }

    // MARK: What is heard

    /// A packet as a talker of the channel would make it.
    private mutating func packet() -> [UInt8] {
        let (keyID, ssrc, byte) = (keyID(), source(), input.byte())
        if byte & 0x80 != 0 { sequence &+= UInt16(input.byte()) }
        sequence &+= byte & 0x40 == 0 ? 1 : 0
        if talkers[keyID] == nil {
            talkers[keyID] = try? SFrameSealer(baseKey: Self.secret, keyID: KeyID(rawValue: keyID))
        }
        let header = RTPHeader(
            marker: byte & 1 != 0, sequence: sequence &- UInt16(byte & 6), timestamp: 0, ssrc: ssrc
        ).bytes
        return header + ((try? talkers[keyID]?.seal([byte], metadata: header)) ?? [])
    }

    private mutating func hear() {
        for _ in 0...(input.byte() & 7) {
            let packet = packet()
            guard let datagram = try? downlink?.seal(packet) else { return }
            receive(datagram)
            // A copy of it is nothing new.
            receive(datagram)
        }
    }

    /// What the relay says of the packets outside QUIC: of those that went there, more often than not.
    private mutating func report() {
        let byte = input.byte()
        let highest: UInt32 = byte & 0x80 == 0 ? outside - min(outside, 1 + UInt32(byte & 7)) : input.number()
        let report = UplinkReport(
            ssrc: byte & 0x40 == 0 ? Self.ownSource : source(), highest: highest, earlier: input.number())
        var packet = [UInt8](repeating: 0, count: UplinkReport.byteCount)
        packet.withUnsafeMutableBytes { report.write(to: $0) }
        // Anything of the type of a report.
        if byte & 0x20 != 0 { packet.replaceSubrange(2..., with: input.piece()) }
        guard let datagram = try? downlink?.seal(packet) else { return }
        receive(datagram)
        let again = datagram.withUnsafeBytes { core.receive($0, at: now) }
        expect(again.isEmpty, "a copy of a report says nothing")
    }

    /// Something of the relay came by QUIC, which may tell how far away it is.
    private mutating func hearByQUIC() {
        core.lastHeard = now
        if input.chance() { core.roundTripTime = .milliseconds(1 + Int(input.byte()) * 4) }
    }

    private mutating func receive(_ datagram: [UInt8]) {
        check(datagram.withUnsafeBytes { core.receive($0, at: now) })
    }

    // MARK: What the user does

    private mutating func speak() {
        let byte = input.byte()
        switch byte & 7 {
        case 0, 1:
            begun += 1
            handle(.begin(BurstID(number: begun), priority: byte >> 3 == 31 ? 255 : 0))
        case 2: handle(.end)
        case 3: handle(.abort)
        default:
            for _ in 0...(byte >> 3) {
                now = now + .milliseconds(10)
                let samples: UInt32 = byte & 7 == 7 ? input.number() : 480
                handle(.frame(OutgoingFrame(payload: [byte], samples: samples, capturedAt: now)))
            }
        }
    }

    /// What becomes of a datagram that went out.
    private mutating func fate() {
        let number = datagrams &- UInt64(input.byte() % 8)
        switch input.byte() % 3 {
        case 0: handle(.mediaAcknowledged(number))
        case 1: handle(.mediaLost(number))
        default: handle(.violation("rubbish"))
        }
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

    private mutating func handle(_ event: RelayClientCore.Event) { check(core.handle(event, at: now)) }

    private mutating func check(_ actions: [RelayClientCore.Action]) {
        var taken: [RelayClientCore.Event] = []
        for action in actions {
            switch action {
            case .send(let message), .sendLoosely(let message):
                _ = message.framed()
                if case .floorRequest(let request) = message { (asked, isGranted) = (request.requestID, false) }
                if case .floorRelease(let release) = message, release.requestID == asked { isGranted = false }
                if case .burstRequest(let request) = message { askedForBurst = request.id }
                if case .burstListRequest(let request) = message { askedForBurst = request }
            case .sendMedia(let packet):
                expect(isGranted, "nothing is sent without the floor")
                expect(core.direct?.isBlocked ?? true, "a datagram is for what cannot go outside QUIC")
                datagrams += 1
                taken.append(datagrams & 3 == 3 ? .mediaRefused(packet) : .mediaSent(datagrams, packet))
            case .sendOutsideQUIC(let datagram): take(outsideQUIC: datagram)
            case .awaitAnswer(let isAwaited):
                expect(isAwaited != awaitsAnswer, "only changes are told")
                awaitsAnswer = isAwaited
            case .connect: uplink = nil
            case .close: (isGranted, uplink) = (false, nil)
            case .tell(.transmissionEnded(let id, _, _)):
                expect((1...max(1, begun)).contains(id.number), "what ends was begun")
                expect(ended.insert(id).inserted, "a burst ends once")
            case .answer(let id, _):
                expect((1...max(1, queries)).contains(id.number), "what is answered was asked")
                expect(answered.insert(id).inserted, "a question is answered once")
            case .tell(.floorGranted(let id, _)): expect(!ended.contains(id), "what is over is not granted")
            default: break
            }
        }
        checkDirectPackets()
        for event in taken { handle(event) }
    }

    /// A packet goes outside QUIC, and the relay takes it.
    private mutating func take(outsideQUIC datagram: [UInt8]) {
        expect(isGranted, "nothing is sent without the floor")
        guard let uplink, let (count, counter) = datagram.withUnsafeBytes({ try? uplink.open($0) }) else {
            fatalError("does not hold: a packet outside QUIC has the trailer of a connection that takes it")
        }
        expect(counter == outside, "the counters follow each other")
        outside += 1
        let header = try? RTPHeader(parsing: Array(datagram.prefix(count)))
        expect(header?.ssrc == Self.ownSource, "what is sent has the source of its sender")
    }

    private mutating func checkDirectPackets() {
        guard let direct = core.direct else {
            // The question ends with its connection.
            awaitsAnswer = false
            return
        }
        expect(direct.awaitsAnswer == awaitsAnswer, "every change is told")
        expect(!awaitsAnswer || direct.nextDeadline != nil, "the relay is asked only while a packet has no fate")
        expect(direct.sentCount <= DirectUplink.sentMaximum, "so many packets have no fate at most")
    }
}
