// Counts failed starts in a row and delays the next one, so that a supervisor's restarts do not become a busy loop.
import Glibc

/// The pauses of a program that a supervisor starts again and again: longer and longer while it cannot start, none once it has run.
///
/// The program pauses before it ends. Its supervisor cannot know whether it ran well meanwhile: systemd counts every restart since the
/// service was started by hand (`RestartSteps=`, 254 and later), so that a program that was killed now and then would wait longest.
///
/// The count is a file in the directory that systemd keeps over restarts only (`RuntimeDirectory=`, `RuntimeDirectoryPreserve=restart`).
/// Where there is none, or it cannot be used, each failure counts as the first.
public struct FailedStarts: Sendable {
    /// The pauses after the first failure in a row, the second, and so on; the last one is for all that follow.
    public static let pauses: [Duration] = [.seconds(2), .seconds(4), .seconds(8), .seconds(16), .seconds(30)]
    static let fileName = "failed-starts"
    private static let byteCountMax = 16

    private let path: String?

    /// - Parameter directory: Where the count is kept; nil: nowhere.
    public init(directory: String?) {
        path = directory.map { "\($0)/\(Self.fileName)" }
    }

    /// Of this process, as systemd has started it.
    public static var ofService: FailedStarts {
        // Of several directories, colons between them, the first one.
        let directories = getenv("RUNTIME_DIRECTORY").map { String(cString: $0).split(separator: ":") }
        return FailedStarts(directory: directories?.first.map(String.init))
    }

    /// Whether the count is kept somewhere: a supervisor has prepared for it.
    public var isKept: Bool { path != nil }

    /// The pause after `count` failures in a row.
    static func pause(after count: Int) -> Duration { pauses[min(max(count, 1), pauses.count) - 1] }

    /// The program could not start.
    ///
    /// - Returns: How long it is to wait before it ends.
    public func failed() -> Duration {
        guard let path else { return Self.pause(after: 1) }
        let told = (try? RegularFile.read(path, byteCountMax: Self.byteCountMax)).map {
            String(decoding: $0, as: UTF8.self)
        }
        let count = min(max(told.flatMap { Int($0) } ?? 0, 0), Self.pauses.count) + 1
        // One that cannot be written (memory is short) is counted the next time.
        try? AtomicFile.write(Array("\(count)".utf8), to: path, waits: false)
        return Self.pause(after: count)
    }

    /// The program runs.
    public func succeeded() {
        if let path { unlink(path) }
    }

    /// Waits for `duration` or until one of `signals` arrives. They stay blocked in this thread.
    public static func wait(_ duration: Duration, orUntil signals: [Int32]) {
        var set = sigset_t()
        sigemptyset(&set)
        for signal in signals { sigaddset(&set, signal) }
        pthread_sigmask(SIG_BLOCK, &set, nil)
        let end = ContinuousClock.now + duration
        while true {
            let (seconds, attoseconds) = max(.zero, ContinuousClock.now.duration(to: end)).components
            var time = timespec(tv_sec: Int(seconds), tv_nsec: Int(attoseconds / 1_000_000_000))
            // The handler of another signal ends the call, and not the pause.
            guard sigtimedwait(&set, nil, &time) < 0, errno == EINTR else { return }
        }
    }
}
