// An ALSA PCM as a speaker.
import CALSA
import Glibc
import MonotonicTime

/// A speaker of ALSA, at whatever rate and with as many channels as it takes.
///
/// Little is kept queued, for the queue is latency: how much is `QueueDepth`'s, remembered for each device.
final class ALSAPlayback: ALSADevice, PlaybackSink {
    private static let waitMilliseconds: Int32 = 100
    /// The buffer: room for the queue to grow into. PipeWire takes up to 8,192 frames (170 ms) at once.
    private static let bufferMicroseconds = 80_000
    private static let serverBufferMicroseconds = 250_000

    /// A server that has taken all may still have sound to play; with less than this it has none.
    private static let emptyBelow = Duration.microseconds(500)

    /// Maximum number of frames per block at the highest rate, with the converter's rounding.
    private static let blockFramesMax = Resampler.rateMax / audioClockRate * playbackBlock + 4
    private var depth: QueueDepth
    private var queue: ServerQueue
    private var lapsesSeen = 0
    private var refusalsSeen = 0
    /// Frames that are to be queued in the device, and frames that are written at once.
    private var target = 0
    private var block = 1
    private(set) var underruns = 0
    private(set) var shortfall = Duration.zero
    private var written = MovedFrames(rate: audioClockRate, at: .zero)

    init(name: String, period: Duration, queue: Duration) {
        depth = QueueMemory.depth(of: name, least: queue)
        self.queue = ServerQueue(QueueMemory.server(of: name))
        super.init(
            name: name, period: period, SND_PCM_STREAM_PLAYBACK, restSpan: RestingStream.speakerSpan,
            framesMax: Self.blockFramesMax)
    }

    var recordingOrigin: Instant? { nil }

    func start() throws(AudioFault) {
        try open()
        // A card plays from its first sample. A server wakes its card first, and what it does meanwhile tells nothing.
        depth.started(at: .now, isCold: pcm?.isServer == true && restsUntil == nil)
        try run()
    }

    /// Opens, configures and starts, whatever of it is to be done.
    private func run() throws(AudioFault) {
        try open()
        guard let pcm else { return }
        if !pcm.isConfigured { try configure(pcm) }
        resampler?.reset()
        try pcm.makeReady()
        try begin(pcm)
    }

    /// Fills a prepared PCM with silence and sets it running.
    private func begin(_ pcm: ALSAPCM) throws(AudioFault) {
        let now = Instant.now
        written = MovedFrames(rate: pcm.rate, at: now)
        queue.started(
            rate: pcm.rate, block: block, capacity: pcm.buffer, stepTold: pcm.isPreparedAgain ? serverStep(pcm) : nil,
            at: now)
        try setTarget(pcm)
        try fillAndRun(pcm)
    }

    override func configure(_ pcm: ALSAPCM) throws(AudioFault) {
        try pcm.configure(
            periodMicroseconds: Int(period.nanoseconds / 1000),
            bufferMicroseconds: pcm.isServer ? Self.serverBufferMicroseconds : Self.bufferMicroseconds)
        block = max(1, pcm.rate * playbackBlock / audioClockRate)
        guard pcm.buffer >= 2 * block else { throw AudioFault(.configure, ENOTSUP) }
        if pcm.isServer {
            // Before it is prepared: a server takes it for the latency that is wanted.
            try pcm.setWakeUp(frames: max(pcm.period, serverStep(pcm)), startsByWriting: !pcm.isPreparedAgain)
        } else {
            try setTarget(pcm)
        }
        try pcm.makeReady()
        resampler =
            pcm.rate == audioClockRate
            ? nil : Resampler(from: audioClockRate, to: pcm.rate, inputMax: playbackBlock)
    }

    /// What a server is asked to take at once. PipeWire's plug-in hands on a few of these in one cycle at most, so a server that
    /// was seen to take far more is asked for that.
    private func serverStep(_ pcm: ALSAPCM) -> Int {
        let least = ALSAPCM.serverStep * pcm.rate / audioClockRate
        let learned = queue.learned.step.nanoseconds / 1_000 * Int64(pcm.rate) / 1_000_000
        return learned > 4 * Int64(least) ? Int(learned) + 1 : least
    }

    private func setTarget(_ pcm: ALSAPCM) throws(AudioFault) {
        if pcm.isServer {
            target = queue.target(depth.depth)
            return
        }
        let wanted = Int(depth.depth.nanoseconds / 1000) * pcm.rate / 1_000_000
        // A card takes a period at a time.
        target = min(pcm.buffer, max(wanted, 2 * block, pcm.period + block))
        try pcm.setWakeUp(frames: pcm.buffer - target + block)
    }

    func waitForRoom() throws(AudioFault) -> Bool {
        guard let pcm else { throw AudioFault(.transfer, ENODEV) }
        return pcm.isServer ? try waitByClock(pcm) : try waitByDevice(pcm)
    }

    private func waitByDevice(_ pcm: ALSAPCM) throws(AudioFault) -> Bool {
        // A PCM without a clock of its own would take everything at once.
        if let pause = written.pause(beyond: target, at: .now) { Audio.sleep(until: pause) }
        var free = snd_pcm_avail_update(pcm.handle)
        if free >= 0, pcm.buffer - free + block > target {
            let ready = snd_pcm_wait(pcm.handle, Self.waitMilliseconds)
            free = ready < 0 ? snd_pcm_sframes_t(ready) : snd_pcm_avail_update(pcm.handle)
        }
        if free < 0 {
            try recover(pcm, free)
            return false
        }
        let isWanted = pcm.buffer - free + block <= target
        if free < pcm.buffer { written.isSeen(waiting: pcm.buffer - free, at: .now) }
        let left = pcm.buffer - free
        if isWanted { try found(left, lasting: duration(left, pcm), in: pcm, at: .now) }
        // A card that runs on without data has played silence or old samples.
        return isWanted || free >= pcm.buffer
    }

    /// Sleeps until the queue is short enough. A server's descriptor reports free space long before that.
    private func waitByClock(_ pcm: ALSAPCM) throws(AudioFault) -> Bool {
        let end = Instant.now + .milliseconds(Int(Self.waitMilliseconds))
        while true {
            let free = snd_pcm_avail_update(pcm.handle)
            let now = Instant.now
            var left = pcm.buffer - free
            // Taken, but not heard yet: the server holds it, or it is a PCM without a clock (null, file).
            if left > 0 { written.isSeen(waiting: left, at: now) } else { left = written.ahead(at: now) }
            if free < 0 || left <= 0 {
                try recover(pcm, free < 0 ? free : -Int(EPIPE))
                return false
            }
            if left <= 1, pcm.goesOnWhenEmpty, delay < Self.emptyBelow {
                // What comes next is heard at once, and later than it should be: no silence on top of that.
                underruns += 1
                depth.ranEmpty(at: now)
            }
            let advice = queue.look(queued: left, depth: depth.depth, at: now)
            countInterruptions(at: now)
            target = queue.target(depth.depth)
            switch advice {
            case .write:
                try found(left, lasting: queue.margin(queued: left, at: now), in: pcm, at: now)
                return true
            case .pad(let frames): try putSilence(pcm, frames: frames)
            // A server that took its device away may say nothing, and just take no more.
            case .lost: throw AudioFault(.transfer, ENODEV)
            case .wait(let until):
                if now >= end { return false }
                Audio.sleep(until: until)
            }
        }
    }

    /// A server that came for more than the queue held has played silence.
    private func countInterruptions(at now: Instant) {
        let (lapses, refusals) = (queue.lapses - lapsesSeen, queue.refusals - refusalsSeen)
        guard lapses + refusals > 0 else { return }
        underruns += lapses + refusals
        if lapses > 0 { depth.ranEmpty(at: now) }
        lapsesSeen = queue.lapses
        refusalsSeen = queue.refusals
    }

    /// The thread is about to write: `left` frames are in the queue, which lasts for `lasting`.
    private func found(_ left: Int, lasting: Duration, in pcm: ALSAPCM, at now: Instant) throws(AudioFault) {
        shortfall = duration(max(0, target - block - left), pcm)
        if depth.found(lasting, at: now) { try setTarget(pcm) }
    }

    func write(_ samples: UnsafePointer<Float>) throws(AudioFault) {
        guard let pcm else { return }
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
        return duration(min(max(0, frames), 10 * pcm.rate), pcm)
    }

    override func stop() {
        QueueMemory.remember(depth, queue.learned, of: name)
        super.stop()
    }

    override func close() {
        QueueMemory.remember(depth, queue.learned, of: name)
        super.close()
    }

    private func duration(_ frames: Int, _ pcm: ALSAPCM) -> Duration {
        .nanoseconds(frames * 1_000_000_000 / pcm.rate)
    }

    // MARK: Running empty

    private func fillAndRun(_ pcm: ALSAPCM) throws(AudioFault) {
        try putSilence(pcm, frames: target, recovering: true)
        if snd_pcm_state(pcm.handle) == SND_PCM_STATE_PREPARED {
            let result = snd_pcm_start(pcm.handle)
            if result < 0 { throw AudioFault(.start, result) }
        }
    }

    private func putSilence(_ pcm: ALSAPCM, frames: Int, recovering: Bool = false) throws(AudioFault) {
        var left = frames
        while left > 0 {
            let part = min(block, left)
            memset(bytes, 0, part * pcm.bytesPerFrame)
            try put(pcm, frames: part, recovering: recovering)
            left -= part
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
        written.add(done)
        queue.wrote(done)
    }

    private func recover(_ pcm: ALSAPCM, _ error: Int) throws(AudioFault) {
        guard error == -Int(EPIPE) || error == -Int(ESTRPIPE) else {
            throw AudioFault(.transfer, Int32(clamping: error))
        }
        underruns += 1
        if error == -Int(EPIPE), !pcm.isPreparedAgain || queue.ranDry() { depth.ranEmpty(at: .now) }
        if pcm.isServer {
            if pcm.isPreparedAgain, snd_pcm_prepare(pcm.handle) >= 0 { return try begin(pcm) }
            closeHandle()
            try run()
        } else {
            try pcm.recover(from: error)
            try setTarget(pcm)
            try pcm.makeReady()
            try fillAndRun(pcm)
        }
    }
}
