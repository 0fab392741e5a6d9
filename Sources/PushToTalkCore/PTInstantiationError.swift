// The errors of making a channel manager, with Apple's codes (PTErrors.h).

// swift-format-ignore: AlwaysUseLowerCamelCase
/// The domain of `PTInstantiationError`, as Apple's headers export it.
public let PTInstantiationErrorDomain = "PTInstantiationErrorDomain"

/// Why a program did not get a channel manager.
public struct PTInstantiationError: Error, Hashable, Sendable {
    /// Apple's error codes.
    public enum Code: Int, Hashable, Sendable, CaseIterable {
        /// None of the other errors; see `explanation`.
        case unknown = 0
        /// There is no push-to-talk service on this machine.
        case invalidPlatform = 1
        /// The program has not declared that it runs in the background for push-to-talk.
        case missingBackgroundMode = 2
        /// The program has not declared a push environment.
        case missingPushServerEnvironment = 3
        /// The program may not use the push-to-talk service.
        case missingEntitlement = 4
        /// A channel manager is being made at this moment.
        case instantiationAlreadyInProgress = 5
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
    public static var errorDomain: String { PTInstantiationErrorDomain }
}

extension PTInstantiationError {
    /// None of the others.
    public static var unknown: Code { .unknown }
    /// There is no push-to-talk service on this machine.
    public static var invalidPlatform: Code { .invalidPlatform }
    /// The program has not declared that it runs in the background for push-to-talk.
    public static var missingBackgroundMode: Code { .missingBackgroundMode }
    /// The program has not declared a push environment.
    public static var missingPushServerEnvironment: Code { .missingPushServerEnvironment }
    /// The program may not use the push-to-talk service.
    public static var missingEntitlement: Code { .missingEntitlement }
    /// A channel manager is being made at this moment.
    public static var instantiationAlreadyInProgress: Code { .instantiationAlreadyInProgress }
}

extension PTInstantiationError.Code {
    /// Matches an error of this code, so that `catch PTInstantiationError.invalidPlatform` works.
    public static func ~= (code: Self, error: any Error) -> Bool {
        (error as? PTInstantiationError)?.code == code
    }

    fileprivate var meaning: String {
        switch self {
        case .unknown: "it failed for an unknown reason"
        case .invalidPlatform: "no push-to-talk service answers; start pttd"
        case .missingBackgroundMode: "the program does not declare the push-to-talk background mode"
        case .missingPushServerEnvironment: "the program does not declare a push environment"
        case .missingEntitlement: "the program may not use push-to-talk; join the group that may"
        case .instantiationAlreadyInProgress: "a channel manager is being made; wait for it"
        }
    }
}

extension PTInstantiationError: CustomStringConvertible {
    /// The code's name and the explanation.
    public var description: String { "\(code): \(explanation)" }
}
