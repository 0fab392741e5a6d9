// An ALSA PCM as a microphone.
import CALSA
import Glibc
import MonotonicTime

/// A microphone of ALSA, at whatever rate and with as many channels as it gives.
final class ALSACapture: CaptureSource {
    /// How much the device may hold while the thread is late. It adds no latency.
    private static let bufferMicroseconds = 200_000
    /// PipeWire hands over up to 8,192 frames (170 ms) at once.
    private static let serverBufferMicroseconds = 500_000
    private static let waitMilliseconds: Int32 = 50
    /// The most frames that one read takes: 20 ms at the highest rate.
    private static let readFramesMax = Resampler.rateMax / 50

    private let name: String
    private let period: Duration
    private var pcm: ALSAPCM?
    /// Corked, a server captures nothing for it (I1).
    private var resting = RestingStream(span: RestingStream.microphoneSpan)
    private var resampler: Resampler?
    /// What was read, as bytes of the device; and as mono at the device's rate.
    private let bytes: UnsafeMutableRawPointer
    private let native: UnsafeMutablePointer<Float>
    private(set) var recoveries = 0
    private var taken = MovedFrames(rate: audioClockRate, at: .zero)

    init(name: String, period: Duration) {
        self.name = name
        self.period = max(.milliseconds(1), min(period, .milliseconds(50)))
        bytes = .allocate(byteCount: Self.readFramesMax * SampleFormat.channelsMax * 4, alignment: 16)
        // ALSA's null PCM writes nothing: what else was there would be sent.
        bytes.initializeMemory(as: UInt8.self, repeating: 0, count: Self.readFramesMax * SampleFormat.channelsMax * 4)
        native = .allocate(capacity: Self.readFramesMax)
        LockedMemory.lock(bytes, Self.readFramesMax * SampleFormat.channelsMax * 4)
        LockedMemory.lock(native, Self.readFramesMax * MemoryLayout<Float>.stride)
    }

    deinit {
        bytes.deallocate()
        native.deallocate()
    }

    // 4 kHz, the lowest rate, becomes twelve times as many samples.
    var readMax: Int { Self.readFramesMax * 12 + 2 }

    func open() throws(AudioFault) {
        guard pcm == nil else { return }
        let opened = try ALSAPCM(name: name, stream: SND_PCM_STREAM_CAPTURE)
        pcm = opened
        // A card stands still until it is started; a server might not (I1), so it is configured by `start`.
        if !opened.isServer { try configure(opened) }
    }

    func start() throws(AudioFault) {
        try open()
        guard let pcm else { return }
        if !pcm.isConfigured { try configure(pcm) }
        resampler?.reset()
        taken = MovedFrames(rate: pcm.rate, at: .now)
        try pcm.makeReady()
        let result = snd_pcm_start(pcm.handle)
        if result < 0 { throw AudioFault(.start, result) }
    }

    private func configure(_ pcm: ALSAPCM) throws(AudioFault) {
        try pcm.configure(
            periodMicroseconds: Int(period.nanoseconds / 1000),
            bufferMicroseconds: pcm.isPreparedAgain ? Self.serverBufferMicroseconds : Self.bufferMicroseconds)
        // PipeWire takes it for the latency that is wanted, and changes the step of its graph, at the cost of samples of all that
        // runs there. So it is what the speaker asks for, too.
        let serverStep = ALSAPCM.serverStep * pcm.rate / audioClockRate
        try pcm.setWakeUp(frames: pcm.isPreparedAgain ? max(pcm.period, serverStep) : pcm.period)
        try pcm.makeReady()
        resampler =
            pcm.rate == audioClockRate
            ? nil : Resampler(from: pcm.rate, to: audioClockRate, inputMax: Self.readFramesMax)
    }

    func read(into output: UnsafeMutablePointer<Float>) throws(AudioFault) -> Int {
        guard let pcm else { throw AudioFault(.transfer, ENODEV) }
        // A PCM without a clock of its own (null, file) would deliver at once and for ever.
        if let pause = taken.pause(at: .now) { sleep(until: pause) }
        let ready = snd_pcm_wait(pcm.handle, Self.waitMilliseconds)
        if ready == 0 { return 0 }
        var count = snd_pcm_sframes_t(ready)
        if ready > 0 {
            // All that is there: libpulse deadlocks when its server dies while a fragment has been read in part.
            let there = snd_pcm_avail_update(pcm.handle)
            let due = min(-taken.ahead(at: .now), pcm.rate) + pcm.rate / 20
            let wanted = min(max(there, pcm.period), max(due, pcm.period), Self.readFramesMax)
            count = there < 0 ? there : snd_pcm_readi(pcm.handle, bytes, snd_pcm_uframes_t(wanted))
        }
        if count == -Int(EAGAIN) || count == 0 { return 0 }
        if count < 0 {
            try recover(pcm, count)
            return 0
        }
        taken.add(count)
        if let resampler {
            pcm.format.decode(bytes, frames: count, channels: pcm.channels, into: native)
            return resampler.process(native, count: count, into: output)
        }
        pcm.format.decode(bytes, frames: count, channels: pcm.channels, into: output)
        return count
    }

    private func recover(_ pcm: ALSAPCM, _ error: Int) throws(AudioFault) {
        guard error == -Int(EPIPE) || error == -Int(ESTRPIPE) else {
            throw AudioFault(.transfer, Int32(clamping: error))
        }
        recoveries += 1
        if pcm.isServer {
            // Its plug-in miscounts a stream that is prepared again.
            pcm.close()
            forget()
            try start()
        } else {
            try pcm.recover(from: error)
            let result = snd_pcm_start(pcm.handle)
            if result < 0 { throw AudioFault(.resume, result) }
        }
    }

    /// What the device agreed to; nil before it is configured.
    var form: SoundDeviceForm? {
        pcm.flatMap { $0.isConfigured ? SoundDeviceForm(rate: $0.rate, channels: $0.channels) : nil }
    }

    var nextSampleTime: Instant {
        guard let pcm else { return .now }
        var waiting: snd_pcm_sframes_t = 0
        // What waits in the device was at the microphone that much earlier.
        if snd_pcm_delay(pcm.handle, &waiting) < 0 { waiting = 0 }
        let frames = min(max(0, waiting), pcm.rate)
        return .now - .nanoseconds(frames * 1_000_000_000 / pcm.rate)
    }

    func stop() {
        guard let pcm else { return }
        if pcm.isServer {
            // The next stream comes from a new handle, which is quicker and has no history.
            resting.keep(pcm, at: .now)
            forget()
            try? open()
        } else if snd_pcm_drop(pcm.handle) < 0 || snd_pcm_prepare(pcm.handle) < 0 {
            // The next start opens it and says what is wrong.
            close()
        }
    }

    func close() {
        resting.close()
        pcm?.close()
        forget()
    }

    var restsUntil: Instant? { resting.until }

    func endRest() { resting.close() }

    private func forget() {
        pcm = nil
        resampler = nil
    }
}
