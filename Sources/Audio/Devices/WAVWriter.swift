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
    private let rate: Int
    /// Frames in the file.
    private(set) var frames = 0

    /// Creates or empties the file at `path`.
    init(path: String, rate: Int) throws(AudioFault) {
        self.rate = rate
        descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0o644)
        guard descriptor >= 0 else { throw AudioFault(.open, errno) }
        guard ftruncate(descriptor, 0) == 0 else {
            let code = errno
            _ = close(descriptor)
            throw AudioFault(.writeFile, code)
        }
        do throws(AudioFault) {
            try writeHeader()
        } catch {
            _ = close(descriptor)
            throw error
        }
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

    private func writeHeader() throws(AudioFault) {
        try withTemporaryBytes(Self.headerSize) { (header) throws(AudioFault) in
            put32(header, 0, 0x4646_4952)  // RIFF
            put32(header, 4, UInt32(Self.headerSize - 8))
            put32(header, 8, 0x4556_4157)  // WAVE
            put32(header, 12, 0x2074_6D66)  // fmt
            put32(header, 16, 16)
            put32(header, 20, 1 | 1 << 16)  // PCM, one channel
            put32(header, 24, UInt32(rate))
            put32(header, 28, UInt32(rate * 2))
            put32(header, 32, 2 | 16 << 16)  // bytes per frame, bits per sample
            put32(header, 36, 0x6174_6164)  // data
            put32(header, 40, 0)
            try put(header, Self.headerSize, at: 0)
        }
    }

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

    private func put32(_ header: UnsafeMutableRawPointer, _ offset: Int, _ value: UInt32) {
        header.storeBytes(of: value.littleEndian, toByteOffset: offset, as: UInt32.self)
    }

    private func withTemporaryBytes(
        _ count: Int, _ body: (UnsafeMutableRawPointer) throws(AudioFault) -> Void
    ) throws(AudioFault) {
        let bytes = UnsafeMutableRawPointer.allocate(byteCount: count, alignment: 4)
        defer { bytes.deallocate() }
        try body(bytes)
    }
}
