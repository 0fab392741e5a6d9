// What to do when a connection waits and cannot be taken, because descriptors or memory have run out. Pure.
import Glibc

/// A connection that cannot be accepted stays in the kernel's queue, and a listener that is asked again at once would do nothing
/// else. So it waits a while, and says so once.
public struct AcceptPause: Sendable {
    /// What a listener does after accept(2) has failed.
    public enum Verdict: Sendable, Equatable {
        /// Asks again when the kernel says that somebody is there.
        case goOn
        /// Asks nobody for `time`; the first such time the operator is told.
        case pause(tells: Bool)
    }

    /// How long it takes nobody.
    public static let time: Duration = .seconds(1)

    private var isShort = false

    /// Nothing has failed yet.
    public init() {}

    /// Somebody was let in.
    public mutating func accepted() { isShort = false }

    /// accept(2) has failed with the code `code` (errno).
    public mutating func failed(_ code: Int32) -> Verdict {
        guard [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) else { return .goOn }
        defer { isShort = true }
        return .pause(tells: !isShort)
    }

    /// What the operator is told.
    public static let advice =
        "somebody who connects has to wait: no more files can be opened, or memory is short; raise LimitNOFILE of the service"
}
