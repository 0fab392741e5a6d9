// The errors of channels, with Apple's codes (PTErrors.h).

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The domain of `PTChannelError`, as Apple's headers export it.
public let PTChannelErrorDomain = "PTChannelErrorDomain"

/// Why a channel manager refused or failed to do what it was asked.
///
/// `catch PTChannelError.callActive` and `switch error.code` both work, as on Apple's systems.
public struct PTChannelError: Error, Hashable, Sendable {
    /// Apple's error codes.
    public enum Code: Int, Hashable, Sendable, CaseIterable {
        /// None of the other errors; see `explanation`.
        case unknown = 0
        /// No active channel has the given UUID.
        case channelNotFound = 1
        /// A channel is active, and a device has at most one.
        case channelLimitReached = 2
        /// A call has the audio.
        case callActive = 3
        /// Somebody transmits who must end first.
        case transmissionInProgress = 4
        /// There is no transmission to end.
        case transmissionNotFound = 5
        /// The program is not in the foreground.
        case appNotForeground = 6
        /// The device's administrator forbids it.
        case deviceManagementRestriction = 7
        /// A usage limit forbids it.
        case screenTimeRestriction = 8
        /// The channel does not allow transmitting now.
        case transmissionNotAllowed = 9
    }

    /// The code that programs decide by.
    public let code: Code
    /// What happened and what to do about it, in words for a person; not part of Apple's interface.
    public let explanation: String

    /// An error with `code`, explained by `explanation` or by what the code means in general.
    public init(_ code: Code, explanation: String? = nil) {
        self.code = code
        self.explanation = explanation ?? code.meaning
    }

    /// The domain of these errors.
    public static var errorDomain: String { PTChannelErrorDomain }
}

extension PTChannelError {
    /// None of the others.
    public static var unknown: Code { .unknown }
    /// No active channel has the given UUID.
    public static var channelNotFound: Code { .channelNotFound }
    /// A channel is active, and a device has at most one.
    public static var channelLimitReached: Code { .channelLimitReached }
    /// A call has the audio.
    public static var callActive: Code { .callActive }
    /// Somebody transmits who must end first.
    public static var transmissionInProgress: Code { .transmissionInProgress }
    /// There is no transmission to end.
    public static var transmissionNotFound: Code { .transmissionNotFound }
    /// The program is not in the foreground.
    public static var appNotForeground: Code { .appNotForeground }
    /// The device's administrator forbids it.
    public static var deviceManagementRestriction: Code { .deviceManagementRestriction }
    /// A usage limit forbids it.
    public static var screenTimeRestriction: Code { .screenTimeRestriction }
    /// The channel does not allow transmitting now.
    public static var transmissionNotAllowed: Code { .transmissionNotAllowed }
}

extension PTChannelError.Code {
    /// Matches an error of this code, so that `catch PTChannelError.callActive` works.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? PTChannelError)?.code == code
    }

    fileprivate var meaning: String {
        switch self {
        case .unknown: "it failed for an unknown reason"
        case .channelNotFound: "no active channel has this UUID; join it first"
        case .channelLimitReached: "another channel is active; leave it first"
        case .callActive: "a call is active; try again when it is over"
        case .transmissionInProgress: "a transmission is in progress; try again when it has ended"
        case .transmissionNotFound: "there is no transmission to end"
        case .appNotForeground: "the program is not in the foreground"
        case .deviceManagementRestriction: "the administrator of this device forbids it"
        case .screenTimeRestriction: "a usage limit of this device forbids it"
        case .transmissionNotAllowed: "the channel does not allow transmitting now"
        }
    }
}

extension PTChannelError: CustomStringConvertible {
    /// The code's name and the explanation.
    public var description: String { "\(code): \(explanation)" }
}
