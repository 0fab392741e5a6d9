// A sound server's stream between two uses of a device: paused (corked) for a while.
import CALSA
import MonotonicTime

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
