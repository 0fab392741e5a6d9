// The numbers in the channel manager's rules.

extension ChannelManagerStateMachine {
    /// The numbers in the channel manager's rules.
    public struct Configuration: Hashable, Sendable {
        /// How long one transmission may last; nil: as long as it likes.
        public var talkTimeLimit: Duration?
        /// How long before the limit the warning sounds. No warning when it is not shorter than the limit.
        public var talkTimeWarning: Duration
        /// How long the sound device may take to open before the session counts as failed.
        public var activationLimit: Duration
        /// How long the end of a tail, or the closing of the sound device, may take before it counts as done.
        public var settleLimit: Duration
        /// How long the tone before a program gets the audio may take before it counts as heard.
        public var toneLimit: Duration
        /// How long the previous talker may still be heard after a waiting begin has got the floor.
        public var playOutLimit: Duration
        /// How long a begin may wait for the floor that no button of an accessory is held for.
        public var waitingLimit: Duration
        /// The numbers in the rules of pushes.
        public var pushes: PushStateMachine.Configuration

        /// The defaults: 60 s of talk with a warning 5 s before; 5 s for the sound device to open, 3 s to settle, 2 s for
        /// a tone, 1 s to play out, for the relay gives up a floor that nothing is said on after 5 s; 60 s to wait for the floor.
        public init(
            talkTimeLimit: Duration? = .seconds(60), talkTimeWarning: Duration = .seconds(5),
            activationLimit: Duration = .seconds(5), settleLimit: Duration = .seconds(3),
            toneLimit: Duration = .seconds(2), playOutLimit: Duration = .seconds(1),
            waitingLimit: Duration = .seconds(60), pushes: PushStateMachine.Configuration = .init()
        ) {
            self.talkTimeLimit = talkTimeLimit
            self.talkTimeWarning = talkTimeWarning
            self.activationLimit = activationLimit
            self.settleLimit = settleLimit
            self.toneLimit = toneLimit
            self.playOutLimit = playOutLimit
            self.waitingLimit = waitingLimit
            self.pushes = pushes
        }
    }
}
