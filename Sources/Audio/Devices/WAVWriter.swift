// Writes a WAV file that is valid at any instant, with gaps that take no disk space.
import Glibc

/// A 16-bit mono WAV file open for writing.
///
/// After each call the header names what is there, so a killed process leaves a file that plays. A gap is
/// made by moving the end of the file: file systems keep it as a hole.
final class WAVWriter {
    /// Frames that fit into the 32-bit sizes of the format.
    static let framesMax = (Int(UInt32.max) - headerSize) / 2
    private static let headerSize = 44

    private let descriptor: Int32
    /// Frames in the file.
    private(set) var frames = 0

    /// Creates or empties the file at `path`.
    init(path: String, rate: Int) throws(AudioFault) {
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0o644)
        // All is assigned: whatever is thrown from here on, `deinit` closes the file.
        guard descriptor >= 0 else { throw AudioFault(.open, errno) }
        guard ftruncate(descriptor, 0) == 0 else { throw AudioFault(.writeFile, errno) }
        try writeHeader(rate: rate)
    }

    deinit { _ = close(descriptor) }

    /// Appends `count` samples.
    func append(_ samples: UnsafePointer<Int16>, count: Int) throws(AudioFault) {
        guard frames + count <= Self.framesMax else { throw AudioFault(.fileFull, EFBIG) }
        try put(samples, count * 2, at: Self.headerSize + frames * 2)
        frames += count
        try writeSizes()
    }

    /// Makes the file `count` frames long by silence at its end; nothing when it is longer already.
    func extend(to count: Int) throws(AudioFault) {
        guard count > frames else { return }
        guard count <= Self.framesMax else { throw AudioFault(.fileFull, EFBIG) }
        guard ftruncate(descriptor, Self.headerSize + count * 2) == 0 else { throw AudioFault(.writeFile, errno) }
        frames = count
        try writeSizes()
    }

    private func writeHeader(rate: Int) throws(AudioFault) {
        var header = Array("RIFF".utf8) + Self.bytes(Self.headerSize - 8) + Array("WAVEfmt ".utf8)
        // The length of this; PCM, one channel; frames and bytes a second; bytes per frame, bits per sample.
        header += [16, 1 | 1 << 16, rate, rate * 2, 2 | 16 << 16].flatMap(Self.bytes)
        header += Array("data".utf8) + Self.bytes(0)
        try put(header, header.count, at: 0)
    }

    private static func bytes(_ number: Int) -> [UInt8] { withUnsafeBytes(of: UInt32(number).littleEndian, Array.init) }

    /// After the samples, never before: so the sizes never promise what is not there.
    private func writeSizes() throws(AudioFault) {
        var riff = UInt32(Self.headerSize - 8 + frames * 2).littleEndian
        var data = UInt32(frames * 2).littleEndian
        try put(&data, 4, at: 40)
        try put(&riff, 4, at: 4)
    }

    private func put(_ bytes: UnsafeRawPointer, _ count: Int, at offset: Int) throws(AudioFault) {
        var done = 0
        while done < count {
            let result = pwrite(descriptor, bytes + done, count - done, offset + done)
            if result < 0 {
                if errno == EINTR { continue }
                throw AudioFault(.writeFile, errno)
            }
            done += result
        }
    }
}
