// Links over TLS: proofs, sealed messages, and what a relay takes before and after it knows its client.
import Cryptography
import MonotonicTime

@testable import RelayProtocol
@testable import RelayServer

private let relay = (try? Identity(generating: "relay")) ?? { fatalError("no identity") }()
private let relayKey = SigningKey(relay) ?? { fatalError("no key on P-256") }()

let webLinkFuzzers: [Fuzzer] = [
    Fuzzer(
        name: "web-proof", maximum: 700,
        seeds: {
            let statement = WebLinkHandshake.relayStatement([1, 2, 3], relay.pin)
            return [(try? WebLinkHandshake.proof(by: relayKey, statement)) ?? []]
        }
    ) { bytes in
        do throws(WebLinkError) {
            let pin = try WebLinkHandshake.check(bytes) { (pin: PublicKeyPin) throws(WebLinkError) in
                WebLinkHandshake.relayStatement([1, 2, 3], pin)
            }
            expect(pin != relay.pin || bytes.count > 66, "a proof has a key and a signature")
        } catch {
            _ = error.description
        }
    },
    Fuzzer(
        name: "web-sealed", maximum: 16_640,
        seeds: {
            [
                .control([1]), .acknowledgement(7), .ping(1), .pong(2), .answer(number: 3, isEnd: true, bytes: [4, 5]),
                .media([128, 111]),
            ].map { (message: WebSealedMessage) in message.bytes }
        }
    ) { bytes in
        guard let message = try? WebSealedMessage(bytes) else { return }
        // Of the flags only one means something.
        expect((try? WebSealedMessage(message.bytes)) == message, "a sealed message is what was read")
    },
    Fuzzer(
        name: "web-link", maximum: 2_048,
        seeds: { [[0, 33, 1] + [UInt8](repeating: 9, count: 32), [1, 2, 3, 0], [0, 1, 16, 0, 2, 128, 111]] }
    ) { bytes in
        // The first byte: whether the client goes through the handshake as it should. Then messages, each behind its length.
        var peer = WebPeerStateMachine(key: relayKey, limits: RelayLimits(), at: .zero)
        var rest = bytes[...]
        var now = Instant.zero
        var isOver = false
        func take(_ message: [UInt8]) -> [UInt8] {
            var written: [UInt8] = []
            peer.handle(.received(message), at: now, isWritable: { true }) { action in
                switch action {
                case .write(let bytes): written = bytes
                case .close: isOver = true
                case .message(let body): _ = try? ClientMessage(parsing: body)
                default: break
                }
            }
            return written
        }
        if rest.popFirst().map({ $0 & 1 == 1 }) == true,
            let client = try? WebLinkClientHandshake(identity: relay, relay: relay.pin),
            let answer = try? client.receive(take(client.hello))
        {
            _ = take(answer.proof)
            expect(!isOver, "an honest client is let in")
        }
        while let length = rest.popFirst(), !isOver {
            _ = take(Array(rest.prefix(Int(length))))
            rest = rest.dropFirst(Int(length))
            now = now + .milliseconds(20)
            peer.handle(.deadline, at: now, isWritable: { true }) { if case .close = $0 { isOver = true } }
        }
        expect(!isOver || peer.nextDeadline == nil, "what is closed waits for nothing")
    },
]
