// The events, actions and notices of the channel manager's rules.

import FoundationEssentials
import Vocabulary

/// Identifies a request, so that its answer reaches the caller.
public struct RequestIdentifier: Hashable, Sendable {
    /// The number, unique among the requests that are not answered yet.
    public let rawValue: UInt64
    /// The request with this number.
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

extension ChannelManagerStateMachine {
    /// Something that happened to, or is wanted from, the channel manager.
    public enum Event: Hashable, Sendable {
        /// Somebody asks for something; `request` is answered by one `Action.complete`, at once or later.
        case request(Request, RequestIdentifier? = nil)
        /// `Action.activateAudioSession` is done: the sound device is open.
        case audioSessionActivated
        /// `Action.deactivateAudioSession` is done: the sound device is closed.
        case audioSessionDeactivated
        /// The sound device did not open, or vanished; whatever captured or played has stopped.
        case audioSessionFailed(reason: String)
        /// The microphone records, after `Action.startCapture`.
        case captureBegan
        /// Capture did not start, or broke off, with the session still usable for playback; it has stopped.
        case captureFailed(reason: String)
        /// The tail asked for by `stopCapture(.afterTail)` is over and its last frame delivered.
        case captureEnded
        /// The speaker failed; what it could not play is lost, and the next sound tries it again.
        case playbackFailed(reason: String)
        /// The relay did not grant what began (floor denied): what was captured must not be heard. It may come after
        /// the end of a short transmission, but not when the next one has begun.
        case transmissionRefused(PTChannelError)
        /// The relay took the grant back during the transmission (floor revoked).
        case transmissionRevoked(PTChannelError)
        /// The relay did not grant what began, or is to begin, but lets it wait, at this place from 1.
        case floorQueued(position: Int)
        /// The floor is this device's: what waited for it begins.
        case floorGranted
        /// Something else needs the audio (suspend, a device taken away).
        case audioSessionInterrupted(reason: String)
        /// The audio may be used again.
        case audioSessionInterruptionEnded
        /// A call has the audio from now on, or is described differently.
        case callBegan(CallHold)
        /// The call of this holder is over; the audio is free when the last one is.
        case callEnded(holder: String)
        /// The system's tones have been heard, and the speaker is closed, for a program that plays and records itself.
        case tonesFinished
        /// A control of the person's did or could not do what it is for: tell it by this tone.
        case signal(Tone)
        /// Something about pushes, or the program behind the channel came or left. What is about joining and leaving is
        /// not for callers: the channel manager knows.
        case push(PushEvent)
        /// The time of `nextDeadline` has come.
        case deadlineReached
        /// The daemon ends: end everything, and take no more requests. The channel is not left.
        case shutdown
    }

    /// What happens to pushes and to the program behind the channel, as far as it comes from outside.
    public enum PushEvent: Hashable, Sendable {
        /// A push came.
        case received(Push)
        /// The program runs, and its delegate can be called.
        case programCame
        /// The program left: what it transmits or plays ends, its membership stays.
        case programLeft
        /// `Notice.programWanted` could not be done.
        case programNotStarted(reason: String)
        /// The program answered `DelegateCallback.incomingPush`.
        case answered(PushDeliveryIdentifier, PTPushResult)
        /// The program has completed `DelegateCallback.incomingServiceUpdatePush`.
        case completed(PushDeliveryIdentifier)
        /// The program failed to answer or to complete.
        case notAnswered(PushDeliveryIdentifier, reason: String)
    }

    /// What a program, the user or an accessory can ask for.
    public enum Request: Hashable, Sendable {
        /// Make a channel the active one; with its mode and status from the start when they are not Apple's defaults.
        case join(
            channelUUID: UUID, PTChannelDescriptor, reason: PTChannelJoinReason = .developerRequest,
            mode: PTTransmissionMode = .halfDuplex, status: PTServiceStatus = .ready, options: JoinOptions = .init())
        /// Leave the active channel, and end what is in progress there.
        case leave(channelUUID: UUID, reason: PTChannelLeaveReason = .developerRequest)
        /// Begin transmitting; `floor`: what the asker knows of whether others do.
        case beginTransmitting(
            channelUUID: UUID, source: PTChannelTransmitRequestSource, floor: FloorOutlook = .unknown)
        /// End the transmission.
        case stopTransmitting(channelUUID: UUID, source: PTChannelTransmitRequestSource)
        /// Show another name or picture.
        case setChannelDescriptor(PTChannelDescriptor, channelUUID: UUID)
        /// Allow other transmissions than until now.
        case setTransmissionMode(PTTransmissionMode, channelUUID: UUID)
        /// Tell whether the service can be used.
        case setServiceStatus(PTServiceStatus, channelUUID: UUID)
        /// Tell who is speaking; nil: nobody any more.
        case setActiveRemoteParticipant(PTParticipant?, channelUUID: UUID)
        /// Let buttons of hands-free devices begin transmissions, or not.
        case setAccessoryButtonEventsEnabled(Bool, channelUUID: UUID)
    }

    /// What is to be done, in this order.
    public enum Action: Hashable, Sendable {
        /// Tell the program behind the channel.
        case callback(DelegateCallback)
        /// Report something to the user interface or the relay link that Apple's delegate is not told.
        case notice(Notice)
        /// Open the sound device; answered by `audioSessionActivated` or `audioSessionFailed`. It supersedes a
        /// deactivation that has not been answered, which is then not answered.
        case activateAudioSession
        /// Close the sound device; answered by `audioSessionDeactivated`. It supersedes an activation likewise.
        case deactivateAudioSession(PlayOut)
        /// Record; the session is active. Answered by `captureBegan` or `captureFailed`.
        case startCapture(CaptureStart)
        /// Stop recording.
        case stopCapture(CaptureStop)
        /// Sound a tone; the session is active.
        case playTone(Tone)
        /// The request is answered: done, or failed with this error.
        case complete(RequestIdentifier, PTChannelError?)
    }

    /// What happens to sound that is not played yet when the session is deactivated.
    public enum PlayOut: Hashable, Sendable {
        /// It is played to its end first.
        case finish
        /// It is dropped.
        case drop
    }

    /// How recording stops.
    public enum CaptureStop: Hashable, Sendable {
        /// Go on for the length of the tail; answered by `captureEnded`.
        case afterTail
        /// Stop now. Frames that exist are delivered before this action is done, and none afterwards.
        case immediately
        /// Stop now and erase what has not been sent.
        case discarding
    }

    /// What the channel manager reports in addition to Apple's delegate.
    public enum Notice: Hashable, Sendable {
        /// The transmission ends, for this reason; `didEndTransmitting` follows.
        case transmissionEnding(TransmissionEndCause)
        /// All audio of the last transmission has been delivered, or erased; exactly one for each
        /// `didBeginTransmitting`, after its `didEndTransmitting` and before the next begin.
        case transmissionAudioFinished(erased: Bool)
        /// The relay refused the last transmission when it had ended already: (some of) it was not heard.
        case lastTransmissionNotCarried(PTChannelError)
        /// A begin waits for the floor at this position, counted from 1; nil: the relay has not reported one yet.
        /// Reported again at every change.
        case waitingForFloor(position: Int?)
        /// It does not wait any more, and does not begin.
        case waitingEnded(TransmissionEndCause)
        /// The transmission will reach the talk-time limit in this time.
        case talkTimeWarning(remaining: Duration)
        /// The channel is shown differently.
        case channelDescriptorChanged(PTChannelDescriptor)
        /// Other transmissions are allowed than before.
        case transmissionModeChanged(PTTransmissionMode)
        /// The service became usable or not usable.
        case serviceStatusChanged(PTServiceStatus)
        /// Another remote participant, or none, is speaking.
        case activeRemoteParticipantChanged(PTParticipant?)
        /// Buttons of hands-free devices begin transmissions, or not.
        case accessoryButtonEventsEnabledChanged(Bool)
        /// The sound device could not be opened or vanished.
        case audioSessionFailed(reason: String)
        /// Something else took the audio.
        case audioSessionInterrupted(reason: String)
        /// The audio may be used again.
        case audioSessionInterruptionEnded
        /// These calls have the audio; none: it is free of calls.
        case callsChanged([CallHold])
        /// The active channel's push token: pushes for it, and for it only, are wanted; nil: for none.
        case pushTokenChanged(PushToken?)
        /// The program behind the channel is needed: start it. Followed by `PushEvent.programCame` or
        /// `programNotStarted`.
        case programWanted
        /// This became of a push.
        case pushSettled(Push, PushOutcome)
    }
}
