// The frame header: RFC 9605's vectors, and bytes that are no header.
import Cryptography
import SFrame
import TestSupport
import Testing

@Suite struct SFrameHeaderTests {
    @Test func `headers encode and decode as in RFC 9605, appendix C.1`() throws {
        #expect(headerVectors.count == 289)
        for vector in headerVectors {
            let header = SFrameHeader(keyID: KeyID(rawValue: vector.keyID), counter: vector.counter)
            #expect(Hexadecimal.encode(header.bytes) == vector.header)
            #expect(header.byteCount == vector.header.count / 2)
            let bytes = try #require(Hexadecimal.decode(vector.header))
            #expect(try SFrameHeader(parsing: bytes) == header)
            #expect(try SFrameHeader(parsing: bytes + [0xAA, 0xBB]) == header)
        }
    }

    @Test func `a header that ends too early is refused`() throws {
        for vector in headerVectors {
            let bytes = try #require(Hexadecimal.decode(vector.header))
            for count in 0..<bytes.count {
                #expect(throws: SFrameError.truncated) { try SFrameHeader(parsing: Array(bytes[..<count])) }
            }
        }
    }

    @Test(arguments: ["0807", "090007", "8007", "900008", "9801230000", "f0000000000000000f"])
    func `a number in more bytes than it needs is refused`(text: String) throws {
        let bytes = try #require(Hexadecimal.decode(text))
        #expect(throws: SFrameError.notMinimal) { try SFrameHeader(parsing: bytes) }
    }

    @Test func `whatever parses encodes to the same bytes`() {
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            let bytes = random.bytes(Int.random(in: 0...20, using: &random))
            guard let header = try? SFrameHeader(parsing: bytes) else { continue }
            #expect(header.bytes == Array(bytes[..<header.byteCount]))
        }
    }

    @Test func `a key id has its epoch on top and 48 fresh random bits below`() {
        let keyID = KeyID(epoch: 0xABCD, random: .max)
        #expect(keyID.rawValue == 0xABCD_FFFF_FFFF_FFFF)
        #expect(keyID.epoch == 0xABCD)
        #expect(KeyID(epoch: 7, random: 0xFFFF_0000_0000_0001).description == "7-000000000001")
        let fresh = Set((0..<1000).map { _ in KeyID.fresh(epoch: 7) })
        #expect(fresh.count == 1000)
        #expect(fresh.allSatisfy { $0.epoch == 7 })
    }
}
