// Returns memory that a program used only to start.
import CLinux

/// The memory of this process.
public enum ProgramMemory {
    /// Takes what only the start has used of code and constants out of the process. What is used again comes back, from the page
    /// cache as a rule.
    public static func giveBackCode() { _ = ptt_give_back_code() }

    /// The delay after which a program that has said that it is ready has nothing to start any more.
    public static let startsWithin: Duration = .seconds(2)
}
