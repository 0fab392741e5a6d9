// The checker is checked: a run with one fault seeded into the rules must fail.
import MonotonicTime

extension Fleet {
    /// Has the fault of this name happen from now on. Before anything runs.
    ///
    /// - Returns: False in a build without seeded faults.
    public static func seed(fault: String) -> Bool {
        #if DEBUG || PTTD_SEEDED_FAULTS
        activeSeededFault = fault
        return true
        #else
        return false
        #endif
    }
}
