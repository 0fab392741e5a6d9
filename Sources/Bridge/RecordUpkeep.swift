// Decides when the record that restores the active channel is written to the disk, and when it is removed. Pure.
import MonotonicTime

/// What is to become of the restoration record, until the disk has taken it.
///
/// A disk may take its time, so nothing is kept while somebody talks. One that refuses, being full or read-only, is asked again: a
/// channel that was left does not come back after a restart because a disk was full once, and one that was joined is not lost.
public struct RecordUpkeep: Sendable {
    /// What the disk is asked for.
    public enum Step: Hashable, Sendable {
        /// Keep the record of the active channel, in place of the one before.
        case save
        /// Keep none.
        case remove
    }

    /// The pause before the next attempt after a failed write.
    public static let retryInterval = Duration.seconds(10)

    /// What is wanted and was not asked for yet.
    private var wish: Step?
    /// What the disk has been asked for and has not answered yet.
    private var asked: Step?
    /// When a disk that refused is asked again.
    public private(set) var nextDeadline: Instant?

    /// Nothing is to be done.
    public init() {}

    /// This is wanted from now on, whatever was wanted before.
    public mutating func want(_ step: Step) {
        wish = step
        nextDeadline = nil
    }

    /// What the disk is to be asked for now; nil: nothing, or not now, or it is asked already. `did` must follow.
    ///
    /// - Parameter isTalking: Whether anybody talks here or is heard.
    public mutating func due(isTalking: Bool, at now: Instant) -> Step? {
        guard asked == nil, nextDeadline.map({ $0 <= now }) ?? true, !(wish == .save && isTalking) else { return nil }
        asked = wish
        wish = nil
        nextDeadline = nil
        return asked
    }

    /// Whether something is to be done, now or later.
    public var isPending: Bool { wish != nil || asked != nil }

    /// The disk has answered. What was wanted meanwhile is due at once.
    ///
    /// - Parameter isOver: It is done, or cannot be done at all; else the disk refused.
    public mutating func did(isOver: Bool, at now: Instant) {
        defer { asked = nil }
        guard !isOver, !seededFault("a-disk-that-refused-is-not-asked-again"), wish == nil else { return }
        wish = asked
        nextDeadline = now + Self.retryInterval
    }
}
