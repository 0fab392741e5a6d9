// AES-GCM: published vectors, round trips, and whatever an attacker changes.
import Cryptography
import TestSupport
import Testing

@Suite struct AEADTests {
    /// The GCM specification (McGrew, Viega), test cases 2 and 14: all zero.
    @Test(arguments: [
        (AEAD.Algorithm.aes128GCM, "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"),
        (.aes256GCM, "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
    ])
    func `AES-GCM gives the specification's vectors`(algorithm: AEAD.Algorithm, expected: String) throws {
        let aead = try AEAD(algorithm, key: [UInt8](repeating: 0, count: algorithm.keyByteCount))
        let zeros = [UInt8](repeating: 0, count: 16)
        #expect(Hexadecimal.encode(try aead.seal(zeros, nonce: Array(zeros[..<12]))) == expected)
    }

    /// The GCM specification, test case 4: with additional data.
    @Test func `AES-128-GCM authenticates additional data as specified`() throws {
        let aead = try AEAD(.aes128GCM, key: try #require(Hexadecimal.decode("feffe9928665731c6d6a8f9467308308")))
        let plaintext = try #require(
            Hexadecimal.decode(
                "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525"
                    + "b16aedf5aa0de657ba637b39"))
        let sealed = try aead.seal(
            plaintext, nonce: try #require(Hexadecimal.decode("cafebabefacedbaddecaf888")),
            authenticating: try #require(Hexadecimal.decode("feedfacedeadbeeffeedfacedeadbeefabaddad2")))
        #expect(
            Hexadecimal.encode(sealed)
                == "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05"
                + "1ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47")
    }

    @Test func `what was sealed opens again, and nothing else does`() throws {
        var random = SeededGenerator()
        for _ in 0..<200 {
            let algorithm: AEAD.Algorithm = Bool.random(using: &random) ? .aes128GCM : .aes256GCM
            let aead = try AEAD(algorithm, key: random.bytes(algorithm.keyByteCount))
            let nonce = random.bytes(12)
            let metadata = random.bytes(Int.random(in: 0...40, using: &random))
            let plaintext = random.bytes(Int.random(in: 0...300, using: &random))
            let sealed = try aead.seal(plaintext, nonce: nonce, authenticating: metadata)
            #expect(sealed.count == plaintext.count + AEAD.tagByteCount)
            #expect(try aead.open(sealed, nonce: nonce, authenticating: metadata) == plaintext)
            var changed = sealed
            changed[Int.random(in: changed.indices, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            #expect(throws: CryptographyError.notAuthentic) {
                try aead.open(changed, nonce: nonce, authenticating: metadata)
            }
            #expect(throws: CryptographyError.notAuthentic) {
                try aead.open(sealed, nonce: nonce, authenticating: metadata + [0])
            }
            let cut = Array(sealed.dropLast(Int.random(in: 1...sealed.count, using: &random)))
            #expect(throws: CryptographyError.notAuthentic) {
                try aead.open(cut, nonce: nonce, authenticating: metadata)
            }
        }
    }

    @Test func `sealing and opening work in place`() throws {
        let aead = try AEAD(.aes128GCM, key: Array(0..<16))
        let nonce = [UInt8](repeating: 7, count: 12)
        let plaintext: [UInt8] = Array(0..<100)
        var buffer = plaintext + [UInt8](repeating: 0, count: 16)
        let nothing = UnsafeRawBufferPointer(start: nil, count: 0)
        try buffer.withUnsafeMutableBytes { buffer in
            try nonce.withUnsafeBytes { nonce in
                let input = UnsafeRawBufferPointer(rebasing: UnsafeRawBufferPointer(buffer)[..<100])
                let count = try aead.seal(input, nonce: nonce, authenticating: nothing, into: buffer)
                #expect(count == 116)
            }
        }
        #expect(buffer == (try aead.seal(plaintext, nonce: nonce)))
        try buffer.withUnsafeMutableBytes { buffer in
            try nonce.withUnsafeBytes { nonce in
                let input = UnsafeRawBufferPointer(buffer)
                let count = try aead.open(input, nonce: nonce, authenticating: nothing, into: buffer)
                #expect(count == 100)
            }
        }
        #expect(Array(buffer[..<100]) == plaintext)
    }

    @Test func `sizes that cannot be right are refused with the size they should have`() throws {
        #expect(throws: CryptographyError.wrongSize(what: "AEAD key", is: 15, expected: 16)) {
            try AEAD(.aes128GCM, key: [UInt8](repeating: 0, count: 15))
        }
        let aead = try AEAD(.aes256GCM, key: [UInt8](repeating: 0, count: 32))
        #expect(throws: CryptographyError.wrongSize(what: "AEAD nonce", is: 8, expected: 12)) {
            try aead.seal([1], nonce: [UInt8](repeating: 0, count: 8))
        }
        var small = [UInt8](repeating: 0, count: 16)
        let nonce = [UInt8](repeating: 0, count: 12)
        #expect(throws: CryptographyError.wrongSize(what: "AEAD output", is: 16, expected: 17)) {
            try small.withUnsafeMutableBytes { output in
                try nonce.withUnsafeBytes { nonce in
                    try [UInt8(1)].withUnsafeBytes {
                        try aead.seal(
                            $0, nonce: nonce, authenticating: UnsafeRawBufferPointer(start: nil, count: 0),
                            into: output)
                    }
                }
            }
        }
    }
}
