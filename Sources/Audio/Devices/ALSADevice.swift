// What a microphone and a speaker of ALSA have in common: opening, stopping, closing, and a server's stream meanwhile.
import CALSA
import Glibc
import MonotonicTime

/// A device of ALSA in one direction, at whatever rate and with as many channels as it has. Confined to its engine's thread.
class ALSADevice {
    final let name: String
    final let period: Duration
    final private(set) var pcm: ALSAPCM?
    final var resampler: Resampler?
    private let stream: snd_pcm_stream_t
    private var resting: RestingStream
    /// What is moved at once, as bytes of the device; and as mono at the device's rate.
    final let bytes: UnsafeMutableRawPointer
    final let native: UnsafeMutablePointer<Float>

    /// A device that moves `framesMax` frames at once, and whose stream rests for `restSpan`.
    init(name: String, period: Duration, _ stream: snd_pcm_stream_t, restSpan: Duration, framesMax: Int) {
        self.name = name
        self.period = max(.milliseconds(1), min(period, .milliseconds(50)))
        self.stream = stream
        resting = RestingStream(span: restSpan)
        let byteCount = framesMax * SampleFormat.channelsMax * 4
        bytes = .allocate(byteCount: byteCount, alignment: 16)
        // ALSA's null PCM writes nothing when it is read: what else was there would be sent.
        bytes.initializeMemory(as: UInt8.self, repeating: 0, count: byteCount)
        native = .allocate(capacity: framesMax)
        LockedMemory.lock(bytes, byteCount)
        LockedMemory.lock(native, framesMax * MemoryLayout<Float>.stride)
    }

    deinit {
        bytes.deallocate()
        native.deallocate()
    }

    /// Agrees with the opened device on how it is used.
    func configure(_ pcm: ALSAPCM) throws(AudioFault) {}

    final func open() throws(AudioFault) {
        guard pcm == nil else { return }
        let opened = try ALSAPCM(name: name, stream: stream)
        pcm = opened
        // A card stands still until it is started. A server may capture (I1), or keep its device awake, from the moment that its
        // stream is configured, so `start` does that.
        if !opened.isServer { try configure(opened) }
    }

    /// What the device agreed to; nil while it is not configured.
    final var form: SoundDeviceForm? {
        pcm.flatMap { $0.isConfigured ? SoundDeviceForm(rate: $0.rate, channels: $0.channels) : nil }
    }

    func stop() {
        guard let pcm else { return }
        if pcm.isServer {
            // The next stream comes from a new handle, which is quicker and has no history.
            if BlueALSADevice.isMeant(by: name) {
                closeHandle()
            } else {
                resting.keep(pcm, at: .now)
                forget()
            }
            try? open()
        } else if snd_pcm_drop(pcm.handle) < 0 || snd_pcm_prepare(pcm.handle) < 0 {
            // The next start opens it and says what is wrong.
            close()
        }
    }

    func close() {
        resting.close()
        closeHandle()
    }

    /// Closes what is open, and leaves what rests.
    final func closeHandle() {
        pcm?.close()
        forget()
    }

    final var restsUntil: Instant? { resting.until }

    final func endRest() { resting.close() }

    private func forget() {
        pcm = nil
        resampler = nil
    }
}

/// The previous stream, stopped but not closed. It keeps the server's device at short blocks, so that an early reply is
/// heard or recorded without waiting for a long block.
///
/// It has a cost: PulseAudio 16 woke 400 times a second for one on an idle device (13 ms of processor time per second),
/// and its plug-in in this process 1.3 times. Unless configured otherwise, PulseAudio and PipeWire suspend a device
/// that is idle for 5 s: from then on the stream costs nothing and has no effect.
struct RestingStream: ~Copyable {
    /// How long a microphone's stream rests: a desktop shows it as in use.
    static let microphoneSpan = Duration.seconds(5)
    /// How long a speaker's rests: a pause within a conversation.
    static let speakerSpan = Duration.seconds(30)

    private let span: Duration
    private var pcm: ALSAPCM?
    /// When it is to be closed; nil: none rests.
    private(set) var until: Instant?

    /// Nothing rests yet; what will does so for `span`.
    init(span: Duration) { self.span = span }

    /// Stops `stopped`, and keeps it instead of the one that rests. One that cannot be stopped is closed.
    mutating func keep(_ stopped: ALSAPCM, at now: Instant) {
        close()
        guard snd_pcm_drop(stopped.handle) >= 0 else { return stopped.close() }
        pcm = stopped
        until = now + span
    }

    /// Closes it. Nothing when there is none.
    mutating func close() {
        pcm?.close()
        pcm = nil
        until = nil
    }
}
