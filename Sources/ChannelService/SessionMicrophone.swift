// One of the session's microphones: its engine, and which of the engine's bursts counts.
import Audio
import Reactor

/// A microphone of the audio session. Confined to the session's loop.
final class SessionMicrophone {
    let device: AudioDevice
    var engine: CaptureEngine?
    var watch: EventLoop.Watch?
    /// The engine's number of the burst that runs for a transmission; what comes of others is void.
    var burst: UInt32?
    /// The burst that was cut last: its encoder may still give a frame or two, which are counted and dropped.
    var cutBurst: UInt32?
    var failure: String?
    /// Where the burst begins in the transmission, in samples of 48 kHz; nil until a frame of it is sent.
    var offset: Int64?

    init(_ device: AudioDevice) { self.device = device }

    /// Ends its burst at once, if there is one. What it has recorded is void.
    func abort() {
        guard burst != nil || cutBurst != nil else { return }
        burst = nil
        cutBurst = nil
        engine?.abort()
    }
}
