// The link over TLS: places, handshake and sealed messages.
import Cryptography
import TestSupport
import Testing

@testable import RelayProtocol

@Suite struct WebLinkTests {
    private let relay: Identity
    private let client: Identity
    private let relayKey: SigningKey

    init() throws {
        relay = try Identity(generating: "relay")
        client = try Identity(generating: "client")
        relayKey = try #require(SigningKey(relay))
    }

    private func ciphers() throws -> (client: WebLinkCipher, relay: WebLinkCipher) {
        let near = try WebLinkClientHandshake(identity: client, relay: relay.pin)
        var far = WebLinkServerHandshake(key: relayKey)
        let answer = try near.receive(try far.receive(hello: near.hello))
        let (pin, cipher) = try far.receive(proof: answer.proof)
        #expect(pin == client.pin)
        return (answer.cipher, cipher)
    }

    private static let messages: [WebSealedMessage] = [
        .control([1, 2, 3]), .control([UInt8](repeating: 7, count: 16_384)), .acknowledgement(4_000_000_000),
        .media([128] + [UInt8](repeating: 5, count: 1_159)), .ping(0), .pong(.max),
        .answer(number: 1, isEnd: true, bytes: []),
        .answer(number: .max, isEnd: false, bytes: [UInt8](repeating: 9, count: 16_384)),
    ]

    @Test func `both ends know each other and understand what is sealed`() throws {
        let (near, far) = try ciphers()
        for message in Self.messages {
            let up = try near.seal(message)
            #expect(up.count <= WebLinkLimits.messageBytes)
            #expect(try far.open(up) == message)
            #expect(try near.open(try far.seal(message)) == message)
        }
    }

    @Test func `another relay learns nothing of the client`() throws {
        let near = try WebLinkClientHandshake(identity: client, relay: client.pin)
        var far = WebLinkServerHandshake(key: relayKey)
        let hello = try far.receive(hello: near.hello)
        #expect(throws: WebLinkError.wrongRelayKey) { try near.receive(hello) }
    }

    @Test func `a proof is of use on its own connection only`() throws {
        let near = try WebLinkClientHandshake(identity: client, relay: relay.pin)
        var first = WebLinkServerHandshake(key: relayKey)
        let (proof, _) = try near.receive(try first.receive(hello: near.hello))
        var second = WebLinkServerHandshake(key: relayKey)
        _ = try second.receive(hello: near.hello)
        #expect(throws: WebLinkError.notAuthentic) { try second.receive(proof: proof) }
        #expect(throws: WebLinkError.self) { try second.receive(proof: proof) }
    }

    @Test func `every changed byte of the handshake is noticed`() throws {
        let near = try WebLinkClientHandshake(identity: client, relay: relay.pin)
        var far = WebLinkServerHandshake(key: relayKey)
        let hello = try far.receive(hello: near.hello)
        let fresh = far
        for place in hello.indices {
            var changed = hello
            changed[place] ^= 1
            #expect(throws: WebLinkError.self) { try near.receive(changed) }
        }
        for count in 0..<hello.count {
            #expect(throws: WebLinkError.self) { try near.receive(Array(hello.prefix(count))) }
        }
        let (proof, _) = try near.receive(hello)
        for place in proof.indices {
            var (changed, copy) = (proof, fresh)
            changed[place] ^= 0x80
            #expect(throws: WebLinkError.self) { try copy.receive(proof: changed) }
        }
    }

    /// A public key of small order makes a secret of zeros, to which the other end has given nothing.
    @Test(arguments: [0, 1]) func `an ephemeral key of small order is refused`(first: UInt8) {
        var far = WebLinkServerHandshake(key: relayKey)
        let key = [first] + [UInt8](repeating: 0, count: 31)
        #expect(throws: WebLinkError.self) { try far.receive(hello: [1] + key) }
    }

    @Test func `what is repeated, left out or changed is not opened`() throws {
        let (near, far) = try ciphers()
        let first = try near.seal(.ping(1))
        #expect(try far.open(first) == .ping(1))
        #expect(throws: WebLinkError.notAuthentic) { try far.open(first) }
        let (other, end) = try ciphers()
        _ = try other.seal(.ping(1))
        let second = try other.seal(.ping(2))
        #expect(throws: WebLinkError.notAuthentic) { try end.open(second) }
        // Its own words do not come back to an end as the other's.
        let (third, _) = try ciphers()
        let own = try third.seal(.ping(3))
        #expect(throws: WebLinkError.notAuthentic) { try third.open(own) }
    }

    @Test func `an unknown kind is ignored and a wrong size is an error`() throws {
        #expect(try WebSealedMessage([7, 1, 2]) == nil)
        let wrong: [[UInt8]] = [
            [], [1], [2, 0, 0, 0], [3] + [UInt8](repeating: 0, count: 9), [4], [5, 0, 0, 0, 1],
            [1] + [UInt8](repeating: 0, count: 16_385), [5] + [UInt8](repeating: 0, count: 16_384 + 6),
        ]
        for bytes in wrong { #expect(throws: WebLinkError.self) { try WebSealedMessage(bytes) } }
    }

    @Test func `random bytes never pass as a handshake`() throws {
        var random = SeededGenerator(seed: 20)
        for _ in 0..<500 {
            let bytes = (0..<Int.random(in: 0...300, using: &random)).map { _ in UInt8.random(in: 0...4, using: &random)
            }
            let near = try WebLinkClientHandshake(identity: client, relay: relay.pin)
            #expect(throws: WebLinkError.self) { try near.receive(bytes) }
            var far = WebLinkServerHandshake(key: relayKey)
            _ = try far.receive(hello: near.hello)
            #expect(throws: WebLinkError.self) { try far.receive(proof: bytes) }
        }
    }

    @Test(
        arguments: [
            ("443", nil, 443), ("relay.example:8443", "relay.example", 8_443),
            ("[2001:db8::1]:443", "2001:db8::1", 443),
        ] as [(String, String?, UInt16)]) func `a place is read and written`(text: String, host: String?, port: UInt16)
        throws
    {
        let place = try #require(WebPlace(text))
        #expect(place.host == host && place.port == port && place.text == text)
        #expect(place.place(besides: "192.0.2.7") == RelayPlace(host: host ?? "192.0.2.7", port: port))
    }

    @Test(arguments: [
        "", "0", "65536", "-1", "+1", "relay", "relay:", ":443", "a b:1", "１", String(repeating: "1", count: 301),
    ])
    func `what is no place is refused`(text: String) { #expect(WebPlace(text) == nil) }

    @Test func `the link carries the place`() throws {
        let plain =
            "ptt://relay.example:4433/R?channel=0f9b2c4e-1a2b-4c3d-8e4f-5a6b7c8d9e0f&token=AAECAwQFBgcICQoLDA0ODw"
            + "&pin=\(relay.pin)"
        #expect(try InvitationLink(plain).web == nil)
        let link = try InvitationLink(plain + "&web=tls.example%3A8443")
        #expect(link.web == WebPlace("tls.example:8443"))
        #expect(try InvitationLink(link.text) == link)
        #expect(throws: InvitationLinkError.badParameter("web", reason: "is neither PORT nor HOST:PORT")) {
            try InvitationLink(plain + "&web=nowhere")
        }
    }

    @Test func `what a request asks for is read as it was written, and nothing else`() {
        for share in [nil, 0, 63] as [Int?] {
            for isPassedOn in [false, share != nil] {
                var target = WebLinkTarget(share: share)
                target.isPassedOn = isPassedOn
                #expect(WebLinkTarget(target: target.text) == target, "\(target.text)")
            }
        }
        #expect(WebLinkTarget(share: 7).text == "/pttd/1?share=7")
        for text in [
            "/pttd/1?", "/pttd/1?share=64", "/pttd/1?share=-1", "/pttd/1?share=x", "/pttd/1?share", "/pttd/1?a=1&&",
        ] {
            #expect(WebLinkTarget(target: text) == WebLinkTarget(share: nil), "\(text)")
        }
        for text in ["", "/", "/pttd/10", "/pttd/1/?share=7", "pttd/1", "?share=7"] {
            #expect(WebLinkTarget(target: text) == nil, "\(text)")
        }
    }

    @Test func `the address of an endpoint is read as it was written`() throws {
        for text in ["wss://relay.example:443", "ws://192.0.2.1:8080", "wss://[2001:db8::1]:443"] {
            #expect(try #require(WebLinkAddress(text)).description == text)
        }
        for text in [
            "", "relay.example:443", "https://relay.example:443", "wss://relay.example", "wss://:443", "ws://a:0",
        ] {
            #expect(WebLinkAddress(text) == nil, "\(text)")
        }
    }
}
