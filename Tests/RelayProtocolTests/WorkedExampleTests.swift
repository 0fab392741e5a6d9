// The worked example of docs/relay-protocol.md, read from the document and recomputed.
import Cryptography
import Glibc
import MonotonicTime
import RelayProtocol
import SFrame
import Testing
import Vocabulary

@Suite struct WorkedExampleTests {
    private static let member = Array(0x20...0x2f) as [UInt8]
    private let document: [String: [UInt8]]
    private let keyID = KeyID(rawValue: 0x0007_a1b2_c3d4_e5f6)
    private let ssrc = SSRC(rawValue: 0x1234_5678)

    /// The lines "name = hexadecimal digits" of the document.
    init() throws {
        let here = #filePath
        let root = here.split(separator: "/", omittingEmptySubsequences: false).dropLast(3).joined(separator: "/")
        let file = try #require(fopen("\(root)/docs/relay-protocol.md", "r"))
        defer { fclose(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while case let count = fread(&chunk, 1, chunk.count, file), count > 0 { bytes += chunk[..<count] }
        var values: [String: [UInt8]] = [:]
        for line in String(decoding: bytes, as: UTF8.self).split(separator: "\n") {
            let halves = line.split(separator: " ")
            guard halves.count == 3, halves[1] == "=", let value = Hexadecimal.decode(halves[2]) else { continue }
            values[String(halves[0])] = value
        }
        document = values
    }

    private func value(_ name: String) throws -> [UInt8] {
        try #require(document[name], "\(name) is not in the document")
    }

    @Test func `the channel is in the share of the document`() throws {
        let channel = try #require(ChannelID("0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0f"))
        #expect(try value("channel_share") == [UInt8(channel.share())])
    }

    @Test func `the document has the example's values`() {
        #expect(document.count == 75, "\(document.keys.sorted())")
    }

    @Test func `the example's client messages are what this module sends`() throws {
        let channel = try #require(ChannelID("0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0f"))
        let join = ClientMessage.join(
            .init(
                channel: channel, token: try #require(InvitationToken(Array(0..<16))),
                displayName: try #require(DisplayName("Radio 7"))))
        #expect(try value("join_message") == join.framed())
        let request = ClientMessage.floorRequest(.init(requestID: .first, keyID: keyID.rawValue))
        #expect(try value("floor_request_message") == request.framed())
        let release = ClientMessage.floorRelease(.init(requestID: .first, lastSequence: 1001))
        #expect(try value("floor_release_message") == release.framed())
    }

    @Test func `the example's lost packet is sent again, asked for and answered as this module does it`() throws {
        let packet = try value("uplink_packet_1")
        #expect(try value("media_repair_message") == ClientMessage.mediaRepair(packet).framed())
        let request = ClientMessage.repairRequest(
            .init(id: 1, ssrc: ssrc, keyID: keyID.rawValue, ranges: [SequenceRange(first: 1001, last: 1001)]))
        #expect(try value("repair_request_message") == request.framed())
        #expect(try value("repair_stream") == RepairStream.encode(id: 1, packets: [packet]))
    }

    @Test func `the example's burst is asked for, given and listed as this module does it`() throws {
        let packet = try value("uplink_packet_1")
        let burst = BurstName(ssrc: SSRC(rawValue: 0x1234_5678), keyID: 0x0007_A1B2_C3D4_E5F6)
        let id = BurstRequestID(rawValue: 1)
        let request = ClientMessage.burstRequest(.init(id: id, burst: burst, first: 1_001))
        #expect(try value("burst_request_message") == request.framed())
        #expect(try value("burst_stream") == RepairStream.encode(burst: id, packets: [packet], isWhole: true))
        #expect(try value("burst_list_request_message") == ClientMessage.burstListRequest(id.next).framed())
        let kept = ServerMessage.KeptBurst(
            burst: burst, talker: try #require(MemberID(bytes: Self.member)), name: DisplayName("Radio 7")!,
            age: .seconds(5), duration: .milliseconds(20), packets: 2, isGoingOn: false)
        #expect(try value("burst_list_message") == ServerMessage.burstList(.init(id: id.next, bursts: [kept])).framed())
        let refused = ServerMessage.burstRefused(.init(id: id.next.next, cause: .notKept))
        #expect(try value("burst_refused_message") == refused.framed())
        #expect(try ServerMessage(parsing: Array(try value("burst_refused_message").dropFirst(4))) == refused)
    }

    @Test func `the example's server messages are what this module sends and reads`() throws {
        let member = try #require(MemberID(bytes: Self.member))
        let messages: [(String, ServerMessage)] = [
            ("floor_granted_message", .floorGranted(.init(requestID: .first, duration: .seconds(60)))),
            ("floor_taken_message", .floorTaken(.init(talker: member, ssrc: ssrc, keyID: keyID.rawValue))),
            ("floor_idle_message", .floorIdle(.init(ssrc: ssrc, lastSequence: 1001))),
        ]
        for (name, message) in messages {
            #expect(try value(name) == message.framed())
            #expect(try ServerMessage(parsing: Array(try value(name).dropFirst(4))) == message)
        }
    }

    @Test func `the example's messages about pushes are what this module sends and reads`() throws {
        let token = try #require(PushToken(0x80...0x9f as ClosedRange<UInt8>))
        let topic = try #require(PushTopic("org.example.radio.voip-ptt"))
        let id = PushID(rawValue: 0x0102_0304_0506_0708)
        #expect(
            try value("push_register_message")
                == ClientMessage.pushRegister(.init(token: token, topic: topic)).framed())
        #expect(try value("push_registered_message") == ServerMessage.pushRegistered(token).framed())
        let push = ServerMessage.push(
            .init(
                id: id, token: token, payload: Array(#"{"activeSpeaker":"Ann"}"#.utf8), priority: 10, lifetime: .zero))
        #expect(try value("push_message") == push.framed())
        #expect(try ServerMessage(parsing: Array(try value("push_message").dropFirst(4))) == push)
        #expect(
            try value("push_receipt_message") == ClientMessage.pushReceipt(.init(id: id, outcome: .taken)).framed())
        #expect(try value("push_unregister_message") == ClientMessage.pushUnregister(token).framed())
    }

    @Test func `the example's keys are derived as RFC 9605 says`() throws {
        #expect(try value("key_id").reduce(0) { $0 << 8 | UInt64($1) } == keyID.rawValue)
        let suffix = try value("key_id") + [0, 4]
        #expect(try value("sframe_key_label") == Array("SFrame 1.0 Secret key ".utf8) + suffix)
        #expect(try value("sframe_salt_label") == Array("SFrame 1.0 Secret salt ".utf8) + suffix)
        let hash = HashFunction.sha256
        let secret = try hash.extract(keyMaterial: try value("base_key"))
        #expect(try value("sframe_secret") == secret)
        let key = try hash.expand(pseudorandomKey: secret, info: try value("sframe_key_label"), byteCount: 16)
        #expect(try value("sframe_key") == key)
        let salt = try hash.expand(pseudorandomKey: secret, info: try value("sframe_salt_label"), byteCount: 12)
        #expect(try value("sframe_salt") == salt)
    }

    @Test func `the example's packets are what this module makes, step by step`() throws {
        let sealer = try SFrameSealer(baseKey: try value("base_key"), keyID: keyID)
        let mac = try SipHash(key: try value("downlink_key"))
        let key = try #require(TrailerKey(try value("downlink_key")))
        var downlink = try TrailerSealer(key: key)
        for _ in 0..<5 { _ = try downlink.seal([0x80]) }
        for index in 0..<2 {
            func step(_ name: String) throws -> [UInt8] { try value("\(name)_\(index)") }
            let rtp = RTPHeader(
                marker: index == 0, sequence: UInt16(1000 + index), timestamp: UInt32(48_000 + 960 * index), ssrc: ssrc)
            #expect(try step("rtp_header") == rtp.bytes)
            let header = SFrameHeader(keyID: keyID, counter: UInt64(index))
            #expect(try step("sframe_header") == header.bytes)
            let counter = [UInt8](repeating: 0, count: 11) + [UInt8(index)]
            #expect(try step("sframe_nonce") == zip(try value("sframe_salt"), counter).map { $0 ^ $1 })
            #expect(try step("sframe_aad") == header.bytes + rtp.bytes)
            let frame = try sealer.seal(try step("opus_frame"), metadata: rtp.bytes)
            #expect(try step("sframe_ciphertext") == frame)
            #expect(try step("uplink_packet") == rtp.bytes + frame)
            let counted = try step("uplink_packet") + step("downlink_counter")
            let tag = counted.withUnsafeBytes { mac.tag(of: $0) }
            #expect(try step("siphash_tag") == withUnsafeBytes(of: tag) { Array($0) })
            let sent = try downlink.seal(try step("uplink_packet"))
            #expect(try step("downlink_packet") == sent)
        }
    }

    @Test func `the example's down-link packets open to the Opus frames`() throws {
        let opener = try TrailerOpener(key: try #require(TrailerKey(try value("downlink_key"))))
        var frames = SFrameOpener()
        frames.setEpoch(7, baseKey: try value("base_key"), at: .zero)
        for index in 0..<2 {
            let packet = try opener.open(try value("downlink_packet_\(index)"))
            let opened = try frames.open(
                Array(packet.dropFirst(RTPHeader.byteCount)), metadata: Array(packet.prefix(RTPHeader.byteCount)),
                at: .zero)
            #expect(opened.plaintext == (try value("opus_frame_\(index)")))
            #expect(opened.header == SFrameHeader(keyID: keyID, counter: UInt64(index)))
        }
    }
}
