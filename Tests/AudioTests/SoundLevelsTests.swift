// What a recording is judged to be.
import Glibc
import TestSupport
import Testing

@testable import Audio

@Suite struct SoundLevelsTests {
    private static let second = audioClockRate

    private func levels(_ samples: [Float]) -> SoundLevels {
        var levels = SoundLevels()
        // In pieces of an odd size, as devices give them.
        var rest = samples[...]
        while !rest.isEmpty {
            Array(rest.prefix(441)).withUnsafeBufferPointer { levels.take($0) }
            rest = rest.dropFirst(441)
        }
        return levels
    }

    private func noise(_ count: Int, decibels: Float, seed: UInt64 = 1) -> [Float] {
        var generator = SeededGenerator(seed: seed)
        // The mean power of an even distribution is a third of its square.
        let limit = powf(10, decibels / 20) * sqrtf(3)
        return (0..<count).map { _ in Float.random(in: -limit...limit, using: &generator) }
    }

    /// Syllables, four in a second, in a room.
    private func voice(_ seconds: Int, peak: Float, room: Float = -65) -> [Float] {
        let room = noise(seconds * Self.second, decibels: room)
        return room.enumerated().map { index, noise in
            let time = Float(index) / Float(Self.second)
            return noise + peak * powf(max(0, sinf(2 * .pi * 4 * time)), 2) * sinf(2 * .pi * 180 * time)
        }
    }

    @Test func `no samples are nothing, and zeros are digital silence`() {
        #expect(levels([]).verdict == .nothing)
        let zeros = levels([Float](repeating: 0, count: 2 * Self.second))
        #expect(zeros.verdict == .silence && zeros.level == SoundLevels.quietest)
        #expect(zeros.noiseFloor == SoundLevels.quietest && zeros.silentStart == .seconds(2))
        #expect(!zeros.verdict.isUsable)
    }

    @Test func `one value again and again, and a last bit that flickers, are digital silence too`() {
        #expect(levels([Float](repeating: 0.2, count: Self.second)).verdict == .silence)
        let bits = (0..<Self.second).map { Float($0 % 2) / 32_768 }
        #expect(levels(bits).verdict == .silence)
    }

    @Test func `the noise of a microphone is a quiet room, whatever its offset`() {
        for level: Float in [-80, -65, -50] {
            let room = levels(noise(3 * Self.second, decibels: level).map { $0 + 0.1 })
            #expect(room.verdict == .quietRoom, "\(level)")
            #expect(abs(room.noiseFloor - level) < 2 && abs(room.level - level) < 2, "\(level) \(room.level)")
        }
    }

    @Test(arguments: [UInt64](1...4)) func `no seed of steady noise is taken for speech`(seed: UInt64) {
        for level: Float in [-80, -60, -40, -20] {
            let verdict = levels(noise(4 * Self.second, decibels: level, seed: seed)).verdict
            #expect(verdict == (level > -45 ? .steadySound : .quietRoom), "\(level)")
        }
    }

    @Test func `sound that comes and goes is speech, with its level and the noise between`() {
        let speech = levels(voice(4, peak: 0.3))
        #expect(speech.verdict == .speech && speech.verdict.isUsable)
        #expect(abs(speech.level + 14) < 2, "\(speech.level)")
        #expect(abs(speech.noiseFloor + 65) < 3, "\(speech.noiseFloor)")
        #expect(abs(speech.peak + 10.5) < 0.5, "\(speech.peak)")
    }

    @Test func `speech is told in a loud place, and between digital zeros`() {
        #expect(levels(voice(4, peak: 0.5, room: -35)).verdict == .speech)
        let gated = voice(4, peak: 0.3).map { abs($0) < 0.02 ? 0 : $0 }
        #expect(levels(gated).verdict == .speech)
    }

    @Test func `distant speech is faint`() {
        #expect(levels(voice(4, peak: 0.004, room: -80)).verdict == .faintSpeech)
    }

    @Test func `a knock is a short sound, and a whistle without end a steady one`() {
        var room = noise(3 * Self.second, decibels: -70)
        for index in 0..<4_800 { room[Self.second + index] += 0.3 * sinf(Float(index)) }
        #expect(levels(room).verdict == .shortSound)
        #expect(levels((0..<Self.second).map { 0.1 * sinf(Float($0) / 20) }).verdict == .steadySound)
    }

    @Test func `sound that is cut off is clipped, and a loud one that is not is speech`() {
        let loud = voice(4, peak: 3).map { min(1, max(-1, $0)) }
        #expect(levels(loud).verdict == .clipped)
        #expect(!levels(loud).verdict.isUsable)
        #expect(levels(voice(4, peak: 0.9)).verdict == .speech)
    }

    @Test func `silence before the first sound is measured, and does not count as the noise of the room`() {
        let late = levels([Float](repeating: 0, count: Self.second) + voice(3, peak: 0.3))
        #expect(late.verdict == .speech && late.silentStart == .seconds(1))
        #expect(late.noiseFloor > -70, "\(late.noiseFloor)")
    }

    @Test func `sound beyond the longest recording costs no memory`() {
        var levels = SoundLevels()
        let piece = [Float](repeating: 0, count: SoundLevels.window)
        for _ in 0..<(SoundLevels.windowsMax + 100) { piece.withUnsafeBufferPointer { levels.take($0) } }
        #expect(levels.silentStart == .milliseconds(20 * SoundLevels.windowsMax))
    }
}
