// Faults on purpose, by which the simulator of the fleet is checked (Tests/Fleet). A release build has none of it.

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
