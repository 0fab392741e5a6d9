// Inhibitor locks: each is a pipe whose write end the caller holds; when the last copy is closed, the read end hangs up.
import DBus
import Glibc
import PTTBus
import Reactor

/// The locks that are held. It lives on the loop that it is made for.
struct InhibitorLocks {
    private struct Lock {
        let inhibitor: Inhibitor
        let caller: String
        let readEnd: DBusDescriptor
        let watch: EventLoop.Watch
    }

    private let loop: EventLoop
    private var locks: [(number: UInt64, lock: Lock)] = []
    private var nextNumber: UInt64 = 0

    init(loop: EventLoop) { self.loop = loop }

    /// The locks in the order they were taken.
    var inhibitors: [Inhibitor] { locks.map(\.lock.inhibitor) }

    /// Takes a lock.
    ///
    /// - Parameters:
    ///   - caller: The caller's unique name.
    ///   - released: Called once on the loop when the last copy of the write end has been closed; give the number to
    ///     `remove`.
    /// - Returns: The write end.
    /// - Throws: `LimitsExceeded`, or `Failed` when this process has no descriptor left.
    mutating func take(
        _ inhibitor: Inhibitor, for caller: String, released: @escaping (UInt64) -> Void
    ) throws(DBusErrorReply) -> DBusDescriptor {
        guard locks.count < PTTBusLimits.locks else {
            throw .limitsExceeded("\(PTTBusLimits.locks) locks are held; close one")
        }
        guard locks.lazy.filter({ $0.lock.caller == caller }).count < PTTBusLimits.locksPerCaller else {
            throw .limitsExceeded("this caller holds \(PTTBusLimits.locksPerCaller) locks; close one")
        }
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else { throw .failed("no lock: \(SystemError("pipe"))") }
        let (readEnd, writeEnd) = (DBusDescriptor(owning: ends[0]), DBusDescriptor(owning: ends[1]))
        // A child with a copy would keep the lock for ever.
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        let number = nextNumber
        nextNumber += 1
        do throws(SystemError) {
            // Hanging up is always reported; what somebody writes is not looked at, and stays in the bounded pipe.
            let watch = try loop.watch(readEnd.number, for: []) { _ in released(number) }
            locks.append((number, Lock(inhibitor: inhibitor, caller: caller, readEnd: readEnd, watch: watch)))
        } catch {
            throw .failed("no lock: \(error)")
        }
        return writeEnd
    }

    /// Forgets a lock that was released.
    mutating func remove(_ number: UInt64) {
        guard let index = locks.firstIndex(where: { $0.number == number }) else { return }
        locks.remove(at: index).lock.watch.cancel()
    }

    /// Forgets all.
    mutating func removeAll() {
        for (_, lock) in locks { lock.watch.cancel() }
        locks = []
    }
}
