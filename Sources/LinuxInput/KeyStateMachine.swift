// Turns evdev events into key edges. It ignores repeats, and never releases a key whose press it has not seen.
import MonotonicTime

/// A key that went down or came up.
public struct KeyEdge: Hashable, Sendable {
    /// KEY_* or BTN_* of <linux/input-event-codes.h>.
    public var code: UInt16
    /// Down, not up.
    public var isDown: Bool
    /// When the kernel saw it.
    public var time: Instant
}

/// The keys of one device that are held.
public struct KeyStateMachine: Sendable {
    /// KEY_CNT of <linux/input-event-codes.h>: codes from here on do not exist.
    static let codesCount: UInt16 = 0x300

    /// What the device sent, or what happened to it.
    public enum Event: Sendable {
        /// An EV_KEY event: 0 is up, 1 down, 2 an automatic repeat (input.txt of the kernel).
        case key(code: UInt16, value: Int32)
        /// The device is gone.
        case removed
    }

    private var held: Set<UInt16> = []

    /// Nothing is held. A key that is already down when the device is opened counts as up until it is pressed again.
    public init() {}

    /// The edges that follow from an event.
    public mutating func handle(_ event: Event, at now: Instant) -> [KeyEdge] {
        switch event {
        case .key(let code, 1) where code < Self.codesCount:
            return held.insert(code).inserted ? [KeyEdge(code: code, isDown: true, time: now)] : []
        case .key(let code, 2) where seededFault("a-repeated-key-is-a-press"):
            return handle(.key(code: code, value: 1), at: now)
        case .key(_, 1), .key(_, 2):
            return []
        // 0, and what no kernel sends: that releases as well, for nothing must stick.
        case .key(let code, _):
            return held.remove(code) != nil ? [KeyEdge(code: code, isDown: false, time: now)] : []
        case .removed:
            let edges = held.sorted().map { KeyEdge(code: $0, isDown: false, time: now) }
            held = []
            return edges
        }
    }
}
