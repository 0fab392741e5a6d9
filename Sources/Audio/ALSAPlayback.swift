// An ALSA PCM as a speaker.
import CALSA
import MonotonicTime

#if canImport(Glibc)
import Glibc
#else
import Musl
#endif

/// A speaker of ALSA, at whatever rate and with as many channels as it takes.
///
/// Little is kept queued, for the queue is latency: `queue` at first, a block more after every underrun.
final class ALSAPlayback: PlaybackSink {
    private static let waitMilliseconds: Int32 = 100
    /// A card's buffer: room for the queue to grow into.
    private static let cardBufferMicroseconds = 80_000
    /// A server hands on in steps of its own: two blocks more are queued there.
    private static let serverExtraMicroseconds = 10_000

    private let name: String
    private let period: Duration
    private let queue: Duration
    private var pcm: ALSAPCM?
    private var resampler: Resampler?
    private let bytes: UnsafeMutableRawPointer
    private let native: UnsafeMutablePointer<Float>
    /// At most so many frames come of one block: 5 ms at the highest rate, and the converter's rounding.
    private static let blockFramesMax = Resampler.rateMax / 200 + 4
    /// Frames that are to be queued in the device.
    private var target = 0
    private(set) var underruns = 0
    private var startedAt = Instant.zero
    private var framesWritten = 0

    init(name: String, period: Duration, queue: Duration) {
        self.name = name
        self.period = max(.milliseconds(1), min(period, .milliseconds(50)))
        self.queue = max(.milliseconds(5), min(queue, .milliseconds(500)))
        bytes = .allocate(byteCount: Self.blockFramesMax * SampleFormat.channelsMax * 4, alignment: 16)
        native = .allocate(capacity: Self.blockFramesMax)
    }

    deinit {
        bytes.deallocate()
        native.deallocate()
    }

    var recordingOrigin: Instant? { nil }

    func open() throws(AudioFault) {
        guard pcm == nil else { return }
        let opened = try ALSAPCM(name: name, stream: SND_PCM_STREAM_PLAYBACK)
        pcm = opened
        // A server's stream keeps its device awake from the moment it is configured, so `start` does that.
        if !opened.isServer { try configure(opened) }
    }

    func start() throws(AudioFault) {
        try open()
        guard let pcm else { return }
        if !pcm.isConfigured { try configure(pcm) }
        resampler?.reset()
        framesWritten = 0
        startedAt = .now
        try pcm.makeReady()
        try fillAndRun(pcm)
    }

    private func configure(_ pcm: ALSAPCM) throws(AudioFault) {
        let queueMicroseconds = Int(queue.nanoseconds / 1000)
        // A sound server plays from its own copy of the buffer: there the buffer is the queue.
        try pcm.configure(
            periodMicroseconds: Int(period.nanoseconds / 1000),
            bufferMicroseconds: pcm.isServer
                ? queueMicroseconds + Self.serverExtraMicroseconds
                : max(Self.cardBufferMicroseconds, 2 * queueMicroseconds))
        let block = Self.blockFrames(pcm)
        target =
            pcm.isServer
            ? pcm.buffer : min(pcm.buffer, max(queueMicroseconds * pcm.rate / 1_000_000, 2 * pcm.period, 2 * block))
        guard pcm.buffer >= 2 * block else { throw AudioFault(.configure, ENOTSUP) }
        try setWakeUp(pcm)
        try pcm.makeReady()
        resampler =
            pcm.rate == audioClockRate
            ? nil : Resampler(from: audioClockRate, to: pcm.rate, inputMax: playbackBlock)
    }

    func waitForRoom() throws(AudioFault) -> Bool {
        guard let pcm else { throw AudioFault(.transfer, ENODEV) }
        // A PCM without a clock of its own (null, file) would take everything at once.
        let ahead = startedAt + .nanoseconds((framesWritten - target) * 1_000_000_000 / pcm.rate)
        if ahead - .now > .milliseconds(50) { sleep(until: ahead) }
        let block = Self.blockFrames(pcm)
        var free = snd_pcm_avail_update(pcm.handle)
        if free >= 0, pcm.buffer - free + block > target {
            let ready = snd_pcm_wait(pcm.handle, Self.waitMilliseconds)
            free = ready < 0 ? snd_pcm_sframes_t(ready) : snd_pcm_avail_update(pcm.handle)
        }
        if free < 0 {
            try recover(pcm, free)
            return false
        }
        // A card that runs on without data has played silence or old samples: say so as an underrun, too.
        return pcm.buffer - free + block <= target || free >= pcm.buffer
    }

    func write(_ samples: UnsafePointer<Float>) throws(AudioFault) {
        guard let pcm else { throw AudioFault(.transfer, ENODEV) }
        var frames = playbackBlock
        if let resampler {
            frames = resampler.process(samples, count: playbackBlock, into: native)
            pcm.format.encode(native, frames: frames, channels: pcm.channels, into: bytes)
        } else {
            pcm.format.encode(samples, frames: frames, channels: pcm.channels, into: bytes)
        }
        try put(pcm, frames: frames)
    }

    var delay: Duration {
        guard let pcm else { return .zero }
        var frames: snd_pcm_sframes_t = 0
        if snd_pcm_delay(pcm.handle, &frames) < 0 { frames = 0 }
        return .nanoseconds(min(max(0, frames), 10 * pcm.rate) * 1_000_000_000 / pcm.rate)
    }

    func stop() {
        guard let pcm else { return }
        if pcm.isServer || snd_pcm_drop(pcm.handle) < 0 || snd_pcm_prepare(pcm.handle) < 0 {
            let wasServer = pcm.isServer
            close()
            if wasServer { try? open() }
        }
    }

    func close() {
        pcm?.close()
        pcm = nil
        resampler = nil
    }

    private static func blockFrames(_ pcm: ALSAPCM) -> Int { max(1, pcm.rate / 200) }

    private func setWakeUp(_ pcm: ALSAPCM) throws(AudioFault) {
        try pcm.setWakeUp(frames: pcm.buffer - target + Self.blockFrames(pcm))
    }

    private func fillAndRun(_ pcm: ALSAPCM) throws(AudioFault) {
        let block = Self.blockFrames(pcm)
        var left = target
        while left > 0 {
            let frames = min(block, left)
            memset(bytes, 0, frames * pcm.bytesPerFrame)
            try put(pcm, frames: frames, recovering: true)
            left -= frames
        }
        if snd_pcm_state(pcm.handle) == SND_PCM_STATE_PREPARED {
            let result = snd_pcm_start(pcm.handle)
            if result < 0 { throw AudioFault(.start, result) }
        }
    }

    private func put(_ pcm: ALSAPCM, frames: Int, recovering: Bool = false) throws(AudioFault) {
        var done = 0
        var attempts = 0
        while done < frames {
            let result = snd_pcm_writei(
                pcm.handle, bytes + done * pcm.bytesPerFrame, snd_pcm_uframes_t(frames - done))
            if result == -Int(EAGAIN) || result == 0 {
                // Room was promised, but a server may take it back for a moment.
                attempts += 1
                if attempts > 20 { throw AudioFault(.stall, ETIMEDOUT) }
                _ = snd_pcm_wait(pcm.handle, Self.waitMilliseconds)
                continue
            }
            if result < 0 {
                // A device that fails even freshly prepared is given up, not tried for ever.
                guard !recovering else { throw AudioFault(.resume, Int32(clamping: -result)) }
                try recover(pcm, result)
                return
            }
            done += result
        }
        framesWritten += done
    }

    private func recover(_ pcm: ALSAPCM, _ error: Int) throws(AudioFault) {
        try pcm.recover(from: error)
        underruns += 1
        if !pcm.isServer {
            target = min(pcm.buffer, target + Self.blockFrames(pcm))
            try setWakeUp(pcm)
        }
        try fillAndRun(pcm)
    }
}
