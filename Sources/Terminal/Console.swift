// Lines for whoever sits at the terminal, or reads the pipe.
import Glibc

/// Standard output and standard error, line by line, at once: another program may wait for a line.
public enum Console {
    /// A line on standard output.
    public static func say(_ text: String) { write(text + "\n", to: STDOUT_FILENO) }

    /// A line on standard error, without the form of a log.
    public static func complain(_ text: String) { write(text + "\n", to: STDERR_FILENO) }

    /// Writes all of `text`, however many calls that takes; waits for a reader that is slow. When nobody reads any more
    /// there is nobody to tell, and the rest is dropped.
    static func write(_ text: String, to descriptor: Int32) {
        var rest = Array(text.utf8)[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count >= 0 {
                rest = rest.dropFirst(count)
                continue
            }
            switch errno {
            case EINTR: continue
            case EAGAIN:
                // Standard output may be without blocking by the doing of a program that has it too.
                var wish = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
                poll(&wish, 1, -1)
            default: return
            }
        }
    }
}
