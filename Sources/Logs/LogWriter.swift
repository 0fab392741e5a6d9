// The thread that writes the log, so that no other thread waits for the log's reader.
import CLinux
import Files
import Glibc
import MonotonicTime

/// Writes lines to a descriptor from a thread of its own, which starts with the first line and sleeps while there is none.
///
/// `write` never waits. While nobody reads, `LineBacklog.bytesMax` bytes are kept; a line that finds no room is counted, and the count
/// is written when there is room again. The descriptor is not made non-blocking: other programs may have it too.
public final class LogWriter: @unchecked Sendable {
    /// Standard error. When the process exits, it is given `exitFlushTimeout` to take what is left.
    public static let standardError: LogWriter = {
        atexit { LogWriter.standardError.flush(within: LogWriter.exitFlushTimeout) }
        return LogWriter(STDERR_FILENO)
    }()

    /// Standard output, in the same way.
    public static let standardOutput: LogWriter = {
        atexit { LogWriter.standardOutput.flush(within: LogWriter.exitFlushTimeout) }
        return LogWriter(STDOUT_FILENO)
    }()

    /// How long the end of the process waits for a reader of its last lines.
    public static let exitFlushTimeout = Duration.milliseconds(500)

    /// Whether the descriptor leads to systemd's journal, systemd.exec(5).
    let isJournal: Bool

    private let descriptor: Int32
    /// What follows is under this lock, which is held for as long as a line takes to copy.
    private let lock: UnsafeMutablePointer<pthread_mutex_t>
    private let changed: UnsafeMutablePointer<pthread_cond_t>
    private var backlog = LineBacklog()
    private var isStarted = false
    private var isWriting = false
    private var isEnding = false
    private var dropNotice: @Sendable (Int) -> String = { "\($0) lines dropped\n" }

    /// A writer to `descriptor`, which stays the caller's.
    public init(_ descriptor: Int32) {
        self.descriptor = descriptor
        isJournal = Self.isJournal(descriptor, getenv("JOURNAL_STREAM").map { String(cString: $0) })
        lock = .allocate(capacity: 1)
        changed = .allocate(capacity: 1)
        var attributes = pthread_mutexattr_t()
        pthread_mutexattr_init(&attributes)
        // A real-time thread that logs does not wait for one that is not running.
        pthread_mutexattr_setprotocol(&attributes, Int32(PTHREAD_PRIO_INHERIT))
        pthread_mutex_init(lock, &attributes)
        pthread_mutexattr_destroy(&attributes)
        var clock = pthread_condattr_t()
        pthread_condattr_init(&clock)
        pthread_condattr_setclock(&clock, CLOCK_MONOTONIC)
        pthread_cond_init(changed, &clock)
        pthread_condattr_destroy(&clock)
    }

    deinit {
        pthread_cond_destroy(changed)
        pthread_mutex_destroy(lock)
        changed.deallocate()
        lock.deallocate()
    }

    /// Whether `descriptor` is the stream that `variable`, the value of `JOURNAL_STREAM`, names by device and inode. The variable is
    /// inherited by programs whose standard error has been redirected.
    static func isJournal(_ descriptor: Int32, _ variable: String?) -> Bool {
        guard let parts = variable?.split(separator: ":"), parts.count == 2, let device = UInt64(parts[0]),
            let inode = UInt64(parts[1]), let facts = FileFacts(of: descriptor)
        else { return false }
        return facts.device == device && facts.inode == inode
    }

    /// How it is said that lines are missing; with a line end.
    func describeDrops(by notice: @escaping @Sendable (Int) -> String) { locked { dropNotice = notice } }

    /// Has a line written, which has its line end; without waiting.
    ///
    /// - Parameter isImportant: Whether it is kept when ordinary lines are dropped already.
    public func write(_ line: String, isImportant: Bool = false) {
        locked {
            backlog.add(line.utf8, isImportant: isImportant)
            if !isStarted { isStarted = start() }
            pthread_cond_broadcast(changed)
        }
    }

    /// Waits until everything is written.
    ///
    /// - Returns: Whether it is; false when `time` was not enough.
    @discardableResult
    public func flush(within time: Duration) -> Bool {
        let deadline = Instant.now + time
        let (seconds, rest) = deadline.nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
        var limit = timespec(tv_sec: Int(seconds), tv_nsec: Int(rest))
        return locked {
            while isStarted, !backlog.isEmpty || isWriting {
                guard pthread_cond_timedwait(changed, lock, &limit) == 0 else { return false }
            }
            return true
        }
    }

    /// Ends the thread when it has written what is there; for writers that do not last as long as the process.
    public func close() {
        locked {
            isEnding = true
            dropNotice = { _ in "" }
            pthread_cond_broadcast(changed)
        }
    }

    private func locked<T>(_ body: () -> T) -> T {
        pthread_mutex_lock(lock)
        defer { pthread_mutex_unlock(lock) }
        return body()
    }

    // MARK: The thread

    private func start() -> Bool {
        // A signal to the process is for the threads that expect one.
        var all = sigset_t()
        var before = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_SETMASK, &all, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setstacksize(&attributes, 128 * 1024)
        // Not real-time, even if a real-time thread writes the first line.
        pthread_attr_setinheritsched(&attributes, Int32(PTHREAD_EXPLICIT_SCHED))
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        defer { pthread_attr_destroy(&attributes) }
        let context = Unmanaged.passRetained(self)
        var result = Self.createThread(&attributes, context)
        if result == EPERM {
            // A service that may set no scheduling (SystemCallFilter=~@resources) has no real-time thread either.
            pthread_attr_setinheritsched(&attributes, Int32(PTHREAD_INHERIT_SCHED))
            result = Self.createThread(&attributes, context)
        }
        // Without a thread lines are kept and dropped; the next line tries again.
        if result != 0 { context.release() }
        return result == 0
    }

    private static func createThread(_ attributes: inout pthread_attr_t, _ context: Unmanaged<LogWriter>) -> Int32 {
        var thread = pthread_t()
        return pthread_create(
            &thread, &attributes,
            { context in
                ptt_set_thread_name("log")
                if let context { Unmanaged<LogWriter>.fromOpaque(context).takeRetainedValue().writeAll() }
                return nil
            }, context.toOpaque())
    }

    private func writeAll() {
        while let (bytes, dropped, notice) = next() {
            // What a full disk or a broken pipe does not take is lost.
            _ = writeWhole(bytes, to: descriptor)
            if dropped > 0 { _ = writeWhole(Array(notice(dropped).utf8), to: descriptor) }
        }
    }

    private func next() -> (bytes: [UInt8], dropped: Int, notice: @Sendable (Int) -> String)? {
        locked {
            isWriting = false
            while backlog.isEmpty {
                pthread_cond_broadcast(changed)
                guard !isEnding else { return nil }
                pthread_cond_wait(changed, lock)
            }
            isWriting = true
            let (bytes, dropped) = backlog.take()
            return (bytes, dropped, dropNotice)
        }
    }
}

/// A bounded queue of lines to write. Pure. What does not fit is counted; the count stands behind the lines that were there before.
struct LineBacklog {
    /// Bytes that wait.
    static let bytesMax = 256 * 1024
    /// The part of it that is kept for warnings and errors.
    static let reservedBytes = 64 * 1024

    private var bytes: [UInt8] = []
    private var dropped = 0

    /// Whether there is nothing to write.
    var isEmpty: Bool { bytes.isEmpty && dropped == 0 }

    /// Adds a line, or counts it.
    ///
    /// - Parameter isImportant: Whether it may use the reserved part.
    mutating func add(_ line: some Collection<UInt8>, isImportant: Bool) {
        let limit = isImportant ? Self.bytesMax : Self.bytesMax - Self.reservedBytes
        if bytes.count + line.count <= limit { bytes.append(contentsOf: line) } else { dropped += 1 }
    }

    /// Takes everything out: the lines, and how many are missing after them.
    mutating func take() -> (bytes: [UInt8], dropped: Int) {
        defer { self = LineBacklog() }
        return (bytes, dropped)
    }
}

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
