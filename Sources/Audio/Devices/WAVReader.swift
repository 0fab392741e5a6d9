// Reads WAV files: where the samples are and how they are stored, and why a file is not playable. Trusts nothing that a file says.
import Glibc

/// The layout of a WAV file (RIFF WAVE; PCM, IEEE float and WAVE_FORMAT_EXTENSIBLE of the two), on a disk or in memory.
///
/// Its parts are as Microsoft's "Multimedia Programming Interface and Data Specifications 1.0" lays them out. A data
/// size of 0 or beyond the file's end means "until the file ends": recorders leave it behind when killed, and programs
/// that write into a pipe do not know it.
struct WAVLayout {
    /// Maximum number of chunks that are searched for the data.
    static let chunkCountMax = 256

    private(set) var rate = 0
    private(set) var channels = 0
    private(set) var format = SampleFormat.signed16
    private(set) var dataOffset = 0
    private(set) var dataSize = 0

    /// Reads the layout of a file of `size` bytes.
    ///
    /// - Parameter bytes: Returns so many bytes of the file from an offset on; nil when it does not have them.
    init(size: Int, _ bytes: (_ offset: Int, _ count: Int) -> [UInt8]?) throws(AudioFault) {
        guard let riff = bytes(0, 12), riff.starts(with: Array("RIFF".utf8)),
            riff[8...].starts(with: Array("WAVE".utf8))
        else { throw Self.problem(.notRIFF) }
        var layout: WAVLayout?
        var offset = 12
        for _ in 0..<Self.chunkCountMax {
            guard let header = bytes(offset, 8) else { throw Self.problem(layout == nil ? .noFormat : .noData) }
            let length = Int(Self.word(header, 4, 4))
            let body = offset + 8
            if header.starts(with: Array("fmt ".utf8)) {
                guard length >= 16, let fields = bytes(body, min(length, 40)) else { throw Self.problem(.noFormat) }
                layout = try WAVLayout(format: fields)
            } else if header.starts(with: Array("data".utf8)) {
                guard let found = layout else { throw Self.problem(.noFormat) }
                let rest = max(0, size - body)
                self = found
                dataOffset = body
                dataSize = length == 0 ? rest : min(length, rest)
                return
            }
            // Chunks are padded to an even size. `length` is below 2^32, so this does not overflow.
            offset = body + length + (length & 1)
            if offset >= size { throw Self.problem(layout == nil ? .noFormat : .noData) }
        }
        throw Self.problem(.tooManyChunks)
    }

    private init(format fields: [UInt8]) throws(AudioFault) {
        var tag = Self.word(fields, 0, 2)
        // WAVE_FORMAT_EXTENSIBLE: the encoding is the first two bytes of the sub-format's GUID.
        if tag == 0xFFFE {
            guard fields.count >= 26 else { throw Self.problem(.noFormat) }
            tag = Self.word(fields, 24, 2)
        }
        channels = Int(Self.word(fields, 2, 2))
        rate = Int(Self.word(fields, 4, 4))
        switch (tag, Self.word(fields, 14, 2)) {
        case (1, 8): format = .unsigned8
        case (1, 16): format = .signed16
        case (1, 24): format = .signed24Packed
        case (1, 32): format = .signed32
        case (3, 32): format = .float32
        default: throw Self.problem(.unsupportedEncoding)
        }
        guard (1...SampleFormat.channelsMax).contains(channels) else { throw Self.problem(.unsupportedChannels) }
        guard (Resampler.rateMin...Resampler.rateMax).contains(rate) else { throw Self.problem(.unsupportedRate) }
        guard Int(Self.word(fields, 12, 2)) == channels * format.bytesPerSample else {
            throw Self.problem(.inconsistent)
        }
    }

    private static func problem(_ problem: WAVProblem) -> AudioFault { AudioFault(.parseFile, problem.rawValue) }

    private static func word(_ bytes: [UInt8], _ offset: Int, _ count: Int) -> UInt32 {
        var value: UInt32 = 0
        for index in 0..<count { value |= UInt32(bytes[offset + index]) << UInt32(8 * index) }
        return value
    }
}

/// What is wrong with a WAV file. Raw values, because a fault carries one number.
enum WAVProblem: Int32, Error, CustomStringConvertible {
    case notRIFF = 1
    case noFormat, noData, tooManyChunks, unsupportedEncoding, unsupportedChannels, unsupportedRate, inconsistent
    case unreadable

    var description: String {
        switch self {
        case .notRIFF: "it does not begin with RIFF and WAVE"
        case .noFormat: "it has no complete fmt chunk before its data"
        case .noData: "it has no data chunk"
        case .tooManyChunks: "it has more than \(WAVLayout.chunkCountMax) chunks before its data"
        case .unsupportedEncoding: "its samples are neither 8, 16, 24 or 32-bit PCM nor 32-bit float"
        case .unsupportedChannels: "it has no or more than \(SampleFormat.channelsMax) channels"
        case .unsupportedRate: "its rate is not within \(Resampler.rateMin)…\(Resampler.rateMax) Hz"
        case .inconsistent: "its fmt chunk contradicts itself"
        case .unreadable: "it cannot be read"
        }
    }
}

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
