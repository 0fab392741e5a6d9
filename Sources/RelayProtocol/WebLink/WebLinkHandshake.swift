// The handshake of a link over TLS: both ends draw ephemeral keys, and each proves its identity under them.
import Cryptography

/// What both ends compute in the same way: SIGMA (H. Krawczyk, 2003) with X25519, ECDSA and AES-GCM, as
/// docs/relay-protocol.md, section 21.2, specifies it.
enum WebLinkHandshake {
    static let clientHello: UInt8 = 1
    static let relayHello: UInt8 = 2
    static let clientProof: UInt8 = 3
    private static let label = "pttd web 1"

    /// The hash of what was said, to which keys and signatures are bound.
    static func transcript(client: [UInt8], relay: [UInt8]) -> [UInt8] {
        sha256(Array(label.utf8) + client + relay)
    }

    static func keys(
        _ ephemeral: X25519, with other: [UInt8], transcript: [UInt8]
    ) throws(WebLinkError) -> (up: WebLinkCipher.Direction, down: WebLinkCipher.Direction) {
        guard let secret = ephemeral.secret(with: other) else { throw .malformed("an ephemeral key without a secret") }
        let keys: [UInt8]
        do throws(CryptographyError) {
            keys = try HashFunction.sha256.expand(
                pseudorandomKey: HashFunction.sha256.extract(keyMaterial: secret, salt: transcript),
                info: Array("\(label) keys".utf8), byteCount: 56)
        } catch {
            throw WebLinkError(error)
        }
        return (
            try .init(key: Array(keys[0..<16]), initial: Array(keys[32..<44])),
            try .init(key: Array(keys[16..<32]), initial: Array(keys[44..<56]))
        )
    }

    /// The plaintext of a proof.
    static func proof(by key: SigningKey, _ statement: [UInt8]) throws(WebLinkError) -> [UInt8] {
        let spki = key.publicKey
        do throws(CryptographyError) {
            let signature = try key.sign(statement)
            return UInt16(truncatingIfNeeded: spki.count).bigEndianBytes + spki + signature
        } catch {
            throw WebLinkError(error)
        }
    }

    /// Reads a proof, and checks it against the statement that its pin should have signed.
    static func check(
        _ plaintext: [UInt8], _ statement: (PublicKeyPin) throws(WebLinkError) -> [UInt8]
    ) throws(WebLinkError) -> PublicKeyPin {
        guard plaintext.count > 2 else { throw .malformed("a proof that is cut off") }
        let count = Int(plaintext[0]) << 8 | Int(plaintext[1])
        guard (1...512).contains(count), plaintext.count == 2 + count + SigningKey.signatureByteCount else {
            throw .malformed("a proof of \(plaintext.count) bytes")
        }
        let spki = Array(plaintext[2..<2 + count])
        let pin = PublicKeyPin(subjectPublicKeyInfo: spki)
        let statement = try statement(pin)
        guard let key = VerifyingKey(subjectPublicKeyInfo: spki) else { throw .unsuitableKey }
        guard key.verifies(Array(plaintext[(2 + count)...]), of: statement) else { throw .wrongSignature }
        return pin
    }

    static func relayStatement(_ transcript: [UInt8], _ relay: PublicKeyPin) -> [UInt8] {
        Array("\(label) relay".utf8) + [0] + transcript + relay.bytes
    }

    static func clientStatement(_ transcript: [UInt8], _ client: PublicKeyPin, to relay: PublicKeyPin) -> [UInt8] {
        Array("\(label) client".utf8) + [0] + transcript + client.bytes + relay.bytes
    }

    /// The ephemeral key in a hello, and what follows it.
    static func take(_ message: [UInt8], _ kind: UInt8) throws(WebLinkError) -> (key: [UInt8], rest: [UInt8]) {
        guard message.first == kind, message.count >= 1 + X25519.byteCount else {
            throw .malformed("no hello of the other end")
        }
        return (Array(message[1...X25519.byteCount]), Array(message[(1 + X25519.byteCount)...]))
    }

    static func signingKey(_ identity: Identity) throws(WebLinkError) -> SigningKey {
        guard let key = SigningKey(identity) else { throw .unsuitableKey }
        return key
    }
}

/// The client's half of a handshake.
public struct WebLinkClientHandshake {
    /// The first message, to be sent as it is.
    public let hello: [UInt8]
    private let ephemeral = X25519()
    private let key: SigningKey
    private let relay: PublicKeyPin

    /// A handshake with a relay that must have the key `relay`.
    ///
    /// - Throws: `WebLinkError.unsuitableKey` when `identity` is not on P-256.
    public init(identity: Identity, relay: PublicKeyPin) throws(WebLinkError) {
        key = try WebLinkHandshake.signingKey(identity)
        self.relay = relay
        hello = [WebLinkHandshake.clientHello] + ephemeral.publicKey
    }

    /// Takes the relay's hello. The proof is to be sent as it is, and nothing before it.
    ///
    /// - Throws: `WebLinkError.wrongRelayKey` when it is another relay; nothing of this client was revealed then.
    public func receive(_ relayHello: [UInt8]) throws(WebLinkError) -> (proof: [UInt8], cipher: WebLinkCipher) {
        let (other, sealed) = try WebLinkHandshake.take(relayHello, WebLinkHandshake.relayHello)
        let transcript = WebLinkHandshake.transcript(client: ephemeral.publicKey, relay: other)
        var (up, down) = try WebLinkHandshake.keys(ephemeral, with: other, transcript: transcript)
        let relay = relay
        _ = try WebLinkHandshake.check(try down.open(sealed)) { (pin: PublicKeyPin) throws(WebLinkError) in
            guard pin == relay else { throw .wrongRelayKey }
            return WebLinkHandshake.relayStatement(transcript, pin)
        }
        let statement = WebLinkHandshake.clientStatement(transcript, key.pin, to: relay)
        let proof = [WebLinkHandshake.clientProof] + (try up.seal(try WebLinkHandshake.proof(by: key, statement)))
        return (proof, WebLinkCipher(sending: up, receiving: down))
    }
}

/// The relay's half of a handshake.
public struct WebLinkServerHandshake {
    private let key: SigningKey
    private var state: (up: WebLinkCipher.Direction, down: WebLinkCipher.Direction, transcript: [UInt8])?

    /// A handshake by the relay of that key, which many connections may share.
    public init(key: SigningKey) { self.key = key }

    /// Takes the client's hello; the answer is to be sent as it is.
    public mutating func receive(hello: [UInt8]) throws(WebLinkError) -> [UInt8] {
        let (other, rest) = try WebLinkHandshake.take(hello, WebLinkHandshake.clientHello)
        guard state == nil, rest.isEmpty else { throw .malformed("no hello of a client") }
        let ephemeral = X25519()
        let transcript = WebLinkHandshake.transcript(client: other, relay: ephemeral.publicKey)
        var (up, down) = try WebLinkHandshake.keys(ephemeral, with: other, transcript: transcript)
        let statement = WebLinkHandshake.relayStatement(transcript, key.pin)
        let sealed = try down.seal(try WebLinkHandshake.proof(by: key, statement))
        state = (up, down, transcript)
        return [WebLinkHandshake.relayHello] + ephemeral.publicKey + sealed
    }

    /// Takes the client's proof, and says who it is.
    public mutating func receive(proof: [UInt8]) throws(WebLinkError) -> (client: PublicKeyPin, cipher: WebLinkCipher) {
        guard let state, proof.first == WebLinkHandshake.clientProof else { throw .malformed("no proof of a client") }
        self.state = nil
        var up = state.up
        let transcript = state.transcript
        let relay = key.pin
        let client = try WebLinkHandshake.check(try up.open(Array(proof.dropFirst()))) {
            (pin: PublicKeyPin) throws(WebLinkError) in
            WebLinkHandshake.clientStatement(transcript, pin, to: relay)
        }
        return (client, WebLinkCipher(sending: state.down, receiving: up))
    }
}
