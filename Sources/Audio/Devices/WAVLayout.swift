// Where the samples of a WAV file are and how they are stored. Trusts nothing that the file says about itself. Pure.

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
