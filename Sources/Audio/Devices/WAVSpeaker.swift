import Glibc
// A WAV file as a speaker, in real time.
import MonotonicTime
import Synchronization

/// Records what a speaker would give. With `keepsTime` a sound's place in the file is its time since the file was made:
/// the time in which nothing plays costs no wake-up, for its silence is put in when the next sound begins, or at the end.
final class WAVSpeaker: PlaybackSink {
    private let keepsTime: Bool
    /// Samples that a device would hold.
    private let queue: Int
    private let origin: Instant
    private let writer: WAVWriter
    private let samples: UnsafeMutablePointer<Int16>
    /// When the sample after the last one written is heard.
    private var nextHeardAt: Instant
    private var closed = false
    private(set) var underruns = 0

    /// Makes the file at `path`.
    init(path: String, configuration: PlaybackConfiguration) throws(AudioFault) {
        keepsTime = configuration.recordingKeepsTime
        queue = max(playbackBlock, Int(CaptureStateMachine.samples(configuration.deviceQueue)))
        writer = try WAVWriter(path: path, rate: audioClockRate)
        samples = .allocate(capacity: playbackBlock)
        origin = .now
        nextHeardAt = origin
    }

    deinit {
        close()
        samples.deallocate()
    }

    var form: SoundDeviceForm? { SoundDeviceForm(rate: audioClockRate, channels: 1) }
    var recordingOrigin: Instant? { keepsTime ? origin : nil }
    var delay: Duration { max(.zero, nextHeardAt - .now) }

    func open() throws(AudioFault) { closed = false }

    func start() throws(AudioFault) {
        // Silence from the last sound up to now, and the device's queue of it.
        nextHeardAt = .now
        try skip(to: nextHeardAt + CaptureStateMachine.duration(Int64(queue)))
    }

    func waitForRoom() throws(AudioFault) -> Bool {
        let due = nextHeardAt - CaptureStateMachine.duration(Int64(queue - playbackBlock))
        sleep(until: due)
        // The thread was away for longer than the queue: what a card would call an underrun.
        if nextHeardAt < .now {
            underruns += 1
            try skip(to: .now + CaptureStateMachine.duration(Int64(queue - playbackBlock)))
        }
        return true
    }

    func write(_ block: UnsafePointer<Float>) throws(AudioFault) {
        for index in 0..<playbackBlock { samples[index] = SampleFormat.signed16(block[index]) }
        try writer.append(samples, count: playbackBlock)
        nextHeardAt = nextHeardAt + CaptureStateMachine.duration(Int64(playbackBlock))
    }

    func stop() {
        // What was written is kept: it is a recording, and the engine stops only when the rest is silence.
    }

    func close() {
        guard !closed else { return }
        closed = true
        // An error here has no one to go to; the file is whole as it is.
        if keepsTime { try? skip(to: .now) }
    }

    private func skip(to instant: Instant) throws(AudioFault) {
        if keepsTime {
            let position = CaptureStateMachine.samples(instant - origin)
            try writer.extend(to: Int(position))
            nextHeardAt = origin + CaptureStateMachine.duration(Int64(writer.frames))
        } else {
            try writer.extend(to: writer.frames + max(0, Int(CaptureStateMachine.samples(instant - nextHeardAt))))
            nextHeardAt = instant
        }
    }
}
