// The tones that a push-to-talk user works by.

/// A signal to the user.
public enum Tone: Hashable, Sendable, BitwiseCopyable {
    /// Go ahead: the microphone is open.
    case microphoneOn
    /// The microphone is closed, or the other party is done.
    case microphoneOff
    /// Somebody else speaks: the begin waits until the floor is free.
    case waiting
    /// Not allowed: a begin or something else was refused, or the system ended the transmission.
    case denied
    /// Another of several channels is the active one: this one of them, counted from 1.
    case channel(position: Int)
    /// Something needs attention: the talk-time limit comes near, or the link is gone.
    case talkTimeWarning
    /// The connection to the channel is lost, and not just for a moment.
    case linkLost
    /// The connection to the channel is back.
    case linkBack
    /// The microphone is of no use, and another one has taken over: what is said is heard.
    case fallbackMicrophone
    /// Something of this machine's own is broken, such as the microphone: nothing more was heard, and pressing again
    /// seldom helps.
    case deviceFailed
}
