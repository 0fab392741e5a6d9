// The sound system that the channel service needs: microphone, speaker and tones as one unit that is opened and closed.

import Audio
import MonotonicTime
import PushToTalkCore
import Vocabulary

/// A sound system, as the channel service uses it. Confined to the service's loop.
///
/// Commands return at once, and events on the loop report their outcome. An event from within a command reports the
/// outcome of that command. `stopCapture(.immediately)` reports only the frames of the transmission that it cuts.
protocol AudioSession: AnyObject {
    /// The receiver of the events. Set it before the first command.
    var handler: ((AudioSessionEvent) -> Void)? { get set }
    /// Frames of transmissions that were cut (`stopCapture(.immediately)`), dropped because they came too late.
    var framesCut: Int { get }

    /// Gets ready for a channel, or, nil, for none: for the daemon's media, the devices are opened ahead of the first use.
    /// For a program's, they are closed, and open afterwards only while tones sound.
    func prepare(for media: MediaOwner?)
    /// What is worn from now on: the next transmission uses its microphone, and sound its speaker.
    func use(_ sound: WornSound)
    /// `ChannelManagerStateMachine.Action.activateAudioSession`.
    func activate()
    /// `ChannelManagerStateMachine.Action.deactivateAudioSession`.
    func deactivate(_ playOut: ChannelManagerStateMachine.PlayOut)
    /// `ChannelManagerStateMachine.Action.startCapture`. `afterGoAhead`: the go-ahead tone sounds when the microphone
    /// hears, and the transmission begins with it; `captureBegan` is reported then.
    func startCapture(_ start: CaptureStart)
    /// Listeners lose `percent` of the packets; own speech is encoded to tolerate that.
    func setExpectedLoss(percent: Int)
    /// `ChannelManagerStateMachine.Action.stopCapture`.
    func stopCapture(_ stop: ChannelManagerStateMachine.CaptureStop)
    /// Sounds a tone over whatever is playing.
    func play(_ tone: Tone)
    /// Plays a prompt over whatever is playing, in the place of the prompt before it; `promptEnded` follows. False: it is not played.
    func play(_ prompt: PromptSound, number: UInt32) -> Bool
    /// Lets the prompt that is playing fade out, at once.
    func stopPrompt()
    /// Plays a received packet on a voice, below `PlaybackEngine.voicesMax`. False: it was dropped.
    func play(_ packet: ReceivedFrame, voice: Int) -> Bool
    /// Packets that were handed over and wait to be played, on all voices; as of a moment ago.
    var packetsHeld: Int { get }
    /// The burst being played on a voice ends with this packet; `played` follows once it was heard.
    func endReception(lastSequence: UInt16, voice: Int)
    /// Drops received speech of a voice that was not heard yet; where no other voice plays, tones too.
    func dropReception(voice: Int)
    /// Ends everything, including the threads. No event follows; `closed` is called when the devices are released.
    func close(_ closed: @escaping () -> Void)
}

/// The events of a sound system.
enum AudioSessionEvent {
    /// `ChannelManagerStateMachine.Event.audioSessionActivated`.
    case activated
    /// `ChannelManagerStateMachine.Event.audioSessionDeactivated`.
    case deactivated
    /// The microphone records: its first sample was there at `firstSampleAt`.
    case captureBegan(firstSampleAt: Instant)
    /// A frame of the running transmission, its tail included.
    case frame(OutgoingFrame)
    /// How loud own speech is, in dBFS (`OutgoingFrame.levelMin`…0): ten times a second at most while it is captured.
    case level(Float)
    /// What is wrong with a device although what goes on goes on: the microphone gives no sound, or could not be opened ahead of its first
    /// use, or a fallback is used in place of one of the two. Nil: it works.
    case soundProblem(of: AudioDevice.Use, String?)
    /// What a transmission shows of the worn microphone.
    case wornMicrophone(WornMicrophoneReport)
    /// The tail is over, and its last frame has been delivered.
    case captureEnded
    /// The microphone failed; nothing more comes of this transmission.
    case captureFailed(reason: String)
    /// The tones have been heard, or were dropped, or there is no speaker. The speaker is closed. Reported only for a
    /// program's media.
    case tonesFinished(heard: Bool)
    /// The prompt of this number has been played, or was cut off or dropped.
    case promptEnded(number: UInt32)
    /// A received burst has been heard to its end on a voice, as far as it came.
    case played(voice: Int)
    /// The speaker failed; it is tried again with the next sound.
    case playbackFailed(reason: String)
}
