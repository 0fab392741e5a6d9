// WAV files: every format that is read, everything that is refused, and files that are whole at any instant.
import Glibc
import TestSupport
import Testing

@testable import Audio

@Suite struct WAVFileTests {
    @Test(
        arguments: [SampleFormat.unsigned8, .signed16, .signed24Packed, .signed32, .float32], [1, 2, 6])
    func `every format is read and mixed to mono`(format: SampleFormat, channels: Int) throws {
        let samples = chirps(seconds: 0.1)
        for extensible in [false, true] {
            let path = temporaryPath("format.wav")
            defer { unlink(path) }
            writeFile(path, wav(samples, rate: 44_100, channels: channels, format: format, extensible: extensible))
            let reader = try WAVReader(path: path, framesPerRead: 16)
            #expect(reader.rate == 44_100 && reader.channels == channels && reader.format == format)
            let read = try readWAV(path)
            #expect(read.count == samples.count)
            let step: Float = format == .unsigned8 ? 0.01 : 0.0001
            #expect(zip(read, samples).allSatisfy { abs($0 - $1) < step })
        }
    }

    @Test func `after the end there is silence and rewind begins anew`() throws {
        let path = temporaryPath("end.wav")
        defer { unlink(path) }
        writeFile(path, wav([0.5, 0.25]))
        let reader = try WAVReader(path: path, framesPerRead: 4)
        var buffer: [Float] = [9, 9, 9, 9]
        #expect(
            try buffer.withUnsafeMutableBufferPointer { buffer throws in try reader.read(4, into: buffer.baseAddress!) }
                == 2)
        #expect(abs(buffer[0] - 0.5) < 0.001 && buffer[2] == 0 && buffer[3] == 0)
        #expect(
            try buffer.withUnsafeMutableBufferPointer { buffer throws in try reader.read(4, into: buffer.baseAddress!) }
                == 0)
        #expect(buffer == [0, 0, 0, 0])
        reader.rewind()
        #expect(
            try buffer.withUnsafeMutableBufferPointer { buffer throws in try reader.read(1, into: buffer.baseAddress!) }
                == 1)
        #expect(abs(buffer[0] - 0.5) < 0.001)
    }

    @Test func `a recorder killed before it wrote the sizes still gives its samples`() throws {
        let path = temporaryPath("killed.wav")
        defer { unlink(path) }
        for size in [[0, 0, 0, 0], [255, 255, 255, 255]] as [[UInt8]] {
            var bytes = wav([Float](repeating: 0.5, count: 480))
            bytes.replaceSubrange(40..<44, with: size)
            writeFile(path, bytes)
            #expect(try readWAV(path).count == 480)
        }
    }

    @Test func `chunks before the data are passed over`() throws {
        let path = temporaryPath("chunks.wav")
        defer { unlink(path) }
        var bytes = wav([0.5, 0.5])
        // An odd length is padded.
        bytes.insert(contentsOf: Array("LIST".utf8) + [3, 0, 0, 0, 1, 2, 3, 0], at: 36)
        writeFile(path, bytes)
        #expect(try readWAV(path).count == 2)
    }

    @Test(arguments: [
        ("empty", WAVProblem.notRIFF), ("text", .notRIFF), ("no data", .noData), ("no format", .noFormat),
        ("short format", .noFormat), ("mu-law", .unsupportedEncoding), ("64-bit", .unsupportedEncoding),
        ("no channels", .unsupportedChannels), ("many channels", .unsupportedChannels), ("slow", .unsupportedRate),
        ("fast", .unsupportedRate), ("block", .inconsistent), ("chunks", .tooManyChunks),
    ]) func `a malformed file is refused with the reason`(what: String, problem: WAVProblem) {
        let path = temporaryPath("malformed.wav")
        defer { unlink(path) }
        var bytes = wav([0.5, 0.5])
        switch what {
        case "empty": bytes = []
        case "text": bytes = Array("This is not a sound, but a text that is long enough.".utf8)
        case "no data": bytes.removeSubrange(36...)
        case "no format": bytes.removeSubrange(12..<36)
        case "short format": bytes[16] = 10
        case "mu-law": bytes[20] = 7
        case "64-bit": bytes[34] = 64
        case "no channels": bytes[22] = 0
        case "many channels": bytes[23] = 1
        case "slow": bytes.replaceSubrange(24..<28, with: [10, 0, 0, 0])
        case "fast": bytes.replaceSubrange(24..<28, with: [0, 0, 0, 1])
        case "block": bytes[32] = 3
        default:
            let junk = Array("junk".utf8) + [0, 0, 0, 0]
            bytes.insert(contentsOf: (0..<300).flatMap { _ in junk }, at: 12)
        }
        writeFile(path, bytes)
        #expect(throws: AudioFault(.parseFile, problem.rawValue)) { try WAVReader(path: path, framesPerRead: 16) }
    }

    @Test(arguments: 0..<300) func `no mutilated file crashes the reader`(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        let path = temporaryPath("fuzz.wav")
        defer { unlink(path) }
        var bytes = wav(
            chirps(seconds: 0.01), rate: 16_000, channels: 2, format: seed % 2 == 0 ? .signed16 : .float32,
            extensible: seed % 3 == 0)
        for _ in 0..<Int.random(in: 1...8, using: &generator) {
            switch Int.random(in: 0..<4, using: &generator) {
            case 0: bytes.removeLast(min(bytes.count, Int.random(in: 0...400, using: &generator)))
            case 1 where !bytes.isEmpty:
                bytes.remove(at: Int.random(in: 0..<bytes.count, using: &generator))
            default:
                if bytes.isEmpty { continue }
                let place = Int.random(in: 0..<min(bytes.count, 80), using: &generator)
                bytes[place] = .random(in: .min ... .max, using: &generator)
            }
        }
        writeFile(path, bytes)
        do {
            let samples = try readWAV(path)
            #expect(samples.count <= bytes.count, "seed \(seed)")
            #expect(samples.allSatisfy { $0.isFinite }, "seed \(seed)")
        } catch let fault as AudioFault {
            #expect(WAVProblem(rawValue: fault.code) != nil, "seed \(seed)")
        } catch {
            Issue.record("seed \(seed): \(error)")
        }
    }

    @Test func `a directory and a missing file are refused`() {
        #expect(throws: AudioFault.self) { try WAVReader(path: "/tmp", framesPerRead: 16) }
        #expect(throws: AudioFault(.open, ENOENT)) { try WAVReader(path: temporaryPath("none"), framesPerRead: 16) }
        #expect(throws: AudioFault(.open, ENOENT)) { try WAVWriter(path: "/tmp/no/such/folder.wav", rate: 48_000) }
    }

    /// A second time would close what another thread has opened meanwhile.
    @Test func `a file that cannot be emptied is closed once`() async {
        async let lost = Task.detached {
            (0..<200_000).count { _ in close(open("/dev/zero", O_RDONLY | O_CLOEXEC)) != 0 }
        }.value
        let refused = (0..<50_000).count { _ in
            do throws(AudioFault) { _ = try WAVWriter(path: "/dev/null", rate: 48_000) } catch {
                return error == AudioFault(.writeFile, EINVAL)
            }
            return false
        }
        #expect(refused == 50_000)
        #expect(await lost == 0)
    }

    @Test(arguments: [Resampler.rateMin, 44_100, 48_000, Resampler.rateMax])
    func `a file is a microphone for a year`(rate: Int) {
        let year = 365 * 86_400
        #expect(WAVMicrophone.time(of: year * rate, rate: rate) == .seconds(year))
        #expect(WAVMicrophone.time(of: year * rate + rate / 4, rate: rate) == .seconds(year) + .milliseconds(250))
        #expect(WAVMicrophone.time(of: 441, rate: 44_100) == .milliseconds(10))
    }

    @Test func `the silence after the last sound is in the file, though the speaker was closed before`() throws {
        let path = temporaryPath("closed.wav")
        defer { unlink(path) }
        let speaker = try WAVSpeaker(path: path, configuration: PlaybackConfiguration())
        let block = [Float](repeating: 0.5, count: playbackBlock)
        for _ in 0..<2 {
            try speaker.open()
            try speaker.start()
            try speaker.write(block)
            usleep(100_000)
            speaker.close()
        }
        let samples = try readWAV(path)
        #expect(samples.count { $0 > 0.4 } == 2 * playbackBlock)
        #expect(samples.suffix(2_400).allSatisfy { $0 == 0 })
    }

    @Test func `the file is whole after every step and gaps are silence`() throws {
        let path = temporaryPath("writer.wav")
        defer { unlink(path) }
        let writer = try WAVWriter(path: path, rate: 48_000)
        #expect(try readWAV(path).isEmpty)
        let block = [Int16](repeating: 16_384, count: 240)
        try block.withUnsafeBufferPointer { try writer.append($0.baseAddress!, count: 240) }
        #expect(try readWAV(path).count == 240)
        try writer.extend(to: 48_000 * 60)
        #expect(try readWAV(path).count == 48_000 * 60)
        try writer.extend(to: 100)
        try block.withUnsafeBufferPointer { try writer.append($0.baseAddress!, count: 240) }
        let samples = try readWAV(path)
        #expect(samples.count == 48_000 * 60 + 240)
        #expect(samples[0] == 0.5 && samples[300] == 0 && samples[48_000 * 60] == 0.5)
        // The minute of silence takes no space on the disk.
        var status = stat()
        stat(path, &status)
        #expect(status.st_blocks * 512 < 100_000)
        #expect(throws: AudioFault(.fileFull, EFBIG)) { try writer.extend(to: WAVWriter.framesMax + 1) }
    }
}
