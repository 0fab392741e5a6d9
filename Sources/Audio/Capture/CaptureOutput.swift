// The configuration and the output of a microphone.
import MonotonicTime
import Vocabulary

/// How the microphone is used.
public struct CaptureConfiguration: Sendable {
    /// How speech is encoded.
    public var opus = OpusSettings()
    /// The device's period that is asked for; the device may give another.
    public var period = Duration.microseconds(2_500)
    /// When a microphone that has been started counts as hearing.
    public var microphoneStart = MicrophoneStart.automatic
    /// How long the microphone gives its chipset's noise when its link has come up, as far as that is known
    /// (`CaptureOutput.hears`); nil: nothing is known.
    public var settling: Duration?
    /// Whether a microphone that falls silent is told of, and ends the burst.
    public var isWatched = true
    /// Whether the same holds for a WAV file, which may be silent otherwise: it plays a microphone that dies.
    public var isFileWatched = false
    /// How loud speech is made. It costs no delay.
    public var gain = MicrophoneGain.automatic
    /// Whether steady noise is made quieter, which costs 5 ms of delay.
    public var suppressesNoise = false
    /// The sound that the speaker plays at the same time (`PlaybackConfiguration.played`). It is removed from the
    /// captured sound; nil: echoes are sent. This delays the sound by 5 ms, as does `suppressesNoise`; both together
    /// cost the delay once.
    public var echoOf: PlayedSound?

    /// 2.5 ms periods, Opus as `OpusSettings()`, BlueALSA's microphones waited for, automatic gain, noise and echoes left as they are.
    public init() {}
}

/// How loud speech is made.
public enum MicrophoneGain: Sendable, Equatable {
    /// As the microphone gives it.
    case off
    /// Towards a usual loudness, slowly: between -12 and +15 dB.
    case automatic
    /// A fixed gain in decibels (-20…30), limited to full scale.
    case fixed(decibels: Float)

    /// The gains that can be fixed.
    public static let decibels = -20...30

    /// The gain control that does it; nil: there is nothing to do.
    var control: GainControl? {
        switch self {
        case .off: nil
        case .automatic: GainControl()
        case .fixed(let decibels):
            GainControl(
                fixed: min(Float(Self.decibels.upperBound), max(Float(Self.decibels.lowerBound), decibels)))
        }
    }
}

/// When a microphone that has been started counts as hearing.
public enum MicrophoneStart: String, Sendable, CaseIterable {
    /// As the device's kind wants it: BlueALSA's are waited for, all others not.
    case automatic = "auto"
    /// With its first sample.
    case atOnce = "at-once"
    /// With its room's sound: before it runs, a Bluetooth link (SCO) delivers silence or its chipset's noise, for 0.5 to
    /// 1.5 s.
    case whenHeard = "when-heard"

    /// Whether `device` is waited for by its level.
    func waitsForLevel(of device: AudioDevice) -> Bool {
        switch self {
        case .atOnce: false
        case .whenHeard: true
        case .automatic: if case .alsa(let name) = device { BlueALSADevice.isMeant(by: name) } else { false }
        }
    }
}

/// Why a burst of captured speech is over.
public enum CaptureEnd: Sendable, BitwiseCopyable {
    /// Stopped, and the tail was captured.
    case stopped
    /// `start()` was called before the end of the tail: a new burst continues from here.
    case restarted
    /// Aborted: what was not taken yet is void, and no last frame comes.
    case aborted
    /// The device failed; the last frame was flagged.
    case deviceFailed
    /// The engine was closed; no last frame comes.
    case closed
}

/// What comes out of a `CaptureEngine`, in order.
public enum CaptureOutput: Sendable {
    /// The device is open and waits for `start()`; `took` is how long opening lasted.
    case prepared(took: Duration)
    /// The microphone hears; `after` is the time since the call of `start()`. It waits for `goAhead(from:)` for half a
    /// second at most. If not `really`, it stayed silent for the whole waiting time, and capturing starts anyway.
    /// `settledAfter`: how long it gave something else, such as its chipset's noise, between its first sound and its
    /// room's; nil for one that is not waited for.
    case hears(burst: UInt32, after: Duration, really: Bool, settledAfter: Duration? = nil)
    /// The burst's first sample was at the microphone at `firstSampleAt`, `after` the call of `start()`.
    case began(burst: UInt32, firstSampleAt: Instant, after: Duration)
    /// A frame.
    case frame(OutgoingFrame)
    /// The microphone has given no sound for a quarter of a second: the same sample again and again, or none. It is muted, or its link or
    /// its driver is dead. `heardAgain` follows, or after two seconds `failed`.
    case fellSilent(burst: UInt32)
    /// The microphone gives sound again.
    case heardAgain(burst: UInt32)
    /// The device failed within a burst. It is opened again and again for 1.5 s; until then the burst has a gap.
    case lost(AudioError)
    /// The device is back after `gap`, in the same burst.
    case resumed(gap: Duration)
    /// The burst is over: the device has been stopped, and nothing more comes of it. Comes once for every `start()`.
    case ended(burst: UInt32, CaptureEnd)
    /// The device failed. `ended` of a burst that was going on follows.
    case failed(AudioError)
}

/// Counts since the engine was made.
public struct CaptureStatistics: Sendable, Equatable {
    /// Frames put out.
    public var frames = 0
    /// Frames dropped because the owner did not take them. Their `position` is skipped.
    public var framesDropped = 0
    /// Overruns and suspensions recovered from; samples were lost.
    public var overruns = 0
    /// Time spent on processing and encoding all frames.
    public var encoding = Duration.zero
    /// Times a device that vanished within a burst came back in time.
    public var returns = 0
    /// Times the device was set running.
    public var deviceStarts = 0
    /// Times the device was stopped; equals `deviceStarts` whenever no burst is going on (I1).
    public var deviceStops = 0
}
