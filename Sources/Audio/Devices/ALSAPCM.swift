// An open ALSA PCM and what it agreed to: format, channels, rate, period, buffer. Common to both directions.
import CALSA
import Glibc

/// One open PCM (alsa-lib's `snd_pcm_t`), non-blocking, interleaved. Confined to the thread that uses it.
///
/// What PulseAudio's plug-in (alsa-plugins, pcm_pulse.c) makes of it: the period is the server's fragment, and with it
/// the latency of the server's device; the buffer is `tlength`, room that costs no latency while it is not filled; the
/// start threshold is `prebuf`, what the server waits for after it ran empty. Its descriptor is readable whenever a
/// period would fit, so a caller that keeps the queue shorter than the buffer must sleep by the clock. After a reported
/// underrun it needs a new handle, because it miscounts its buffer for ever when it is prepared again; so reports of
/// underruns are switched off (`PulsePlugin`).
///
/// PipeWire's own plug-in (pcm_pipewire.c): the wake-up threshold at the time of preparing is the latency that is
/// requested of the graph, and with it the amount that the server takes at once. It reports an underrun and can then be
/// prepared again like a card.
final class ALSAPCM {
    /// What a server is asked to move at once, at 48 kHz: less costs PipeWire's whole graph more than it gains.
    static let serverStep = 256
    /// Time given to a suspended device to resume, in steps of 10 ms.
    private static let resumeAttemptsMax = 100
    /// Formats in order of preference; all are converted from and to Float.
    private static let formats: [(snd_pcm_format_t, SampleFormat)] = [
        (SND_PCM_FORMAT_S16_LE, .signed16), (SND_PCM_FORMAT_FLOAT_LE, .float32), (SND_PCM_FORMAT_S32_LE, .signed32),
        (SND_PCM_FORMAT_S24_3LE, .signed24Packed),
    ]

    /// alsa-lib prints nothing from here on.
    static let silence: Void = ptt_alsa_silence()

    let handle: OpaquePointer
    private(set) var format = SampleFormat.signed16
    private(set) var channels = 1
    private(set) var rate = audioClockRate
    /// Frames between two wake-ups of the device.
    private(set) var period = 0
    /// Frames that the device holds.
    private(set) var buffer = 0
    /// Whether it is something else than a card: mostly a sound server (PulseAudio, PipeWire, JACK).
    ///
    /// Their plug-ins may capture from the moment that parameters are set (PulseAudio's does), so they get them only
    /// when they are to run.
    let isServer: Bool
    /// Whether after an underrun it is prepared again, as a card is. All plug-ins of servers but PulseAudio's.
    let isPreparedAgain: Bool
    /// Whether a stream that ran empty continues with the next write. The free space of such a PCM is at most the
    /// buffer less one frame.
    let goesOnWhenEmpty: Bool
    private(set) var isConfigured = false
    /// Whether the wake-up parameters have been set.
    private(set) var isTold = false
    /// Memory for software parameters, so that changing them while the PCM runs allocates nothing.
    private var software: OpaquePointer?

    var bytesPerFrame: Int { channels * format.bytesPerSample }

    /// Opens the PCM, without parameters yet.
    init(name: String, stream: snd_pcm_stream_t) throws(AudioFault) {
        _ = Self.silence
        var opened = stream == SND_PCM_STREAM_PLAYBACK ? PulsePlugin.openPlayback(name) : nil
        goesOnWhenEmpty = opened != nil
        // Non-blocking, or opening a busy card would wait until it is free.
        let result = opened == nil ? snd_pcm_open(&opened, name, stream, SND_PCM_NONBLOCK) : 0
        guard result >= 0, let opened else { throw AudioFault(.open, result) }
        handle = opened
        let isPlugin = snd_pcm_type(opened) == SND_PCM_TYPE_IOPLUG
        isServer = isPlugin || !Self.isCard(opened)
        isPreparedAgain = isPlugin && !goesOnWhenEmpty && !PulsePlugin.isMeant(by: name)
    }

    private static func isCard(_ handle: OpaquePointer) -> Bool {
        var made: OpaquePointer?
        guard snd_pcm_info_malloc(&made) >= 0, let information = made else { return false }
        defer { snd_pcm_info_free(information) }
        return snd_pcm_info(handle, information) >= 0 && snd_pcm_info_get_card(information) >= 0
    }

    /// Closes the PCM. Not in `deinit`, because closing may take long and belongs where it is seen.
    func close() {
        snd_pcm_close(handle)
        snd_pcm_sw_params_free(software)
        software = nil
    }

    /// Agrees with the device on 48 kHz, 16-bit, mono and these times, or on what is nearest.
    func configure(periodMicroseconds: Int, bufferMicroseconds: Int) throws(AudioFault) {
        func check(_ result: Int32) throws(AudioFault) {
            if result < 0 { throw AudioFault(.configure, result) }
        }
        var made: OpaquePointer?
        try check(snd_pcm_hw_params_malloc(&made))
        guard let parameters = made else { throw AudioFault(.configure, ENOMEM) }
        defer { snd_pcm_hw_params_free(parameters) }
        try check(snd_pcm_hw_params_any(handle, parameters))
        // The device's own rate: its samples are converted here, better than by most of ALSA's converters.
        try check(snd_pcm_hw_params_set_rate_resample(handle, parameters, 0))
        try check(snd_pcm_hw_params_set_access(handle, parameters, SND_PCM_ACCESS_RW_INTERLEAVED))
        guard
            let found = Self.formats.first(where: { snd_pcm_hw_params_test_format(handle, parameters, $0.0) == 0 })
        else { throw AudioFault(.configure, ENOTSUP) }
        try check(snd_pcm_hw_params_set_format(handle, parameters, found.0))
        format = found.1
        var channelCount: UInt32 = 1
        try check(snd_pcm_hw_params_set_channels_near(handle, parameters, &channelCount))
        guard (1...SampleFormat.channelsMax).contains(Int(channelCount)) else { throw AudioFault(.configure, ENOTSUP) }
        channels = Int(channelCount)
        var rateFound = UInt32(audioClockRate)
        try check(snd_pcm_hw_params_set_rate_near(handle, parameters, &rateFound, nil))
        guard (Resampler.rateMin...Resampler.rateMax).contains(Int(rateFound)) else {
            throw AudioFault(.configure, ENOTSUP)
        }
        rate = Int(rateFound)
        var periodTime = UInt32(periodMicroseconds)
        try check(snd_pcm_hw_params_set_period_time_near(handle, parameters, &periodTime, nil))
        var bufferTime = UInt32(max(bufferMicroseconds, 2 * Int(periodTime)))
        try check(snd_pcm_hw_params_set_buffer_time_near(handle, parameters, &bufferTime, nil))
        try check(snd_pcm_hw_params(handle, parameters))
        var periodFrames: snd_pcm_uframes_t = 0
        var bufferFrames: snd_pcm_uframes_t = 0
        try check(snd_pcm_hw_params_get_period_size(parameters, &periodFrames, nil))
        try check(snd_pcm_hw_params_get_buffer_size(parameters, &bufferFrames))
        guard periodFrames > 0, bufferFrames >= periodFrames, bufferFrames < 1 << 24 else {
            throw AudioFault(.configure, ENOTSUP)
        }
        if software == nil, snd_pcm_sw_params_malloc(&software) < 0 { throw AudioFault(.configure, ENOMEM) }
        period = Int(periodFrames)
        buffer = Int(bufferFrames)
        isConfigured = true
    }

    /// Says how many frames are to be there (or free) before the device wakes its thread.
    ///
    /// It starts by `snd_pcm_start`; with `startsByWriting` by the first frames written, and then it does not stop when it
    /// runs empty.
    func setWakeUp(frames: Int, startsByWriting: Bool = false) throws(AudioFault) {
        func check(_ result: Int32) throws(AudioFault) {
            if result < 0 { throw AudioFault(.configure, result) }
        }
        guard let parameters = software else { throw AudioFault(.configure, EBADFD) }
        var boundary: snd_pcm_uframes_t = 0
        try check(snd_pcm_sw_params_current(handle, parameters))
        try check(snd_pcm_sw_params_get_boundary(parameters, &boundary))
        try check(snd_pcm_sw_params_set_avail_min(handle, parameters, snd_pcm_uframes_t(max(1, frames))))
        try check(snd_pcm_sw_params_set_start_threshold(handle, parameters, startsByWriting ? 1 : boundary))
        if startsByWriting { try check(snd_pcm_sw_params_set_stop_threshold(handle, parameters, boundary)) }
        try check(snd_pcm_sw_params(handle, parameters))
        isTold = true
    }

    /// Makes the PCM ready to start, from whatever state it is in.
    func makeReady() throws(AudioFault) {
        if snd_pcm_state(handle) == SND_PCM_STATE_PREPARED { return }
        let result = snd_pcm_prepare(handle)
        if result < 0 { throw AudioFault(.configure, result) }
    }

    /// Brings the PCM back after an overrun or underrun (-EPIPE) or a suspension (-ESTRPIPE): prepared, not running.
    ///
    /// - Throws: Any other `error`, or what came of the attempt.
    func recover(from error: Int) throws(AudioFault) {
        let code = Int32(clamping: -error)
        guard code == EPIPE || code == ESTRPIPE else { throw AudioFault(.transfer, code) }
        if code == ESTRPIPE {
            // The card comes back when the kernel has woken it; EAGAIN until then, another error when it cannot resume.
            var attempts = 0
            while snd_pcm_resume(handle) == -EAGAIN, attempts < Self.resumeAttemptsMax {
                usleep(10_000)
                attempts += 1
            }
            snd_pcm_drop(handle)
        }
        let result = snd_pcm_prepare(handle)
        if result < 0 { throw AudioFault(.resume, result) }
    }
}
