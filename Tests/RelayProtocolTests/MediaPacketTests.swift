// RTP headers, sequence numbers and the down-link trailer.
import Cryptography
import TestSupport
import Testing
import Vocabulary

@testable import RelayProtocol

@Suite struct MediaPacketTests {
    @Test func `an RTP header has the bytes of RFC 3550`() throws {
        let header = RTPHeader(
            marker: true, sequence: 0x1234, timestamp: 0x5678_9ABC, ssrc: SSRC(rawValue: 0xDEAD_BEEF))
        #expect(Hexadecimal.encode(header.bytes) == "80ef123456789abcdeadbeef")
        #expect(try RTPHeader(parsing: header.bytes + [1, 2, 3]) == header)
        #expect(RTPHeader.isRTP(firstByte: 0x80) && RTPHeader.isRTP(firstByte: 0xBF))
        #expect(!RTPHeader.isRTP(firstByte: 0x7F) && !RTPHeader.isRTP(firstByte: 0xC0))
    }

    @Test func `an RTP header that this protocol does not use is refused`() throws {
        let good = RTPHeader(marker: false, sequence: 1, timestamp: 2, ssrc: SSRC(rawValue: 3)).bytes
        func changed(_ index: Int, _ value: UInt8) -> [UInt8] {
            var bytes = good
            bytes[index] = value
            return bytes
        }
        for count in 0..<12 {
            #expect(throws: RTPError.truncated) { try RTPHeader(parsing: Array(good[..<count])) }
        }
        #expect(throws: RTPError.wrongVersion(1)) { try RTPHeader(parsing: changed(0, 0x40)) }
        for flags in [0xA0, 0x90, 0x81, 0x8F] as [UInt8] {
            #expect(throws: RTPError.unsupportedFeature) { try RTPHeader(parsing: changed(0, flags)) }
        }
        #expect(throws: RTPError.wrongPayloadType(0)) { try RTPHeader(parsing: changed(1, 0x80)) }
    }

    @Test func `whatever parses as RTP has the same bytes again`() {
        var random = SeededGenerator()
        for _ in 0..<20_000 {
            var bytes = random.bytes(Int.random(in: 0...30, using: &random))
            if bytes.count > 1, random.oneIn() { (bytes[0], bytes[1]) = (0x80, bytes[1] & 0x80 | 111) }
            guard let header = try? RTPHeader(parsing: bytes) else { continue }
            #expect(header.bytes == Array(bytes[..<12]))
        }
    }

    @Test func `sequence numbers extend over wraps, forwards and backwards`() {
        var extender = SequenceExtender()
        #expect(extender.highest == nil)
        #expect(extender.extend(65_534) == 65_534)
        #expect(extender.extend(1) == 65_537)
        #expect(extender.extend(65_535) == 65_535)
        #expect(extender.highest == 65_537)
        #expect(extender.extend(32_768) == 98_304)
        #expect(UInt16(2).sequenceDistance(from: 65_535) == 3)
        #expect(UInt16(65_535).sequenceDistance(from: 2) == -3)
    }

    @Test func `extending follows a sender that runs over many wraps with loss and reordering`() {
        var random = SeededGenerator()
        var extender = SequenceExtender()
        var sent = Int64(UInt16.random(in: 1000...60_000, using: &random))
        _ = extender.extend(UInt16(truncatingIfNeeded: sent))
        for _ in 0..<5000 {
            sent += Int64.random(in: 1...500, using: &random)
            let late = sent - Int64.random(in: 0...900, using: &random)
            #expect(extender.extend(UInt16(truncatingIfNeeded: sent)) == sent)
            #expect(extender.extend(UInt16(truncatingIfNeeded: late)) == late)
        }
    }

    @Test func `a packet passes its listener once, in any order, and no other listener`() throws {
        var random = SeededGenerator()
        let key = TrailerKey()
        var sealer = try TrailerSealer(key: key)
        let opener = try TrailerOpener(key: key)
        let other = try TrailerOpener(key: TrailerKey())
        var packets: [([UInt8], [UInt8])] = []
        for _ in 0..<200 {
            let packet = random.bytes(Int.random(in: 1...400, using: &random))
            packets.append((packet, try sealer.seal(packet)))
        }
        for (packet, sealed) in packets.shuffled(using: &random) {
            #expect(sealed.count == packet.count + MediaTrailer.byteCount)
            #expect(throws: TrailerError.notAuthentic) { try other.open(sealed) }
            var changed = sealed
            changed[Int.random(in: sealed.indices, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            #expect(throws: TrailerError.self) { try opener.open(changed) }
            #expect(try opener.open(sealed) == packet)
            let counter = sealed[packet.count..<packet.count + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
            #expect(throws: TrailerError.replayed(counter: counter)) { try opener.open(sealed) }
        }
    }

    @Test func `a trailer without a packet, and garbage, are refused`() throws {
        var random = SeededGenerator()
        let opener = try TrailerOpener(key: TrailerKey())
        for count in 0...16 {
            #expect(throws: TrailerError.truncated) { try opener.open([UInt8](repeating: 0, count: count)) }
        }
        for _ in 0..<5000 {
            let garbage = random.bytes(Int.random(in: 0...100, using: &random))
            #expect(throws: TrailerError.self) { try opener.open(garbage) }
        }
    }

    @Test func `the counter ends at its last value instead of starting again`() throws {
        var sealer = try TrailerSealer(key: TrailerKey(), firstCounter: UInt64(UInt32.max))
        let last = try sealer.seal([0x80])
        #expect(last[1...4] == [255, 255, 255, 255])
        for _ in 0..<2 {
            #expect(throws: TrailerError.exhausted) { try sealer.seal([0x80]) }
        }
        #expect(sealer.isExhausted)
        var few = try TrailerSealer(key: TrailerKey(), maximum: 2)
        for number in 0..<2 as Range<UInt8> {
            #expect(!few.isExhausted)
            let sealed = try few.seal([0x80])
            #expect(sealed[4] == number)
        }
        #expect(few.isExhausted)
        #expect(throws: TrailerError.exhausted) { try few.seal([0x80]) }
        #expect(try TrailerSealer(key: TrailerKey(), maximum: 0).isExhausted)
    }
}
