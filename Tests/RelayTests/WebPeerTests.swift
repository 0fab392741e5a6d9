// The relay's end of a link over TLS: handshake, acknowledgements, deadlines, and what a client does wrong.
import Cryptography
import MonotonicTime
import RelayProtocol
import TestSupport
import Testing

@testable import RelayServer

@Suite struct WebPeerTests {
    /// A peer with a client that speaks to it.
    private final class Rig {
        let relay: Identity
        let client: Identity
        var peer: WebPeerStateMachine
        var actions: [WebPeerStateMachine.Action] = []
        var isWritable = true
        var cipher: WebLinkCipher?
        var now = Instant.zero + .seconds(100)

        init() throws {
            relay = try Identity(generating: "relay")
            client = try Identity(generating: "client")
            peer = WebPeerStateMachine(
                key: try #require(SigningKey(relay)), limits: RelayLimits(), at: now)
        }

        func handle(_ event: WebPeerStateMachine.Event, mayAcknowledge: Bool = true) {
            actions = []
            peer.handle(event, at: now, mayAcknowledge: mayAcknowledge, isWritable: { self.isWritable }) {
                self.actions.append($0)
            }
        }

        /// Goes through the handshake.
        func connect() throws {
            let handshake = try WebLinkClientHandshake(identity: client, relay: relay.pin)
            handle(.received(handshake.hello))
            guard case .write(let hello)? = actions.first, actions.count == 1 else { throw Failure() }
            let (proof, cipher) = try handshake.receive(hello)
            self.cipher = cipher
            handle(.received(proof))
            #expect(actions == [.connected(client.pin)])
        }

        func send(_ message: WebSealedMessage, mayAcknowledge: Bool = true) throws {
            handle(.received(try #require(cipher).seal(message)), mayAcknowledge: mayAcknowledge)
        }

        /// What the relay wrote, as the client reads it.
        func written() throws -> [WebSealedMessage] {
            try actions.compactMap { action in
                guard case .write(let bytes) = action, bytes.first == WebLinkCipher.kind else { return nil }
                return try cipher?.open(bytes)
            }
        }

        var closing: RelayCloseCode? {
            for case .close(let code, _) in actions { return code }
            return nil
        }

        struct Failure: Error {}
    }

    private static let packet: [UInt8] = [128, 111] + [UInt8](repeating: 1, count: 60)

    @Test func `a client is known by its key and its messages come through`() throws {
        let rig = try Rig()
        try rig.connect()
        try rig.send(.control([1, 2, 3]))
        #expect(rig.actions == [.message([1, 2, 3])])
        rig.handle(.send([4, 5]))
        #expect(try rig.written() == [.control([4, 5])])
        try rig.send(.ping(42))
        #expect(try rig.written() == [.pong(42)])
        rig.handle(.media(Self.packet))
        #expect(rig.actions == [.write(Self.packet)])
        rig.handle(.answer([7, 8]))
        #expect(try rig.written() == [.answer(number: 1, isEnd: true, bytes: [7, 8])])
    }

    @Test func `media are acknowledged after ten packets or 25 milliseconds`() throws {
        let rig = try Rig()
        try rig.connect()
        for number in 1...9 {
            try rig.send(.media(Self.packet))
            #expect(rig.actions == [.media(Self.packet)], "packet \(number)")
        }
        try rig.send(.media(Self.packet))
        #expect(try rig.written() == [.acknowledgement(10)])
        try rig.send(.media(Self.packet))
        #expect(try rig.written().isEmpty)
        #expect(rig.peer.nextDeadline == rig.now + .milliseconds(25))
        rig.now = rig.now + .milliseconds(25)
        rig.handle(.deadline)
        #expect(try rig.written() == [.acknowledgement(11)])
    }

    @Test func `nothing is acknowledged while the relay's rules hang`() throws {
        let rig = try Rig()
        try rig.connect()
        for _ in 0..<30 {
            try rig.send(.media(Self.packet), mayAcknowledge: false)
            #expect(try rig.written().isEmpty)
        }
        rig.now = rig.now + .milliseconds(25)
        rig.handle(.deadline)
        #expect(try rig.written() == [.acknowledgement(30)])
    }

    @Test func `what does not fit waits and goes out when the socket takes it`() throws {
        let rig = try Rig()
        try rig.connect()
        rig.isWritable = false
        rig.handle(.media(Self.packet))
        rig.handle(.send([1]))
        #expect(rig.actions.isEmpty)
        rig.now = rig.now + .milliseconds(499)
        rig.isWritable = true
        rig.handle(.writable)
        #expect(rig.actions.count == 2 && rig.actions.last == .write(Self.packet))
        #expect(try rig.written() == [.control([1])])
    }

    @Test func `a client that reads nothing is closed, and old speech is dropped`() throws {
        let rig = try Rig()
        try rig.connect()
        rig.isWritable = false
        for _ in 0..<100 {
            rig.handle(.media(Self.packet))
            rig.now = rig.now + .milliseconds(10)
        }
        rig.isWritable = true
        rig.handle(.writable)
        // What was said in the last half a second, and one that came just now.
        #expect(rig.actions.count == 49)
        #expect(rig.peer.mediaDropped == 51)
        rig.isWritable = false
        let message = [UInt8](repeating: 0, count: 16_000)
        for _ in 0..<64 where rig.closing == nil { rig.handle(.send(message)) }
        #expect(rig.closing == .internalError)
        rig.handle(.send([1]))
        #expect(rig.actions.isEmpty)
    }

    @Test func `a client has ten seconds to prove who it is and may be silent for 45`() throws {
        let rig = try Rig()
        rig.now = rig.now + .seconds(10)
        rig.handle(.deadline)
        #expect(rig.closing == .protocolViolation)
        #expect(rig.peer.nextDeadline == nil)
        let other = try Rig()
        try other.connect()
        other.now = other.now + .seconds(44)
        try other.send(.ping(1))
        other.now = other.now + .seconds(44)
        other.handle(.deadline)
        #expect(other.closing == nil)
        other.now = other.now + .seconds(1)
        other.handle(.deadline)
        #expect(other.closing == RelayCloseCode.none)
    }

    @Test func `who breaks the protocol is closed and nothing of it takes effect`() throws {
        let messages: [[UInt8]] = [[], [1], [2], [3], [16], Self.packet, [UInt8](repeating: 1, count: 33), [255, 1]]
        for message in messages where message.count != 33 {
            let rig = try Rig()
            rig.handle(.received(message))
            #expect(rig.closing == .protocolViolation, "\(message) as a hello")
        }
        for message in messages {
            let rig = try Rig()
            rig.handle(.received(try WebLinkClientHandshake(identity: rig.client, relay: rig.relay.pin).hello))
            rig.handle(.received(message))
            #expect(rig.closing == .protocolViolation, "\(message) as a proof")
        }
        for bad in [WebSealedMessage.acknowledgement(1), .answer(number: 1, isEnd: true, bytes: [1])] {
            let rig = try Rig()
            try rig.connect()
            try rig.send(bad)
            #expect(rig.closing == .protocolViolation)
        }
        let rig = try Rig()
        try rig.connect()
        // An unknown kind is one of a later version.
        rig.handle(.received([77, 1, 2]))
        #expect(rig.closing == nil && rig.actions.isEmpty)
        // Anybody who ends TLS on the way could make them.
        rig.handle(.received(Self.packet))
        #expect(rig.closing == .protocolViolation && !rig.actions.contains(.media(Self.packet)))
        let other = try Rig()
        try other.connect()
        other.handle(.received([16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
        #expect(other.closing == .protocolViolation)
    }

    @Test func `random messages never do harm`() throws {
        var random = SeededGenerator(seed: 20)
        for _ in 0..<300 {
            let rig = try Rig()
            if Bool.random(using: &random) { try rig.connect() }
            for _ in 0..<20 {
                let count = Int.random(in: 0...80, using: &random)
                let first: UInt8 = [1, 2, 3, 16, 128, 0, 255].randomElement(using: &random) ?? 0
                let bytes = [first] + (0..<count).map { _ in UInt8.random(in: 0...255, using: &random) }
                rig.handle(.received(bytes))
                for case .message in rig.actions { Issue.record("a control message out of nothing") }
                if rig.closing != nil { break }
            }
        }
    }
}
