// Deliberate faults that check the fleet simulator (Tests/Fleet). A release build contains none of them.

#if DEBUG || PTTD_SEEDED_FAULTS
/// The one fault that is active, by its name; empty: none. Only the simulator sets it, before anything runs.
public nonisolated(unsafe) var activeSeededFault = ""

/// Whether this fault is to happen.
public func seededFault(_ name: StaticString) -> Bool {
    !activeSeededFault.isEmpty && activeSeededFault == "\(name)"
}
#else
/// Never: shipped programs have no seeded faults.
@inlinable @inline(__always) public func seededFault(_ name: StaticString) -> Bool { false }
#endif
