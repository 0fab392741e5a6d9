// A thread pool that splits one thread's work, so that it finishes sooner.
import Glibc
import Synchronization

/// A pool of sleeping threads that take shares of another thread's work.
///
/// The calling thread works, too. Each thread takes the next free share, so a pool thread that wakes late, or whose
/// processor is busy, finds fewer shares left. `perform` waits only for shares that have already started, even if the
/// kernel has suspended the thread that runs one.
public final class ThreadPool: @unchecked Sendable {
    /// Maximum number of threads in a pool.
    public static let sizeMaximum = 16

    /// Does one share of the work. It runs on several threads at once, each with a different share. A pool thread may
    /// be the last to release it.
    ///
    /// `thread` is 0 for the calling thread and 1 or more for the pool's threads. It selects what each thread needs for
    /// itself.
    public typealias Work = @Sendable (_ share: Int, _ thread: Int) -> Void

    /// Its threads.
    public let size: Int

    /// What `mutex` protects.
    private struct State {
        /// Whether somebody's work is shared.
        var isTaken = false
        /// That work, while there may be shares left.
        var work: Work?
        var shares = 0
        /// Which work it is, so that nobody begins with the same one twice.
        var round: UInt64 = 0
        /// Threads of the team that are at it.
        var busy = 0
        var isStopped = false
    }

    /// The next share that nobody has taken.
    private let next = Atomic<Int>(0)
    private var state = State()
    private var threads: [pthread_t] = []
    private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private let begun = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
    private let done = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)

    /// A pool of `size` threads.
    ///
    /// - Parameter name: What the threads are named by, with a number behind it; see `EventLoop.init(name:)`.
    /// - Throws: `SystemError` when the process may have no more threads.
    public init(name: String, size: Int) throws(SystemError) {
        precondition(1...Self.sizeMaximum ~= size, "a pool has 1 to \(Self.sizeMaximum) threads")
        self.size = size
        pthread_mutex_init(mutex, nil)
        pthread_cond_init(begun, nil)
        pthread_cond_init(done, nil)
        for number in 1...size {
            do throws(SystemError) {
                threads.append(try startThread(named: "\(name)-\(number)") { [self] in help(thread: number) })
            } catch {
                stop()
                throw error
            }
        }
    }

    deinit {
        pthread_cond_destroy(done)
        pthread_cond_destroy(begun)
        pthread_mutex_destroy(mutex)
        done.deallocate()
        begun.deallocate()
        mutex.deallocate()
    }

    /// Ends the threads, and returns when they have ended. Must be called, by one thread, or they live on; work that is shared
    /// afterwards is done by who shares it.
    public func stop() {
        pthread_mutex_lock(mutex)
        state.isStopped = true
        pthread_cond_broadcast(begun)
        pthread_mutex_unlock(mutex)
        for thread in threads { pthread_join(thread, nil) }
        threads = []
    }

    /// Has `work` done for every one of `shares` shares, in any order, and returns then. While the team has another thread's work, the
    /// caller does all.
    public func perform(_ shares: Int, _ work: @escaping Work) {
        pthread_mutex_lock(mutex)
        guard shares > 1, !state.isTaken, !state.isStopped else {
            pthread_mutex_unlock(mutex)
            for share in 0..<shares { work(share, 0) }
            return
        }
        next.store(0, ordering: .relaxed)
        (state.isTaken, state.work, state.shares) = (true, work, shares)
        state.round &+= 1
        for _ in 0..<min(size, shares - 1) { pthread_cond_signal(begun) }
        pthread_mutex_unlock(mutex)
        take(work, shares, thread: 0, from: nextShare)
        pthread_mutex_lock(mutex)
        state.work = nil
        while state.busy > 0 { pthread_cond_wait(done, mutex) }
        state.isTaken = false
        pthread_mutex_unlock(mutex)
    }

    private var nextShare: Int { next.add(1, ordering: .relaxed).oldValue }

    private func take(_ work: Work, _ shares: Int, thread: Int, from first: Int) {
        var share = first
        while share < shares {
            work(share, thread)
            share = nextShare
        }
    }

    private func help(thread: Int) {
        var round: UInt64 = 0
        pthread_mutex_lock(mutex)
        while !state.isStopped {
            guard let work = state.work, state.round != round else {
                pthread_cond_wait(begun, mutex)
                continue
            }
            round = state.round
            let shares = state.shares
            // Nobody waits for a thread that has nothing to do.
            let first = nextShare
            guard first < shares else { continue }
            state.busy += 1
            pthread_mutex_unlock(mutex)
            take(work, shares, thread: thread, from: first)
            pthread_mutex_lock(mutex)
            state.busy -= 1
            if state.busy == 0 { pthread_cond_signal(done) }
        }
        pthread_mutex_unlock(mutex)
    }
}
