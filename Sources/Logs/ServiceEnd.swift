// The end of a service's process.
import Glibc
import MonotonicTime

/// Ends the process of a service whose threads may still run.
public enum ServiceEnd {
    /// Ends the process when the lines of standard output and standard error are written, or `LogWriter.exitFlushTimeout` is over.
    ///
    /// exit(3) runs the destructors of the libraries first, and a thread that is inside one of them then uses what is gone: a `pttrelay`
    /// whose threads were inside libnats ended by SIGSEGV.
    ///
    /// - Parameter status: The exit status.
    public static func now(_ status: Int32) -> Never {
        let deadline = Instant.now + LogWriter.exitFlushTimeout
        for writer in [LogWriter.standardError, LogWriter.standardOutput] {
            writer.flush(within: max(.zero, deadline - .now))
        }
        _exit(status)
    }
}
