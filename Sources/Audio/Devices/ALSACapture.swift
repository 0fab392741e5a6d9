// An ALSA PCM as a microphone.
import CALSA
import Glibc
import MonotonicTime

/// A microphone of ALSA, at whatever rate and with as many channels as it gives.
final class ALSACapture: ALSADevice, CaptureSource {
    /// How much the device may hold while the thread is late. It adds no latency.
    private static let bufferMicroseconds = 200_000
    /// PipeWire hands over up to 8,192 frames (170 ms) at once.
    private static let serverBufferMicroseconds = 500_000
    private static let waitMilliseconds: Int32 = 50
    /// The most frames that one read takes: 20 ms at the highest rate.
    private static let readFramesMax = Resampler.rateMax / 50

    private(set) var recoveries = 0
    private var taken = MovedFrames(rate: audioClockRate, at: .zero)

    init(name: String, period: Duration) {
        // Corked, a server captures nothing for it (I1).
        super.init(
            name: name, period: period, SND_PCM_STREAM_CAPTURE, restSpan: RestingStream.microphoneSpan,
            framesMax: Self.readFramesMax)
    }

    // 4 kHz, the lowest rate, becomes twelve times as many samples.
    var readMax: Int { Self.readFramesMax * 12 + 2 }

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

    override func configure(_ pcm: ALSAPCM) throws(AudioFault) {
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
            closeHandle()
            try start()
        } else {
            try pcm.recover(from: error)
            let result = snd_pcm_start(pcm.handle)
            if result < 0 { throw AudioFault(.resume, result) }
        }
    }

    var nextSampleTime: Instant {
        guard let pcm else { return .now }
        var waiting: snd_pcm_sframes_t = 0
        // What waits in the device was at the microphone that much earlier.
        if snd_pcm_delay(pcm.handle, &waiting) < 0 { waiting = 0 }
        let frames = min(max(0, waiting), pcm.rate)
        return .now - .nanoseconds(frames * 1_000_000_000 / pcm.rate)
    }
}
