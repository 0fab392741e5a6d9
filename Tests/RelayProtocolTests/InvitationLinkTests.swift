// Invitation links: there and back, and errors that tell what is wrong.
import Cryptography
import RelayProtocol
import TestSupport
import Testing

@Suite struct InvitationLinkTests {
    private static let token = "AAECAwQFBgcICQoLDA0ODw"
    private static let pin = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    private static let channel = "0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0f"
    private static let query = "channel=\(channel)&token=\(token)&pin=\(pin)"

    @Test func `a link says where, which key, which channel and the secret`() throws {
        let link = try InvitationLink("ptt://relay.example:4433/Crew%20%C3%A4%2F7?\(Self.query)")
        #expect(link.host == "relay.example")
        #expect(link.port == 4433)
        #expect(link.channelName.text == "Crew ä/7")
        #expect(link.channel.description == Self.channel)
        #expect(link.token.bytes == Array(0..<16))
        #expect(link.pin.bytes == Array(0..<32))
        #expect(link.mediaKey == nil)
        #expect(link.text == "ptt://relay.example:4433/Crew%20%C3%A4%2F7?\(Self.query)")
        #expect(link.description == "Crew ä/7 at relay.example port 4433")
    }

    @Test(arguments: [
        ("[::1]", "::1"), ("[2001:db8::7]", "2001:db8::7"), ("[fe80::1%25eth0]", "fe80::1%eth0"),
        ("[fe80::1%25wlp0s20f3]", "fe80::1%wlp0s20f3"), ("192.0.2.1", "192.0.2.1"), ("localhost", "localhost"),
    ])
    func `hosts may be names and addresses of both kinds`(written: String, host: String) throws {
        let text = "ptt://\(written):1/n?\(Self.query)"
        let link = try InvitationLink(text)
        #expect(link.host == host)
        #expect(link.text == text)
    }

    @Test func `an end-to-end link carries the media key of epoch 0`() throws {
        let link = try InvitationLink("ptt://h:1/n?\(Self.query)&key=\(Self.pin)")
        #expect(link.mediaKey == MediaKey(epoch: 0, baseKey: Array(0..<32)))
        #expect(link.text.hasSuffix("#key=\(Self.pin)"))
    }

    @Test func `what copying adds, another order and parameters of later versions do not matter`() throws {
        let plain = try InvitationLink("ptt://h:1/n?\(Self.query)")
        #expect(try InvitationLink("  \n ptt://h:1/n?\(Self.query)\r\n") == plain)
        let shuffled = "PTT://h:1/n?pin=\(Self.pin)&new=1&token=\(Self.token)&channel=\(Self.channel.uppercased())#top"
        #expect(try InvitationLink(shuffled) == plain)
    }

    @Test(
        arguments: [
            ("", .notAnInvitation), ("hello", .notAnInvitation), ("http://h:1/n?\(query)", .notAnInvitation),
            ("ptt:h:1/n", .notAnInvitation), (String(repeating: "x", count: 2049), .tooLong),
            ("ptt://:1/n?\(query)", .badHost(":1")), ("ptt:///n?\(query)", .badHost("")),
            ("ptt://a b:1/n?\(query)", .badHost("a b:1")), ("ptt://[zz::]:1/n?\(query)", .badHost("[zz::]:1")),
            ("ptt://[1.2.3.4]:1/n?\(query)", .badHost("[1.2.3.4]:1")), ("ptt://[::1/n?\(query)", .badPort("")),
            ("ptt://[::1%25]:1/n?\(query)", .badHost("[::1%25]:1")),
            ("ptt://u@h:1/n?\(query)", .badHost("u@h:1")),
            ("ptt://[::1\0:]:1/n?\(query)", .badHost("[::1\0:]:1")),
            ("ptt://[::1%00%25eth0]:1/n?\(query)", .badHost("[::1%00%25eth0]:1")),
            ("ptt://h/n?\(query)", .badPort("")), ("ptt://h:/n?\(query)", .badPort("")),
            ("ptt://h:0/n?\(query)", .badPort("0")), ("ptt://h:65536/n?\(query)", .badPort("65536")),
            ("ptt://h:+1/n?\(query)", .badPort("+1")), ("ptt://::1/n?\(query)", .badHost("::1")),
            ("ptt://h:1?\(query)", .badName), ("ptt://h:1/?\(query)", .badName), ("ptt://h:1/%ff?\(query)", .badName),
            ("ptt://h:1/%0a?\(query)", .badName), ("ptt://h:1/n%2?\(query)", .badName),
            ("ptt://h:1/n%zz?\(query)", .badName),
            ("ptt://h:1/n", .missingParameter("channel")),
            ("ptt://h:1/n?channel=\(channel)", .missingParameter("token")),
            ("ptt://h:1/n?channel=\(channel)&token=\(token)", .missingParameter("pin")),
            ("ptt://h:1/n?channel=7&token=\(token)&pin=\(pin)", .badParameter("channel", reason: "is not a UUID")),
            (
                "ptt://h:1/n?channel=\(channel)&token=AAAA&pin=\(pin)",
                .badParameter("token", reason: "is not 16 to 64 bytes of base64url")
            ),
            (
                "ptt://h:1/n?channel=\(channel)&token=\(token)&pin=\(token)",
                .badParameter("pin", reason: "is not 32 bytes of base64url")
            ),
            ("ptt://h:1/n?\(query)&key=AA", .badParameter("key", reason: "is not 16 to 64 bytes of base64url")),
            ("ptt://h:1/n?\(query)&pin=\(pin)", .badParameter("pin", reason: "is there twice")),
            ("ptt://h:1/n?\(query)&x", .badParameter("x", reason: "has no readable value")),
        ] as [(String, InvitationLinkError)])
    func `a wrong link tells what is wrong with it`(text: String, error: InvitationLinkError) {
        #expect(throws: error) { try InvitationLink(text) }
        #expect(error.description.contains("link"))
    }

    @Test func `every link that can be made is read back as it was`() throws {
        var random = SeededGenerator()
        let hosts = ["localhost", "relay.example.org", "10.0.0.1", "::", "2001:db8::1", "fe80::2%wlan0"]
        for _ in 0..<500 {
            let link = try InvitationLink(
                host: hosts.randomElement(using: &random) ?? "h", port: max(1, random.number()),
                channelName: random.name(), channel: random.channel(), token: random.token(),
                pin: PublicKeyPin(subjectPublicKeyInfo: random.bytes(5)),
                mediaKey: random.oneIn() ? nil : MediaKey(epoch: 0, baseKey: random.bytes(32)))
            #expect(try InvitationLink(link.text) == link)
        }
        #expect(throws: InvitationLinkError.badHost("a/b")) {
            try InvitationLink(
                host: "a/b", port: 1, channelName: random.name(), channel: ChannelID(), token: InvitationToken(),
                pin: PublicKeyPin(subjectPublicKeyInfo: []))
        }
    }

    @Test func `damaged links give an error or a link, never a crash`() throws {
        var random = SeededGenerator()
        let good = Array("ptt://[fe80::1%25eth0]:443/Crew%207?\(Self.query)&key=\(Self.pin)".utf8)
        for _ in 0..<5000 {
            var bytes = random.oneIn(10) ? random.bytes(80) : good
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let index = Int.random(in: bytes.indices, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: bytes.remove(at: index)
                case 1: bytes.insert(Array("%&?/:[]=#@".utf8).randomElement(using: &random) ?? 37, at: index)
                default: bytes[index] = UInt8.random(in: 0...255, using: &random)
                }
            }
            if let link = try? InvitationLink(String(decoding: bytes, as: UTF8.self)) {
                #expect(try InvitationLink(link.text) == link)
            }
        }
    }
}
