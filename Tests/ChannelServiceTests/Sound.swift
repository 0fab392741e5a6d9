// Sound for tests: a chirp, WAV files, and how alike two recordings are.

import FoundationEssentials
import Glibc

/// A directory that goes away with its owner.
final class TemporaryDirectory: Sendable {
    let path: String

    init() throws {
        path = "/tmp/ptt-channel-service-\(UUID())"
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    func file(_ name: String) -> String { "\(path)/\(name)" }
}

/// A sine from 300 to 2300 Hz and back, once a second, in bursts: speech-like in its band, unlike itself elsewhere.
func chirp(seconds: Int) -> [Float] {
    var phase = 0.0
    return (0..<seconds * 48_000).map { index in
        let time = Double(index) / 48_000
        phase += 2 * Double.pi * (300 + 2_000 * abs(sin(.pi * time * 0.7))) / 48_000
        return Float(0.4 * sin(phase) * (0.6 + 0.4 * sin(2 * .pi * 5 * time)))
    }
}

func writeWAV(_ samples: [Float], to path: String) throws {
    func bytes<T: FixedWidthInteger>(_ value: T) -> [UInt8] { withUnsafeBytes(of: value.littleEndian) { Array($0) } }
    let size = UInt32(samples.count * 2)
    var file = Array("RIFF".utf8) + bytes(36 + size) + Array("WAVEfmt ".utf8) + bytes(UInt32(16))
    file += bytes(UInt16(1)) + bytes(UInt16(1)) + bytes(UInt32(48_000)) + bytes(UInt32(96_000))
    file += bytes(UInt16(2)) + bytes(UInt16(16)) + Array("data".utf8) + bytes(size)
    for sample in samples { file += bytes(Int16(max(-1, min(1, sample)) * 32_767)) }
    try Data(file).write(to: URL(filePath: path))
}

/// The samples of a 16-bit mono WAV file as the speaker writes it.
func readWAV(_ path: String) throws -> [Float] {
    let file = [UInt8](try Data(contentsOf: URL(filePath: path)))
    var position = 12
    while position + 8 <= file.count {
        let size = file[position + 4..<position + 8].reversed().reduce(0) { $0 << 8 | Int($1) }
        let body = position + 8..<min(file.count, position + 8 + size)
        if file[position..<position + 4].elementsEqual("data".utf8) {
            return stride(from: body.lowerBound, to: body.upperBound - 1, by: 2).map {
                Float(Int16(bitPattern: UInt16(file[$0]) | UInt16(file[$0 + 1]) << 8)) / 32_768
            }
        }
        position = body.upperBound + (size & 1)
    }
    return []
}

/// The share, 0…1, of the first 80 % of `wanted` that is found in `recording`, in pieces of 50 ms. Each is looked for near where the
/// one before it was found, so what is played faster or slower meanwhile is found, too; `recording` may begin up to 0.4 s earlier.
func shareHeard(of wanted: [Float], in recording: [Float]) -> Double {
    // Every fourth sample is enough for what is below 2.5 kHz.
    let recording = stride(from: 0, to: recording.count, by: 4).map { recording[$0] }
    let wanted = stride(from: 0, to: wanted.count * 8 / 10, by: 4).map { wanted[$0] }
    let piece = 600
    guard wanted.count >= piece else { return 0 }
    func likeness(_ place: Int, _ lag: Int) -> Float {
        guard place + lag >= 0, place + lag + piece <= recording.count else { return 0 }
        var (product, left, right): (Float, Float, Float) = (0, 1e-9, 1e-9)
        for index in 0..<piece {
            let (a, b) = (wanted[place + index], recording[place + lag + index])
            product += a * b
            left += a * a
            right += b * b
        }
        return product / (left * right).squareRoot()
    }
    var (found, pieces) = (0, 0)
    var lags = 0..<4_800
    for place in stride(from: 0, through: wanted.count - piece, by: piece) {
        pieces += 1
        guard let best = lags.map({ (lag: $0, likeness: likeness(place, $0)) }).max(by: { $0.likeness < $1.likeness }),
            best.likeness > 0.8
        else { continue }
        found += 1
        lags = best.lag - 600..<best.lag + 600
    }
    return Double(found) / Double(pieces)
}
