// What can be set about the channel service.

import Audio
import MonotonicTime
import PushToTalkCore

/// What can be set about the channel service.
public struct ChannelServiceConfiguration: Sendable {
    /// Where own speech comes from.
    public var microphone: AudioDevice
    /// What stands in for the microphone when that does not open, fails, or gives no sound; nil: nothing does.
    public var fallbackMicrophone: AudioDevice?
    /// Where received speech and tones go.
    public var speaker: AudioDevice
    /// What stands in for the speaker when that is lost; nil: nothing does.
    public var fallbackSpeaker: AudioDevice?
    /// Talk-time limit and other numbers of the rules.
    public var rules = ChannelManagerStateMachine.Configuration()
    /// How long the microphone records on after a release.
    public var tail = CaptureEngine.tailDefault
    /// How own speech is captured and encoded.
    public var capture = CaptureConfiguration()
    /// How received speech is buffered and played.
    public var playback = PlaybackConfiguration()
    /// Whether the devices stay open (and stopped) while a channel is joined, so that a press finds them ready.
    /// Otherwise they are opened at each press, which costs its first words the time of opening.
    public var keepsDevicesOpen = true
    /// Whether the tones are heard.
    public var playsTones = true
    /// Whether what the speaker plays is taken out of own speech.
    public var cancelsEcho = false

    /// The given devices, and the defaults of the design: 200 ms of tail, 60 s of talk, devices kept open, tones on, echoes left as they are.
    public init(microphone: AudioDevice, speaker: AudioDevice) {
        self.microphone = microphone
        self.speaker = speaker
    }
}
