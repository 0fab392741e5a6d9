// What the engines ask of a device: mono Float at 48 kHz in both directions, driven by the engine's thread.
import MonotonicTime

/// A microphone. All calls come from the capture thread, but `init`.
protocol CaptureSource: AnyObject {
    /// The most samples that one `read` gives.
    var readMax: Int { get }
    /// Opens and configures the device; it does not run. Nothing when it is open.
    func open() throws(AudioFault)
    /// Sets it running.
    func start() throws(AudioFault)
    /// Waits for a period, at most about 100 ms, and reads it; may give nothing. Allocates nothing.
    func read(into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int
    /// When the sample that the next `read` begins with was, or will be, at the microphone.
    var nextSampleTime: Instant { get }
    /// Overruns and suspensions recovered from since `open`.
    var recoveries: Int { get }
    /// What the device agreed to; nil while it is not configured.
    var form: SoundDeviceForm? { get }
    /// Whether silence is what it is to give: of a file, not of a microphone.
    var mayBeSilent: Bool { get }
    /// Stops it and discards what was captured and not read. It stays open. Never fails: what cannot be stopped is closed.
    func stop()
    /// Closes it. Nothing when it is closed.
    func close()
    /// When what `stop` left behind for a quick start has to go, by `endRest`; nil: there is nothing.
    var restsUntil: Instant? { get }
    func endRest()
}

/// Most devices leave nothing behind.
extension CaptureSource {
    var form: SoundDeviceForm? { nil }
    var mayBeSilent: Bool { false }
    var restsUntil: Instant? { nil }
    func endRest() {}
}

/// Samples that are rendered and written at once: 2.5 ms. The queue of a device is at least twice that.
let playbackBlock = audioClockRate / 400

/// A speaker. All calls come from the playback thread, but `init`.
protocol PlaybackSink: AnyObject {
    /// Opens and configures the device; it does not run. Nothing when it is open.
    func open() throws(AudioFault)
    /// Sets it running on silence, as much as its queue is to hold.
    func start() throws(AudioFault)
    /// Waits until a block of samples is wanted, at most about 100 ms; `false` when none is wanted yet.
    func waitForRoom() throws(AudioFault) -> Bool
    /// Writes a block of `playbackBlock` samples, after `waitForRoom` said so. Allocates nothing.
    func write(_ samples: UnsafePointer<Float>) throws(AudioFault)
    /// The time from now until a sample that is written now is heard.
    var delay: Duration { get }
    /// How much less than it is to hold was queued when `waitForRoom` said that a block is wanted: what is written now is heard
    /// so much earlier than it would be after a thread that was in time.
    var shortfall: Duration { get }
    /// What the device agreed to; nil while it is not configured.
    var form: SoundDeviceForm? { get }
    /// Times it ran empty since `open`.
    var underruns: Int { get }
    /// Stops it and discards what was not heard yet. It stays open.
    func stop()
    /// Closes it. Nothing when it is closed.
    func close()
    /// When what `stop` left behind for a quick start has to go, by `endRest`; nil: there is nothing.
    var restsUntil: Instant? { get }
    func endRest()
    /// When the first sample of a recording is; nil when this is none.
    var recordingOrigin: Instant? { get }
}

/// Most devices leave nothing behind.
extension PlaybackSink {
    var form: SoundDeviceForm? { nil }
    var shortfall: Duration { .zero }
    var restsUntil: Instant? { nil }
    func endRest() {}
}

/// A source for `device`; a WAV file is checked.
func makeCaptureSource(_ device: AudioDevice, period: Duration) throws(AudioFault) -> any CaptureSource {
    switch device {
    case .alsa(let name): ALSACapture(name: name, period: period)
    case .wav(let path): try WAVMicrophone(path: path, period: period)
    }
}

/// A sink for `device`; a WAV file is made.
func makePlaybackSink(_ device: AudioDevice, configuration: PlaybackConfiguration) throws(AudioFault)
    -> any PlaybackSink
{
    switch device {
    case .alsa(let name):
        ALSAPlayback(name: name, period: configuration.period, queue: configuration.deviceQueue)
    case .wav(let path): try WAVSpeaker(path: path, configuration: configuration)
    }
}
