// Control messages: every kind there and back, every field checked, garbage refused.
import Cryptography
import FoundationEssentials
import RelayProtocol
import SwiftProtobuf
import TestSupport
import Testing
import Vocabulary

/// A change that makes one field of a good message invalid.
struct BadField<Message: SwiftProtobuf.Message>: Sendable, CustomTestStringConvertible {
    let field: String
    let change: @Sendable (inout Message) -> Void
    var testDescription: String { field }

    init(_ field: String, _ change: @escaping @Sendable (inout Message) -> Void) {
        self.field = field
        self.change = change
    }
}

@Suite struct MessageTests {
    private func body(_ framed: [UInt8]) throws -> [UInt8] {
        var bodies: [[UInt8]] = []
        var decoder = MessageDecoder()
        try decoder.feed(framed) { bodies.append($0) }
        #expect(!decoder.isInsideMessage)
        return try #require(bodies.first)
    }

    @Test func `every message survives the wire unchanged, at the limits of its fields too`() throws {
        var random = SeededGenerator()
        for _ in 0..<200 {
            for message in random.clientMessages() {
                #expect(try ClientMessage(parsing: try body(message.framed())) == message)
            }
            for message in random.serverMessages() {
                #expect(try ServerMessage(parsing: try body(message.framed())) == message)
            }
        }
    }

    @Test func `the largest welcome there can be fits into one message`() throws {
        let name = try #require(DisplayName(String(repeating: "n", count: DisplayName.byteCountMaximum)))
        let id = try #require(MemberID(bytes: [UInt8](repeating: 255, count: 16)))
        let member = ServerMessage.Member(id: id, displayName: name, ssrc: SSRC(rawValue: .max))
        let taken = ServerMessage.FloorTaken(talker: id, ssrc: SSRC(rawValue: .max), keyID: .max, priority: .max)
        var largest = ServerMessage.Welcome(
            ssrc: SSRC(rawValue: .max), downlinkKey: TrailerKey(),
            mediaKey: MediaKey(epoch: .max, baseKey: [UInt8](repeating: 255, count: 64)), channelName: name,
            members: Array(repeating: member, count: RelayProtocolLimits.welcomeMembersMaximum),
            floor: taken, memberID: id, talkTimeLimit: .seconds(4_294_967))
        largest.moreFloors = Array(repeating: taken, count: RelayProtocolLimits.talkersMaximum - 1)
        largest.floorMode = .cutIn
        largest.hasFloorQueue = true
        largest.isListenOnly = true
        largest.floorPriority = .max
        largest.preemptionStep = .max
        largest.offersLateEntry = true
        largest.retention = BurstRetention(
            bursts: RelayProtocolLimits.keptBurstsMaximum, time: .milliseconds(UInt32.max))
        let welcome = ServerMessage.welcome(largest)
        let framed = welcome.framed()
        #expect(framed.count <= 4 + RelayProtocolLimits.messageByteCountMaximum)
        #expect(try ServerMessage(parsing: Array(framed.dropFirst(4))) == welcome)
    }

    @Test func `the longest list of bursts there can be fits into one message`() throws {
        let name = try #require(DisplayName(String(repeating: "n", count: DisplayName.byteCountMaximum)))
        let id = try #require(MemberID(bytes: [UInt8](repeating: 255, count: 16)))
        let burst = ServerMessage.KeptBurst(
            burst: BurstName(ssrc: SSRC(rawValue: .max), keyID: .max), talker: id, name: name,
            age: .milliseconds(UInt32.max), duration: .milliseconds(UInt32.max), packets: .max, isGoingOn: true)
        let list = ServerMessage.burstList(
            .init(
                id: BurstRequestID(rawValue: .max),
                bursts: Array(repeating: burst, count: RelayProtocolLimits.keptBurstsMaximum)))
        let framed = list.framed()
        #expect(framed.count <= 4 + RelayProtocolLimits.messageByteCountMaximum)
        #expect(try ServerMessage(parsing: Array(framed.dropFirst(4))) == list)
    }

    @Test func `nothing is kept where none are, or for no time, and more than may be is as many as may be`() {
        #expect(BurstRetention(bursts: 0, time: .seconds(1)) == .off)
        #expect(BurstRetention(bursts: 1, time: .zero) == .off)
        #expect(BurstRetention(bursts: -1, time: .seconds(-1)) == .off)
        #expect(BurstRetention(bursts: 65, time: .seconds(1)).bursts == RelayProtocolLimits.keptBurstsMaximum)
    }

    /// Serialized by protobuf's own Python library from the same fields.
    @Test func `a floor request and a release have the bytes that protobuf says`() throws {
        let request = ClientMessage.floorRequest(.init(requestID: .first, priority: 5, keyID: 0x0007_a1b2_c3d4_e5f6))
        #expect(Hexadecimal.encode(request.framed()) == "0000000f1a0d0801100519f6e5d4c3b2a10700")
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: 0))
        #expect(Hexadecimal.encode(release.framed()) == "00000006220408011000")
        let nothingSent = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: nil))
        #expect(Hexadecimal.encode(nothingSent.framed()) == "0000000422020801")
        #expect(Hexadecimal.encode(ClientMessage.leave.framed()) == "000000021200")
    }

    private static let goodJoin = Pttd_Relay_V1_Join.with {
        $0.channelID = Data(repeating: 1, count: 16)
        $0.invitationToken = Data(repeating: 2, count: 16)
        $0.displayName = "a"
        $0.protocolVersion = 1
    }

    @Test(arguments: [
        BadField<Pttd_Relay_V1_Join>("channel_id") { $0.channelID = Data(repeating: 1, count: 15) },
        BadField("channel_id") { $0.channelID = Data() },
        BadField("invitation_token") { $0.invitationToken = Data(repeating: 1, count: 15) },
        BadField("invitation_token") { $0.invitationToken = Data(repeating: 1, count: 65) },
        BadField("display_name") { $0.displayName = "" },
        BadField("display_name") { $0.displayName = String(repeating: "a", count: 129) },
        BadField("display_name") { $0.displayName = "a\u{1B}[2J" },
        BadField("display_name") { $0.displayName = "a\u{85}b" },
        BadField("display_name") { $0.displayName = "a\u{2028}b" },
    ])
    func `a join with a field that cannot be names the field`(bad: BadField<Pttd_Relay_V1_Join>) throws {
        var message = Pttd_Relay_V1_ClientMessage()
        message.join = Self.goodJoin
        _ = try ClientMessage(parsing: try message.serializedBytes())
        bad.change(&message.join)
        try expectInvalid(bad.field) { try ClientMessage(parsing: try message.serializedBytes()) }
    }

    @Test(arguments: [
        BadField<Pttd_Relay_V1_ClientMessage>("request_id") { $0.floorRequest.requestID = 0 },
        BadField("request_id") { $0.floorRelease.lastSequence = 3 },
        BadField("priority") {
            $0.floorRequest.requestID = 1
            $0.floorRequest.priority = 256
        },
        BadField("last_sequence") {
            $0.floorRelease.requestID = 1
            $0.floorRelease.lastSequence = 65_536
        },
        BadField("token") {
            $0.pushRegister.token = Data(repeating: 1, count: 31)
            $0.pushRegister.topic = "a.voip-ptt"
        },
        BadField("token") {
            $0.pushRegister.token = Data(repeating: 1, count: 101)
            $0.pushRegister.topic = "a.voip-ptt"
        },
        BadField("topic") { $0.pushRegister.token = Data(repeating: 1, count: 32) },
        BadField("topic") {
            $0.pushRegister.token = Data(repeating: 1, count: 32)
            $0.pushRegister.topic = "a b.voip-ptt"
        },
        BadField("topic") {
            $0.pushRegister.token = Data(repeating: 1, count: 32)
            $0.pushRegister.topic = String(repeating: "a", count: 256)
        },
        BadField("token") { $0.pushUnregister = .init() },
        BadField("request_id") { $0.burstListRequest = .init() },
        BadField("request_id") { $0.burstRequest.ssrc = 1 },
        BadField("first") {
            $0.burstRequest.requestID = 1
            $0.burstRequest.first = 65_536
        },
        BadField("channel_id") { $0.invitationRequest.channelID = Data(repeating: 1, count: 15) },
        BadField("code_share") {
            $0.invitationRequest.channelID = Data(repeating: 1, count: 16)
            $0.invitationRequest.codeShare = Data(repeating: 1, count: 31)
        },
        BadField("display_name") {
            $0.invitationRequest.channelID = Data(repeating: 1, count: 16)
            $0.invitationRequest.displayName = "a\nb"
        },
        BadField("tag") { $0.invitationProof.tag = Data(repeating: 1, count: 33) },
        BadField("tag") { $0.invitationProof = .init() },
    ])
    func `a message of a member with a field that cannot be names the field`(
        bad: BadField<Pttd_Relay_V1_ClientMessage>
    ) throws {
        var message = Pttd_Relay_V1_ClientMessage()
        bad.change(&message)
        try expectInvalid(bad.field) { try ClientMessage(parsing: try message.serializedBytes()) }
    }

    private static let goodWelcome = Pttd_Relay_V1_Welcome.with {
        $0.downlinkKey = Data(repeating: 1, count: 16)
        $0.channelName = "a"
        $0.memberID = Data(repeating: 1, count: 16)
    }

    @Test(arguments: [
        BadField<Pttd_Relay_V1_ServerMessage>("downlink_key") {
            $0.welcome.downlinkKey = Data(repeating: 1, count: 17)
        },
        BadField("channel_name") { $0.welcome.channelName = "" },
        BadField("member_id") { $0.welcome.memberID = Data() },
        BadField("member_id") { $0.welcome.members = [.init()] },
        BadField("members") { $0.welcome.members = Array(repeating: .init(), count: 65) },
        BadField("floor_priority") { $0.welcome.floorPriority = 256 },
        BadField("preemption_step") { $0.welcome.preemptionStep = 256 },
        BadField("more_floors") { $0.welcome.moreFloors = Array(repeating: .init(), count: 4) },
        BadField("member_id") { $0.welcome.moreFloors = [.init()] },
        BadField("member_id") { $0.welcome.floor = .init() },
        BadField("base_key") { $0.welcome.mediaKey = .init() },
        BadField("base_key") { $0.mediaKey.baseKey = Data(repeating: 0, count: 65) },
        BadField("epoch") {
            $0.mediaKey.epoch = 65_536
            $0.mediaKey.baseKey = Data(repeating: 0, count: 16)
        },
        BadField("kept_bursts") { $0.welcome.keptBursts = 65 },
        BadField("request_id") { $0.burstRefused = .init() },
        BadField("invitation_token") { $0.invitation.channelName = "a" },
        BadField("channel_name") { $0.invitation.invitationToken = Data(repeating: 1, count: 16) },
        BadField("media_key") {
            $0.invitation.invitationToken = Data(repeating: 1, count: 16)
            $0.invitation.channelName = "a"
            $0.invitation.mediaKey.epoch = 1
            $0.invitation.mediaKey.baseKey = Data(repeating: 1, count: 16)
        },
        BadField("code_tag") {
            $0.invitation.invitationToken = Data(repeating: 1, count: 16)
            $0.invitation.channelName = "a"
            $0.invitation.codeTag = Data(repeating: 1, count: 31)
        },
        BadField("code_share") { $0.invitationChallenge = .init() },
        BadField("request_id") { $0.burstList = .init() },
        BadField("bursts") { $0.burstList.bursts = Array(repeating: .init(), count: 65) },
        BadField("member_id") { $0.burstList.bursts = [.init()] },
        BadField("display_name") {
            $0.burstList.bursts = [.with { $0.memberID = Data(repeating: 1, count: 16) }]
        },
        BadField("member_id") { $0.memberJoined = .init() },
        BadField("display_name") {
            $0.memberJoined.member.memberID = Data(repeating: 0, count: 16)
            $0.memberJoined.member.displayName = "\n"
        },
        BadField("member_id") { $0.memberLeft.memberID = Data(repeating: 0, count: 32) },
        BadField("request_id") { $0.floorGranted.durationMs = 1 },
        BadField("request_id") { $0.floorDeny = .init() },
        BadField("request_id") { $0.floorRevoke = .init() },
        BadField("last_sequence") { $0.floorIdle.lastSequence = .max },
        BadField("channel_name") { $0.pushWelcome.memberID = Data(repeating: 1, count: 16) },
        BadField("member_id") { $0.pushWelcome.channelName = "a" },
        BadField("token") { $0.pushRegistered = .init() },
        BadField("token") { $0.pushRefused.token = Data(repeating: 1, count: 101) },
        BadField("payload") { $0.push.token = Data(repeating: 1, count: 32) },
        BadField("payload") { $0.push.payload = Data(repeating: 1, count: 4_097) },
        BadField("priority") { $0.push.payload = Data([1]) },
        BadField("priority") {
            $0.push.payload = Data([1])
            $0.push.priority = 11
        },
        BadField("token") {
            $0.push.payload = Data([1])
            $0.push.priority = 10
        },
        BadField("host_id") { $0.succession = .init() },
        BadField("order") {
            $0.succession.hostID = Data(repeating: 1, count: 6)
            $0.succession.order = [Data](repeating: Data(repeating: 1, count: 16), count: 9)
        },
        BadField("identity") {
            $0.succession.hostID = Data(repeating: 1, count: 6)
            $0.succession.identity = String(repeating: "a", count: 8_193)
        },
        BadField("transport_keys") {
            $0.succession.hostID = Data(repeating: 1, count: 6)
            $0.succession.transportKeys = Data(repeating: 1, count: 1_025)
        },
        BadField("creator") { $0.succession.hostID = Data(repeating: 1, count: 6) },
        BadField("code") {
            $0.succession.hostID = Data(repeating: 1, count: 6)
            $0.succession.creator = "a"
            $0.succession.code = "12345"
        },
    ])
    func `a server message with a field that cannot be names the field`(
        bad: BadField<Pttd_Relay_V1_ServerMessage>
    ) throws {
        var message = Pttd_Relay_V1_ServerMessage()
        message.welcome = Self.goodWelcome
        _ = try ServerMessage(parsing: try message.serializedBytes())
        bad.change(&message)
        try expectInvalid(bad.field) { try ServerMessage(parsing: try message.serializedBytes()) }
    }

    private func expectInvalid(_ field: String, _ parse: () throws -> some Any) throws {
        let error = try #require(#expect(throws: RelayMessageError.self) { _ = try parse() })
        guard case .invalidField(let name, _) = error else {
            Issue.record("\(error) instead of an invalid field")
            return
        }
        #expect(name == field)
        #expect(error.isViolation)
    }

    @Test func `causes that a later version adds read as other`() throws {
        var message = Pttd_Relay_V1_ServerMessage()
        message.floorDeny = .with {
            $0.requestID = 1; $0.cause = .UNRECOGNIZED(77)
        }
        #expect(
            try ServerMessage(parsing: try message.serializedBytes())
                == .floorDeny(.init(requestID: .first, cause: .other)))
        message.joinRefused = .with { $0.cause = .unspecified }
        #expect(try ServerMessage(parsing: try message.serializedBytes()) == .joinRefused(.init(cause: .other)))
        let token = try #require(PushToken([UInt8](repeating: 7, count: 32)))
        message.pushRefused = .with {
            $0.token = Data(token.bytes); $0.cause = .UNRECOGNIZED(99)
        }
        #expect(
            try ServerMessage(parsing: try message.serializedBytes())
                == .pushRefused(.init(token: token, cause: .other)))
        var receipt = Pttd_Relay_V1_ClientMessage()
        receipt.pushReceipt = .with { $0.outcome = .UNRECOGNIZED(9) }
        #expect(
            try ClientMessage(parsing: try receipt.serializedBytes())
                == .pushReceipt(.init(id: PushID(rawValue: 0), outcome: .other)))
    }

    @Test func `a message of an unknown kind is told apart from a broken one`() throws {
        // Field 99, length-delimited, one byte.
        let unknown: [UInt8] = [0x9A, 0x06, 0x01, 0x00]
        for bytes in [unknown, []] {
            let error = #expect(throws: RelayMessageError.unknownKind) { try ClientMessage(parsing: bytes) }
            #expect(error?.isViolation == false)
            #expect(throws: RelayMessageError.unknownKind) { try ServerMessage(parsing: bytes) }
        }
        #expect(throws: RelayMessageError.malformed) { try ClientMessage(parsing: [0x0A, 0x7F, 0x00]) }
        let long = [UInt8](repeating: 0, count: RelayProtocolLimits.messageByteCountMaximum + 1)
        #expect(throws: RelayMessageError.tooLong(long.count)) { try ClientMessage(parsing: long) }
    }

    @Test func `a phrase is cut and cleaned, whoever sends it`() throws {
        let long = String(repeating: "無", count: 200)
        let message = ServerMessage.floorDeny(.init(requestID: .first, cause: .other, phrase: "\u{7}" + long))
        let received = try ServerMessage(parsing: Array(message.framed().dropFirst(4)))
        #expect(received == .floorDeny(.init(requestID: .first, cause: .other, phrase: String(long.prefix(85)))))
    }

    @Test func `garbage and damaged messages give an error or a valid message, never a crash`() throws {
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            var bytes: [UInt8]
            if random.oneIn() {
                bytes = random.bytes(Int.random(in: 0...200, using: &random))
            } else {
                let framed =
                    random.oneIn()
                    ? random.clientMessages().randomElement(using: &random)?.framed()
                    : ServerMessage.floorTaken(random.taken()).framed()
                bytes = Array((framed ?? []).dropFirst(4))
                for _ in 0..<Int.random(in: 1...3, using: &random) where !bytes.isEmpty {
                    bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
                }
            }
            if let message = try? ClientMessage(parsing: bytes) {
                #expect(try ClientMessage(parsing: Array(message.framed().dropFirst(4))) == message)
            }
            if let message = try? ServerMessage(parsing: bytes) {
                #expect(try ServerMessage(parsing: Array(message.framed().dropFirst(4))) == message)
            }
        }
    }
}
