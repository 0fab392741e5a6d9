// The events and the snapshot that the channel service gives its observers.

import FoundationEssentials
import MonotonicTime
import PushToTalkCore
import Vocabulary

/// What happened on the channel, in order, one at a time.
public enum ChannelServiceEvent: Hashable, Sendable {
    /// A callback of Apple's `PTChannelManagerDelegate`.
    case callback(DelegateCallback)
    /// A notice that Apple's delegate does not have.
    case notice(ChannelManagerStateMachine.Notice)
    /// These are heard now, the longest first: several only where several may talk at once.
    case remoteParticipantsChanged([PTParticipant])
    /// The microphone or the speaker has failed, or works again (`ChannelServiceSnapshot.microphoneProblem`, `speakerProblem`).
    case soundProblemsChanged
}

/// The state of the channel service at one moment, for display.
public struct ChannelServiceSnapshot: Hashable, Sendable {
    /// The active channel with its descriptor, mode and status; nil: none is joined.
    public var channel: ChannelManagerStateMachine.Channel?
    /// The transmission in progress: its source and since when.
    public var transmission: ChannelManagerStateMachine.Transmission?
    /// The begin that waits for the floor, and its place there.
    public var waiting: ChannelManagerStateMachine.Waiting?
    /// Who is speaking; of several, who has been heard for longest.
    public var activeRemoteParticipant: PTParticipant?
    /// All who are heard, the longest first: several only where several may talk at once, none where a program plays.
    public var remoteParticipants: [PTParticipant]
    /// The sound device.
    public var audioSession: ChannelManagerStateMachine.AudioSessionState
    /// Whether this service records, a transmission's tail included; never when the media are a program's.
    public var isCapturing: Bool
    /// The calls that have the audio, the oldest first.
    public var calls: [CallHold]
    /// The program behind the channel.
    public var program: ChannelProgram
    /// The active channel's push token.
    public var pushToken: PushToken?
    /// Why sound last failed, until it works again.
    public var audioProblem: String?
    /// Why the microphone last failed, until it works again.
    public var microphoneProblem: String?
    /// Why the speaker last failed, until something was heard again.
    public var speakerProblem: String?
    /// How loud own speech is, in dBFS (-96…0), at most a tenth of a second ago; nil while none is captured.
    public var inputLevel: Float?
    /// Counts since the start.
    public var statistics: ChannelServiceStatistics
}

/// Counts since the start of the channel service.
public struct ChannelServiceStatistics: Hashable, Sendable {
    /// Transmissions that began.
    public var transmissions = 0
    /// Begins that were refused.
    public var beginsRefused = 0
    /// Frames of own speech handed out.
    public var framesSent = 0
    /// Frames of own speech dropped: recorded before a transmission was cut, and encoded after.
    public var framesCut = 0
    /// Received packets handed to the speaker.
    public var packetsPlayed = 0
    /// Received packets dropped: outside of a burst, while something else had the audio, or the speaker being full.
    public var packetsDropped = 0
    /// Messages that were heard again.
    public var replays = 0
    /// Requests refused because too many were waiting.
    public var requestsDropped = 0
}

/// Names an observer, to end its observing.
public struct ChannelObserverToken: Hashable, Sendable {
    let rawValue: UInt64
}

/// What a transmission shows of the worn microphone.
public enum WornMicrophoneReport: Hashable, Sendable {
    /// It hears, so long after the transmission was asked for. `settledAfter`: how long it gave something else, such as its
    /// chipset's noise, before its room's sound; nil: it was not waited for.
    case hears(after: Duration, settledAfter: Duration?)
    /// It gives no sound.
    case silent
}
