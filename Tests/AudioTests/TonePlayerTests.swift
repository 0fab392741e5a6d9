// Tones of several sounds, and two tones at once.

import Testing
import Vocabulary

@testable import Audio

struct TonePlayerTests {
    /// Samples until each tone ends, of tones that begin at the given samples.
    private func ends(_ tones: [(start: Int, tone: Tone)]) -> [(Tone, Int)] {
        var player = TonePlayer(volume: 1)
        var ends: [(Tone, Int)] = []
        let block = 120
        for position in stride(from: 0, to: 48_000 * 4, by: block) {
            for (_, tone) in tones.filter({ $0.start == position }) {
                let isPlayed = player.play(tone)
                #expect(isPlayed)
            }
            var samples = [Float](repeating: 0, count: block)
            samples.withUnsafeMutableBufferPointer { samples in
                player.mix(into: samples.baseAddress!, count: block) { event in
                    if case .ended(let tone) = event { ends.append((tone, position + block)) }
                }
            }
        }
        #expect(player.isIdle)
        return ends
    }

    private func length(_ sounds: ToneSound...) -> Int { sounds.map { $0.samples(volume: 1).count }.reduce(0, +) }

    @Test(arguments: [
        (7, [ToneSound.five, .one, .one]), (0, [.one]), (5, [.five]),
        (19, [.five, .five, .five, .one, .one, .one, .one]),
    ])
    func `a position is counted in fives and ones`(position: Int, sounds: [ToneSound]) {
        let tone = Tone.channel(position: position)
        #expect((0..<tone.soundCount).map { tone.sound(at: $0) } == sounds)
        let ended = ends([(0, tone)])
        #expect(ended.map(\.0) == [tone])
        // Each sound begins with a block.
        #expect(ended.allSatisfy { abs($0.1 - sounds.map { length($0) }.reduce(0, +)) <= 120 * sounds.count })
    }

    @Test func `what is beyond the highest position sounds like it`() {
        #expect(Tone.channel(position: .max).soundCount == Tone.channel(position: Tone.positionMax).soundCount)
    }

    @Test func `of two positions the newer one is counted to its end`() {
        let ended = ends([(0, .channel(position: 19)), (1_200, .channel(position: 2))])
        #expect(ended.map(\.0) == [.channel(position: 19), .channel(position: 2)])
        #expect(abs((ended.first?.1 ?? 0) - length(.five)) <= 120, "the older one ends with its first sound")
    }

    @Test func `other tones do not cut one another`() {
        let ended = ends([(0, .deviceFailed), (1_200, .microphoneOn)])
        #expect(ended.map(\.0) == [.microphoneOn, .deviceFailed])
    }
}
