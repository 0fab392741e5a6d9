// Lines of programs that serve.
import Logs

/// Standard output and standard error of a program that others rely on: whoever does not read them holds up nothing. Lines that find no
/// room are dropped and counted, as those of the log are. Commands that a person runs and waits for use `Console`.
public enum ServiceConsole {
    /// A line on standard output, behind the lines before it. Control characters as in `Console.say`.
    public static func say(_ text: String) {
        LogWriter.standardOutput.write(Console.harmless(text) + "\n", isImportant: true)
    }

    /// A line on standard error, behind the log's. Control characters as in `Console.say`. When the process exits, it is given
    /// `LogWriter.exitFlushTimeout` to be read.
    public static func complain(_ text: String) {
        LogWriter.standardError.write(Console.harmless(text) + "\n", isImportant: true)
    }
}
