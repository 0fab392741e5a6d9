// The checks of a request without a socket: what is refused, in which order, and why.
import Cryptography
import RelayProtocol
import TestSupport
import Testing
import Vocabulary

@testable import RelayHTTP

@Suite struct PushHeadTests {
    private static let topic = PushTopic("org.example.radio.voip-ptt")!
    private static let other = PushTopic("org.example.other.voip-ptt")!
    private static let token = String(repeating: "ab", count: 32)
    private static let pin = PublicKeyPin([UInt8](repeating: 3, count: 32))!
    private static let now: Int64 = 1_800_000_000
    private let client = PushClient(pin: pin, topics: [topic])!
    private let twice = PushClient(pin: pin, topics: [topic, other])!

    private static let good: [String: [String]] = [
        "apns-push-type": ["pushtotalk"], "apns-topic": [topic.text], "apns-priority": ["10"], "apns-expiration": ["0"],
    ]

    private func head(
        _ change: [String: [String]?] = [:], method: String = "POST", path: String = "/3/device/\(token)",
        from sender: PushSender? = nil
    ) throws(PushRejection) -> PushHead {
        var fields = Self.good
        for (name, values) in change { fields[name] = values }
        return try PushHead(
            method: method, path: path, fields: fields, from: sender ?? .client(client), now: Self.now)
    }

    @Test func `the usual request is understood`() throws {
        let head = try head()
        #expect(head.token.hexadecimal == Self.token)
        #expect(head.topic == Self.topic)
        #expect(head.priority == 10)
        #expect(head.lifetime == .zero)
    }

    @Test(
        arguments: [
            ("/", .badPath), ("", .badPath), ("*", .badPath), ("/3/devices/\(token)", .badPath),
            ("/3/device", .missingDeviceToken),
            ("/3/device/", .missingDeviceToken), ("/3/device/xyz", .badDeviceToken),
            ("/3/device/\(token)/", .badDeviceToken),
            ("/3/device/\(token)?a=b", .badDeviceToken), ("/3/device/\(token.dropLast())", .badDeviceToken),
            ("/3/device/\(token.dropLast(2))", .badDeviceToken), ("/2/device/\(token)", .badPath),
            ("/3/device/\(String(repeating: "a", count: 202))", .badDeviceToken),
            ("/3/device/%61%62\(token.dropLast(2))", .badDeviceToken), ("//3/device/\(token)", .badPath),
        ] as [(String, PushRejection)])
    func `a path without a good token is refused`(path: String, rejection: PushRejection) {
        #expect(throws: rejection) { try head(path: path) }
    }

    @Test(
        arguments: [
            ("apns-id", "7", .badMessageID), ("apns-id", "00112233-4455-6677-8899-aabbccddeef", .badMessageID),
            ("apns-id", "00112233-4455-6677-8899-aabbccddeegg", .badMessageID), ("apns-id", "", .badMessageID),
            ("apns-push-type", nil, .invalidPushType), ("apns-push-type", "alert", .invalidPushType),
            ("apns-push-type", "voip", .invalidPushType), ("apns-push-type", "PushToTalk", .invalidPushType),
            ("apns-expiration", "", .badExpirationDate), ("apns-expiration", "-1", .badExpirationDate),
            ("apns-expiration", "soon", .badExpirationDate), ("apns-expiration", "1.5", .badExpirationDate),
            ("apns-expiration", "99999999999999999999", .badExpirationDate),
            ("apns-expiration", "+1", .badExpirationDate),
            ("apns-priority", "0", .badPriority), ("apns-priority", "11", .badPriority),
            ("apns-priority", "7", .badPriority),
            ("apns-priority", "high", .badPriority), ("apns-priority", "010", nil),
            ("apns-priority", "٥", .badPriority),
            ("apns-collapse-id", String(repeating: "a", count: 65), .badCollapseID),
            ("apns-collapse-id", String(repeating: "a", count: 64), nil),
            ("apns-topic", "org.example.radio", .badTopic),
            ("apns-topic", "", .badTopic), ("apns-topic", ".voip-ptt", .badTopic),
            ("apns-topic", "a b.voip-ptt", .badTopic),
            ("apns-topic", other.text, .topicDisallowed), ("apns-topic", nil, nil),
            ("apns-id", "00112233-4455-6677-8899-AABBccddeeff", nil), ("apns-unheard-of", "x", nil),
        ] as [(String, String?, PushRejection?)])
    func `a header that cannot be is refused`(name: String, value: String?, rejection: PushRejection?) throws {
        let change: [String: [String]?] = [name: value.map { [$0] }]
        guard let rejection else {
            _ = try head(change)
            return
        }
        #expect(throws: rejection) { try head(change) }
    }

    @Test func `what is not said has the value that fits push to talk`() throws {
        let head = try head(["apns-priority": nil, "apns-expiration": nil, "apns-topic": nil])
        #expect(head.priority == 10)
        #expect(head.lifetime == .zero)
        #expect(head.topic == Self.topic, "the certificate's only one")
        #expect(throws: PushRejection.missingTopic) { try self.head(["apns-topic": nil], from: .client(twice)) }
        #expect(try self.head(["apns-topic": [Self.other.text]], from: .client(twice)).topic == Self.other)
    }

    @Test func `an expiration is a time, and one that is past is now`() throws {
        #expect(try head(["apns-expiration": ["\(Self.now + 90)"]]).lifetime == .seconds(90))
        #expect(try head(["apns-expiration": ["\(Self.now)"]]).lifetime == .zero)
        #expect(try head(["apns-expiration": ["1"]]).lifetime == .zero)
        for priority in [1, 5, 10] { #expect(try head(["apns-priority": ["\(priority)"]]).priority == UInt8(priority)) }
    }

    @Test func `the first thing wrong is told, strangers learn nothing of tokens or topics`() {
        var bad: [String: [String]?] = ["apns-id": ["x", "y"]]
        #expect(throws: PushRejection.badPath) { try head(bad, method: "GET", path: "/x", from: .anonymous) }
        #expect(throws: PushRejection.methodNotAllowed) { try head(bad, method: "GET", from: .anonymous) }
        #expect(throws: PushRejection.methodNotAllowed) { try head(method: "post") }
        #expect(throws: PushRejection.missingProviderToken) { try head(bad, path: "/3/device/x", from: .anonymous) }
        #expect(throws: PushRejection.badCertificate) { try head(bad, path: "/3/device/x", from: .stranger) }
        #expect(throws: PushRejection.duplicateHeaders) { try head(bad, path: "/3/device/x") }
        bad = [
            "apns-id": ["x"], "apns-push-type": ["x"], "apns-expiration": ["x"], "apns-priority": ["x"],
            "apns-topic": ["x"],
        ]
        let order: [(String, PushRejection)] = [
            ("apns-id", .badMessageID), ("apns-push-type", .invalidPushType), ("apns-expiration", .badExpirationDate),
            ("apns-priority", .badPriority), ("apns-topic", .badTopic),
        ]
        for (name, rejection) in order {
            #expect(throws: rejection) { try head(bad, path: "/3/device/x") }
            bad[name] = .some(Self.good[name])
        }
        #expect(throws: PushRejection.badDeviceToken) { try head(bad, path: "/3/device/x") }
    }

    @Test func `a payload is a JSON object of 1 to 4096 bytes`() throws {
        func check(_ text: String) throws(PushRejection) { try PushPayload.check(Array(text.utf8)) }
        for text in [
            "{}", #"{"aps":{}}"#, #" {"a":[1,2.5e3,null,true,{"b":"\u00e4\n"}]} "#, #"{"activeSpeaker":"Änne 📻"}"#,
        ] {
            try check(text)
        }
        try check(#"{"a":""# + String(repeating: "x", count: 4_096 - 8) + #""}"#)
        #expect(throws: PushRejection.payloadTooLarge) {
            try check(#"{"a":""# + String(repeating: "x", count: 4_089) + #""}"#)
        }
        #expect(throws: PushRejection.payloadEmpty) { try check("") }
        for text in [
            "[]", "1", "null", "\"a\"", "{", "{}}", #"{"a":}"#, #"{'a':1}"#, "a=b", "{\u{201D}a\u{201D}:1}", "\u{0}",
        ] {
            #expect(throws: PushRejection.badPayload, "\(text)") { try check(text) }
        }
        #expect(throws: PushRejection.badPayload) { try PushPayload.check([0x7B, 0x22, 0xFF, 0x22, 0x3A, 0x31, 0x7D]) }
        // A value that is no UTF-8, such as every device refuses.
        let value = Array(#"{"activeSpeaker":""#.utf8) + [0x41, 0x93, 0x6E] + Array(#""}"#.utf8)
        #expect(throws: PushRejection.badPayload) { try PushPayload.check(value) }
        #expect(throws: PushRejection.badPayload) { try check(#"{"a":"# + String(repeating: "[", count: 4_000)) }
    }

    @Test func `whatever comes, a head is refused or has values in their ranges`() {
        var random = SeededGenerator()
        let names = ["apns-id", "apns-push-type", "apns-topic", "apns-priority", "apns-expiration", "apns-collapse-id"]
        let values = [
            "pushtotalk", "10", "5", "0", "\(Self.now + 5)", Self.topic.text, "-1", "", "9999999999999999",
            "00112233-4455-6677-8899-aabbccddeeff",
        ]
        let paths = ["/3/device/", "/3/device/\(Self.token)", "/3/device", "/", "/3/device/\(Self.token)\(Self.token)"]
        var accepted = 0
        for _ in 0..<5_000 {
            var fields = Self.good
            for _ in 0..<Int.random(in: 0...2, using: &random) {
                let noise = String(decoding: random.bytes(Int.random(in: 0...80, using: &random)), as: UTF8.self)
                fields[names.randomElement(using: &random) ?? ""] =
                    random.chance(10) ? nil : [random.chance(70) ? values.randomElement(using: &random) ?? "" : noise]
            }
            var path = random.chance(80) ? paths[1] : paths.randomElement(using: &random) ?? ""
            if random.chance(20) { path += String(decoding: random.bytes(4), as: UTF8.self) }
            guard
                let head = try? PushHead(
                    method: "POST", path: path, fields: fields, from: .client(client), now: Self.now)
            else { continue }
            accepted += 1
            #expect(PushToken.byteCounts.contains(head.token.bytes.count))
            #expect([1, 5, 10].contains(head.priority))
            #expect(head.topic == Self.topic)
            #expect(head.lifetime >= .zero)
        }
        #expect(accepted > 250)
    }

    @Test(arguments: [[0, 0x7B, 0, 0x7D], [0x7B, 0, 0x7D, 0], [0, 0, 0, 0x7B, 0, 0, 0, 0x7D]] as [[UInt8]])
    func `an object in another encoding than UTF-8 is no payload`(bytes: [UInt8]) {
        #expect(throws: PushRejection.badPayload) { try PushPayload.check(bytes) }
    }

    @Test func `random bytes are a payload only when they are an object`() {
        var random = SeededGenerator()
        let pieces = ["{", "}", "[", "]", "\"a\"", ":", ",", "1", "-", "true", " ", "\\", "\u{0}", "e9", "null"]
        for _ in 0..<5_000 {
            let text = (0..<Int.random(in: 1...12, using: &random)).map { _ in
                pieces.randomElement(using: &random) ?? ""
            }.joined()
            if (try? PushPayload.check(Array(text.utf8))) != nil {
                let trimmed = text.split(separator: " ").joined()
                #expect(trimmed.first == "{" && trimmed.last == "}")
            }
        }
    }

    @Test func `every rejection has APNs' status and one reason`() {
        let all: [PushRejection: Int] = [
            .badPath: 404, .methodNotAllowed: 405, .missingProviderToken: 403, .badCertificate: 403,
            .payloadTooLarge: 413,
            .unregistered(since: 1_700_000_000_123): 410, .tooManyRequests: 429, .serviceUnavailable: 503,
            .shutdown: 503,
            .badDeviceToken: 400, .deviceTokenNotForTopic: 400, .payloadEmpty: 400,
        ]
        for (rejection, status) in all { #expect(rejection.status == status) }
        #expect(Set(all.keys.map(\.reason)).count == all.count)
        #expect(
            PushRejection.unregistered(since: 1_700_000_000_123).body
                == #"{"reason":"Unregistered","timestamp":1700000000123}"#)
        #expect(PushRejection.badMessageID.body == #"{"reason":"BadMessageId"}"#)
    }
}
