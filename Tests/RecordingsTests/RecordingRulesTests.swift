// Names, packets, order and gaps of recordings.

import MonotonicTime
import TestSupport
import Testing
import Vocabulary

@testable import Recordings

@Suite struct RecordingRulesTests {
    @Test func `names are safe whatever the talker is called`() {
        var random = SeededGenerator()
        let tricky = [
            "/", ".", "..", "\0", "\n", "-", "~", " ", "'", "\"", "\\", "$", "é", "字", "🎙", "a", "Z", "7", "\u{301}",
            "\u{202E}",
        ]
        for _ in 0..<5_000 {
            let name = (0..<Int.random(in: 0...60, using: &random)).map { _ in
                random.chance(70)
                    ? tricky.randomElement(using: &random) ?? ""
                    : String(UnicodeScalar(UInt32.random(in: 0...0xD7FF, using: &random)) ?? "x")
            }.joined()
            let seconds = Int.random(in: -5...300_000_000_000, using: &random)
            let made = RecordingName(
                RecordingLabel(talker: name, channel: name, secondsSince1970: seconds),
                number: Int.random(in: 1...1_000, using: &random))
            #expect(made.text.utf8.count <= 120 && made.hidden.utf8.count <= 255)
            #expect(!made.text.contains("/") && !made.text.contains("\0") && !made.text.hasPrefix("."))
            #expect(
                made.text.unicodeScalars.allSatisfy {
                    $0.properties.isAlphabetic || $0.properties.numericType == .decimal
                        || "-_.".unicodeScalars.contains($0)
                }, "\(made.text.debugDescription)")
            #expect(RecordingName(made.text) == made)
            #expect(RecordingName.wanted(ofHidden: made.hidden) == made)
        }
    }

    @Test(arguments: [
        "", ".opus", "20261121T162618Z.opus", "20261121T162618Z-.opus.part", "20260231T162618Z-Ann.opus",
        "20261121T162618-Ann.opus", "2026112xT162618Z-Ann.opus", "20261121T252618Z-Ann.opus",
        "-0261121T162618Z-Ann.opus",
        "20261121T162618Z-Ann.ogg", "２0261121T162618Z-Ann.opus",
    ])
    func `a file of another name is none`(name: String) { #expect(RecordingName(name) == nil) }

    @Test func `the length of a packet is that of its frames`() {
        #expect(OpusPacketLength.samples(of: []) == nil)
        #expect(OpusPacketLength.samples(of: [0 << 3]) == 480)
        #expect(OpusPacketLength.samples(of: [3 << 3]) == 2_880)
        #expect(OpusPacketLength.samples(of: [15 << 3]) == 960)
        #expect(OpusPacketLength.samples(of: [16 << 3]) == 120)
        #expect(OpusPacketLength.samples(of: [31 << 3 | 1, 1, 1]) == 1_920)
        #expect(
            OpusPacketLength.samples(of: [31 << 3 | 1, 1]) == nil,
            "two frames of one length are an even number of bytes")
        #expect(OpusPacketLength.samples(of: [31 << 3 | 2]) == nil)
        #expect(OpusPacketLength.samples(of: [31 << 3 | 3, 6]) == 5_760)
        #expect(OpusPacketLength.samples(of: [31 << 3 | 3, 7]) == nil, "no more than 120 ms")
        #expect(OpusPacketLength.samples(of: [31 << 3 | 3, 0]) == nil)
    }

    /// Of 10 ms, told apart by their second byte.
    private func packet(_ number: Int, at time: Int? = nil) -> ReceivedFrame {
        ReceivedFrame(
            sequence: UInt16(truncatingIfNeeded: 65_530 + number),
            timestamp: UInt32(truncatingIfNeeded: 4_294_967_000 + (time ?? number) * 480),
            payload: [30 << 3, UInt8(truncatingIfNeeded: number)], receivedAt: .zero)
    }

    private func written(_ packets: [ReceivedFrame]) -> [UInt8?] {
        var timeline = BurstTimeline()
        let items = packets.flatMap { timeline.append($0) } + timeline.finish()
        #expect(items.allSatisfy { $0.samples == 480 })
        return items.map { $0.payload.count > 1 ? $0.payload[1] : nil }
    }

    @Test func `what comes late is put in its place`() {
        #expect(written([2, 0, 1, 1, 4, 3].map { packet($0) }) == [0, 1, 2, 3, 4])
        // After three seconds, as a repair may.
        let order = [0, 1] + Array(5..<300) + [2, 4, 3]
        #expect(written(order.map { packet($0) }) == (0..<300).map { UInt8(truncatingIfNeeded: $0) })
        // After ten, by a talker and a listener that were each cut off for a while.
        let slow = [0, 1] + Array(3..<1_250) + [2]
        #expect(written(slow.map { packet($0) })[0..<4] == [0, 1, 2, 3])
        // After fourteen it is too late.
        let late = [0, 1] + Array(3..<1_420) + [2]
        #expect(written(late.map { packet($0) })[0..<4] == [0, 1, nil, 3])
    }

    @Test func `only what is behind a gap waits, and the beginning`() {
        var timeline = BurstTimeline()
        let beginning = BurstTimeline.beginningSamples / 480
        for number in 0...beginning { #expect(timeline.append(packet(number)).isEmpty) }
        #expect(timeline.append(packet(beginning + 1)).count == beginning + 2)
        #expect(timeline.append(packet(beginning + 2)).count == 1)
        #expect(timeline.append(packet(beginning + 4)).isEmpty)
        #expect(timeline.append(packet(beginning + 5)).isEmpty)
        #expect(timeline.append(packet(beginning + 3)).count == 3)
    }

    @Test func `gaps keep their time unless they are absurd`() {
        #expect(written([packet(0), packet(3)]) == [0, nil, nil, 3])
        #expect(written([packet(0), packet(1, at: 4), packet(2, at: 5)]) == [0, nil, nil, nil, 1, 2])
        #expect(written([packet(0), packet(1, at: 500_000), packet(2, at: 500_001)]).count == 103)
        #expect(written([packet(0), packet(1, at: -50), packet(2, at: 2)]).count < 60, "a clock that goes back")
    }

    @Test func `any packets give a bounded file`() {
        var random = SeededGenerator()
        for _ in 0..<50 {
            var timeline = BurstTimeline()
            var count = 0
            var samples = 0
            for _ in 0..<400 {
                let payload = random.bytes(Int.random(in: 0...40, using: &random))
                let items = timeline.append(
                    ReceivedFrame(
                        sequence: UInt16.random(in: 0 ... .max, using: &random),
                        timestamp: UInt32.random(in: 0 ... .max, using: &random), payload: payload,
                        receivedAt: .zero))
                count += items.count
                samples += items.reduce(0) { $0 + $1.samples }
            }
            samples += timeline.finish().reduce(0) { $0 + $1.samples }
            #expect(samples <= 400 * Int(BurstTimeline.gapMax + 5_760))
            #expect(count <= 400 * (1 + BurstTimeline.fillersEach) + BurstTimeline.fillersMax)
        }
    }
}
