// SipHash-2-4 with 128 bits: the reference vectors, and what another implementation gives.
import Cryptography
import TestSupport
import Testing

@Suite struct SipHashTests {
    private func tag(_ message: [UInt8]) throws -> String {
        let mac = try SipHash(key: Array(0..<16))
        let tag = message.withUnsafeBytes { mac.tag(of: $0) }
        return Hexadecimal.encode(withUnsafeBytes(of: tag) { Array($0) })
    }

    /// The vectors of the authors' reference implementation: byte i of the message is i.
    @Test(arguments: [
        (0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"), (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"), (63, "5150d1772f50834a503e069a973fbd7c"),
    ])
    func `SipHash gives its authors' vectors`(count: Int, expected: String) throws {
        #expect(try tag((0..<count).map { UInt8($0) }) == expected)
    }

    /// Computed in Python by the paper's formulas, as `Tests/PythonClient` has them; byte i is 7 i + n.
    @Test(arguments: [
        (103, "84ede5b4cb914a4922dbbf9b76026216"), (1200, "b1147d718243cea5c98fb2b9fe1f6245"),
    ])
    func `packets of any size give what another implementation gives`(count: Int, expected: String) throws {
        #expect(try tag((0..<count).map { UInt8(truncatingIfNeeded: $0 * 7 + count) }) == expected)
    }

    @Test(arguments: [0, 15, 17]) func `a key of another size is refused`(count: Int) {
        #expect(throws: CryptographyError.wrongSize(what: "SipHash key", is: count, expected: 16)) {
            try SipHash(key: [UInt8](repeating: 0, count: count))
        }
    }
}
