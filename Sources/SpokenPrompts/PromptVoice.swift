// A program that speaks, as the channel service uses it.
import Glibc
import Reactor

/// Speaks one text at a time. Confined to its loop; it never waits.
public protocol PromptVoice: AnyObject {
    /// Begins to speak; what was begun before has ended or was stopped. `done` is called once, later, unless `stop` is called before.
    func say(_ text: String, _ language: PromptLanguage, _ done: @escaping (PromptOutcome) -> Void)
    /// Ends what was begun: its program is killed, or its sound falls silent.
    func stop()
}

/// What came of speaking a text.
public enum PromptOutcome: Hashable, Sendable {
    /// The bytes of a WAV file, which are to be played.
    case sound([UInt8])
    /// It has been heard: the program plays by itself.
    case heard
    /// Nothing is heard, for this reason.
    case failed(PromptFailure)
}

/// Why a program did not speak.
public enum PromptFailure: Error, Hashable, Sendable, CustomStringConvertible {
    /// The program is not installed.
    case missing(PromptProgram)
    /// It could not be started (errno).
    case notStarted(PromptProgram, code: Int32)
    /// It ended with this status, or by a signal (negative).
    case ended(PromptProgram, status: Int32)
    /// It was not done in time.
    case tooSlow(PromptProgram)
    /// It wrote more than is ever needed.
    case tooMuch(PromptProgram)
    /// It cannot be reached, for this reason.
    case unreachable(PromptProgram, reason: String)
    /// It answered something else than what was expected.
    case refused(PromptProgram, answer: String)

    /// It could not be started, for the reason of `error`.
    static func starting(_ program: PromptProgram, _ error: SystemError) -> PromptFailure {
        error.code == ENOENT ? .missing(program) : .notStarted(program, code: error.code)
    }

    /// What is wrong and what to do.
    public var description: String {
        switch self {
        case .missing(let program):
            "\(program.rawValue) is not installed; install the package \(program.rawValue), or remove 'voice' from [audio]"
        case .notStarted(let program, let code):
            "\(program.rawValue) did not start: \(SystemError(program.rawValue, code: code)); try it in a terminal"
        case .ended(let program, let status):
            status < 0
                ? "\(program.rawValue) was ended by signal \(-status)"
                : "\(program.rawValue) ended with status \(status); try it in a terminal"
        case .tooSlow(let program): "\(program.rawValue) was not done in time; try it in a terminal"
        case .tooMuch(let program): "\(program.rawValue) gave more sound than a prompt has; try it in a terminal"
        case .unreachable(let program, let reason): "\(program.rawValue) cannot be reached: \(reason)"
        case .refused(let program, let answer): "\(program.rawValue) answered \"\(answer)\""
        }
    }
}

/// A program that speaks. The raw value is its name, the word for it in the configuration, and the package of Debian that has it.
public enum PromptProgram: String, CaseIterable, Hashable, Sendable {
    /// It gives the sound to its caller.
    case espeak = "espeak-ng"
    /// It plays by itself, on the sound server of the user's desktop.
    case speechDispatcher = "speech-dispatcher"

    /// What keeps it from speaking, as far as that is known without speaking; nil: nothing.
    public var problem: PromptFailure? {
        if ProgramFile.path(of: rawValue) == nil { return .missing(self) }
        switch self {
        case .espeak: return nil
        case .speechDispatcher:
            return DispatcherAddress.path == nil ? .unreachable(self, reason: DispatcherAddress.advice) : nil
        }
    }
}

/// What is spoken, by what, and in which language.
public struct PromptSettings: Hashable, Sendable {
    /// Which program speaks.
    public var program: PromptProgram
    /// In which language.
    public var language: PromptLanguage
    /// Whether it is said who has talked.
    public var announcesTalker: Bool

    /// These settings.
    public init(program: PromptProgram, language: PromptLanguage, announcesTalker: Bool = false) {
        self.program = program
        self.language = language
        self.announcesTalker = announcesTalker
    }

    /// The voice of the program, on a loop.
    public func makeVoice(on loop: EventLoop) -> any PromptVoice {
        switch program {
        case .espeak: EspeakVoice(on: loop)
        case .speechDispatcher: DispatcherVoice(on: loop)
        }
    }
}
