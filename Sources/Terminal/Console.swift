// Output for a person at a terminal, or for a pipe.
import Files
import Glibc
import Logs

/// Standard output and standard error, line by line, at once: another program may wait for a line.
public enum Console {
    /// A line on standard output. Control characters that names from elsewhere may have do not reach the terminal.
    public static func say(_ text: String) { write(harmless(text) + "\n", to: STDOUT_FILENO) }

    /// A line on standard error, without the form of a log; control characters as in `say`.
    public static func complain(_ text: String) { write(harmless(text) + "\n", to: STDERR_FILENO) }

    /// Writes `text` as it is, without a line end: the program's own control sequences, and only words that are `plain`.
    public static func draw(_ text: String) { write(text, to: STDOUT_FILENO) }

    /// Whether somebody still reads standard output.
    public static var isRead: Bool {
        var wish = pollfd(fd: STDOUT_FILENO, events: 0, revents: 0)
        return poll(&wish, 1, 0) <= 0 || Int32(wish.revents) & (POLLERR | POLLNVAL | POLLHUP) == 0
    }

    /// `text` with U+FFFD in place of control characters but line ends and tabs.
    static func harmless(_ text: String) -> String {
        func isHarmful(_ scalar: Unicode.Scalar) -> Bool {
            scalar.isTerminalControl && scalar != "\n" && scalar != "\r" && scalar != "\t"
        }
        guard text.unicodeScalars.contains(where: isHarmful) else { return text }
        return String(String.UnicodeScalarView(text.unicodeScalars.map { isHarmful($0) ? "\u{FFFD}" : $0 }))
    }

    /// Writes all of `text`, however many calls that takes; waits for a reader that is slow. When nobody reads any more
    /// there is nobody to tell, and the rest is dropped.
    static func write(_ text: String, to descriptor: Int32) { _ = writeWhole(Array(text.utf8), to: descriptor) }
}

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
