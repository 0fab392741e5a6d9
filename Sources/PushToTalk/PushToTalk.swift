// What `import PushToTalk` brings into an app: Apple's vocabulary, and Foundation as Apple's framework does. The rules of the channel
// manager, which share a module with the vocabulary, stay out of sight.
@_exported import Foundation

@_exported import struct PushToTalkCore.PTChannelDescriptor
@_exported import struct PushToTalkCore.PTChannelError
@_exported import let PushToTalkCore.PTChannelErrorDomain
@_exported import enum PushToTalkCore.PTChannelJoinReason
@_exported import enum PushToTalkCore.PTChannelLeaveReason
@_exported import enum PushToTalkCore.PTChannelTransmitRequestSource
@_exported import struct PushToTalkCore.PTImage
@_exported import struct PushToTalkCore.PTInstantiationError
@_exported import let PushToTalkCore.PTInstantiationErrorDomain
@_exported import struct PushToTalkCore.PTParticipant
@_exported import enum PushToTalkCore.PTPushResult
@_exported import enum PushToTalkCore.PTServiceStatus
@_exported import enum PushToTalkCore.PTTransmissionMode

// `error as NSError` has Apple's domain and code, as the delegates of existing apps expect.

extension PTChannelError: CustomNSError, LocalizedError {
    /// Apple's error code.
    public var errorCode: Int { code.rawValue }
    /// What happened and what to do about it.
    public var errorDescription: String? { explanation }
    /// The words, under Foundation's key.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: explanation] }
}

extension PTInstantiationError: CustomNSError, LocalizedError {
    /// Apple's error code.
    public var errorCode: Int { code.rawValue }
    /// What happened and what to do about it.
    public var errorDescription: String? { explanation }
    /// The words, under Foundation's key.
    public var errorUserInfo: [String: Any] { [NSLocalizedDescriptionKey: explanation] }
}

// An operator does not come along with the types above. Disfavoured, for who imports PushToTalkCore as well has two.

extension PTChannelError.Code {
    /// Matches an error of this code, so that `catch PTChannelError.callActive` works.
    @_disfavoredOverload public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? PTChannelError)?.code == code
    }
}

extension PTInstantiationError.Code {
    /// Matches an error of this code, so that `catch PTInstantiationError.invalidPlatform` works.
    @_disfavoredOverload public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? PTInstantiationError)?.code == code
    }
}
