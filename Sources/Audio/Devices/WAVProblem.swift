// Why a file is not a playable WAV file.

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
