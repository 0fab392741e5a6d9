// What a relay reports of packets outside QUIC: its bytes, and what it says of each packet.
import Cryptography
import TestSupport
import Testing

@testable import RelayProtocol

@Suite struct UplinkReportTests {
    private func written(_ report: UplinkReport) -> [UInt8] {
        var bytes = [UInt8](repeating: 0xA5, count: UplinkReport.byteCount + MediaTrailer.byteCount)
        bytes.withUnsafeMutableBytes { report.write(to: $0) }
        let isTrailerUntouched = bytes[UplinkReport.byteCount...].allSatisfy { $0 == 0xA5 }
        #expect(isTrailerUntouched)
        return Array(bytes[..<UplinkReport.byteCount])
    }

    private func parse(_ bytes: [UInt8]) -> UplinkReport? { bytes.withUnsafeBytes { UplinkReport(parsing: $0) } }

    private func isReport(_ bytes: [UInt8]) -> Bool { bytes.withUnsafeBytes { UplinkReport.isOne($0) } }

    @Test func `a report has the bytes of an RTCP packet of the type APP`() {
        let report = UplinkReport(
            ssrc: SSRC(rawValue: 0x1234_5678), highest: 0x0000_0105, earlier: 0x8000_0000_0000_0003)
        let expected = "80cc0005" + "12345678" + "70747464" + "00000105" + "8000000000000003"
        let text = Hexadecimal.encode(written(report))
        #expect(text == expected)
    }

    @Test func `whatever is reported is read again`() {
        var random = SeededGenerator()
        for _ in 0..<5000 {
            let report = UplinkReport(
                ssrc: SSRC(rawValue: random.number()), highest: random.number(), earlier: random.number())
            let bytes = written(report)
            let (again, isOne) = (parse(bytes), isReport(bytes))
            #expect(again == report)
            #expect(isOne)
        }
    }

    @Test func `what is shorter, longer or differs in a bit that does not change is refused`() {
        var random = SeededGenerator()
        let report = UplinkReport(
            ssrc: SSRC(rawValue: random.number()), highest: random.number(), earlier: random.number())
        let good = written(report)
        for count in 0..<good.count {
            let shorter = parse(Array(good[..<count]))
            #expect(shorter == nil, "\(count) bytes")
        }
        for more in 1...20 {
            let longer = parse(good + random.bytes(more))
            #expect(longer == nil, "\(more) more bytes")
        }
        let fixed = Set(0..<4).union(8..<12)
        for index in good.indices {
            for bit in 0..<8 as Range<UInt8> {
                var changed = good
                changed[index] ^= 1 << bit
                let read = parse(changed)
                if fixed.contains(index) {
                    #expect(read == nil, "byte \(index), bit \(bit)")
                } else {
                    // All of the rest means something.
                    let isAnother = read != nil && read != report
                    #expect(isAnother, "byte \(index), bit \(bit)")
                }
            }
        }
    }

    @Test func `garbage is read as a report only if it has the same bytes again`() {
        var random = SeededGenerator()
        var read = 0
        for _ in 0..<20_000 {
            let count = random.oneIn() ? UplinkReport.byteCount : Int.random(in: 0...40, using: &random)
            var garbage = random.bytes(count)
            if garbage.count >= 12, random.oneIn() {
                garbage.replaceSubrange(0..<4, with: [0x80, 0xCC, 0, 5])
                garbage.replaceSubrange(8..<12, with: [0x70, 0x74, 0x74, 0x64])
            }
            guard let report = parse(garbage) else { continue }
            read += 1
            let again = written(report)
            #expect(again == garbage)
        }
        #expect(read > 1000)
    }

    @Test func `it says something of the highest counter and of 64 before it`() {
        var random = SeededGenerator()
        for highest in [64, 65, 1000, 0x8000_0000, .max] as [UInt32] {
            let earlier: UInt64 = random.next()
            let report = UplinkReport(ssrc: SSRC(rawValue: 1), highest: highest, earlier: earlier)
            let ofHighest = report.has(highest)
            #expect(ofHighest == true)
            for bit in 0..<64 as Range<UInt32> {
                let said = report.has(highest - 1 - bit)
                let isSet = earlier >> UInt64(bit) & 1 == 1
                #expect(said == isSet, "bit \(bit) before \(highest)")
            }
            // The last of them alone: no bit of a neighbour is taken for it.
            let last = UplinkReport(ssrc: SSRC(rawValue: 1), highest: highest, earlier: 1 << 63)
            let (ofLast, ofNext) = (last.has(highest - 64), last.has(highest - 63))
            #expect(ofLast == true)
            #expect(ofNext == false)
        }
    }

    @Test func `of what is beyond the 64, or above the highest, it says nothing`() {
        for highest in [65, 100, 0x8000_0000, .max] as [UInt32] {
            let report = UplinkReport(ssrc: SSRC(rawValue: 1), highest: highest, earlier: .max)
            for beyond in [highest - 65, (highest - 65) / 2, 0] as [UInt32] {
                let said = report.has(beyond)
                #expect(said == nil, "\(beyond), with \(highest) the highest")
            }
            guard highest < .max else { continue }
            let middle = highest + 1 + (UInt32.max - highest) / 2
            for above in [highest + 1, middle, .max] as [UInt32] {
                let said = report.has(above)
                #expect(said == nil, "\(above), with \(highest) the highest")
            }
        }
    }

    @Test func `at the beginning fewer counters are before the highest`() {
        let report = UplinkReport(ssrc: SSRC(rawValue: 1), highest: 3, earlier: 0b101)
        let said = (0...4 as ClosedRange<UInt32>).map { report.has($0) }
        #expect(said == [true, false, true, true, nil])
        let first = UplinkReport(ssrc: SSRC(rawValue: 1), highest: 0)
        let (ofFirst, ofSecond) = (first.has(0), first.has(1))
        #expect(ofFirst == true)
        #expect(ofSecond == nil)
    }

    @Test func `media are no reports, with and without the marker`() {
        for marker in [false, true] {
            let media = RTPHeader(marker: marker, sequence: 5, timestamp: 6, ssrc: SSRC(rawValue: 7)).bytes
            let secondByte: UInt8 = marker ? 0xEF : 0x6F
            #expect(media[1] == secondByte)
            let isOne = isReport(media + [1, 2, 3])
            #expect(!isOne)
            let read = parse(media + [UInt8](repeating: 0, count: UplinkReport.byteCount - media.count))
            #expect(read == nil)
        }
        for short in [[], [0x80], [0xCC]] as [[UInt8]] {
            let isOne = isReport(short)
            #expect(!isOne)
        }
    }
}
