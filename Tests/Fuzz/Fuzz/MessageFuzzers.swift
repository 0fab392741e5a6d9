// Control messages, how they are cut, and the streams and datagrams beside them.
import Cryptography
import RelayProtocol
import Vocabulary

@testable import RelayServer

private let member = MemberID(PublicKeyPin(subjectPublicKeyInfo: [1]))
private let burst = BurstName(ssrc: SSRC(rawValue: 1), keyID: 3 << 48 | 7)
private let pushToken = PushToken([UInt8](repeating: 5, count: 32))

let clientMessages: [ClientMessage] =
    [
        .join(
            .init(
                channel: ChannelID(bytes: [UInt8](repeating: 1, count: 16)) ?? ChannelID(),
                token: InvitationToken([UInt8](repeating: 2, count: 16)) ?? InvitationToken(),
                displayName: DisplayName(cleaning: "Ann", fallback: "Ann"), isPushOnly: true)),
        .leave,
        .floorRequest(.init(requestID: .first, priority: 255, keyID: .max, mayQueue: true)),
        .floorRelease(.init(requestID: .first, lastSequence: 65_535)),
        .receptionReport(.init(ssrc: SSRC(rawValue: 1), received: 2, lost: 3, highestSequence: .max, jitter: 5)),
        .pushReceipt(.init(id: PushID(rawValue: 1), outcome: .taken)),
        .mediaRepair(mediaPacket()),
        .repairRequest(
            .init(
                id: 1, ssrc: SSRC(rawValue: 1), keyID: 2,
                ranges: [.init(first: 65_535, last: 3), .init(first: 9, last: 9)])),
        .burstListRequest(.init(rawValue: 1)),
        .burstRequest(.init(id: .init(rawValue: 2), burst: burst, first: 65_535)),
    ] + (pushToken.map { [ClientMessage.pushUnregister($0)] } ?? [])

let serverMessages: [ServerMessage] = {
    var welcome = ServerMessage.Welcome(
        ssrc: SSRC(rawValue: 1), downlinkKey: TrailerKey([UInt8](repeating: 9, count: 16)) ?? TrailerKey(),
        mediaKey: MediaKey(epoch: 3, baseKey: [UInt8](repeating: 3, count: 32)),
        channelName: DisplayName(cleaning: "Yard", fallback: "Yard"),
        members: [
            .init(id: member, displayName: DisplayName(cleaning: "Bob", fallback: "Bob"), ssrc: SSRC(rawValue: 2))
        ],
        floor: .init(talker: member, ssrc: SSRC(rawValue: 2), keyID: 7, priority: 255), memberID: member,
        talkTimeLimit: .seconds(60))
    welcome.uplinkKey = TrailerKey([UInt8](repeating: 8, count: 16))
    welcome.floorMode = .fullDuplex
    (welcome.offersLateEntry, welcome.retention) = (true, BurstRetention(bursts: 5, time: .seconds(600)))
    welcome.moreFloors = [.init(talker: member, ssrc: SSRC(rawValue: 3), keyID: 8)]
    return [
        .welcome(welcome), .joinRefused(.init(cause: .channelFull, phrase: "full", retryAfter: .seconds(1))),
        .memberJoined(welcome.members[0]), .memberLeft(member),
        .floorGranted(.init(requestID: .first, duration: .seconds(60), priority: 1)),
        .floorDeny(.init(requestID: .first, cause: .queueFull, phrase: "no", retryAfter: .seconds(2))),
        .floorTaken(.init(talker: member, ssrc: SSRC(rawValue: 2), keyID: 7)),
        .floorIdle(.init(ssrc: SSRC(rawValue: 2), lastSequence: 5)),
        .floorRevoke(.init(requestID: .first, cause: .preempted, phrase: "Ann")),
        .mediaKey(MediaKey(epoch: 4, baseKey: [UInt8](repeating: 4, count: 32)) ?? MediaKey(epoch: 4)),
        .floorQueuePosition(.init(requestID: .first, position: 2)), .listenerLoss(percent: 30),
        .burstList(
            .init(
                id: .init(rawValue: 1),
                bursts: [
                    .init(
                        burst: burst, talker: member, name: welcome.members[0].displayName, age: .seconds(9),
                        duration: .seconds(3), packets: 150, isGoingOn: true)
                ])),
        .burstRefused(.init(id: .init(rawValue: 2), cause: .tooMuch, phrase: "later", retryAfter: .seconds(1))),
        .floorRules(welcome.floorRules),
    ]
        + (pushToken.map {
            [ServerMessage.pushRegistered($0), .pushRefused(.init(token: $0, cause: .taken, phrase: "taken"))]
        } ?? []) + (RelayPlace(host: "fe80::1%eth0", port: 4_433).map { [ServerMessage.successor($0)] } ?? [])
}()

/// The bytes of framed messages without their lengths.
private func bodies(_ framed: [[UInt8]]) -> [[UInt8]] { framed.map { Array($0.dropFirst(4)) } }

let messageFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "client-message", maximum: 4_096, seeds: { bodies(clientMessages.map { $0.framed() }) }
    ) { bytes in
        guard let message = try? ClientMessage(parsing: bytes) else { return }
        let again = try? ClientMessage(parsing: Array(message.framed().dropFirst(4)))
        expect(again == message, "a message is what was read: \(message)")
    },
    Fuzzer(
        name: "server-message", maximum: 8_192, seeds: { bodies(serverMessages.map { $0.framed() }) }
    ) { bytes in
        guard let message = try? ServerMessage(parsing: bytes) else { return }
        let again = try? ServerMessage(parsing: Array(message.framed().dropFirst(4)))
        expect(again == message, "a message is what was read: \(message)")
    },
    Fuzzer(
        name: "framing", maximum: 20_000,
        seeds: { [joined([3, 7, 1], clientMessages.prefix(4).flatMap { $0.framed() }), [1, 200, 1, 0, 0, 0, 0]] }
    ) { bytes in
        var input = Input(bytes)
        let (first, second, third) = (
            input.index(below: 64) + 1, input.index(below: 64) + 1, input.index(below: 64) + 1
        )
        let stream = input.remainder()
        var (whole, pieces) = (MessageDecoder(), MessageDecoder())
        var (told, retold): ([[UInt8]], [[UInt8]]) = ([], [])
        let failure: MessageDecoder.Failure?
        do throws(MessageDecoder.Failure) {
            try whole.feed(stream) { told.append($0) }
            failure = nil
        } catch { failure = error }
        var secondFailure: MessageDecoder.Failure?
        var rest = stream[...]
        var turn = 0
        while !rest.isEmpty {
            let count = [first, second, third][turn % 3]
            turn += 1
            do throws(MessageDecoder.Failure) {
                try pieces.feed(rest.prefix(count)) { retold.append($0) }
            } catch { secondFailure = error }
            rest = rest.dropFirst(count)
        }
        expect(told == retold && failure == secondFailure, "how a stream is cut makes no difference")
        expect(
            told.allSatisfy { (1...RelayProtocolLimits.messageByteCountMaximum).contains($0.count) },
            "messages have the protocol's lengths")
    },
    Fuzzer(
        name: "repair-stream", maximum: 4_096,
        seeds: {
            [
                [5] + RepairStream.encode(id: 1, packets: [mediaPacket(), mediaPacket(ssrc: 2)]),
                [1] + RepairStream.encode(id: .max, packets: []),
                [5] + RepairStream.encode(burst: .init(rawValue: 1), packets: [mediaPacket()], isWhole: true),
                [3] + RepairStream.encode(burst: .init(rawValue: .max), packets: [mediaPacket()], isWhole: false),
            ]
        }
    ) { bytes in
        var input = Input(bytes)
        let cut = Int(input.byte()) + 1
        let stream = input.remainder()
        var (whole, pieces) = (RepairStreamDecoder(), RepairStreamDecoder())
        var (told, retold): ([[UInt8]], [[UInt8]]) = ([], [])
        let isWhole = (try? whole.feed(stream, isEnd: true) { told.append($0) }) != nil
        var rest = stream[...]
        var isEnd = false
        var isFine = true
        repeat {
            let next = rest.prefix(cut)
            rest = rest.dropFirst(cut)
            isEnd = rest.isEmpty
            isFine = (try? pieces.feed(next, isEnd: isEnd) { retold.append($0) }) != nil
        } while !isEnd && isFine
        expect(isWhole == isFine && told == retold, "how a stream is cut makes no difference")
        expect(whole.isBurst == pieces.isBurst && whole.isWhole == pieces.isWhole, "nor does it to what it is")
        if isWhole, let id = whole.id {
            let again =
                whole.isBurst
                ? RepairStream.encode(burst: .init(rawValue: id), packets: told, isWhole: whole.isWhole)
                : RepairStream.encode(id: id, packets: told)
            expect(again == stream, "an answer has one form")
        }
    },
    Fuzzer(
        name: "repair-datagram", maximum: 1_400,
        seeds: { bodies([clientMessages[7].framed(), clientMessages[2].framed()]) + [mediaPacket()] }
    ) { bytes in
        guard let message = RepairDatagram.request(in: bytes, limit: 1_160) else { return }
        guard case .repairRequest(let request) = message else { fatalError("it is another message") }
        let count = request.ranges.reduce(0) { $0 + $1.count }
        expect(count <= RelayProtocolLimits.repairPacketsMaximum, "a request asks for so much at most")
    },
    Fuzzer(
        name: "invitation-link", maximum: 2_200,
        seeds: {
            let secret = Base64URL.encode([UInt8](repeating: 7, count: 32))
            let query = "channel=00010203-0405-0607-0809-0a0b0c0d0e0f&token=\(secret)&pin=\(secret)"
            return [
                "ptt://relay.example:4433/Crew%20%C3%A4%2F7?\(query)",
                "ptt://[fe80::1%25eth0]:1/x?\(query)#key=\(secret)",
                " PTT://192.0.2.1:65535/n?\(query)&other=1\n",
            ].map(utf8)
        }
    ) { bytes in
        guard let text = bytes.asText, let link = try? InvitationLink(text) else { return }
        expect((try? InvitationLink(link.text)) == link, "a link is what was read: \(link.text)")
        expect(link.text.utf8.count <= 2 * InvitationLink.byteCountMaximum, "a link stays short")
    },
]
