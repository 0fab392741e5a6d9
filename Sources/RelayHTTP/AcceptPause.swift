// Back-off when a connection cannot be accepted because file descriptors or memory are used up. Pure.
import Glibc

/// A connection that cannot be accepted stays in the kernel's queue, and a listener that retried at once would be busy
/// with nothing else. So it pauses, and reports that once.
public struct AcceptPause: Sendable {
    /// What a listener does after accept(2) has failed.
    public enum Verdict: Sendable, Equatable {
        /// Accepts again when the kernel reports a connection.
        case goOn
        /// Accepts nothing for `time`. `tells`: log it, because it is the first time.
        case pause(tells: Bool)
    }

    /// How long it accepts nothing.
    public static let time: Duration = .seconds(1)

    private var isShort = false

    /// Nothing has failed yet.
    public init() {}

    /// A connection was accepted.
    public mutating func accepted() { isShort = false }

    /// accept(2) has failed with the code `code` (errno).
    public mutating func failed(_ code: Int32) -> Verdict {
        guard [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else { return .goOn }
        defer { isShort = true }
        return .pause(tells: !isShort)
    }

    /// The message for the log.
    public static let advice =
        "cannot accept a connection: file descriptors or memory are used up; raise LimitNOFILE of the service"
}
