// Hashes, HMAC, HKDF, random numbers and text forms against their standards.
import Cryptography
import TestSupport
import Testing

@Suite struct HashingTests {
    private func bytes(_ text: String) throws -> [UInt8] { try #require(Hexadecimal.decode(text)) }

    @Test func `SHA-256 and SHA-512 give FIPS 180-4's example`() {
        #expect(
            Hexadecimal.encode(sha256(Array("abc".utf8)))
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            Hexadecimal.encode(HashFunction.sha512.hash(Array("abc".utf8)))
                == "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                + "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f")
    }

    @Test func `HMAC-SHA-256 gives RFC 4231's test case 2`() {
        #expect(
            Hexadecimal.encode(hmacSHA256(Array("what do ya want for nothing?".utf8), key: Array("Jefe".utf8)))
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    }

    @Test func `HKDF-SHA-256 gives RFC 5869's test cases 1 and 3`() throws {
        let material = [UInt8](repeating: 0x0b, count: 22)
        let salted = try HashFunction.sha256.extract(keyMaterial: material, salt: Array(0...12))
        #expect(
            Hexadecimal.encode(salted) == "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5")
        let output = try HashFunction.sha256.expand(
            pseudorandomKey: salted, info: Array(0xf0...0xf9), byteCount: 42)
        #expect(
            Hexadecimal.encode(output)
                == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
        let unsalted = try HashFunction.sha256.extract(keyMaterial: material)
        #expect(
            Hexadecimal.encode(
                try HashFunction.sha256.expand(pseudorandomKey: unsalted, info: [], byteCount: 42))
                == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
    }

    @Test func `HKDF refuses lengths that RFC 5869 does not allow`() {
        for count in [-1, 0, 255 * 32 + 1] {
            #expect(throws: CryptographyError.self) {
                try HashFunction.sha256.expand(
                    pseudorandomKey: [UInt8](repeating: 1, count: 32), info: [], byteCount: count)
            }
        }
    }

    @Test func `random bytes do not repeat and have every value`() {
        #expect(SecureRandom.bytes(16) != SecureRandom.bytes(16))
        #expect(SecureRandom.bytes(0).isEmpty)
        #expect(Set(SecureRandom.bytes(8192)).count == 256)
    }

    @Test func `comparing secrets tells equal from different`() {
        #expect(constantTimeEqual([], []))
        #expect(constantTimeEqual([1, 2, 3], [1, 2, 3]))
        #expect(!constantTimeEqual([1, 2, 3], [1, 2, 4]))
        #expect(!constantTimeEqual([1, 2, 3], [1, 2]))
    }

    @Test(arguments: [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")])
    func `base64url gives RFC 4648's vectors`(text: String, encoded: String) {
        #expect(Base64URL.encode(Array(text.utf8)) == encoded)
        #expect(Base64URL.decode(encoded) == Array(text.utf8))
    }

    @Test func `base64url accepts right padding only, and one text for each value`() {
        #expect(Base64URL.decode("Zg==") == Array("f".utf8))
        #expect(Base64URL.decode("Zm8=") == Array("fo".utf8))
        for wrong in ["Z", "Zg=", "Zg===", "Zh", "Zm9", "Zm9v=", "Z+==", "Zm/v", "Zm9v\n", "=", "===="] {
            #expect(Base64URL.decode(wrong) == nil, "\(wrong)")
        }
    }

    @Test func `text forms survive a round trip and never crash on garbage`() {
        var random = SeededGenerator()
        for _ in 0..<500 {
            let value = random.bytes(Int.random(in: 0...70, using: &random))
            #expect(Base64URL.decode(Base64URL.encode(value)) == value)
            #expect(Hexadecimal.decode(Hexadecimal.encode(value).uppercased()) == value)
            let garbage = String(decoding: value, as: UTF8.self)
            if let decoded = Base64URL.decode(garbage) {
                #expect(Base64URL.encode(decoded) == garbage.replacing("=", with: ""))
            }
            if let decoded = Hexadecimal.decode(garbage) {
                #expect(Hexadecimal.encode(decoded) == garbage.lowercased())
            }
        }
    }
}
