// Limits floods of calls. It decides by sender and member only, before anything else of a call is read.
import Logging
import MonotonicTime
import Reactor

/// The bound on calls at work.
struct CallFloods {
    /// A call that is taken later.
    struct Kept {
        let head: DBusMessage
        let message: KeptMessage
    }

    var gate: CallGate<Kept>
    var timer: EventLoop.Timer?
    /// It is taken up in its turn, and not counted again.
    var isTakingUp = false
}

extension DBusConnection {
    /// Bounds how many calls are taken; nil ends it. What is beyond is answered with `LimitsExceeded`, and each such caller is warned of.
    public func bound(calls bound: DBusCallBound?) {
        resetCallFloods()
        callFloods = bound.map { CallFloods(gate: CallGate($0, at: .now)) }
    }

    /// Whether a call is taken now. One that is not has been answered, or is kept.
    func admitsCall(_ head: DBusMessage) -> Bool {
        guard let floods = callFloods, !floods.isTakingUp, let sender = head.sender else { return true }
        let verdict = callFloods?.gate.arrive(sender, head.member ?? "", at: .now) {
            keepCurrent().map { CallFloods.Kept(head: head, message: $0) }
        }
        switch verdict {
        case .take, nil: return true
        case .refuse: refuseFlood(head, floods.gate.bound)
        case .keep(let replaced):
            if let replaced { refuseFlood(replaced.head, floods.gate.bound) }
            scheduleCallFloods()
        }
        return false
    }

    private func refuseFlood(_ head: DBusMessage, _ bound: DBusCallBound) {
        let words = "too many calls: \(bound.caller.burst) at once and \(bound.caller.perSecond) a second are taken"
        warn("calls refused, their sender calls too often", of: head, ["perSecond": "\(bound.caller.perSecond)"])
        reply(to: head, .failure(DBusErrorReply.limitsExceeded(words)))
    }

    private func scheduleCallFloods() {
        guard callFloods?.timer?.isPending != true, let deadline = callFloods?.gate.nextDeadline(at: .now) else {
            return
        }
        callFloods?.timer = loop.schedule(at: deadline) { [weak self] in
            self?.assumeIsolated { $0.takeUpCalls() }
        }
    }

    private func takeUpCalls() {
        let current = generation
        for kept in callFloods?.gate.takeDue(at: .now) ?? [] where current == generation {
            callFloods?.isTakingUp = true
            takeUp(kept.message)
            callFloods?.isTakingUp = false
        }
        scheduleCallFloods()
    }

    /// The bus is gone, and all callers with it.
    func resetCallFloods() {
        callFloods?.timer?.cancel()
        callFloods?.timer = nil
        callFloods?.gate.reset(at: .now)
    }
}
