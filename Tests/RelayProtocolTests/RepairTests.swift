// Asking for lost packets, and the stream that brings them.
import RelayProtocol
import TestSupport
import Testing

@Suite struct RepairTests {
    private func decode(_ chunks: [[UInt8]]) -> (id: UInt32?, packets: [[UInt8]], failure: RepairStreamDecoder.Failure?)
    {
        var decoder = RepairStreamDecoder()
        var packets: [[UInt8]] = []
        do throws(RepairStreamDecoder.Failure) {
            for (index, chunk) in chunks.enumerated() {
                try decoder.feed(chunk, isEnd: index == chunks.count - 1) { packets.append($0) }
            }
        } catch {
            return (decoder.id, packets, error)
        }
        return (decoder.id, packets, nil)
    }

    @Test func `an answer comes out as it went in, however it is cut`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<200 {
            let id: UInt32 = max(1, random.number())
            let packets = (0..<Int.random(in: 0...20, using: &random)).map { _ in
                random.bytes(Int.random(in: RelayProtocolLimits.repairPacketByteCounts, using: &random))
            }
            var rest = RepairStream.encode(id: id, packets: packets)[...]
            var chunks: [[UInt8]] = []
            while !rest.isEmpty {
                let piece = rest.prefix(Int.random(in: 0...300, using: &random))
                chunks.append(Array(piece))
                rest = rest.dropFirst(piece.count)
            }
            chunks.append([])
            let decoded = decode(chunks)
            #expect(decoded.id == id && decoded.packets == packets && decoded.failure == nil, "seed \(seed)")
        }
    }

    @Test func `the answer of the protocol's text is understood`() {
        let packet = [UInt8](0..<13)
        #expect(RepairStream.encode(id: 0x0102_0304, packets: [packet]) == [1, 2, 3, 4, 0, 13] + packet)
        #expect(RepairStream.encode(id: 5, packets: []) == [0, 0, 0, 5])
    }

    @Test(arguments: [12, 0, 1_201, 65_535]) func `a length that no packet has breaks the stream`(length: Int) {
        let bytes = [0, 0, 0, 1, UInt8(length >> 8), UInt8(length & 255)] as [UInt8]
        #expect(decode([bytes]).failure == .packetLength(length))
    }

    /// The answer to a request for a burst, as it comes out.
    private func decodeBurst(_ bytes: [UInt8]) -> (decoder: RepairStreamDecoder, packets: [[UInt8]], failed: Bool) {
        var decoder = RepairStreamDecoder()
        var packets: [[UInt8]] = []
        let failed: Bool
        do throws(RepairStreamDecoder.Failure) {
            try decoder.feed(bytes, isEnd: true) { packets.append($0) }
            failed = false
        } catch {
            failed = true
        }
        return (decoder, packets, failed)
    }

    @Test(arguments: [true, false]) func `a burst's answer says whether it is all`(isWhole: Bool) {
        let packets = [[UInt8](0..<13), [UInt8](repeating: 7, count: 1_200)]
        let bytes = RepairStream.encode(burst: BurstRequestID(rawValue: 9), packets: packets, isWhole: isWhole)
        #expect(bytes.prefix(8) == [0, 0, 0, 0, 0, 0, 0, 9])
        let decoded = decodeBurst(bytes)
        #expect(decoded.decoder.isBurst && decoded.decoder.id == 9 && decoded.decoder.isWhole == isWhole)
        #expect(decoded.packets == packets && !decoded.failed)
        // It may be without a packet, and nothing comes behind what ends it.
        let empty = decodeBurst(RepairStream.encode(burst: BurstRequestID(rawValue: 9), packets: [], isWhole: isWhole))
        #expect(empty.packets.isEmpty && empty.decoder.isWhole == isWhole && !empty.failed)
        #expect(decodeBurst(bytes + [0, 0]).failed == isWhole)
        for count in 1..<8 { #expect(decodeBurst(Array(bytes.prefix(count))).failed, "\(count)") }
    }

    @Test func `the name of a burst comes out as it went in, and nothing else is one`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<200 {
            let burst = random.burst()
            #expect(BurstName(burst.description) == burst, "seed \(seed)")
            #expect(burst.epoch == UInt16(burst.keyID >> 48), "seed \(seed)")
        }
        for text in [
            "", "-", "0007a1b2c3d4e5f6", "0007a1b2c3d4e5f6-1234567", "0007a1b2c3d4e5f6-123456789",
            "+007a1b2c3d4e5f6-12345678", "0007a1b2c3d4e5f6-12345678-", "x007a1b2c3d4e5f6-12345678",
        ] {
            #expect(BurstName(text) == nil, "\(text)")
        }
        #expect(
            BurstName("0007a1b2c3d4e5f6-12345678")
                == BurstName(ssrc: SSRC(rawValue: 0x1234_5678), keyID: 0x7A1_B2C3_D4E5_F6))
    }

    @Test func `a stream that ends within a packet is cut off`() {
        let whole = RepairStream.encode(id: 1, packets: [[UInt8](repeating: 1, count: 20)])
        for count in 0..<whole.count where count != 4 {
            #expect(decode([Array(whole.prefix(count))]).failure == .cutOff, "\(count)")
        }
    }

    @Test func `no more packets come on one stream than can be asked for`() {
        let packets = [[UInt8]](
            repeating: [UInt8](repeating: 0, count: 13), count: RelayProtocolLimits.repairPacketsMaximum + 1)
        let decoded = decode([RepairStream.encode(id: 1, packets: packets)])
        #expect(decoded.failure == .tooManyPackets)
        #expect(decoded.packets.count == RelayProtocolLimits.repairPacketsMaximum)
    }

    @Test func `random bytes never do harm`() {
        let seed = SeededGenerator.seed()
        var random = SeededGenerator(seed: seed)
        for _ in 0..<2_000 {
            var bytes = random.bytes(Int.random(in: 0...400, using: &random))
            // Often enough a good length, so that packets come out.
            if bytes.count > 6, random.chance(60) {
                (bytes[4], bytes[5]) = (0, UInt8.random(in: 13...60, using: &random))
            }
            if random.chance(30) { bytes = [0, 0, 0, 0] + bytes }
            let decoded = decode([bytes])
            #expect(decoded.packets.reduce(0) { $0 + $1.count } <= bytes.count, "seed \(seed)")
        }
    }
}
