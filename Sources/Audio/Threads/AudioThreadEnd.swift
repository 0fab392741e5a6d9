// The end of a thread of the audio path, which nobody waits for but who has to.
import MonotonicTime
import Synchronization

/// Tells when a microphone's or a speaker's thread has closed its device and ended.
///
/// A driver or a sound server may keep the thread for as long as it wants, so no event loop waits for it.
public final class AudioThreadEnd: Sendable {
    /// How long the end takes at most when driver and server answer.
    public static let limit = Duration.seconds(3)

    private struct State {
        var hasArrived = false
        var handlers: [@Sendable () -> Void] = []
    }

    private let state = Mutex(State())

    init() {}

    /// Has `handler` called once, when the thread has ended: at once if it has, else by the thread.
    public func then(_ handler: @escaping @Sendable () -> Void) {
        let hasArrived = state.withLock { state in
            if !state.hasArrived { state.handlers.append(handler) }
            return state.hasArrived
        }
        if hasArrived { handler() }
    }

    /// Waits for the end; for threads that may wait, such as a program's main thread.
    ///
    /// - Returns: Whether the thread has ended within `limit`.
    @discardableResult
    public func wait() -> Bool {
        // Without a descriptor left nothing can be waited for; whoever needs the device finds it busy and tries again.
        guard let arrived = try? WakeDescriptor() else { return false }
        then { arrived.signal() }
        return !arrived.wait(until: .now + Self.limit)
    }

    func arrive() {
        let handlers = state.withLock { state in
            state.hasArrived = true
            defer { state.handlers = [] }
            return state.handlers
        }
        for handler in handlers { handler() }
    }
}
