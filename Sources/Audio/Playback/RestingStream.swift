// A sound server's stream between two uses of a device: corked, for a while.
import CALSA
import MonotonicTime

/// The stream of before, stopped but not closed. It keeps the server's device at short blocks, so that a reply that follows
/// soon is heard, or recorded, without waiting for a long one.
///
/// It is not free: PulseAudio 16 woke 400 times a second for one on an idle device (13 ms of processor time in a second),
/// and its plug-in here 1.3 times. PulseAudio and PipeWire suspend a device that is idle for 5 s, unless they are told not to:
/// from then on the stream costs nothing, and keeps nothing.
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
