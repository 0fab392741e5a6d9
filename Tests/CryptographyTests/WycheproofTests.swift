// Project Wycheproof's test vectors, which are not part of this repository: PTTD_WYCHEPROOF names a folder of its JSON files.
import CGnuTLS
import Cryptography
import FoundationEssentials
import Glibc
import TestSupport
import Testing

private let folder = getenv("PTTD_WYCHEPROOF").map { String(cString: $0) }

@Suite(.enabled(if: folder != nil, "PTTD_WYCHEPROOF names no folder")) struct WycheproofTests {
    private struct File: Decodable {
        var testGroups: [Group]
    }

    private struct Group: Decodable {
        var keySize: Int?
        var ivSize: Int?
        var tagSize: Int?
        var publicKeyDer: String?
        var tests: [Case]
    }

    private struct Case: Decodable {
        var tcId: Int
        var result: String
        var flags: [String]
        var key: String?
        var iv: String?
        var aad: String?
        var msg: String?
        var ct: String?
        var tag: String?
        var ikm: String?
        var salt: String?
        var info: String?
        var size: Int?
        var okm: String?
        var sig: String?

        var isValid: Bool { result == "valid" }

        func bytes(_ field: KeyPath<Case, String?>) throws -> [UInt8] {
            let text = try #require(self[keyPath: field])
            return try #require(Hexadecimal.decode(text))
        }
    }

    private func groups(_ name: String) throws -> [Group] {
        let path = "\(folder ?? "")/\(name)_test.json"
        return try JSONDecoder().decode(File.self, from: Data(contentsOf: URL(filePath: path))).testGroups
    }

    @Test func `aes GCM`() throws {
        var count = 0
        for group in try groups("aes_gcm") where group.ivSize == 96 && group.tagSize == 128 && group.keySize != 192 {
            for test in group.tests {
                let aead = try AEAD(group.keySize == 128 ? .aes128GCM : .aes256GCM, key: test.bytes(\.key))
                let (nonce, data) = (try test.bytes(\.iv), try test.bytes(\.aad))
                let sealed = try test.bytes(\.ct) + test.bytes(\.tag)
                if test.isValid {
                    #expect(
                        try aead.seal(test.bytes(\.msg), nonce: nonce, authenticating: data) == sealed, "\(test.tcId)")
                    #expect(
                        try aead.open(sealed, nonce: nonce, authenticating: data) == test.bytes(\.msg), "\(test.tcId)")
                } else {
                    #expect(throws: CryptographyError.self, "\(test.tcId)") {
                        try aead.open(sealed, nonce: nonce, authenticating: data)
                    }
                }
                count += 1
            }
        }
        #expect(count > 100)
    }

    @Test func hmac() throws {
        var count = 0
        for group in try groups("hmac_sha256") {
            for test in group.tests {
                let code = HashFunction.sha256.authenticationCode(
                    for: try test.bytes(\.msg), key: try test.bytes(\.key))
                let isEqual = constantTimeEqual(Array(code.prefix((group.tagSize ?? 0) / 8)), try test.bytes(\.tag))
                #expect(isEqual == test.isValid, "\(test.tcId)")
                count += 1
            }
        }
        #expect(count > 100)
    }

    @Test(arguments: [("hkdf_sha256", HashFunction.sha256), ("hkdf_sha512", .sha512)])
    func hkdf(name: String, function: HashFunction) throws {
        var count = 0
        for test in try groups(name).flatMap(\.tests) {
            let (size, info) = (try #require(test.size), try test.bytes(\.info))
            let secret = try function.extract(keyMaterial: test.bytes(\.ikm), salt: test.bytes(\.salt))
            if test.isValid {
                let key = try function.expand(pseudorandomKey: secret, info: info, byteCount: size)
                #expect(key == (try test.bytes(\.okm)), "\(test.tcId)")
            } else {
                #expect(throws: CryptographyError.self, "\(test.tcId)") {
                    try function.expand(pseudorandomKey: secret, info: info, byteCount: size)
                }
            }
            count += 1
        }
        #expect(count > 70)
    }

    @Test func `sip hash`() throws {
        var count = 0
        for test in try groups("siphashx_2_4").flatMap(\.tests) {
            let mac = try SipHash(key: test.bytes(\.key))
            let tag = try test.bytes(\.msg).withUnsafeBytes { mac.tag(of: $0) }
            #expect(withUnsafeBytes(of: tag) { Array($0) } == (try test.bytes(\.tag)), "\(test.tcId)")
            count += 1
        }
        #expect(count >= 40)
    }

    /// Signatures are checked by GnuTLS within TLS; here by the same functions of it.
    ///
    /// GnuTLS 3.7.9 also takes a genuine signature whose two numbers are encoded in another way than DER's, which helps no forger, and
    /// refuses one genuine signature of a kind that nobody meets by chance.
    @Test(arguments: [
        ("ecdsa_secp256r1_sha256", GNUTLS_SIGN_ECDSA_SHA256), ("ed25519", GNUTLS_SIGN_EDDSA_ED25519),
    ])
    func signatures(name: String, algorithm: gnutls_sign_algorithm_t) throws {
        var count = 0
        for group in try groups(name) {
            let text = try #require(group.publicKeyDer)
            let der = try #require(Hexadecimal.decode(text))
            var key: gnutls_pubkey_t?
            try #require(gnutls_pubkey_init(&key) == 0)
            defer { gnutls_pubkey_deinit(key) }
            try #require(withDatum(der) { gnutls_pubkey_import(key, $0, GNUTLS_X509_FMT_DER) } == 0)
            for test in group.tests {
                let (message, signature) = (try test.bytes(\.msg), try test.bytes(\.sig))
                let status = withDatum(message) { message in
                    withDatum(signature) { gnutls_pubkey_verify_data2(key, algorithm, 0, message, $0) }
                }
                let isForgery = !test.isValid && Set(test.flags).isDisjoint(with: Self.encodings)
                if status >= 0 { #expect(!isForgery, "\(test.tcId)") }
                if test.isValid, test.flags != ["PointDuplication"] { #expect(status >= 0, "\(test.tcId): \(status)") }
                count += 1
            }
        }
        #expect(count > 100)
    }

    private static let encodings = ["BerEncodedSignature", "InvalidEncoding", "MissingZero"]

    private func withDatum<T>(_ bytes: [UInt8], _ body: (UnsafePointer<gnutls_datum_t>) -> T) -> T {
        var copy = bytes
        return copy.withUnsafeMutableBufferPointer { buffer in
            var datum = gnutls_datum_t(data: buffer.baseAddress, size: UInt32(buffer.count))
            return body(&datum)
        }
    }
}
