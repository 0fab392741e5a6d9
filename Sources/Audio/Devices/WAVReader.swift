// Reads a WAV file as a stream of mono samples, and trusts nothing that the file says about itself.
import Glibc

/// A WAV file open for reading (RIFF WAVE; PCM, IEEE float and WAVE_FORMAT_EXTENSIBLE of the two).
///
/// Its parts are as Microsoft's "Multimedia Programming Interface and Data Specifications 1.0" lays them out. A data
/// size of 0 or beyond the file's end, as recorders leave behind when killed, means "until the file ends".
final class WAVReader {
    /// Maximum number of chunks that are searched for the data.
    static let chunkCountMax = 256

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
            let layout = try Self.parse(opened, size: Int(status.st_size))
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

    private struct Layout {
        var rate = 0
        var channels = 0
        var format = SampleFormat.signed16
        var dataOffset = 0
        var dataSize = 0
    }

    private static func parse(_ descriptor: Int32, size: Int) throws(AudioFault) -> Layout {
        func problem(_ problem: WAVProblem) -> AudioFault { AudioFault(.parseFile, problem.rawValue) }
        guard let riff = bytes(descriptor, at: 0, count: 12), riff.starts(with: Array("RIFF".utf8)),
            riff[8...].starts(with: Array("WAVE".utf8))
        else { throw problem(.notRIFF) }
        var layout: Layout?
        var offset = 12
        for _ in 0..<chunkCountMax {
            guard let header = bytes(descriptor, at: offset, count: 8) else {
                throw problem(layout == nil ? .noFormat : .noData)
            }
            let length = Int(word(header, 4, 4))
            let body = offset + 8
            if header.starts(with: Array("fmt ".utf8)) {
                guard length >= 16, let fields = bytes(descriptor, at: body, count: min(length, 40)) else {
                    throw problem(.noFormat)
                }
                layout = try parseFormat(fields)
            } else if header.starts(with: Array("data".utf8)) {
                guard var found = layout else { throw problem(.noFormat) }
                let rest = max(0, size - body)
                found.dataOffset = body
                found.dataSize = length == 0 ? rest : min(length, rest)
                return found
            }
            // Chunks are padded to an even size. `length` is below 2^32, so this does not overflow.
            offset = body + length + (length & 1)
            if offset >= size { throw problem(layout == nil ? .noFormat : .noData) }
        }
        throw problem(.tooManyChunks)
    }

    private static func parseFormat(_ fields: [UInt8]) throws(AudioFault) -> Layout {
        func problem(_ problem: WAVProblem) -> AudioFault { AudioFault(.parseFile, problem.rawValue) }
        var tag = word(fields, 0, 2)
        // WAVE_FORMAT_EXTENSIBLE: the encoding is the first two bytes of the sub-format's GUID.
        if tag == 0xFFFE {
            guard fields.count >= 26 else { throw problem(.noFormat) }
            tag = word(fields, 24, 2)
        }
        var layout = Layout()
        layout.channels = Int(word(fields, 2, 2))
        layout.rate = Int(word(fields, 4, 4))
        switch (tag, word(fields, 14, 2)) {
        case (1, 8): layout.format = .unsigned8
        case (1, 16): layout.format = .signed16
        case (1, 24): layout.format = .signed24Packed
        case (1, 32): layout.format = .signed32
        case (3, 32): layout.format = .float32
        default: throw problem(.unsupportedEncoding)
        }
        guard (1...SampleFormat.channelsMax).contains(layout.channels) else { throw problem(.unsupportedChannels) }
        guard (Resampler.rateMin...Resampler.rateMax).contains(layout.rate) else { throw problem(.unsupportedRate) }
        guard Int(word(fields, 12, 2)) == layout.channels * layout.format.bytesPerSample else {
            throw problem(.inconsistent)
        }
        return layout
    }

    private static func bytes(_ descriptor: Int32, at offset: Int, count: Int) -> [UInt8]? {
        var buffer = [UInt8](repeating: 0, count: count)
        let result = buffer.withUnsafeMutableBytes { pread(descriptor, $0.baseAddress, count, offset) }
        return result == count ? buffer : nil
    }

    private static func word(_ bytes: [UInt8], _ offset: Int, _ count: Int) -> UInt32 {
        var value: UInt32 = 0
        for index in 0..<count { value |= UInt32(bytes[offset + index]) << UInt32(8 * index) }
        return value
    }
}
