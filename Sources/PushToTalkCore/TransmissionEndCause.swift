// Why a transmission ends, and how that is told.

/// Why a transmission ended.
public enum TransmissionEndCause: Hashable, Sendable {
    /// Somebody released the button or asked for the end.
    case stopped(PTChannelTransmitRequestSource)
    /// The talk-time limit was reached.
    case talkTimeLimit
    /// The relay did not grant it.
    case refused(PTChannelError)
    /// The relay did not grant it yet: it waits for the floor, and begins anew with that.
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
    /// What to tell whoever wanted to transmit, and could not or no longer; nil after a plain stop.
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
        case .queued: "the floor is waited for"
        case .refused(let error), .revoked(let error): error.explanation
        default: error?.explanation ?? ""
        }
    }
}
