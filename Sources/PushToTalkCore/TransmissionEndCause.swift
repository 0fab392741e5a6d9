// Why a transmission ends, and the error that reports it.

/// Why a transmission ended.
public enum TransmissionEndCause: Hashable, Sendable {
    /// Somebody released the button or asked for the end.
    case stopped(PTChannelTransmitRequestSource)
    /// The talk-time limit was reached.
    case talkTimeLimit
    /// The relay did not grant it.
    case refused(PTChannelError)
    /// The relay has queued the request: it waits for the floor, and a new begin follows with the grant.
    case queued
    /// The relay took the grant back.
    case revoked(PTChannelError)
    /// The service stopped being ready.
    case serviceStatus(PTServiceStatus)
    /// The channel's mode no longer allows it.
    case transmissionMode(PTTransmissionMode)
    /// The channel is being left.
    case leftChannel
    /// A call began.
    case callActive
    /// Something else took the audio.
    case interrupted(reason: String)
    /// The sound device or the microphone failed.
    case audioFailed(reason: String)
    /// The program that captured, or that had asked for it, left.
    case programLeft
    /// The daemon ends.
    case shutdown
}

extension TransmissionEndCause {
    /// The error for the caller that could not transmit, or whose transmission was ended; nil after a normal stop.
    public var error: PTChannelError? {
        switch self {
        case .stopped, .queued: nil
        case .refused(let error), .revoked(let error): error
        case .talkTimeLimit: PTChannelError(.unknown, explanation: "the talk-time limit was reached")
        case .serviceStatus(let status):
            PTChannelError(.transmissionNotAllowed, explanation: "the channel's service became \(status)")
        case .transmissionMode(let mode):
            PTChannelError(.transmissionNotAllowed, explanation: "the channel's mode became \(mode)")
        case .leftChannel: PTChannelError(.channelNotFound, explanation: "the channel was left")
        case .callActive: PTChannelError(.callActive)
        case .programLeft: PTChannelError(.unknown, explanation: "the program that was talking ended")
        case .interrupted(let reason), .audioFailed(let reason): PTChannelError(.unknown, explanation: reason)
        case .shutdown: PTChannelError(.unknown, explanation: "the push-to-talk service is stopping")
        }
    }
}

extension TransmissionEndCause: CustomStringConvertible {
    /// In words for a log.
    public var description: String {
        switch self {
        case .stopped: "released"
        case .queued: "waiting for the floor"
        case .refused(let error), .revoked(let error): error.explanation
        default: error?.explanation ?? ""
        }
    }
}
