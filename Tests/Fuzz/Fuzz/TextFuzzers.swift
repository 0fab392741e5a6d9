// Requests of the HTTP endpoints and of the operator's commands, pushes, terminals, and how bytes are written as text.
import Cryptography
import FoundationEssentials
import MonotonicTime
import PlainText
import PushToTalkCore
import RelayProtocol
import RelayStore
import WebSockets

@testable import Headsets
@testable import QUIC
@testable import RelayHTTP
@testable import SpokenPrompts
@testable import Terminal
@testable import WebSocketClient
@testable import pttrelay

private let device = String(repeating: "80", count: 32)

/// What a proxy says in these parts. Not a function inside the fuzzer: the compiler, where it makes the module's interface, takes the
/// `catch` of one for unreachable.
private func proxyAnswer(_ parts: [[UInt8]]) -> String {
    var answer = ProxyAnswer()
    do throws(ProxyAnswer.Failure) {
        var rest: [UInt8]?
        for part in parts {
            if let known = rest { rest = known + part } else { rest = try answer.take(part) }
        }
        return "\(String(describing: rest))"
    } catch {
        return "\(error)"
    }
}

let textFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "headset-names", maximum: 600,
        seeds: {
            ["bluez_input.00_AA_01_01_00_02.0", "bluez_card.00:aa:01:01:00:02", "dev_00_AA_01_01_00_02"].map(utf8)
        }
    ) { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        guard let address = HeadsetAddress.find(in: text) else { return }
        expect(address.utf8.count == 17 && address == address.uppercased(), "an address has one form")
        let plain = text.uppercased().replacing("_", with: ":")
        // By bytes: with an accent behind it, the last digit is another character.
        expect(Array(plain.utf8).contains(Array(address.utf8)), "it is in the text")
        expect(HeadsetAddress.find(in: address) == address, "and is found again")
    },
    Fuzzer(
        name: "push-request", maximum: 1_024,
        seeds: {
            let fields = [
                "apns-push-type", "pushtotalk", "apns-topic", "org.example.radio.voip-ptt", "apns-priority", "10",
                "apns-expiration", "1800000000", "apns-id", "00010203-0405-0607-0809-0a0b0c0d0e0f",
            ]
            return [joined(piece(utf8("POST")), piece(utf8("/3/device/\(device)")), fields.flatMap { piece(utf8($0)) })]
        }
    ) { bytes in
        var input = Input(bytes)
        let (method, path) = (input.text(), input.text())
        var fields: [String: [String]] = [:]
        while !input.isEmpty { fields[input.text(), default: []].append(input.text()) }
        guard let topic = RelayProtocol.PushTopic("org.example.radio.voip-ptt"),
            let client = PushClient(pin: PublicKeyPin(subjectPublicKeyInfo: [1]), topics: [topic])
        else { fatalError("a topic is one") }
        let now: Int64 = 1_790_000_000
        guard let head = try? PushHead(method: method, path: path, fields: fields, from: .client(client), now: now)
        else { return }
        expect(head.topic == topic && [1, 5, 10].contains(head.priority), "only what the client may")
        expect(head.lifetime >= .zero, "nothing is for the past")
        for sender in [PushSender.anonymous, .stranger] {
            let other = try? PushHead(method: method, path: path, fields: fields, from: sender, now: now)
            expect(other == nil, "others may nothing")
        }
    },
    Fuzzer(
        name: "push-payload", maximum: 5_000,
        seeds: {
            [#"{"activeSpeaker":"Ann"}"#, #"{"aps":{"ptt-push-type":"service-update"},"a":[1,2.5e3,null]}"#].map(utf8)
        }
    ) { bytes in
        let relays = (try? RelayHTTP.PushPayload.check(bytes)) != nil
        let devices = try? PushToTalkCore.PushPayload(validating: bytes)
        if let devices { expect(Array(devices.text.utf8) == bytes, "a payload is handed on as it came") }
        if relays { expect(devices != nil, "what the relay takes, the device takes") }
    },
    Fuzzer(
        name: "operator-token", maximum: 256,
        seeds: { ["Bearer \(OperatorToken().text)", OperatorToken().text, " bearer x"].map(utf8) }
    ) { bytes in
        let own = OperatorToken()
        guard let text = bytes.asText else { return }
        expect(!own.opens(text), "nobody guesses 256 bits")
        if let token = OperatorToken(text) {
            expect(
                OperatorToken(token.text) == token && token.opens("Bearer \(token.text)"), "a token is what was read")
        }
    },
    Fuzzer(
        name: "operator-command", maximum: 2_048,
        seeds: {
            let requests: [AdministrationRequest] = [
                .invite(
                    channel: "Team", terms: .init(lifetime: 60, uses: 1, priority: 3, isListenOnly: true), key: .first),
                .channels(after: "A", limit: 2), .members(channel: "Team", after: "00"), .channel(.id("00")), .status,
                .addChannel(name: "A", ChannelChange(mode: .cutIn, keptBursts: 1), isEndToEnd: false, retry: "x"),
                .changeChannel("A", ChannelChange(name: "B", preemptionStep: 0), tag: "00"), .removeChannel("A"),
                .invitations(channel: "Team", before: 7, limit: 1), .invitation(channel: "Team", number: 1),
                .changeMember(channel: "Team", member: "00", MemberChange(name: "B"), tag: "00"),
                .revoke(channel: "Team", member: "00", keepsInvitation: true),
                .withdraw(channel: "Team", invitation: 1), .revokeInvited(channel: "Team", invitation: 2),
                .invite(channel: "Crew", terms: nil, key: .earlierLink(channel: ChannelID().description, pin: "")),
                .readmit(channel: "Team", member: "00", MemberChange(priority: 1, isListenOnly: false)),
            ]
            return requests.compactMap { try? Array(JSONEncoder().encode($0)) }
        }
    ) { bytes in
        guard let request = try? JSONDecoder().decode(AdministrationRequest.self, from: Data(bytes)) else { return }
        let again = try? JSONDecoder().decode(AdministrationRequest.self, from: JSONEncoder().encode(request))
        expect(again == request, "a command is what was read")
    },
    Fuzzer(
        name: "operator-answer", maximum: 2_048,
        seeds: {
            let member = AdministrationResponse.MemberLine(
                id: "00", name: "Anna", invitation: 1, priority: 1, isListenOnly: false, enrolledAt: 1, revokedAt: 2)
            let answers: [AdministrationResponse] = [
                .done, .failed("no"), .members([member], next: "00"), .member(member),
            ]
            return answers.compactMap { try? Array(JSONEncoder().encode($0)) }
        }
    ) { bytes in
        guard let answer = try? JSONDecoder().decode(AdministrationResponse.self, from: Data(bytes)) else { return }
        let again = try? JSONDecoder().decode(AdministrationResponse.self, from: JSONEncoder().encode(answer))
        expect(again == answer, "an answer is what was read")
    },
    Fuzzer(
        name: "terminal-keys", maximum: 256,
        seeds: { [utf8("  q"), joined([0x1B], utf8("[32;1:3u")), joined([0x20, 0x1B], utf8("[?2u"))] }
    ) { bytes in
        var input = Input(bytes)
        var machine = HeldKeyStateMachine()
        var now = Instant.zero
        var isHeld = false
        while !input.isEmpty {
            now = now + .milliseconds(Int(input.byte()) * 4)
            for output in machine.handleTimeout(at: now) + machine.handle(input.piece(), at: now) {
                if output == .quit { continue }
                expect((output == .pressed) != isHeld, "edges take turns")
                isHeld = output == .pressed
            }
        }
    },
    Fuzzer(
        name: "names-for-people", maximum: 1_024,
        seeds: { ["Ann", "\u{1B}[2J\u{202E}x", "e\u{301}\u{301}\n", "👩‍👩‍👧‍👦無線"].map(utf8) }
    ) { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        let name = DisplayName(cleaning: text, fallback: "somebody")
        expect(DisplayName(name.text) == name, "a cleaned name is one")
        let plain = text.plain(limit: 40)
        expect(
            !plain.unicodeScalars.contains { $0.value < 0x20 || $0.value == 0x1B || $0.value == 0x7F },
            "no control reaches a terminal")
        for width in [1, 7, 40] {
            expect(plain.fitted(width).columns == width, "a column is as wide as it is to be: \(width)")
            _ = plain.wrapped(width, limit: 3)
        }
    },
    Fuzzer(
        name: "spoken-names", maximum: 1_024,
        seeds: { ["Gate 3", "[[h@'loU]]\n", "-w /tmp/x", "e\u{301}\u{301}\u{202E}", "👩‍👩‍👧‍👦한국어"].map(utf8) }
    ) { bytes in
        guard let name = SpokenName(String(decoding: bytes, as: UTF8.self)) else { return }
        expect(name.text.utf8.count <= SpokenName.bytesMax, "a name is short")
        expect(
            !name.text.unicodeScalars.contains { $0.isHidden || $0 == "[" || $0 == "]" },
            "a name is one line of plain text")
        expect(SpokenName(name.text) == name, "what is plain stays as it is")
    },
    Fuzzer(
        name: "speech-dispatcher", maximum: 2_048,
        seeds: {
            [
                "208 OK\r\n201 OK\r\n202 OK\r\n220 OK\r\n220 OK\r\n230 OK\r\n225-1\r\n225 OK\r\n702-1\r\n702 END\r\n",
                "403 ERR PARAMETER\r\n",
            ].map(utf8)
        }
    ) { bytes in
        var (whole, parts) = (DispatcherDialogue("x", .english), DispatcherDialogue("x", .english))
        let actions = whole.received(bytes)
        expect(bytes.flatMap { parts.received([$0]) } == actions, "splitting a stream makes no difference")
        let ends = actions.count { action in if case .send = action { false } else { true } }
        expect(ends <= 1 && actions.count <= 8, "a prompt ends once")
    },
    Fuzzer(
        name: "proxies", maximum: 512,
        seeds: {
            [
                "http://user:p%40ss@proxy.example:3128/", "[2001:db8::1]:8080", "proxy", "https://x",
                "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nrest",
                "HTTP/1.0 407 Proxy Authentication Required\n\n",
            ].map(utf8)
        }
    ) { bytes in
        expect(proxyAnswer([bytes]) == proxyAnswer(bytes.map { [$0] }), "splitting an answer makes no difference")
        guard let text = bytes.asText, let proxy = try? HTTPProxy(text) else { return }
        let plain = try? HTTPProxy("\(proxy)")
        expect(plain?.host == proxy.host && plain?.port == proxy.port, "a proxy is what was read: \(proxy)")
        _ = ProxyPolicy(proxy: proxy, direct: [text]).proxy(for: proxy.host)
    },
    Fuzzer(
        name: "addresses", maximum: 128,
        seeds: {
            [
                "192.0.2.1:4433", "[fe80::1%25eth0]:1", "0003000000000007-00000001", "192.0.2.1", "2001:db8::1",
                "fe80::1%1", "::ffff:192.0.2.1", "relay.example",
            ].map(utf8)
        }
    ) { bytes in
        bytes.withUnsafeBytes { buffer in
            guard let start = buffer.baseAddress else { return }
            if let address = SocketAddress(start, length: buffer.count), !address.isIPv4 {
                expect(
                    SocketAddress(address.host, port: address.port) == address,
                    "an address is what was read: \(address)")
            }
        }
        guard let text = bytes.asText else { return }
        if let address = SocketAddress(text, port: 1) {
            expect(SocketAddress(address.host, port: 1) == address, "an address is what was read: \(address)")
        }
        _ = InvitationLink.isHost(text)
        if let place = RelayPlace(text) {
            expect(RelayPlace(place.description) == place, "a place is what was read: \(place)")
        }
        if let burst = BurstName(text) { expect(burst.description == text.lowercased(), "a burst's name has one form") }
    },
    Fuzzer(
        name: "bytes-as-text", maximum: 256, seeds: { ["00ffAB", "AAAA_-8", "====", "%C3%A4%2F"].map(utf8) }
    ) { bytes in
        expect(Base64URL.decode(Base64URL.encode(bytes)) == bytes, "Base64url leads back")
        expect(Hexadecimal.decode(Hexadecimal.encode(bytes)) == bytes, "hexadecimal leads back")
        guard let text = bytes.asText else { return }
        if let decoded = Base64URL.decode(text) {
            expect(Base64URL.encode(decoded) == text.prefix { $0 != "=" }, "Base64url has one form but for padding")
        }
        if let decoded = Hexadecimal.decode(text) {
            expect(Hexadecimal.encode(decoded) == text.lowercased(), "hexadecimal has one form but for case")
        }
    },
]
