// What a recording of a microphone holds, in a few numbers and one word. Pure.
import Glibc

/// What was heard, in one word.
public enum SoundVerdict: String, Sendable, CaseIterable, Encodable {
    /// No sample came.
    case nothing
    /// Digital zeros, or one value again and again: no microphone sounds so.
    case silence
    /// Sound that is cut off at full scale.
    case clipped
    /// Sound that comes and goes as speech does.
    case speech
    /// The same, but so quiet that it is hard to understand.
    case faintSpeech = "faint-speech"
    /// Knocks or clicks, and nothing else.
    case shortSound = "short-sound"
    /// Sound that stays as loud as it is: a fan, hum, hiss, a tone.
    case steadySound = "steady-sound"
    /// The noise of a microphone in a room in which nobody talks.
    case quietRoom = "quiet-room"

    /// Whether a microphone of which this is heard can be used as it is.
    public var isUsable: Bool {
        switch self {
        case .nothing, .silence, .clipped: false
        case .speech, .faintSpeech, .shortSound, .steadySound, .quietRoom: true
        }
    }
}

/// Measures samples as they come, and judges them at the end.
///
/// Loudness is measured in windows of 20 ms, without a constant offset, which many cheap microphones have.
public struct SoundLevels: Sendable {
    /// The lowest level that is told, in dBFS: 16 bits end here.
    public static let quietest: Float = -96
    /// Windows that are kept: two minutes. Later sound counts for nothing.
    static let windowsMax = 6_000
    static let window = audioClockRate / 50
    /// Speech is at least so much louder than the noise between the words.
    private static let rise: Float = 10
    /// Windows of it that make speech: a third of a second. A knock has fewer.
    private static let speechWindows = 16
    /// Quieter speech is hard to understand.
    private static let faintBelow: Float = -48
    /// A louder noise is no quiet room's.
    private static let quietRoomBelow: Float = -45
    /// Less of it is no sound, whatever the noise: -60 dBFS.
    private static let soundAbove: Float = -60
    /// A sample at full scale, and somewhat below it, for a converter of rates rounds what was cut off.
    private static let fullScale: Float = 0.985
    /// Samples in a row at full scale that have been cut off, and how often that is so in sound that is clipped.
    private static let (clippedSamples, clippedRuns) = (3, 8)

    /// Of the window; double, because the noise is small beside an offset.
    private var sum = 0.0
    private var power = 0.0
    private var count = 0
    private var windows: [Float] = []
    private var run = 0
    private var runs = 0
    private(set) var highest: Float = 0

    /// Nothing heard yet.
    public init() { windows.reserveCapacity(Self.windowsMax) }

    /// Takes further samples, at 48 kHz.
    public mutating func take(_ samples: UnsafeBufferPointer<Float>) {
        for sample in samples {
            sum += Double(sample)
            power += Double(sample) * Double(sample)
            highest = max(highest, abs(sample))
            run = abs(sample) >= Self.fullScale ? run + 1 : 0
            if run == Self.clippedSamples { runs += 1 }
            count += 1
            if count == Self.window { endWindow() }
        }
    }

    private mutating func endWindow() {
        let mean = sum / Double(count)
        if windows.count < Self.windowsMax { windows.append(Float(max(0, power / Double(count) - mean * mean))) }
        (sum, power, count) = (0, 0, 0)
    }

    /// The loudness of the last window, for a meter, in dBFS.
    public var current: Float { windows.last.map(Self.decibels) ?? Self.quietest }

    /// The highest sample, in dBFS.
    public var peak: Float { Self.decibels(highest * highest) }

    /// How loud it is where it is loud: more than 19 of 20 windows are quieter. In dBFS.
    public var level: Float { percentile(95) }

    /// How loud it is where it is quiet: 1 of 10 windows is quieter. In dBFS.
    public var noiseFloor: Float { percentile(10) }

    /// How long there was nothing but digital silence at the beginning, as before a Bluetooth link runs; all of it if there was nothing else.
    public var silentStart: Duration {
        .milliseconds(20 * (windows.firstIndex(where: Self.isHeard) ?? windows.count))
    }

    /// What it is.
    public var verdict: SoundVerdict {
        guard !windows.isEmpty else { return .nothing }
        guard windows.count(where: Self.isHeard) >= 3 else { return .silence }
        if runs >= Self.clippedRuns { return .clipped }
        let threshold = max(noiseFloor + Self.rise, Self.soundAbove)
        let above = windows.count { Self.decibels($0) >= threshold }
        if above >= Self.speechWindows { return level >= Self.faintBelow ? .speech : .faintSpeech }
        if noiseFloor >= Self.quietRoomBelow { return .steadySound }
        return above >= 2 ? .shortSound : .quietRoom
    }

    /// Of the windows since the first that was heard.
    private func percentile(_ percent: Int) -> Float {
        let heard = windows.drop { !Self.isHeard($0) }.sorted()
        guard !heard.isEmpty else { return Self.quietest }
        return Self.decibels(heard[min(heard.count - 1, heard.count * percent / 100)])
    }

    private static func isHeard(_ power: Float) -> Bool { power > MicrophoneHearing.floor }

    private static func decibels(_ power: Float) -> Float {
        power > 0 ? min(0, max(quietest, 10 * log10f(power))) : quietest
    }
}
