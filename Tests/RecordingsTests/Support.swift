// Folders, other programs and sound for the tests of recordings.

import COpus
import Glibc
import TestSupport
import Testing

@testable import Recordings

extension TemporaryFolder {
    /// The recordings in a folder of it.
    func names(_ folder: String) -> [String] {
        guard let directory = opendir(path + "/" + folder) else { return [] }
        defer { closedir(directory) }
        var names: [String] = []
        while let entry = readdir(directory) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) {
                $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            // What is known of the clock is no recording.
            if ![".", "..", RecordingClock.fileName].contains(name) { names.append(name) }
        }
        return names
    }

    func read(_ name: String) throws -> [UInt8] {
        let file = try #require(fopen(path + "/" + name, "r"))
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 10_000_000)
        return Array(bytes[..<fread(&bytes, 1, bytes.count, file)])
    }

    func write(_ bytes: [UInt8], to name: String) throws {
        let file = try #require(fopen(path + "/" + name, "w"))
        defer { fclose(file) }
        try #require(fwrite(bytes, 1, bytes.count, file) == bytes.count)
    }

    /// What opusdec makes of it, in samples of 48 kHz.
    func decodedSamples(_ file: String) throws -> Int {
        let raw = path + "/decoded.raw"
        let told = run("opusdec", "--quiet", "--rate", "48000", file, raw)
        try #require(told.status == 0, "\(told.text)")
        return try read("decoded.raw").count / 2
    }
}

/// Runs a program; what it says on both outputs.
@discardableResult
func run(_ program: String, _ arguments: String...) -> (status: Int32, text: String) { run(program, arguments) }

/// Runs a program; what it says on both outputs.
func run(_ program: String, _ arguments: [String]) -> (status: Int32, text: String) {
    let quoted = ([program] + arguments).map { "'\($0)'" }.joined(separator: " ")
    guard let pipe = popen(quoted + " 2>&1", "r") else { return (-1, "") }
    var text: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = fread(&block, 1, block.count, pipe)
        guard count > 0 else { break }
        text += block[..<count]
    }
    return (pclose(pipe), String(decoding: text, as: UTF8.self))
}

/// Makes Opus packets of a tone.
final class TestEncoder {
    private let encoder: OpaquePointer

    init?() {
        var error: Int32 = 0
        guard let encoder = opus_encoder_create(48_000, 1, OPUS_APPLICATION_VOIP, &error) else { return nil }
        self.encoder = encoder
    }

    deinit { opus_encoder_destroy(encoder) }

    func tone(samples: Int, from start: Int) -> [UInt8] {
        let sound = (0..<samples).map { Int16(8_000 * sin(Double(start + $0) * 2 * .pi * 440 / 48_000)) }
        var packet = [UInt8](repeating: 0, count: 1_275)
        let count = opus_encode(encoder, sound, Int32(samples), &packet, 1_275)
        return Array(packet[..<Int(max(0, count))])
    }
}
