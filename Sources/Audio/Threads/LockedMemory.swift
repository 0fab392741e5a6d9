// Memory of the audio path that is never paged out, as far as the process may lock it (RLIMIT_MEMLOCK, mlock(2)).
import CLinux
import Glibc
import Synchronization

/// Locks the buffers that the real-time threads touch. Each is locked for its life; freed memory is unlocked by the kernel when
/// the allocator gives it back, and is else only memory that stays resident.
public enum LockedMemory {
    private static let refusal = Atomic<Int32>(0)
    private static let locked = Atomic<Int>(0)

    /// The errno of the last refusal, 0 when nothing was refused.
    public static var error: Int32 { refusal.load(ordering: .relaxed) }
    /// Bytes that were locked since the process began.
    public static var bytes: Int { locked.load(ordering: .relaxed) }

    /// Keeps `count` bytes resident. Without permission nothing happens but a note of the reason.
    static func lock(_ start: UnsafeRawPointer, _ count: Int) {
        guard count > 0 else { return }
        if mlock(start, count) == 0 {
            locked.add(count, ordering: .relaxed)
        } else {
            refusal.store(errno, ordering: .relaxed)
        }
    }

    /// Locks all that the process has and will have, each page when it is first touched.
    ///
    /// Only without a limit: under one, the allocation that exceeds it would fail.
    /// - Returns: 0, or why not: an errno.
    public static func lockAll() -> Int32 { ptt_lock_all_memory() }
}
