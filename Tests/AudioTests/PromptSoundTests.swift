// Spoken prompts: their sound from the bytes of a WAV file, and how it is mixed and cut off.

import Glibc
import MonotonicTime
import Synchronization
import Testing
import Vocabulary

@testable import Audio

@Suite struct PromptSoundTests {
    private func samples(_ sound: PromptSound) -> [Float] {
        Array(UnsafeBufferPointer(start: sound.samples, count: sound.count))
    }

    private func sine(_ hertz: Double, seconds: Double, rate: Int, volume: Double = 0.5) -> [Float] {
        (0..<Int(seconds * Double(rate))).map { Float(volume * sin(2 * .pi * hertz * Double($0) / Double(rate))) }
    }

    private func error(_ bytes: [UInt8]) -> PromptSoundError? {
        do throws(PromptSoundError) { _ = try PromptSound(wav: bytes) } catch { return error }
        return nil
    }

    /// The sizes that espeak-ng writes into a pipe, those of other programs, and the right ones.
    @Test(arguments: [[0x00, 0xF0, 0xFF, 0x7F], [0xFF, 0xFF, 0xFF, 0xFF], [0, 0, 0, 0], nil] as [[UInt8]?])
    func `a file that was written into a pipe is read to its end`(size: [UInt8]?) throws {
        var bytes = wav(sine(440, seconds: 1, rate: 22_050), rate: 22_050)
        if let size {
            bytes.replaceSubrange(40..<44, with: size)
            bytes.replaceSubrange(4..<8, with: size)
        }
        let sound = try PromptSound(wav: bytes)
        #expect(abs(sound.length.milliseconds - 1_000) < 3)
        // As many periods as there were, at the other rate.
        let crossings = zip(samples(sound), samples(sound).dropFirst()).count { $0 < 0 && $1 >= 0 }
        #expect(abs(crossings - 440) <= 2)
    }

    @Test(arguments: [0.01, 0.1, 0.9]) func `it is as loud as speech, whatever it was`(volume: Double) throws {
        let sound = try PromptSound(wav: wav(sine(440, seconds: 1, rate: 22_050, volume: volume), rate: 22_050))
        // A pause does not make the rest louder.
        let paused = try PromptSound(
            wav: wav(
                sine(440, seconds: 1, rate: 22_050, volume: volume) + [Float](repeating: 0, count: 44_100), rate: 22_050
            ))
        for sound in [sound, paused] {
            let spoken = samples(sound)[4_800..<43_200]
            let level = 10 * log10f(spoken.reduce(0) { $0 + $1 * $1 } / Float(spoken.count))
            #expect(abs(level - GainControl.target) < 0.5, "\(level) dBFS")
        }
    }

    @Test func `no sample is above the ceiling`() throws {
        var click = [Float](repeating: 0.03, count: 22_050)
        click[11_000] = 1
        let sound = try PromptSound(wav: wav(click, rate: 22_050))
        #expect(samples(sound).allSatisfy { abs($0) <= GainControl.ceiling + 0.001 })
    }

    @Test func `other formats are read as well`() throws {
        for format in [SampleFormat.unsigned8, .signed24Packed, .signed32, .float32] {
            let bytes = wav(sine(440, seconds: 0.5, rate: 16_000), rate: 16_000, channels: 2, format: format)
            #expect(abs(try PromptSound(wav: bytes).length.milliseconds - 500) < 3)
        }
    }

    @Test func `what is no sound is refused with the reason`() {
        let whole = wav(sine(440, seconds: 0.1, rate: 22_050), rate: 22_050)
        #expect(error([]) == .malformed("\(WAVProblem.notRIFF)"))
        #expect(error(Array("espeak-ng: no voice\n".utf8)) == .malformed("\(WAVProblem.notRIFF)"))
        #expect(error(Array(whole[..<30])) == .malformed("\(WAVProblem.noFormat)"))
        #expect(error(Array(whole[..<36])) == .malformed("\(WAVProblem.noData)"))
        #expect(error(Array(whole[..<44])) == .silent)
        #expect(error(wav([Float](repeating: 0, count: 22_050), rate: 22_050)) == .silent)
        #expect(error(wav([Float](repeating: 0.5, count: 15 * 8_000 + 1), rate: 8_000)) == .tooLong)
        #expect(error(wav([Float](repeating: 0.5, count: 15 * 8_000), rate: 8_000)) == nil)
        for length in 0..<whole.count { _ = error(Array(whole[..<length])) }
    }
}

@Suite struct PromptPlayerTests {
    /// What is heard of a prompt of so many ones, blocks of 120 samples, cut off before a block; and at which block it ended.
    private func play(_ count: Int, cutAt: Int? = nil, blocks: Int = 40) -> (heard: [Float], ended: Int?) {
        let sound = PromptSound([Float](repeating: 1, count: count))
        var player = PromptPlayer()
        let replaced = player.play(sound.samples, count: sound.count, number: 7)
        #expect(replaced == nil)
        var heard: [Float] = []
        var ended: Int?
        for number in 0..<blocks {
            if number == cutAt { player.stop() }
            // It is mixed over other sound.
            var block = [Float](repeating: 0.25, count: 120)
            if let end = block.withUnsafeMutableBufferPointer({ player.mix(into: $0.baseAddress!, count: 120) }) {
                #expect(end == 7 && ended == nil)
                ended = number
            }
            heard += block.map { $0 - 0.25 }
        }
        #expect(player.isIdle == (ended != nil))
        return (heard, ended)
    }

    @Test(arguments: [1, 119, 120, 121, 1_000]) func `a prompt is heard from its first to its last sample`(count: Int) {
        let (heard, ended) = play(count)
        #expect(heard.prefix(count).allSatisfy { $0 == 1 })
        #expect(heard.dropFirst(count).allSatisfy { $0 == 0 })
        #expect(ended == (count - 1) / 120)
    }

    @Test func `one that is cut off fades out within 10 ms`() {
        let (heard, ended) = play(48_000, cutAt: 10)
        #expect(heard[..<1_200].allSatisfy { $0 == 1 })
        let fade = heard[1_200..<1_680]
        #expect(zip(fade, fade.dropFirst()).allSatisfy { $0 > $1 && $0 - $1 < 0.01 }, "no step, which would click")
        #expect(heard[1_680...].allSatisfy { $0 == 0 })
        #expect(ended == 13)
    }

    @Test func `one that ends within its fade ends there`() {
        let (heard, ended) = play(1_300, cutAt: 10)
        #expect(heard[1_300...].allSatisfy { $0 == 0 })
        #expect(ended == 10)
    }

    @Test func `a newer one takes the place of the older one, and begins at full loudness`() {
        let sound = PromptSound([Float](repeating: 1, count: 4_800))
        var player = PromptPlayer()
        let first = player.play(sound.samples, count: sound.count, number: 1)
        player.stop()
        let replaced = player.play(sound.samples, count: sound.count, number: 2)
        #expect(first == nil && replaced == 1)
        var block = [Float](repeating: 0, count: 120)
        _ = block.withUnsafeMutableBufferPointer { player.mix(into: $0.baseAddress!, count: 120) }
        #expect(block.allSatisfy { $0 == 1 })
        let dropped = player.drop()
        #expect(dropped == 2 && player.isIdle)
        let again = player.drop()
        #expect(again == nil)
    }
}

@Suite struct PromptEndTests {
    @Test func `the end of no prompt is lost, however many events wait`() throws {
        let rings = try PlaybackRings()
        for round in 0..<3 as Range<UInt32> {
            let numbers = (0..<4).map { round * 4 + $0 }
            for number in numbers { #expect(rings.play(PromptSound([0.5]), number: number), "prompt \(number)") }
            for _ in 0..<200 { rings.put(.resumed(gap: .zero)) }
            for number in numbers { rings.put(.promptEnded(number: number)) }
            var ended: [UInt32] = []
            while let slot = rings.next() {
                guard case .promptEnded(let number) = slot else { continue }
                ended.append(number)
                rings.ended(prompt: number)
            }
            #expect(ended == numbers)
        }
        #expect(rings.statistics.dropped == 3 * (200 - 64), "other events are counted where they find no room")
    }
}

private final class Flag: Sendable {
    let isSet = Atomic<Bool>(false)
}

// Serialised: they take the time of the sound.
@Suite(.serialized) struct PromptEngineTests {
    private func withSpeaker(_ body: (PlaybackEngine, Owner) throws -> Void) throws -> [Float] {
        let path = temporaryPath("prompt.wav")
        defer { unlink(path) }
        var configuration = PlaybackConfiguration()
        configuration.recordingKeepsTime = false
        let engine = try PlaybackEngine(device: .wav(path: path), configuration: configuration, logger: quiet)
        try body(engine, Owner(speaker: engine))
        engine.close()
        let hasEnded = Flag()
        engine.end.then { hasEnded.isSet.store(true, ordering: .releasing) }
        for _ in 0..<500 where !hasEnded.isSet.load(ordering: .acquiring) { usleep(10_000) }
        return try readWAV(path)
    }

    private func ends(_ owner: Owner) -> [UInt32] {
        owner.events.compactMap { if case .promptEnded(let number) = $0 { number } else { nil } }
    }

    @Test func `prompts are heard one after the other, and each end is told`() throws {
        let heard = try withSpeaker { engine, owner in
            for number in 1...10 as ClosedRange<UInt32> {
                #expect(engine.play(PromptSound([Float](repeating: 0.5, count: 4_800)), number: number))
                #expect(owner.run(for: .seconds(3)) { ends(owner).last == number })
            }
        }
        #expect(heard.count { abs($0 - 0.5) < 0.001 } == 48_000)
    }

    @Test func `a flush and the end of the engine end a prompt`() throws {
        _ = try withSpeaker { engine, owner in
            #expect(engine.play(PromptSound([Float](repeating: 0.5, count: 480_000)), number: 1))
            owner.run(for: .milliseconds(100))
            engine.flush()
            #expect(owner.run(for: .seconds(3)) { ends(owner) == [1] })
            #expect(engine.play(PromptSound([Float](repeating: 0.5, count: 480_000)), number: 2))
            owner.run(for: .milliseconds(100))
        }
    }

    @Test func `no more than four are kept, whatever is asked for`() throws {
        _ = try withSpeaker { engine, owner in
            let taken = (1...100 as ClosedRange<UInt32>).map { number in
                engine.play(PromptSound([Float](repeating: 0.5, count: 480)), number: number)
            }
            #expect(taken.prefix(4).allSatisfy { $0 })
            #expect(taken.count { $0 } == 4, "none has told its end yet")
            #expect(owner.run(for: .seconds(3)) { ends(owner).count == 4 })
            #expect(engine.play(PromptSound([Float](repeating: 0.5, count: 480)), number: 200))
            #expect(!engine.play(PromptSound([Float](repeating: 0.5, count: 480)), number: 200), "a number names one")
            #expect(owner.run(for: .seconds(3)) { ends(owner).last == 200 })
        }
    }
}
