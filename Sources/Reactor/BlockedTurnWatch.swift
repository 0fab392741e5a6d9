// Debug builds: finds work on an event loop that waits where nothing may wait.
#if DEBUG
import CLinux
import Glibc
import Synchronization

/// The turns of one loop, as its thread tells them.
final class WatchedTurns: Sendable {
    let name: String
    /// Odd within a turn, even while the loop waits for its descriptors.
    private let number = Atomic<UInt64>(1)
    private let thread = Atomic<Int32>(0)

    init(of name: String) { self.name = name }

    /// Called on the loop's thread, once.
    fileprivate func start() {
        ptt_prepare_stacks()
        thread.store(ptt_thread_id(), ordering: .releasing)
    }

    /// The thread waits for descriptors now.
    func pass() { number.add(1, ordering: .releasing) }

    /// The thread has work.
    func begin() { number.add(1, ordering: .releasing) }

    /// The thread ends.
    func end() { thread.store(-1, ordering: .releasing) }

    /// The thread's id, and the turn that it is in; nil between turns.
    fileprivate var current: (thread: Int32, turn: UInt64)? {
        let turn = number.load(ordering: .acquiring)
        let id = thread.load(ordering: .acquiring)
        return id > 0 && turn % 2 == 1 ? (id, turn) : nil
    }

    fileprivate var hasEnded: Bool { thread.load(ordering: .acquiring) < 0 }
}

/// Reports each turn of a loop in which its thread waited in the kernel for more than 20 ms, with the thread's stack, on standard error.
///
/// It is there when the environment has `PTTD_BLOCKED_TURNS`. Tests/swift-tests sets it and fails when anything is reported. Only waiting
/// counts: a thread that computes, that waits for a processor or for a page of its program is late as well, and a busy machine does all
/// of that to code that is right.
final class BlockedTurnWatch: Sendable {
    /// The watch of this process; nil: nobody asked for it.
    static let ofProcess: BlockedTurnWatch? = getenv("PTTD_BLOCKED_TURNS") == nil ? nil : BlockedTurnWatch()

    /// A thread that is found waiting so many times in a row, in one turn, is reported.
    private static let samples = 6
    private static let interval: UInt32 = 4_000

    private let loops = Mutex<[WatchedTurns]>([])

    private init() {
        let thread = try? startThread(named: "blocked-turns") {
            while true {
                usleep(BlockedTurnWatch.interval)
                BlockedTurnWatch.ofProcess?.look()
            }
        }
        if let thread { pthread_detach(thread) }
    }

    /// Watches the loop whose thread calls this.
    func watch(_ loop: WatchedTurns) {
        loop.start()
        loops.withLock { $0.append(loop) }
    }

    // The watch's own thread from here on.
    private let found = Mutex<[ObjectIdentifier: (turn: UInt64, count: Int)]>([:])

    private func look() {
        let watched = loops.withLock { loops in
            loops.removeAll { $0.hasEnded }
            return loops
        }
        found.withLock { found in
            found = found.filter { entry in watched.contains { ObjectIdentifier($0) == entry.key } }
            for loop in watched {
                let key = ObjectIdentifier(loop)
                guard let (thread, turn) = loop.current, Self.waits(thread) else {
                    found[key] = nil
                    continue
                }
                let count = found[key].map { $0.turn == turn ? $0.count + 1 : 1 } ?? 1
                found[key] = (turn, count)
                if count == Self.samples { report(loop, thread) }
            }
        }
    }

    /// Whether the thread waits in a system call. One that waits for a page is in none (proc_pid_syscall(5)).
    private static func waits(_ thread: Int32) -> Bool {
        guard let file = fopen("/proc/self/task/\(thread)/syscall", "re") else { return false }
        defer { fclose(file) }
        var number = CChar(0)
        guard fread(&number, 1, 1, file) == 1 else { return false }
        return (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(UInt8(bitPattern: number))
    }

    private func report(_ loop: WatchedTurns, _ thread: Int32) {
        let text = "BLOCKED TURN: event loop '\(loop.name)' waits for more than 20 ms in one turn:\n"
        _ = write(STDERR_FILENO, text, text.utf8.count)
        ptt_print_stack(thread, STDERR_FILENO)
    }
}
#endif
