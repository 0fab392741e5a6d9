// A WAV file as a microphone, in real time.
import CLinux
import Glibc
import MonotonicTime

/// Plays a file as if it were spoken: each start begins at its first sample, and after its last there is silence.
///
/// Deadlines are absolute (start + samples / rate), so a late wake-up delays one period and nothing drifts.
final class WAVMicrophone: CaptureSource {
    private let path: String
    private let period: Duration
    private var reader: WAVReader
    private let resampler: Resampler?
    private let native: UnsafeMutablePointer<Float>
    private let periodFrames: Int
    private var startedAt = Instant.zero
    private var framesRead = 0
    private var samplesGiven = 0

    /// Checks the file at `path`.
    init(path: String, period: Duration) throws(AudioFault) {
        self.path = path
        self.period = max(.milliseconds(1), min(period, .milliseconds(50)))
        let first = try WAVReader(path: path, framesPerRead: 1)
        periodFrames = max(1, Int(Double(first.rate) * self.period.milliseconds / 1000))
        reader = try WAVReader(path: path, framesPerRead: periodFrames)
        resampler =
            reader.rate == audioClockRate
            ? nil : Resampler(from: reader.rate, to: audioClockRate, inputMax: periodFrames)
        native = .allocate(capacity: periodFrames)
    }

    deinit { native.deallocate() }

    var readMax: Int { resampler?.outputMax ?? periodFrames }
    var recoveries: Int { 0 }
    var form: SoundDeviceForm? { SoundDeviceForm(rate: reader.rate, channels: reader.channels) }
    var mayBeSilent: Bool { true }
    var nextSampleTime: Instant { startedAt + CaptureStateMachine.duration(Int64(samplesGiven)) }

    func open() throws(AudioFault) {}

    func start() throws(AudioFault) {
        reader.rewind()
        resampler?.reset()
        framesRead = 0
        samplesGiven = 0
        startedAt = .now
    }

    func read(into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int {
        sleep(until: startedAt + Self.time(of: framesRead + periodFrames, rate: reader.rate))
        framesRead += periodFrames
        guard let resampler else {
            _ = try reader.read(periodFrames, into: output)
            samplesGiven += periodFrames
            return periodFrames
        }
        _ = try reader.read(periodFrames, into: native)
        let count = resampler.process(native, count: periodFrames, into: output)
        samplesGiven += count
        return count
    }

    func stop() {}
    func close() {}

    /// How long so many frames last. Whole seconds are apart: in nanoseconds the product overflows after two days.
    static func time(of frames: Int, rate: Int) -> Duration {
        .seconds(frames / rate) + .nanoseconds(frames % rate * 1_000_000_000 / rate)
    }
}

/// Sleeps until `instant` by the monotonic clock; not at all when it is over.
func sleep(until instant: Instant) {
    var time = timespec(
        tv_sec: Int(instant.nanoseconds / 1_000_000_000), tv_nsec: Int(instant.nanoseconds % 1_000_000_000))
    while clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nil) == EINTR {}
}
