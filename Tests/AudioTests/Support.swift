// What the tests of this module share: seeded chance, synthetic speech, measures of likeness, and temporary files.
import Glibc
import MonotonicTime
import TestSupport

@testable import Audio

/// A different chirp every 20 ms, none like another, so that correlation tells which instant is heard.
func chirps(seconds: Double, rate: Int = 48_000, seed: UInt64 = 1, volume: Double = 0.3) -> [Float] {
    var generator = SeededGenerator(seed: seed)
    let length = rate / 50
    var samples: [Float] = []
    samples.reserveCapacity(Int(seconds * Double(rate)))
    while samples.count < Int(seconds * Double(rate)) {
        let from = Double.random(in: 350...3_200, using: &generator)
        let to = Double.random(in: 350...3_200, using: &generator)
        for index in 0..<length {
            let time = Double(index) / Double(rate)
            let edge = min(1, Double(min(index, length - 1 - index)) / (0.001 * Double(rate)))
            let phase = 2 * Double.pi * (from * time + (to - from) * time * time / 0.04)
            samples.append(Float(volume * edge * sin(phase)))
        }
    }
    return samples
}

/// A path that nothing else uses.
func temporaryPath(_ name: String) -> String {
    "/tmp/ptt-audio-\(getpid())-\(UInt64.random(in: 0 ... .max))-\(name)"
}

func writeFile(_ path: String, _ bytes: [UInt8]) {
    guard let file = fopen(path, "w") else { return }
    fwrite(bytes, 1, bytes.count, file)
    fclose(file)
}

func readFile(_ path: String) -> [UInt8] {
    guard let file = fopen(path, "r") else { return [] }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var part = [UInt8](repeating: 0, count: 1 << 16)
    while true {
        let count = fread(&part, 1, part.count, file)
        if count == 0 { return bytes }
        bytes += part[..<count]
    }
}

/// A WAV file's bytes.
func wav(
    _ samples: [Float], rate: Int = 48_000, channels: Int = 1, format: SampleFormat = .signed16,
    extensible: Bool = false
) -> [UInt8] {
    var data = [UInt8](repeating: 0, count: samples.count * channels * format.bytesPerSample)
    samples.withUnsafeBufferPointer { source in
        data.withUnsafeMutableBytes { target in
            guard let from = source.baseAddress, let to = target.baseAddress else { return }
            format.encode(from, frames: samples.count, channels: channels, into: to)
        }
    }
    func little(_ value: Int, _ count: Int) -> [UInt8] {
        (0..<count).map { UInt8(truncatingIfNeeded: value >> (8 * $0)) }
    }
    let tag = format == .float32 ? 3 : 1
    let block = channels * format.bytesPerSample
    var fields = little(extensible ? 0xFFFE : tag, 2) + little(channels, 2) + little(rate, 4) + little(rate * block, 4)
    fields += little(block, 2) + little(format.bytesPerSample * 8, 2)
    if extensible {
        fields += little(22, 2) + little(format.bytesPerSample * 8, 2) + little(0, 4) + little(tag, 2)
        fields += [0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xAA, 0, 0x38, 0x9B, 0x71]
    }
    let chunks = Array("WAVEfmt ".utf8) + little(fields.count, 4) + fields + Array("data".utf8) + little(data.count, 4)
    return Array("RIFF".utf8) + little(chunks.count + data.count, 4) + chunks + data
}

/// All samples of a WAV file.
func readWAV(_ path: String) throws -> [Float] {
    let reader = try WAVReader(path: path, framesPerRead: 4_096)
    var samples: [Float] = []
    var part = [Float](repeating: 0, count: 4_096)
    while samples.count < reader.frames {
        let count = try part.withUnsafeMutableBufferPointer { buffer throws in
            try reader.read(4_096, into: buffer.baseAddress!)
        }
        if count == 0 { break }
        samples += part[..<count]
    }
    return samples
}

/// Where `part` is found in `whole` within `range`, and how alike the two are there (0…1).
func find(_ part: ArraySlice<Float>, in whole: [Float], _ range: Range<Int>) -> (offset: Int, likeness: Float) {
    part.withUnsafeBufferPointer { part in
        whole.withUnsafeBufferPointer { whole in
            func likeness(_ offset: Int, _ step: Int) -> Float {
                var (product, left, right): (Float, Float, Float) = (0, 1e-9, 1e-9)
                var index = 0
                while index < part.count {
                    let place = offset + index
                    let b = place >= 0 && place < whole.count ? whole[place] : 0
                    let a = part[index]
                    product += a * b
                    left += a * a
                    right += b * b
                    index += step
                }
                return abs(product) / (left * right).squareRoot()
            }
            var best = (offset: 0, likeness: Float(0))
            var offset = range.lowerBound
            while offset < range.upperBound {
                let found = likeness(offset, 3)
                if found > best.likeness { best = (offset, found) }
                offset += 2
            }
            for offset in best.offset - 2...best.offset + 2 {
                let found = likeness(offset, 1)
                if found > best.likeness { best = (offset, found) }
            }
            return (best.offset, likeness(best.offset, 1))
        }
    }
}

/// Two seconds of something like a voice: a buzz with a moving pitch through formants, in syllables.
let voice: [Float] = {
    var generator = SeededGenerator(seed: 11)
    var samples: [Float] = []
    var phase = 0.0
    let length = 9_600
    while samples.count < 96_000 {
        let pitch = Double.random(in: 90...180, using: &generator)
        let glide = Double.random(in: -30...30, using: &generator)
        let formants = (0..<3).map { Double.random(in: 300...800, using: &generator) * Double(1 + $0 * 2) }
        let strengths = (1...16).map { harmonic in
            formants.map { exp(-pow((Double(harmonic) * pitch - $0) / 180, 2)) }.reduce(0.02, +)
        }
        for index in 0..<length {
            let time = Double(index) / Double(length)
            phase += (pitch + glide * time) / 48_000
            var sum = 0.0
            for harmonic in 0..<16 { sum += strengths[harmonic] * sin(2 * .pi * phase * Double(harmonic + 1)) }
            samples.append(Float(0.08 * sum * sin(.pi * time)))
        }
    }
    return samples
}()

func log10Of(_ value: Double) -> Double { log10(value) }
