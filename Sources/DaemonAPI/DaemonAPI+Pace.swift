// Begins above the rate limit, while they wait.
import DBus
import Logging
import MonotonicTime
import PTTBus
import PushToTalkCore
import Reactor

/// The begins that wait.
struct PacedBegins {
    var pace = BeginPace(caller: PTTBusLimits.begins, all: PTTBusLimits.beginsOfAll, at: .now)
    /// Resumed with whether the begin's turn has come; false: an end overtook it.
    var waiting: [BeginPace.ID: CheckedContinuation<Bool, Never>] = [:]
    var timer: EventLoop.Timer?
}

extension DaemonAPI {
    /// Returns when `caller` may begin; without a pause where it has not begun too often, and where the media are a program's: nothing of
    /// that reaches the relay, and a program that does not take its delegate's calls counts as gone.
    /// - Throws: `LimitsExceeded` when the caller has asked for the end meanwhile.
    func waitForTurn(_ use: WatchedCaller.Use, of caller: String) async throws(DBusErrorReply) {
        guard channel?.properties.media != .application else { return }
        guard let begin = begins.pace.begin(.init(caller: caller, use: use), at: .now) else { return }
        scheduleBegins()
        let isTurn = await withCheckedContinuation { begins.waiting[begin] = $0 }
        guard !isTurn else { return }
        throw .limitsExceeded(
            "ended before it began: this caller begins more than \(PTTBusLimits.begins.perSecond) times a second")
    }

    /// `caller` wants the end: its begins that wait are over.
    ///
    /// - Returns: Whether there were any.
    func endWaiting(_ use: WatchedCaller.Use, of caller: String) -> Bool {
        let over = begins.pace.end(.init(caller: caller, use: use))
        for begin in over { begins.waiting.removeValue(forKey: begin)?.resume(returning: false) }
        return !over.isEmpty
    }

    private func scheduleBegins() {
        guard begins.timer?.isPending != true, let deadline = begins.pace.nextDeadline(at: .now) else { return }
        begins.timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { api in
                for begin in api.begins.pace.takeDue(at: .now) {
                    api.begins.waiting.removeValue(forKey: begin)?.resume(returning: true)
                }
                api.scheduleBegins()
            }
        }
    }

    /// pttd ends: nobody's turn comes any more.
    func endAllWaiting() {
        begins.timer?.cancel()
        let waiting = begins.waiting
        begins = PacedBegins()
        for begin in waiting.values { begin.resume(returning: false) }
    }
}
