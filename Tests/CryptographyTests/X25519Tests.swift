// X25519, and signatures with an identity's key.
import TestSupport
import Testing

@testable import Cryptography

@Suite struct X25519Tests {
    /// RFC 7748, section 6.1.
    @Test func `the RFC's example holds`() {
        let bob = X25519(privateKey: bytes("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
        #expect(bob.publicKey == bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"))
        let alice = bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
        #expect(bob.secret(with: alice) == bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"))
    }

    @Test func `both ends have the same secret and others another`() {
        let (first, second, third) = (X25519(), X25519(), X25519())
        #expect(first.secret(with: second.publicKey) == second.secret(with: first.publicKey))
        #expect(first.secret(with: second.publicKey) != third.secret(with: second.publicKey))
    }

    @Test func `a key of small order or of another size has no secret`() {
        let pair = X25519()
        #expect(pair.secret(with: [UInt8](repeating: 0, count: 32)) == nil)
        #expect(pair.secret(with: [1] + [UInt8](repeating: 0, count: 31)) == nil)
        #expect(pair.secret(with: [UInt8](repeating: 9, count: 31)) == nil)
        #expect(pair.secret(with: []) == nil)
    }
}

@Suite struct SignatureTests {
    @Test func `a signature holds for its message and its key only`() throws {
        let identity = try Identity(generating: "test")
        let key = try #require(SigningKey(identity))
        #expect(key.pin == identity.pin)
        let verifying = try #require(VerifyingKey(subjectPublicKeyInfo: key.publicKey))
        let other = try #require(SigningKey(try Identity(generating: "other")))
        let stranger = try #require(VerifyingKey(subjectPublicKeyInfo: other.publicKey))
        // Numbers that begin with a zero or with a sign bit come up among so many.
        for number in 0..<200 {
            let message = Array("message \(number)".utf8)
            let signature = try key.sign(message)
            #expect(signature.count == SigningKey.signatureByteCount)
            #expect(verifying.verifies(signature, of: message))
            #expect(!verifying.verifies(signature, of: message + [0]))
            #expect(!stranger.verifies(signature, of: message))
            var changed = signature
            changed[number % 64] ^= 1
            #expect(!verifying.verifies(changed, of: message))
        }
        #expect(!verifying.verifies([], of: []))
        #expect(!verifying.verifies([UInt8](repeating: 0, count: 64), of: []))
        #expect(!verifying.verifies([UInt8](repeating: 255, count: 64), of: []))
    }

    @Test func `only keys on P-256 are read`() throws {
        let key = try #require(SigningKey(try Identity(generating: "test"))).publicKey
        for count in 0..<key.count { #expect(VerifyingKey(subjectPublicKeyInfo: Array(key.prefix(count))) == nil) }
        // An Ed25519 key (RFC 8410, section 4).
        let edwards = bytes("302a300506032b6570032100" + String(repeating: "11", count: 32))
        #expect(VerifyingKey(subjectPublicKeyInfo: edwards) == nil)
        var offCurve = key
        offCurve[key.count - 1] ^= 1
        let message: [UInt8] = [1]
        if let read = VerifyingKey(subjectPublicKeyInfo: offCurve) {
            #expect(!read.verifies([UInt8](repeating: 1, count: 64), of: message))
        }
    }
}

private func bytes(_ text: String) -> [UInt8] { Hexadecimal.decode(text) ?? [] }
