// Reads a WAV file as a stream of mono samples, and trusts nothing that the file says about itself.
import Glibc

/// A WAV file open for reading (RIFF WAVE; PCM, IEEE float and WAVE_FORMAT_EXTENSIBLE of the two).
///
/// `WAVLayout` says how its parts are laid out.
final class WAVReader {
    let rate: Int
    let channels: Int
    let format: SampleFormat
    /// Frames in the data chunk.
    let frames: Int
    private let descriptor: Int32
    private let dataOffset: Int
    private var position = 0
    private let scratch: UnsafeMutableRawPointer
    private let framesPerRead: Int

    private var bytesPerFrame: Int { channels * format.bytesPerSample }

    /// Opens and checks `path`. Reads are of at most `framesPerRead` frames.
    init(path: String, framesPerRead: Int) throws(AudioFault) {
        let opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard opened >= 0 else { throw AudioFault(.open, errno) }
        do throws(AudioFault) {
            var status = stat()
            guard fstat(opened, &status) == 0 else { throw AudioFault(.readFile, errno) }
            guard status.st_mode & S_IFMT == S_IFREG else { throw AudioFault(.parseFile, WAVProblem.notRIFF.rawValue) }
            let layout = try WAVLayout(size: Int(status.st_size)) { Self.bytes(opened, at: $0, count: $1) }
            descriptor = opened
            rate = layout.rate
            channels = layout.channels
            format = layout.format
            dataOffset = layout.dataOffset
            frames = layout.dataSize / (layout.channels * layout.format.bytesPerSample)
            self.framesPerRead = framesPerRead
            scratch = .allocate(
                byteCount: framesPerRead * layout.channels * layout.format.bytesPerSample, alignment: 16)
        } catch {
            _ = close(opened)
            throw error
        }
    }

    deinit {
        _ = close(descriptor)
        scratch.deallocate()
    }

    /// Goes back to the first frame.
    func rewind() { position = 0 }

    /// Reads `count` frames, mixed to mono, and silence where the file has ended.
    ///
    /// - Returns: How many came from the file.
    func read(_ count: Int, into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int {
        precondition(count <= framesPerRead)
        let wanted = min(count, frames - position)
        var bytes = 0
        while bytes < wanted * bytesPerFrame {
            let offset = dataOffset + position * bytesPerFrame + bytes
            let result = pread(descriptor, scratch + bytes, wanted * bytesPerFrame - bytes, offset)
            if result < 0 {
                if errno == EINTR { continue }
                throw AudioFault(.readFile, errno)
            }
            if result == 0 { break }
            bytes += result
        }
        let got = bytes / bytesPerFrame
        format.decode(scratch, frames: got, channels: channels, into: output)
        if got < count { memset(output + got, 0, (count - got) * MemoryLayout<Float>.stride) }
        position += wanted
        return got
    }

    private static func bytes(_ descriptor: Int32, at offset: Int, count: Int) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: count)
        let result = buffer.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, count, offset) }
        return result == count ? buffer : nil
    }
}
