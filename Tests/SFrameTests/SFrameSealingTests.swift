// Sealing and opening: RFC 9605's vectors, epochs, replays, and whatever an attacker changes.
import Cryptography
import MonotonicTime
import TestSupport
import Testing

@testable import SFrame

@Suite struct SFrameSealingTests {
    private static let start = Instant(nanoseconds: 1_000_000_000)
    private static let metadata = Array("IETF SFrame WG".utf8)

    /// RFC 9605, appendix C.3: key id 0x123, counter 0x4567.
    @Test(arguments: [
        (
            SFrameCipherSuite.aes128GCMSHA256,
            "9901234567b7412c2513a1b66dbb48841bbaf17f598751176ad847681a69c6d0b091c07018ce4adb34eb"
        ),
        (
            .aes256GCMSHA512,
            "990123456794f509d36e9beacb0e261d99c7d1e972f1fed787d4049f17ca21353c1cc24d56ceabced279"
        ),
    ])
    func `frames are sealed and opened as in RFC 9605, appendix C.3`(suite: SFrameCipherSuite, text: String) throws {
        let baseKey: [UInt8] = Array(0..<16)
        let plaintext = Array("draft-ietf-sframe-enc".utf8)
        let sealer = try SFrameSealer(
            suite: suite, baseKey: baseKey, keyID: KeyID(rawValue: 0x123), firstCounter: 0x4567)
        let sealed = try sealer.seal(plaintext, metadata: Self.metadata)
        #expect(Hexadecimal.encode(sealed) == text)
        var opener = SFrameOpener(suite: suite)
        opener.setEpoch(0, baseKey: baseKey, at: Self.start)
        let opened = try opener.open(sealed, metadata: Self.metadata, at: Self.start)
        #expect(opened.plaintext == plaintext)
        #expect(opened.header == SFrameHeader(keyID: KeyID(rawValue: 0x123), counter: 0x4567))
    }

    @Test func `counters run from 0 and every frame opens once, in any order`() throws {
        var random = SeededGenerator()
        for suite in SFrameCipherSuite.allCases {
            let baseKey = random.bytes(32)
            let sealer = try SFrameSealer(suite: suite, baseKey: baseKey, keyID: .fresh(epoch: 9))
            var opener = SFrameOpener(suite: suite)
            opener.setEpoch(9, baseKey: baseKey, at: Self.start)
            var frames: [(UInt64, [UInt8], [UInt8], [UInt8])] = []
            for counter in 0..<200 as Range<UInt64> {
                let plaintext = random.bytes(Int.random(in: 0...200, using: &random))
                let metadata = random.bytes(12)
                frames.append((counter, plaintext, metadata, try sealer.seal(plaintext, metadata: metadata)))
            }
            for (counter, plaintext, metadata, frame) in frames.shuffled(using: &random) {
                let opened = try opener.open(frame, metadata: metadata, at: Self.start)
                #expect(opened.plaintext == plaintext)
                #expect(opened.header == SFrameHeader(keyID: sealer.keyID, counter: counter))
                #expect(throws: SFrameError.replayed(counter: counter)) {
                    try opener.open(frame, metadata: metadata, at: Self.start)
                }
            }
        }
    }

    @Test func `a changed frame or other metadata is refused, and the true frame opens afterwards`() throws {
        var random = SeededGenerator()
        let baseKey = random.bytes(16)
        let keyID = KeyID.fresh(epoch: 0)
        let sealer = try SFrameSealer(baseKey: baseKey, keyID: keyID)
        var opener = SFrameOpener()
        opener.setEpoch(0, baseKey: baseKey, at: Self.start)
        for _ in 0..<300 {
            let metadata = random.bytes(12)
            let frame = try sealer.seal(random.bytes(60), metadata: metadata)
            var changed = frame
            changed[Int.random(in: frame.indices, using: &random)] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            #expect(throws: SFrameError.self) { try opener.open(changed, metadata: metadata, at: Self.start) }
            #expect(throws: SFrameError.notAuthentic) {
                try opener.open(frame, metadata: metadata + [1], at: Self.start)
            }
            _ = try opener.open(frame, metadata: metadata, at: Self.start)
        }
        #expect(opener.keyCount == 1)
    }

    @Test func `who talks on after renewals is heard to the end of the burst, and no burst that begins later`() throws {
        let baseKeys = (0...7).map { [UInt8](repeating: UInt8($0), count: 32) }
        let talker = try SFrameSealer(baseKey: baseKeys[0], keyID: .fresh(epoch: 0))
        var opener = SFrameOpener()
        opener.setEpoch(0, baseKey: baseKeys[0], at: Self.start)
        _ = try opener.open(try talker.seal([1], metadata: []), metadata: [], at: Self.start)
        // Two members are removed in the middle of it.
        opener.setEpoch(1, baseKey: baseKeys[1], at: Self.start)
        opener.setEpoch(2, baseKey: baseKeys[2], at: Self.start + .seconds(3))
        for second in 0...60 {
            let now = Self.start + .seconds(second)
            _ = try opener.open(try talker.seal([1], metadata: []), metadata: [], at: now)
            let other = try SFrameSealer(baseKey: baseKeys[0], keyID: .fresh(epoch: 0)).seal([1], metadata: [])
            if second < 20 {
                _ = try opener.open(other, metadata: [], at: now)
            } else {
                #expect(throws: SFrameError.unknownEpoch(0)) { try opener.open(other, metadata: [], at: now) }
            }
        }
        // Silent for as long as a network may be away, and over.
        let end = Self.start + .seconds(60)
        _ = try opener.open(try talker.seal([1], metadata: []), metadata: [], at: end + .milliseconds(9_999))
        #expect(opener.nextDeadline == end + .milliseconds(19_999))
        #expect(throws: SFrameError.unknownEpoch(0)) {
            try opener.open(try talker.seal([1], metadata: []), metadata: [], at: end + .seconds(20))
        }
        #expect(opener.nextDeadline == nil)
        // They are bounded.
        for epoch in 3...7 {
            opener.setEpoch(UInt16(epoch), baseKey: baseKeys[epoch], at: end + .seconds(30))
        }
        for epoch in 2...6 {
            let frame = try SFrameSealer(baseKey: baseKeys[epoch], keyID: .fresh(epoch: UInt16(epoch)))
                .seal([1], metadata: [])
            if epoch > 6 - SFrameOpener.earlierEpochsMaximum {
                _ = try opener.open(frame, metadata: [], at: end + .seconds(31))
            } else {
                #expect(throws: SFrameError.unknownEpoch(UInt16(epoch))) {
                    try opener.open(frame, metadata: [], at: end + .seconds(31))
                }
            }
        }
    }

    @Test func `an earlier epoch opens for 20 s after its renewal`() throws {
        let keys = (0...2).map { [UInt8](repeating: UInt8($0), count: 32) }
        let sealers = try (0...2).map { try SFrameSealer(baseKey: keys[$0], keyID: .fresh(epoch: UInt16($0))) }
        var opener = SFrameOpener()
        #expect(throws: SFrameError.unknownEpoch(0)) {
            try opener.open(try sealers[0].seal([1], metadata: []), metadata: [], at: Self.start)
        }
        opener.setEpoch(0, baseKey: keys[0], at: Self.start)
        let known = try sealers[0].seal([1], metadata: [])
        _ = try opener.open(known, metadata: [], at: Self.start)
        opener.setEpoch(1, baseKey: keys[1], at: Self.start)
        #expect(opener.currentEpoch == 1)
        #expect(opener.nextDeadline == Self.start + .seconds(20))
        #expect(throws: SFrameError.replayed(counter: 1)) { try opener.open(known, metadata: [], at: Self.start) }
        let late = Self.start + .milliseconds(9_999)
        _ = try opener.open(try sealers[0].seal([2], metadata: []), metadata: [], at: late)
        _ = try opener.open(try sealers[1].seal([3], metadata: []), metadata: [], at: late)
        #expect(throws: SFrameError.unknownEpoch(0)) {
            try opener.open(
                try sealers[0].seal([4], metadata: []), metadata: [], at: Self.start + .seconds(20))
        }
        #expect(opener.nextDeadline == nil)
        opener.setEpoch(2, baseKey: keys[2], at: Self.start + .seconds(20))
        opener.setEpoch(3, baseKey: keys[0], at: Self.start + .seconds(20))
        let later = Self.start + .seconds(21)
        _ = try opener.open(try sealers[1].seal([5], metadata: []), metadata: [], at: later)
        _ = try opener.open(try sealers[2].seal([6], metadata: []), metadata: [], at: later)
    }

    @Test func `the same epoch with another key replaces it, and with the same key changes nothing`() throws {
        let old = [UInt8](repeating: 1, count: 32)
        let new = [UInt8](repeating: 2, count: 32)
        let sealer = try SFrameSealer(baseKey: old, keyID: .fresh(epoch: 5))
        let renewed = try SFrameSealer(baseKey: new, keyID: .fresh(epoch: 5))
        var opener = SFrameOpener()
        opener.setEpoch(5, baseKey: old, at: Self.start)
        let frame = try sealer.seal([1], metadata: [])
        _ = try opener.open(frame, metadata: [], at: Self.start)
        opener.setEpoch(5, baseKey: old, at: Self.start)
        #expect(throws: SFrameError.replayed(counter: 0)) { try opener.open(frame, metadata: [], at: Self.start) }
        opener.setEpoch(5, baseKey: new, at: Self.start)
        #expect(throws: SFrameError.notAuthentic) { try opener.open(frame, metadata: [], at: Self.start) }
        _ = try opener.open(try renewed.seal([1], metadata: []), metadata: [], at: Self.start)
    }

    @Test func `key ids are remembered up to the limit, and garbage pushes none out`() throws {
        let baseKey = [UInt8](repeating: 3, count: 32)
        var opener = SFrameOpener()
        opener.setEpoch(1, baseKey: baseKey, at: Self.start)
        let first = try SFrameSealer(baseKey: baseKey, keyID: .fresh(epoch: 1))
        let heard = try first.seal([1], metadata: [])
        _ = try opener.open(heard, metadata: [], at: Self.start)
        for _ in 0..<500 {
            let forged = try SFrameSealer(baseKey: [UInt8](repeating: 4, count: 32), keyID: .fresh(epoch: 1))
            #expect(throws: SFrameError.notAuthentic) {
                try opener.open(try forged.seal([1], metadata: []), metadata: [], at: Self.start)
            }
        }
        #expect(opener.keyCount == 1)
        for _ in 0..<(SFrameOpener.keysMaximum * 2) {
            let other = try SFrameSealer(baseKey: baseKey, keyID: .fresh(epoch: 1))
            _ = try opener.open(try other.seal([1], metadata: []), metadata: [], at: Self.start)
            // Used all the time, so it stays.
            _ = try opener.open(try first.seal([1], metadata: []), metadata: [], at: Self.start)
        }
        #expect(opener.keyCount == SFrameOpener.keysMaximum)
        #expect(throws: SFrameError.replayed(counter: 0)) { try opener.open(heard, metadata: [], at: Self.start) }
    }

    @Test func `a key id that has sealed all it may seals no more`() throws {
        let sealer = try SFrameSealer(
            suite: .aes128GCMSHA256, baseKey: [UInt8](repeating: 0, count: 16), keyID: .fresh(epoch: 0),
            firstCounter: SFrameLimits.framesPerKeyMaximum - 1)
        _ = try sealer.seal([1], metadata: [])
        for _ in 0..<2 {
            #expect(throws: SFrameError.exhausted) { try sealer.seal([1], metadata: []) }
        }
    }

    @Test func `sizes that cannot be are refused without using a counter`() throws {
        let sealer = try SFrameSealer(baseKey: [UInt8](repeating: 0, count: 16), keyID: KeyID(rawValue: 0x123))
        #expect(throws: SFrameError.metadataTooLong(257)) {
            try sealer.seal([1], metadata: [UInt8](repeating: 0, count: 257))
        }
        var small = [UInt8](repeating: 0, count: 19)
        #expect(throws: SFrameError.outputTooSmall(is: 19, needed: 20)) {
            try small.withUnsafeMutableBytes { output in
                try [UInt8(1)].withUnsafeBytes {
                    try sealer.seal($0, metadata: UnsafeRawBufferPointer(start: nil, count: 0), into: output)
                }
            }
        }
        let sealed = try sealer.seal([1], metadata: [UInt8](repeating: 0, count: 256))
        #expect(try SFrameHeader(parsing: sealed).counter == 0)
    }

    @Test func `garbage is refused with an error and changes nothing`() throws {
        var random = SeededGenerator()
        let baseKey = random.bytes(32)
        var opener = SFrameOpener()
        opener.setEpoch(0, baseKey: baseKey, at: Self.start)
        for _ in 0..<5000 {
            let garbage = random.bytes(Int.random(in: 0...60, using: &random))
            #expect(throws: SFrameError.self) { try opener.open(garbage, metadata: [], at: Self.start) }
        }
        #expect(opener.keyCount == 0)
    }
}
