// The options of a join that Apple's interface does not have: who carries the sound, and which program is behind the
// channel.
import Vocabulary

/// Whose the microphone and the speaker of a channel are. The raw values are those of `org.pttd`'s `Media`.
public enum MediaOwner: String, Hashable, Sendable, CaseIterable {
    /// The daemon captures, sends, receives and plays.
    case daemon = "pttd"
    /// The program that joined carries the sound, as on Apple's systems: it records and plays between `didActivate` and
    /// `didDeactivate`, and reports the service status. The daemon sounds its tones before and after, and keeps no
    /// device open in between.
    case application
}

/// The program behind a channel, as far as the rules need to know it.
public enum ChannelProgram: Hashable, Sendable {
    /// There is none: a user or the configuration joined. Such a channel has no push token.
    case none
    /// It runs, and its delegate can be called.
    case present
    /// It does not run at this moment.
    case absent
}

extension ChannelManagerStateMachine {
    /// What a join says beyond Apple's.
    public struct JoinOptions: Hashable, Sendable {
        /// Whose the sound is.
        public var media: MediaOwner
        /// The program behind the channel at the time of the join.
        public var program: ChannelProgram
        /// Whether the program can be started when it is not there.
        public var canStartProgram: Bool
        /// Whether buttons of hands-free devices begin transmissions from the start.
        public var accessoryButtonEventsEnabled: Bool
        /// The token that a restored channel had before the restart; nil: a fresh one.
        public var restoredToken: PushToken?
        /// How long one transmission may last on this channel; nil: as `Configuration.talkTimeLimit` says.
        public var talkTimeLimit: Duration?

        /// The daemon's media, no program, accessory buttons on, a fresh token if there is a program, and the usual limit.
        public init(
            media: MediaOwner = .daemon, program: ChannelProgram = .none, canStartProgram: Bool = false,
            accessoryButtonEventsEnabled: Bool = true, restoredToken: PushToken? = nil,
            talkTimeLimit: Duration? = nil
        ) {
            self.talkTimeLimit = talkTimeLimit
            self.media = media
            self.program = program
            self.canStartProgram = canStartProgram
            self.accessoryButtonEventsEnabled = accessoryButtonEventsEnabled
            self.restoredToken = restoredToken
        }
    }
}

/// A call that uses the audio, under the name of its source.
public struct CallHold: Hashable, Sendable {
    /// Names the call among all that are active, for example `ofono:/voicecall01` or `inhibitor:7`.
    public let holder: String
    /// What it is, for the user: `oFono: +49 30 …`.
    public let description: String

    /// The call of `holder`.
    public init(holder: String, description: String) {
        self.holder = holder
        self.description = description
    }
}
