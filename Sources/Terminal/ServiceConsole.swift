// Console output of services.
import Logs

/// Standard output and standard error of a service. A slow reader never blocks the service: lines beyond the backlog
/// are dropped and counted, as in the log. Commands that a person runs and waits for use `Console`.
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
